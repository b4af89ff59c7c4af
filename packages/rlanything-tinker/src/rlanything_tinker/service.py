"""A session with a service, and its errors in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import tinker

from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import reason_of
from rlanything.replies import key_in

REACHED_SECONDS = 20.0
"""Time limit of the first connection."""
MOST_SECONDS = 3600.0
"""Time limit of a request besides sampling: the SDK repeats some without end."""
LISTED_MODELS = 6
"""Number of the service's models that an error names."""

# Long requests are asked for every few seconds, which is no reason for a warning each time.
logging.getLogger("tinker.lib.api_future_impl").setLevel(logging.ERROR)


class ServiceError(ValueError):
    """The service failed, or refused a request; the message is one line."""


@contextmanager
def asking(role: str, doing: str) -> Iterator[None]:
    """Turns the SDK's errors inside, of any class for a reply that it does not understand, into a
    `ServiceError` that names the role and the request."""
    try:
        yield
    except Exception as error:
        if any(each.__module__.startswith("rlanything") for each in type(error).__mro__):
            raise
        # A client whose last request failed only says so; the cause is more useful.
        reason = reason_of(error.__cause__ if error.__cause__ is not None else error)
        if isinstance(error, TimeoutError):
            reason = f"no answer within {MOST_SECONDS:g} s"
        raise ServiceError(f"{role}.learner: {doing}, the service failed: {reason}") from error


@dataclass(frozen=True, slots=True)
class OpenService:
    """A session with a service for one role."""

    client: tinker.ServiceClient
    contexts: dict[str, int | None]
    """Context length in tokens of each base model that the service has; None: unknown."""


def open_service(url: str, key_variable: str, role: str) -> OpenService:
    """Opens a session for a role (its key in the recipe), with the API key from an environment
    variable. Raises `ModelError` without a usable API key, `ServiceError` if the service cannot be
    reached or refuses it."""
    key = key_in(key_variable)
    if key is None:
        raise ModelError(
            f"{role}.learner: the environment variable {key_variable} holds no key; set it to "
            f"the key for {url}"
        )
    try:  # the SDK would repeat its first request for minutes, in silence
        with httpx.stream("GET", url, timeout=REACHED_SECONDS):
            pass
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServiceError(
            f"{role}.learner.url: {url} cannot be reached ({reason_of(error)}); check the "
            "address, and that the service is running"
        ) from None
    with asking(role, f"opening a session at {url}"):
        client = tinker.ServiceClient(base_url=url, api_key=key)
        rest = tinker.RestClient(base_url=url, api_key=key)
        known: Any = rest.get_server_capabilities().result(MOST_SECONDS)
    models = {one.model_name: one.max_context_length for one in known.supported_models}
    return OpenService(client, models)


def check_model(service: OpenService, model: str, role: str) -> None:
    """Raises `ModelError` for a base model that the service does not have."""
    if model not in service.contexts:
        names = sorted(map(str, service.contexts))
        more = f" and {len(names) - LISTED_MODELS} more" if len(names) > LISTED_MODELS else ""
        raise ModelError(
            f"{role}.model: the service has no {model!r}; choose one of "
            f"{', '.join(names[:LISTED_MODELS])}{more}"
        )
