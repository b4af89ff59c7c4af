"""A domain as an ORS server (openrewardstandard.io): splits, tasks, sessions and one tool.

The tool takes the policy's whole answer, so that every domain can be offered as it is."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlanything.records import Task
from rlanything.surrogates import whole_characters
from rlanything_gyms.serving.sessions import MOST_CHARACTERS, SessionError, Sessions, SessionTurn

TOOL = "respond"
MOST_BYTES = 8 * MOST_CHARACTERS
"""Longest body of a request."""
_KINDS = {"train": "train", "tune": "validation", "in_domain": "test", "ood": "test"}
"""The standard's type of each of our splits."""
_CHUNK = 4096
"""Characters of an event: clients read events line by line, and a line must not be long."""
_PING_SECONDS = 10.0
"""Time between signs of life while a response is played; clients give up after 30."""
_TOOLS = {
    "tools": [
        {
            "name": TOOL,
            "description": "Answers the last observation, in the form that the prompt asks for.",
            "input_schema": {
                "type": "object",
                "properties": {"response": {"type": "string", "description": "The whole answer."}},
                "required": ["response"],
            },
        }
    ]
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _OfSplit(_Body):
    split: str


class _OneTask(_OfSplit):
    index: int


class _SomeTasks(_OfSplit):
    start: int | None = None
    stop: int | None = None


class _Place(BaseModel):
    """The task specification that clients send back: a place, so that answers in the task's data
    stay here."""

    model_config = ConfigDict(extra="ignore", strict=True)
    split: str
    index: int


class _Create(_Body):
    env_name: str | None = None
    task_spec: _Place | None = None
    split: str | None = None
    index: int | None = None
    secrets: dict[str, Any] | None = None
    toolset_name: str | None = None


class _Call(_Body):
    name: str
    input: dict[str, Any]
    task_id: str | None = None


T = TypeVar("T", bound=BaseModel)
_Answer = Callable[[Request], Awaitable[Response]]


class OrsServer:
    """Answers the standard's requests about one environment."""

    def __init__(self, name: str, sessions: Sessions) -> None:
        """`name`: of the environment."""
        self._name = name.lower()
        self._sessions = sessions
        self._calls: dict[str, tuple[str, asyncio.Task[str]]] = {}
        """The last call of each session, by session: a client whose connection broke asks again."""

    def app(self) -> Starlette:
        """Returns the application."""
        routes: list[tuple[str, str, _Answer]] = [
            ("GET", "/health", self._health),
            ("GET", "/list_environments", self._environments),
            ("POST", "/create_session", self._create_session),
            ("POST", "/create", self._create),
            ("POST", "/ping", self._ping),
            ("POST", "/delete", self._delete),
            ("POST", "/delete_session", self._delete),
        ]
        for inside in (f"/{self._name}", ""):  # the only environment is the default one
            routes += [
                ("GET", f"{inside}/tools", self._tools),
                ("GET", f"{inside}/task_tools", self._tools),
                ("GET", f"{inside}/splits", self._splits),
                ("POST", f"{inside}/tasks", self._all_tasks),
                ("POST", f"{inside}/num_tasks", self._num_tasks),
                ("POST", f"{inside}/task", self._task),
                ("POST", f"{inside}/task_range", self._task_range),
                ("GET", f"{inside}/prompt", self._prompt),
                ("POST", f"{inside}/call", self._call),
            ]
        return Starlette(
            routes=[Route(path, answer, methods=[method]) for method, path, answer in routes],
            exception_handlers={HTTPException: _refused, SessionError: _refused_session},
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _environments(self, _: Request) -> Response:
        return JSONResponse([self._name])

    async def _tools(self, _: Request) -> Response:
        return JSONResponse(_TOOLS)

    async def _splits(self, _: Request) -> Response:
        splits = self._sessions.tasks
        return JSONResponse([{"name": name, "type": _KINDS[name]} for name in splits])

    async def _all_tasks(self, request: Request) -> Response:
        split = (await _body(request, _OfSplit)).split
        return JSONResponse({"tasks": self._places(split), "env_name": self._name})

    async def _num_tasks(self, request: Request) -> Response:
        split = (await _body(request, _OfSplit)).split
        return JSONResponse({"num_tasks": len(self._places(split))})

    async def _task(self, request: Request) -> Response:
        asked = await _body(request, _OneTask)
        self._sessions.task(asked.split, asked.index)
        place = self._places(asked.split)[asked.index]
        return JSONResponse({"task": place, "env_name": self._name})

    async def _task_range(self, request: Request) -> Response:
        asked = await _body(request, _SomeTasks)
        places = self._places(asked.split)[asked.start : asked.stop]
        return JSONResponse({"tasks": places, "env_name": self._name})

    def _places(self, split: str) -> list[dict[str, Any]]:
        self._sessions.task(split, 0)
        return [
            {"split": split, "index": index, "id": whole_characters(task.id)}
            for index, task in enumerate(self._sessions.tasks[split])
        ]

    async def _create_session(self, _: Request) -> Response:
        name = str(uuid4())

        async def events() -> AsyncIterator[str]:
            yield _event("task_id", name)
            yield _event("end", "")

        return _stream(events())

    async def _create(self, request: Request) -> Response:
        name, asked = _session_of(request), await _body(request, _Create)
        if asked.env_name is not None and asked.env_name.lower() != self._name:
            raise HTTPException(404, f"unknown environment: this server has {self._name}")
        if asked.toolset_name is not None:
            raise HTTPException(400, "toolset_name: this server has no toolsets; leave it out")
        task = self._wanted(asked)
        await run_in_threadpool(self._sessions.open, name, task)
        return JSONResponse({"sid": name})

    def _wanted(self, asked: _Create) -> Task:
        place = asked.task_spec
        by_index = asked.split is not None and asked.index is not None
        if (place is None) != by_index:
            raise HTTPException(422, "name the task either by task_spec or by split and index")
        if place is not None:
            return self._sessions.task(place.split, place.index)
        assert asked.split is not None
        assert asked.index is not None
        return self._sessions.task(asked.split, asked.index)

    async def _ping(self, request: Request) -> Response:
        self._sessions.turn(_session_of(request))
        return JSONResponse({"status": "ok"})

    async def _delete(self, request: Request) -> Response:
        name = _session_of(request)
        self._calls.pop(name, None)
        await run_in_threadpool(self._sessions.close, name)
        return JSONResponse({"sid": name})

    async def _prompt(self, request: Request) -> Response:
        return JSONResponse(_blocks(self._sessions.turn(_session_of(request))))

    async def _call(self, request: Request) -> Response:
        name, asked = _session_of(request), await _body(request, _Call)
        self._sessions.turn(name)
        call_id, playing = self._calls.get(name, ("", None))
        if asked.task_id is None:
            call_id = uuid4().hex
            playing = asyncio.create_task(self._played(name, asked))
            self._calls[name] = (call_id, playing)
        elif playing is None or asked.task_id != call_id:
            raise HTTPException(404, "unknown task_id: call the tool again without it")
        return _stream(_result(call_id, playing))

    async def _played(self, name: str, asked: _Call) -> str:
        """Returns the result of a call as JSON."""
        response = asked.input.get("response")
        if asked.name != TOOL:
            return _failed(f"{asked.name!r:.80} is no tool: call {TOOL}")
        if set(asked.input) != {"response"} or not isinstance(response, str):
            return _failed(f"{TOOL} takes one text: {{'response': '...'}}")
        turn = await run_in_threadpool(self._sessions.respond, name, response)
        output = {
            "blocks": _blocks(turn),
            "metadata": {"valid": turn.valid, "measure": turn.measure},
            "reward": turn.reward,
            "finished": turn.over,
        }
        return json.dumps({"ok": True, "output": output}, separators=(",", ":"))


def _failed(said: str) -> str:
    return json.dumps({"ok": False, "error": said}, separators=(",", ":"))


def _blocks(turn: SessionTurn) -> list[dict[str, Any]]:
    text = whole_characters(turn.text)
    detail = None if turn.choices is None else {"choices": list(turn.choices)}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text, "detail": detail}]
    if turn.image is not None:
        data = base64.b64encode(turn.image.data).decode()
        blocks.append({"type": "image", "data": data, "mimeType": "image/png", "detail": None})
    return blocks


