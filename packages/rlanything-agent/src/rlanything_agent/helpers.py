"""Frozen models that a program may call besides the policy, each at an endpoint that speaks the
program's dialect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from starlette.responses import Response

from rlanything.domains.base import DomainError, EndpointOptions
from rlanything.replies import key_headers
from rlanything_agent.asked import Denial

_SHARE = 0.8
"""Default share of the program's time limit that one helper call may use."""


class HelperOptions(EndpointOptions):
    """A model that programs may ask, as a recipe describes it."""

    model: str | None = None
    """Name of the model at the endpoint; None: the name that programs use."""
    timeout_seconds: float | None = None
    """Time limit of one answer; None: a share of the program's time limit."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A model at an endpoint."""

    url: str
    model: str
    key_variable: str | None
    timeout_seconds: float


class Helpers:
    """The helpers of a run, by the names that programs use."""

    def __init__(self, options: Mapping[str, HelperOptions], seconds: float) -> None:
        """`seconds`: time limit between a program's requests to the policy. Raises `DomainError`
        for a helper with a longer time limit."""
        self._helpers = {
            name: _helper(name, settings, seconds) for name, settings in options.items()
        }

    @property
    def names(self) -> list[str]:
        return list(self._helpers)

    async def answer(
        self, name: str, path: str, body: Mapping[str, Any], policy: Sequence[str]
    ) -> Response:
        """Returns a helper's answer exactly as its endpoint sent it. `path`: of the request, after
        the version. Raises `Denial` for an unknown name."""
        helper = self._helpers.get(name)
        if helper is None:
            known = ", ".join([*policy, *self._helpers])
            raise Denial(
                f"there is no model {name!r}: ask {known}, or name a frozen helper in "
                "domain.options.helpers",
                "model",
                404,
                "model_not_found",
            )
        key = os.environ.get(helper.key_variable, "") if helper.key_variable else "none"
        async with openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=helper.url,
            timeout=helper.timeout_seconds,
            default_headers=key_headers(key or "none", openai.omit),
            # A redirect would send chats and key to another host.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        ) as client:
            try:
                # One limit for all retries together.
                async with asyncio.timeout(helper.timeout_seconds):
                    reply = await client.post(
                        path,
                        body={**body, "model": helper.model},
                        cast_to=openai.BaseModel,
                        options={"headers": _headers(path, key)},
                    )
            except TimeoutError:
                raise Denial(
                    f"helper {name!r}: {helper.url} did not answer within "
                    f"{helper.timeout_seconds:g} s; raise its timeout_seconds",
                    status=504,
                    code="helper_timeout",
                ) from None
            except openai.APIStatusError as error:
                if error.response.is_redirect:
                    place = error.response.headers["location"]
                    raise Denial(
                        f"helper {name!r}: {helper.url} sends requests on to {place:.200}; set its "
                        "url to where they are answered",
                        status=502,
                        code="helper_unavailable",
                    ) from None
                return Response(error.response.content, error.status_code, media_type=_JSON)
            except openai.APIConnectionError as error:
                raise Denial(
                    f"helper {name!r}: {helper.url} does not answer ({error}); see that it is up",
                    status=502,
                    code="helper_unavailable",
                ) from None
        raw: Any = reply
        return Response(raw.content, media_type=raw.headers.get("content-type", _JSON))


_JSON = "application/json"


def _headers(path: str, key: str) -> dict[str, Any]:
    raw = {"X-Stainless-Raw-Response": "true"}
    if not path.startswith("/messages"):
        return raw
    # Anthropic's API takes its key in a header of its own.
    own = {"x-api-key": key or "none", "anthropic-version": "2023-06-01"}
    return {**raw, **own, "Authorization": openai.omit}


def _helper(name: str, options: HelperOptions, seconds: float) -> Helper:
    own = _SHARE * seconds if options.timeout_seconds is None else options.timeout_seconds
    if not 0 < own < seconds:
        raise DomainError(
            f"helpers: {name}: timeout_seconds is {own!r}: give seconds above 0 and below the "
            f"{seconds:g} after which a program that waits is taken to hang "
            "(domain.options.timeout_seconds)"
        )
    return Helper(options.url, options.model or name, options.key_variable, own)
