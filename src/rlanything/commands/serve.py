"""`rlanything serve`: a judge as a service over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rlanything.commands.judge import DOMAIN, JUDGE, OVERRIDES
from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal


class ServeError(ValueError):
    """A judge cannot be served; the message is one line with the remedy."""


def serve(
    judge: JUDGE,
    overrides: OVERRIDES = None,
    domain: DOMAIN = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 for all of the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8000,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key that callers must send.")
    ] = None,
    most_waiting: Annotated[
        int, typer.Option(min=1, help="Episodes that may wait; more are refused with 429.")
    ] = 4096,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Serve a judge over HTTP: POST /judge scores every step of episodes, /docs describes it.

    Callers that wait at the same time are judged together. Stop it with Ctrl-C.
    """
    try:
        import uvicorn

        from rlanything.serving.app import judge_app
    except ImportError as missing:
        raise ServeError(
            f"serving needs {missing.name}: pip install 'rlanything[serve]'"
        ) from missing
    from rlanything.runs.judge_source import JudgeSource
    from rlanything.serving.batching import BatchingJudge

    key = None
    if key_variable is not None:
        key = os.environ.get(key_variable)
        if not key:
            raise ServeError(f"--key-variable: {key_variable} is empty: set it to the key")
    progress = Progress(Terminal(stderr=True))
    opened = JudgeSource(judge, tuple(overrides or ()), domain, allow_code).open(progress)
    with BatchingJudge(opened, most_waiting) as batching:
        config = uvicorn.Config(judge_app(judge, batching, key), host, port, log_level="warning")
        server = uvicorn.Server(config)
        listening = config.bind_socket()
        listening.listen(config.backlog)  # who reads the next line may ask at once
        progress.log(
            f"{judge} judges at http://{host}:{listening.getsockname()[1]}/judge "
            f"({'with a key' if key else 'for anybody who can reach it'}; /docs says how to ask)"
        )
        server.run([listening])
