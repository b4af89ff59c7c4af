"""An endpoint of the OpenAI chat API in a thread, which can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from rlanything.engines.base import Sampling
from rlanything.records import Message

if TYPE_CHECKING:
    from rlanything_openai.endpoint import Endpoint

MODEL = "big-model"
KEY = "sk-very-secret-4711"

SAMPLING = Sampling(0.5, 16)
HELLO = (Message("system", "Be brief."), Message("user", "Hello?"))

Respond = Callable[["Handler"], None]
"""Answers a request in place of the model."""


@dataclass
class FakeEndpoint:
    """An endpoint's answers to give, and the requests that it got."""

    say: Callable[[dict[str, Any]], str | None] = lambda body: "Hello."
    """The content for a request's body."""
    faults: deque[Respond] = field(default_factory=deque)
    """Met by the next requests, one each."""
    finish_reason: str = "stop"
    delay_seconds: float = 0.0
    """Before every answer."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    most_at_once: int = 0
    under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""
    paths: tuple[str, ...] = ("/v1/chat/completions",)

    @property
    def requests(self) -> int:
        return len(self.bodies)

    def answer(self, handler: Handler, body: dict[str, Any]) -> None:
        with self.lock:
            self.bodies.append(body)
            self.keys.append(handler.headers["Authorization"])
            self.headers.append(dict(handler.headers))
            self.times.append(time.monotonic())
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
            fault = self.faults.popleft() if self.faults else None
        time.sleep(self.delay_seconds)
        with self.lock:  # before the answer, at which the next request may come
            self.under_way -= 1
        if fault is not None:
            fault(handler)
        elif body["model"] != MODEL:
            wrong_model(handler)
        else:
            handler.reply(200, json.dumps(self.completion(body)))

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.say(body), "reasoning_content": "Hm. No."}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }


class Handler(BaseHTTPRequestHandler):
    endpoint: FakeEndpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path in self.endpoint.paths:
            self.endpoint.answer(self, body)
        else:
            self.reply(404, '{"detail": "Not Found"}')

    def reply(self, status: int, text: str, **headers: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the game."""


@contextmanager
def fake_endpoint() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"endpoint": endpoint}))
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()


def status(number: int, message: str = "no luck", **headers: str) -> Respond:
    text = json.dumps({"error": {"message": message, "type": "t", "param": None, "code": None}})
    return lambda handler: handler.reply(number, text, **headers)


wrong_model = status(404, "The model `small-model` does not exist.")


def text(content: str) -> Respond:
    """A body of one's own, said to be well."""
    return lambda handler: handler.reply(200, content)


def hang(handler: Handler) -> None:
    time.sleep(5)


def dribble(handler: Handler) -> None:
    """A byte now and then, so that no pause is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(50):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def drop(handler: Handler) -> None:
    """Hangs up without a word."""
    handler.close_connection = True
    handler.connection.shutdown(2)


def half(handler: Handler) -> None:
    """Hangs up in the middle of its answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message"')
    handler.close_connection = True


def open_endpoint(
    fake: FakeEndpoint, model: str = MODEL, seconds: float = 60.0, **settings: Any
) -> Endpoint:
    """A way to it whose tries take half a second at most; `seconds` limits all of them."""
    from rlanything_openai.config import OpenAIEngineConfig
    from rlanything_openai.endpoint import Endpoint

    given = {"name": "openai", "url": fake.url, "key_variable": "MY_KEY", "timeout_seconds": 0.5}
    config = OpenAIEngineConfig.model_validate({**given, **settings})
    return Endpoint("adapter", model, config, seconds)


def refused(endpoint: Endpoint) -> str:
    """The one line of a request that fails for good."""
    from rlanything_openai.endpoint import EndpointError

    with pytest.raises(EndpointError) as caught:
        endpoint.ask([(HELLO, 1)], SAMPLING)
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith("adapter: http://127.0.0.1:")
    assert KEY not in line
    return line
