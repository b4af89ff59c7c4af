"""Answers by which a server could keep its client waiting, fill its memory or crash it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler

Respond = Callable[[BaseHTTPRequestHandler], None]
"""Answers a request."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
IN_CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def raw(data: bytes) -> Respond:
    """Answers with these bytes, status line and headers included, and hangs up."""
    return slowly([data], 0)


def body(data: bytes, head: bytes = HEAD) -> Respond:
    return raw(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)


def slowly(pieces: Iterable[bytes], seconds: float) -> Respond:
    """Answers piece by piece, with a pause after each."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(seconds)

    return respond


def endlessly(begin: bytes, piece: bytes) -> Respond:
    """Answers with this beginning and the piece over and over, until the client hangs up."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while True:
            handler.wfile.write(piece)

    return respond


def redirect(status: int, location: str) -> Respond:
    head = f"HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    return raw(head.encode("latin-1"))


# Pauses shorter than any limit of one read; all together far longer than a test's limit.
SLOW: dict[str, Respond] = {
    "a byte of the body now and then": slowly([HEAD + b"\r\n", *[b" "] * 60], 0.05),
    "a header now and then": slowly([HEAD, *[b"X: y\r\n"] * 60], 0.05),
    "continue for ever": slowly([b"HTTP/1.1 100 Continue\r\n\r\n"] * 60, 0.05),
    "a chunk now and then": slowly([IN_CHUNKS, *[b"1\r\n \r\n"] * 60], 0.05),
}
ENDLESS: dict[str, Respond] = {
    "endless body": endlessly(HEAD + b"\r\n", b" " * 2**16),
    "endless chunks": endlessly(IN_CHUNKS, b"a\r\n0123456789\r\n"),
    "endless header": endlessly(HEAD + b"X: ", b"y" * 2**16),
    "endless headers": endlessly(HEAD, b"X: y\r\n" * 100),
}
NO_ANSWER: dict[str, Respond] = {
    "200 000 brackets": body(b"[" * 200_000),
    "20 000 brackets": body(b"[" * 20_000),
    "20 000 objects": body(b'{"a":' * 20_000),
    "a number of 5 000 digits": body(b"9" * 5_000),
    "half a UTF-8 character": body(b'{"a": "\xc3'),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "status 999999": raw(b"HTTP/1.1 999999 x\r\n\r\n"),
    "negative length": raw(HEAD + b"Content-Length: -1\r\n\r\n{}"),
    "length of no number": raw(HEAD + b"Content-Length: many\r\n\r\n[]"),
    "chunk of no size": raw(IN_CHUNKS + b"zz\r\n"),
    "chunk of negative size": raw(IN_CHUNKS + b"-5\r\nabc"),
    "no gzip": body(b"abc", HEAD + b"Content-Encoding: gzip\r\n"),
    "unknown character set": body(b"[]", b"HTTP/1.1 200 OK\r\nContent-Type: a/b; charset=hex\r\n"),
}
