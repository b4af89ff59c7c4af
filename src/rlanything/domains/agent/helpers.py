"""Frozen models that a program may ask beside the policy, each at an OpenAI endpoint."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from starlette.responses import Response

from rlanything.domains.agent.reading import Denial
from rlanything.domains.base import DomainError, EndpointOptions

_SHARE = 0.8
"""How much of what its program may take a helper may, where nothing else is said."""


class HelperOptions(EndpointOptions):
    """A model that programs may ask, as a recipe describes it."""

    model: str | None = None
    """The endpoint's name of the model; None: the name that programs call it by."""
    timeout_seconds: float | None = None
    """Limit of one answer; None: a share of what the program may take."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A model at an endpoint."""

    url: str
    model: str
    key_variable: str | None
    timeout_seconds: float


class Helpers:
    """The helpers of a run, by the names that programs call them."""

    def __init__(self, options: Mapping[str, HelperOptions], seconds: float) -> None:
        """`seconds`: what a program may take between two requests to the policy. Raises
        `DomainError` for one that may take longer."""
        self._helpers = {
            name: _helper(name, settings, seconds) for name, settings in options.items()
        }

    @property
    def names(self) -> list[str]:
        return list(self._helpers)

    async def answer(self, name: str, body: Mapping[str, Any], policy: Sequence[str]) -> Response:
        """Returns what a helper answers, as its endpoint says it. Raises `Denial` for a name that
        is none's."""
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
            api_key=key or "none", base_url=helper.url, timeout=helper.timeout_seconds
        ) as client:
            try:
                # All tries together, and not each of them.
                async with asyncio.timeout(helper.timeout_seconds):
                    reply = await client.post(
                        "/chat/completions",
                        body={**body, "model": helper.model},
                        cast_to=openai.BaseModel,
                        options={"headers": {"X-Stainless-Raw-Response": "true"}},
                    )
            except TimeoutError:
                raise Denial(
                    f"helper {name!r}: {helper.url} did not answer within "
                    f"{helper.timeout_seconds:g} s; raise its timeout_seconds",
                    status=504,
                    code="helper_timeout",
                ) from None
            except openai.APIStatusError as error:
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


def _helper(name: str, options: HelperOptions, seconds: float) -> Helper:
    own = _SHARE * seconds if options.timeout_seconds is None else options.timeout_seconds
    if not 0 < own < seconds:
        raise DomainError(
            f"helpers: {name}: timeout_seconds is {own!r}: give seconds above 0 and below the "
            f"{seconds:g} after which a program that waits is taken to hang "
            "(domain.options.timeout_seconds)"
        )
    return Helper(options.url, options.model or name, options.key_variable, own)
