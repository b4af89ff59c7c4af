"""The HTTP side of a judge that is a service."""

from __future__ import annotations

import asyncio
import hmac
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlanything.serving.batching import BatchingJudge, BusyError
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

MOST_BYTES = 64 << 20
"""Of a request's body."""


def judge_app(
    name: str, judge: BatchingJudge, key: str | None, learning: LearningJudge | None = None
) -> FastAPI:
    """Returns the application: `POST /judge` and `/outcomes`, `GET /health`, and its own
    description at `/docs`.

    `name`: the judge's; `key`: what callers must send as `Authorization: Bearer`, None: nothing;
    `learning`: the judge that learns from outcomes, None: there is none."""
    app = FastAPI(
        title="rlanything judge",
        version=__version__,
        description="Scores every step of an episode with reasons (RLAnything, arXiv 2602.02488).",
    )

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, fault: RequestValidationError) -> JSONResponse:
        # without what was sent: it may be a number or half a character that JSON has no form for
        detail = [{key: error[key] for key in ("type", "loc", "msg")} for error in fault.errors()]
        return JSONResponse({"detail": detail}, 422)

    def known(authorization: Annotated[str | None, Header()] = None) -> None:
        if key is not None and not hmac.compare_digest(
            (authorization or "").encode(), f"Bearer {key}".encode()
        ):
            raise HTTPException(401, "this judge wants a key: send `Authorization: Bearer KEY`")

    @app.get("/health")
    def health() -> Health:
        """Says that the service answers, and what it has done so far."""
        return Health(
            judge=name,
            trajectories=judge.trajectories,
            judgements=judge.judgements,
            unreadable=judge.unreadable,
            waiting=judge.waiting,
            updates=None if learning is None else learning.updates,
        )

    @app.post("/judge", dependencies=[Depends(known)])
    async def judge_steps(request: JudgeRequest) -> JudgeAnswer:
        """Scores every step of the episodes."""
        trajectories = [episode.to_trajectory() for episode in request.trajectories]
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

    @app.post("/outcomes", dependencies=[Depends(known)])
    def take_outcomes(request: OutcomesRequest) -> OutcomesAnswer:
        """Takes the outcomes of episodes that were judged; where they are enough for an update of
        the judge, it is made before the answer."""
        if learning is None:
            raise HTTPException(409, "this judge does not learn: serve it with --learn")
        try:
            taken = learning.take({each.id: each.outcome for each in request.outcomes})
        except Exception as fault:  # whatever learner or disk raise
            reason = one_line(str(fault)) or type(fault).__name__
            raise HTTPException(500, f"the judge could not be updated ({reason})") from fault
        return OutcomesAnswer(unknown=taken.unknown, waiting=taken.waiting, updates=taken.updates)

    app.add_middleware(Limited)
    return app


class Limited:
    """Ends requests whose body is larger than `MOST_BYTES`, before it is all in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BYTES:
                raise HTTPException(
                    413, f"a request has at most {MOST_BYTES >> 20} MiB: send fewer episodes"
                )
            return message

        await self._app(scope, counted, send)
