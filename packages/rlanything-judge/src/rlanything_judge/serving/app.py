"""HTTP endpoints of a served judge."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.terminal import one_line
from rlanything.version import __version__
from rlanything_judge.serving.batching import BatchingJudge, BusyError
from rlanything_judge.serving.bodies import Bodies
from rlanything_judge.serving.guard import Guard
from rlanything_judge.serving.learning import LearningJudge
from rlanything_judge.serving.messages import (
    Health,
    JudgeAnswer,
    JudgeRequest,
    OutcomesAnswer,
    OutcomesRequest,
)
from rlanything_judge.serving.verify import to_verify, verified

MOST_BYTES = 64 << 20
"""Longest body of a request with episodes."""
MOST_OUTCOME_BYTES = 1 << 20
"""Longest body of a request with outcomes."""
_PAGE = """\
rlanything judge {name}: scores every step of an episode, with reasons.

POST /judge         {{"trajectories": [{{"task": "t1", "trajectory": "a", "instruction": "...",
                    "steps": [{{"observation": "...", "response": "...",
                    "next_observation": "..."}}]}}], "seed": 0}}
POST /verify        a rollout as NeMo Gym sends it to a resources server: its reward is the mean
                    of its steps' rewards, from -1 to 1
POST /outcomes      {{"outcomes": [{{"task": "t1", "trajectory": "a", "outcome": 1}}]}}
                    1 or -1, for a judge that is served with --learn
GET /health         work done so far
GET /openapi.json   schema of requests and answers

Bodies are application/json.{key}
"""


def judge_app(
    name: str,
    judge: BatchingJudge,
    key: str | None,
    learning: LearningJudge | None = None,
    local: bool = False,
) -> FastAPI:
    """Returns the application: `POST /judge`, `/verify` and `/outcomes`, `GET /health`, and its
    own description at `/docs` and `/openapi.json`.

    `name`: the judge's name; `key`: key that callers must send as `Authorization: Bearer` (None:
    none needed); `learning`: the judge that learns from outcomes (None: it does not learn);
    `local`: only accept requests that address this machine by a loopback name."""
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
        # Without the input: it may hold a number or half a character that JSON cannot express.
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
        """Says that the service is up, and what it has done so far."""
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
        names = {(trajectory.task.id, trajectory.id) for trajectory in trajectories}
        if learning is not None and len(names) < len(trajectories):
            raise HTTPException(
                422,
                "two episodes have the same task and trajectory, so outcomes would be ambiguous: "
                "rename one",
            )
        return JudgeAnswer.of(request.trajectories, await judged(trajectories, request.seed))

    async def judged(trajectories: Sequence[Trajectory], seed: int) -> list[JudgedTrajectory]:
        try:
            return await asyncio.wrap_future(judge.ask(trajectories, seed))
        except BusyError:
            raise HTTPException(
                429, "too many episodes are waiting: try again later", {"Retry-After": "5"}
            ) from None
        except Exception as fault:  # from the judge's model or prompts
            reason = one_line(str(fault)) or type(fault).__name__
            raise HTTPException(500, f"these episodes could not be judged ({reason})") from fault

    @app.post("/seed_session")
    async def seed_session() -> dict[str, Any]:
        """Begins an episode of NeMo Gym: a judge has nothing to prepare."""
        return {}

    @app.post("/verify")
    async def verify(sent: Request) -> Response:
        """Scores a rollout of NeMo Gym: `responses_create_params` with its `response`. They come
        back with `reward`, the mean of `step_rewards`."""
        record, trajectory = await bodies.read(sent, MOST_BYTES, to_verify)
        [result] = await judged([trajectory], 0)
        return Response(verified(record, result), media_type="application/json")

    @app.post("/outcomes", openapi_extra=_body(OutcomesRequest))
    async def take_outcomes(sent: Request) -> OutcomesAnswer:
        """Takes the outcomes of judged episodes. Once there are enough of them, the judge is
        updated before this call answers."""
        request = await bodies.read(sent, MOST_OUTCOME_BYTES, OutcomesRequest.model_validate)
        if learning is None:
            raise HTTPException(409, "this judge does not learn: serve it with --learn")
        try:
            taken = await run_in_threadpool(learning.take, request.by_episode())
        except Exception as fault:  # from the learner or the disk
            reason = one_line(str(fault)) or type(fault).__name__
            raise HTTPException(500, f"the judge could not be updated ({reason})") from fault
        return OutcomesAnswer(unknown=taken.unknown, waiting=taken.waiting, updates=taken.updates)

    app.add_middleware(Guard, key=key, local=local)
    return app


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the OpenAPI description of a route's request body."""
    schema = model.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, named: Mapping[str, Any]) -> Any:
    """Returns a schema with references replaced by what they name."""
    if isinstance(schema, list):
        return [_inlined(member, named) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(name := schema.get("$ref"), str):
        return _inlined(named[name.rpartition("/")[2]], named)
    return {key: _inlined(value, named) for key, value in schema.items()}
