"""The HTTP side of a judge that is a service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from rlanything.records import Trajectory
from rlanything.serving.batching import BatchingJudge, BusyError
from rlanything.serving.bodies import Bodies
from rlanything.serving.guard import Guard
from rlanything.serving.learning import LearningJudge
from rlanything.serving.messages import (
    Health,
    JudgeAnswer,
    JudgeRequest,
    OutcomesAnswer,
    OutcomesRequest,
)
from rlanything.terminal import one_line
from rlanything.version import __version__

MOST_BYTES, MOST_OUTCOME_BYTES = 64 << 20, 1 << 20
"""Longest body of a request with episodes, and of one with outcomes."""
_PAGE = """\
rlanything judge {name}: scores every step of an episode, with reasons.

POST /judge         {{"trajectories": [{{"task": "t1", "trajectory": "a", "instruction": "...",
                    "steps": [{{"observation": "...", "response": "...",
                    "next_observation": "..."}}]}}], "seed": 0}}
POST /outcomes      {{"outcomes": [{{"task": "t1", "trajectory": "a", "outcome": 1}}]}}
                    1 or -1, for a judge that is served with --learn
GET /health         what was done so far
GET /openapi.json   all of it as a schema

Bodies are application/json.{key}
"""


def judge_app(
    name: str,
    judge: BatchingJudge,
    key: str | None,
    learning: LearningJudge | None = None,
    local: bool = False,
) -> FastAPI:
    """Returns the application: `POST /judge` and `/outcomes`, `GET /health`, and its own
    description at `/docs` and `/openapi.json`.

    `name`: the judge's; `key`: what callers must send as `Authorization: Bearer`, None: nothing;
    `learning`: the judge that learns from outcomes, None: there is none; `local`: whether it is
    asked as this machine alone, by a loopback address."""
    app = FastAPI(
        title="rlanything judge",
        version=__version__,
        description="Scores every step of an episode with reasons (RLAnything, arXiv 2602.02488).",
        docs_url=None,  # it would load its scripts from the internet
        redoc_url=None,
    )
    bodies = Bodies()

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, fault: RequestValidationError) -> JSONResponse:
        # without what was sent: it may be a number or half a character that JSON has no form for
        detail = [{key: error[key] for key in ("type", "loc", "msg")} for error in fault.errors()]
        return JSONResponse({"detail": detail}, 422)

    @app.get("/", include_in_schema=False)
    async def begin() -> PlainTextResponse:
        return PlainTextResponse("rlanything judge: POST /judge; /docs says how to ask\n")

    @app.get("/docs", include_in_schema=False)
    async def describe() -> PlainTextResponse:
        with_key = "" if key is None else " POST needs the header `Authorization: Bearer KEY`."
        return PlainTextResponse(_PAGE.format(name=one_line(name), key=with_key))

    @app.get("/health")
    async def health() -> Health:
        """Says that the service answers, and what it has done so far."""
        return Health(
            judge=name,
            trajectories=judge.trajectories,
            judgements=judge.judgements,
            unreadable=judge.unreadable,
            waiting=judge.waiting,
            updates=None if learning is None else learning.updates,
        )

    def asked(data: Any) -> tuple[JudgeRequest, Sequence[Trajectory]]:
        request = JudgeRequest.model_validate(data)
        return request, [episode.to_trajectory() for episode in request.trajectories]

    @app.post("/judge", openapi_extra=_body(JudgeRequest))
    async def judge_steps(sent: Request) -> JudgeAnswer:
        """Scores every step of the episodes."""
        request, trajectories = await bodies.read(sent, MOST_BYTES, asked)
        names = {(each.task.id, each.id) for each in trajectories}
        if learning is not None and len(names) < len(trajectories):
            raise HTTPException(
                422, "two episodes have the same task and trajectory: outcomes could not tell them"
            )
        try:
            judged = await asyncio.wrap_future(judge.ask(trajectories, request.seed))
        except BusyError:
            raise HTTPException(
                429, "too many episodes wait: try again later", {"Retry-After": "5"}
            ) from None
        except Exception as fault:  # whatever the judge's model or prompts raise
            reason = one_line(str(fault)) or type(fault).__name__
            raise HTTPException(500, f"these episodes could not be judged ({reason})") from fault
        return JudgeAnswer.of(request.trajectories, judged)

    @app.post("/outcomes", openapi_extra=_body(OutcomesRequest))
    async def take_outcomes(sent: Request) -> OutcomesAnswer:
        """Takes the outcomes of episodes that were judged; where they are enough for an update of
        the judge, it is made before the answer."""
        request = await bodies.read(sent, MOST_OUTCOME_BYTES, OutcomesRequest.model_validate)
        if learning is None:
            raise HTTPException(409, "this judge does not learn: serve it with --learn")
        try:
            taken = await run_in_threadpool(learning.take, request.by_episode())
        except Exception as fault:  # whatever learner or disk raise
            reason = one_line(str(fault)) or type(fault).__name__
            raise HTTPException(500, f"the judge could not be updated ({reason})") from fault
        return OutcomesAnswer(unknown=taken.unknown, waiting=taken.waiting, updates=taken.updates)

    app.add_middleware(Guard, key=key, local=local)
    return app


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the part of a route's description that says what is sent to it."""
    schema = model.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, named: Mapping[str, Any]) -> Any:
    """Returns a schema with its parts in the place of their names."""
    if isinstance(schema, list):
        return [_inlined(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(name := schema.get("$ref"), str):
        return _inlined(named[name.rpartition("/")[2]], named)
    return {key: _inlined(value, named) for key, value in schema.items()}
