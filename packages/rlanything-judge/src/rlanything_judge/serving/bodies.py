"""The bodies of requests: limited in size, time and number of values, and parsed in a thread."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

T = TypeVar("T")

BODY_SECONDS = 120.0
"""Time limit for a whole body to arrive."""
MOST_TOKENS = 1 << 19
"""Limit of texts, keys, objects, lists and commas in a body: about 50,000 steps."""
MOST_HELD = 256 << 20
"""Limit in bytes of all bodies that are being read at the same time."""
SMALL = 1 << 16
"""Bytes up to which a body is parsed without a thread."""
_TOKEN = re.compile(rb'[^",\[{]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]|\Z)', re.DOTALL)
"""A text, or the character before a value or key; their count bounds the number of values."""


class Bodies:
    """Reads bodies within limits, so that one caller cannot block the others."""

    def __init__(self) -> None:
        self._held = 0
        self._parser = ThreadPoolExecutor(1, "parser")

    async def read(self, request: Request, most_bytes: int, parse: Callable[[Any], T]) -> T:
        """Returns `parse` of a JSON body. Raises `HTTPException` for a body that is too large or
        too slow, and `RequestValidationError` for one that `parse` rejects."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    self._held += len(part)
                    if len(body) > most_bytes:
                        limit = f"the limit of {most_bytes >> 20} MiB: send fewer episodes"
                        raise HTTPException(413, f"the request exceeds {limit}")
                    if self._held > MOST_HELD:
                        later = {"Retry-After": "5"}
                        raise HTTPException(503, "the service is overloaded: try later", later)
            if len(body) <= SMALL:
                return _parsed(bytes(body), request, parse)
            running = asyncio.get_running_loop()
            return await running.run_in_executor(self._parser, _parsed, bytes(body), request, parse)
        except TimeoutError:
            raise HTTPException(408, f"the body took more than {BODY_SECONDS:g} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the body ends too early") from None
        finally:
            self._held -= len(body)


def _parsed(body: bytes, request: Request, parse: Callable[[Any], T]) -> T:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form on a web page cannot send this unasked
        raise _refusal("content_type", "send it as application/json")
    tokens = sum(1 for _ in islice(_TOKEN.finditer(body), MOST_TOKENS + 1))
    if tokens > MOST_TOKENS:  # checked before parsing, which would create an object for each
        raise _refusal("too_large", "too many steps or values in one request: send fewer episodes")
    try:
        data = json.loads(body.decode())
    except RecursionError:
        raise _refusal("json_invalid", "nested too deeply") from None
    except ValueError as fault:  # bad syntax, bad UTF-8, or a number with too many digits
        raise _refusal("json_invalid", f"not JSON: {fault}") from None
    try:
        return parse(data)
    except ValidationError as fault:
        errors = fault.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**error, "loc": ("body", *error["loc"])} for error in errors[:8]]
        ) from None


def _refusal(kind: str, said: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body",), "msg": said}])
