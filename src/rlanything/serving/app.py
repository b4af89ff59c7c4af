"""The HTTP side of a judge that is a service."""

from __future__ import annotations

import asyncio
import hmac
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlanything.serving.batching import BatchingJudge, BusyError
from rlanything.serving.messages import Health, JudgeAnswer, JudgeRequest
from rlanything.terminal import one_line
from rlanything.version import __version__

MOST_BYTES = 64 << 20
"""Of a request's body."""


def judge_app(name: str, judge: BatchingJudge, key: str | None) -> FastAPI:
    """Returns the application: `POST /judge`, `GET /health`, and its own description at `/docs`.

    `name`: the judge's; `key`: what callers must send as `Authorization: Bearer`, None: nothing."""
    app = FastAPI(
        title="rlanything judge",
        version=__version__,
        description="Scores every step of an episode with reasons (RLAnything, arXiv 2602.02488).",
    )

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