async def _result(call_id: str, playing: asyncio.Task[str]) -> AsyncIterator[str]:
    """Yields the events of a call's result."""
    yield _event("task_id", call_id)
    while not (await asyncio.wait({playing}, timeout=_PING_SECONDS))[0]:
        yield ": ping\r\n\r\n"
    try:
        result = playing.result()
    except Exception as fault:  # of the environment
        yield _event("error", " ".join(str(fault).split()))
        return
    for start in range(0, len(result), _CHUNK):
        part = result[start : start + _CHUNK]
        # Clients strip the beginning of an event. A space is only found within texts.
        part = part if part[0] != " " else f"\\u0020{part[1:]}"
        yield _event("end" if start + _CHUNK >= len(result) else "chunk", part)


def _event(name: str, data: str) -> str:
    return f"event: {name}\r\ndata: {data}\r\n\r\n"


def _stream(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"Cache-Control": "no-cache"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _session_of(request: Request) -> str:
    name = request.headers.get("x-session-id", "").strip()
    if not name or len(name) > 128:
        raise HTTPException(400, "the header X-Session-ID must name the session")
    return name


async def _body(request: Request, model: type[T]) -> T:
    """Returns a request's body. Raises `HTTPException`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"the request exceeds {MOST_BYTES >> 20} MiB")
    try:
        data = json.loads(body.decode())
        return model.model_validate(data)
    except ValidationError as fault:
        problem = fault.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "body"
        raise HTTPException(422, f"{key}: {problem['msg']}") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is no JSON object") from None


async def _refused(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    return JSONResponse({"detail": fault.detail}, fault.status_code)


async def _refused_session(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, SessionError)
    headers = {"Retry-After": "5"} if fault.status == 503 else None
    return JSONResponse({"detail": str(fault)}, fault.status, headers)
