"""Requests to servers of tools, each limited in time and size."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from rlanything.domains.base import DomainError

MOST_BYTES = 8 << 20
"""Largest answer of a server."""
_LOST = (404, 410, 502, 503, 504)
"""Statuses of a session or a server that is gone, whatever was asked."""


class HttpFault(RuntimeError):
    """A server that failed; one line with the remedy. `gone`: whether the server or the session is
    gone, so that no request can be to blame."""

    def __init__(self, said: str, gone: bool = False) -> None:
        super().__init__(said)
        self.gone = gone


class RefusedRequest(HttpFault):
    """A request that the server answered with an error. `status`: the answer's; `body`: its
    text."""

    def __init__(self, said: str, status: int, body: str) -> None:
        super().__init__(said, gone=status in _LOST)
        self.status, self.body = status, body


class HttpServer:
    """A server that answers with JSON."""

    def __init__(self, standard: str, url: str, headers: Mapping[str, str], seconds: float) -> None:
        """`standard`: the name for messages; `seconds`: limit of one whole answer."""
        self.place = f"the {standard} server at {url}"
        self.seconds = seconds
        # Compressed, a few bytes of an answer could be gigabytes.
        sent = {"Accept-Encoding": "identity", **headers}
        self._client = httpx.Client(base_url=url, headers=sent, timeout=seconds)

    def forget(self) -> None:
        """Forgets the cookies of the last session."""
        self._client.cookies.clear()

    def limit(self) -> float:
        """Returns the time at which requests that begin now must be done."""
        return time.monotonic() + self.seconds

    def close(self) -> None:
        self._client.close()

    def json(
        self, method: str, path: str, body: Any = None, headers: Any = None, until: float = 0.0
    ) -> Any:
        """Returns the JSON of an answer. `until`: see `parts`. Raises `HttpFault`."""
        text = b"".join(self.parts(method, path, body, headers, until))
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise HttpFault(
                f"{self.place} answers {path} with no JSON ({text[:80]!r}): fix it, or "
                "domain.options.url"
            ) from None

    def parts(
        self, method: str, path: str, body: Any = None, headers: Any = None, until: float = 0.0
    ) -> Iterator[bytes]:
        """Yields the parts of an answer as they come. `until`: the time at which it must be whole;
        0: after this server's limit. Raises `HttpFault`."""
        until = until or self.limit()
        count = 0
        left = max(0.1, until - time.monotonic())
        asking = self._client.stream(method, path, json=body, headers=headers, timeout=left)
        try:
            with asking as answer:
                if answer.status_code >= 400:
                    raise self._refusal(path, answer, until)
                for part in answer.iter_raw():
                    count += len(part)
                    if count > MOST_BYTES:
                        raise HttpFault(
                            f"{self.place} answers {path} with more than {MOST_BYTES >> 20} MiB: "
                            "let it answer less"
                        )
                    if time.monotonic() > until:
                        raise self._late(path)
                    yield part
        except httpx.TimeoutException:
            raise self._late(path) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
            said = " ".join(f"{type(fault).__name__}: {fault}".split())[:200]
            raise HttpFault(
                f"{self.place} does not answer {path} ({said}): start it, or fix "
                "domain.options.url",
                gone=not isinstance(fault, httpx.RemoteProtocolError),
            ) from None

    def healthy(self, path: str) -> bool:
        """Whether the server still answers requests, even with an error."""
        try:
            for _ in self.parts("GET", path, until=time.monotonic() + min(5.0, self.seconds)):
                return True
        except RefusedRequest as refused:
            return not refused.gone or refused.status == 404
        except HttpFault:
            return False
        return True

    def _late(self, path: str) -> HttpFault:
        return HttpFault(
            f"{self.place} gave no whole answer to {path} within {self.seconds:g} s: see to it, or "
            "raise domain.options.timeout_seconds"
        )

    def _refusal(self, path: str, answer: httpx.Response, until: float) -> RefusedRequest:
        body = b""
        for part in answer.iter_raw():
            body += part
            if len(body) > 2000 or time.monotonic() > until:
                break
        text = body[:2000].decode(errors="replace")
        said = " ".join(text.split())[:200]
        return RefusedRequest(
            f"{self.place} refuses {path} ({answer.status_code}: {said}): fix domain.options, or "
            "the server",
            answer.status_code,
            text,
        )


def checked_url(url: str) -> str:
    """Returns the address of a server. Raises `DomainError` for anything else."""
    try:
        address = urlsplit(url)
        fits = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:
        fits = False
    if not fits:
        raise DomainError(f"url is {url!r:.80}: write one such as http://localhost:8080")
    return url.rstrip("/")
