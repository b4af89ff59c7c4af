"""`rlanything serve`: serves a judge over HTTP."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.eval import ROLE
from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.serving.address import ServeError, bound, is_loopback, key_of
from rlanything.terminal import Terminal
from rlanything_judge.commands.judge import DOMAIN, JUDGE, OVERRIDES


def serve(
    judge: JUDGE,
    overrides: OVERRIDES = None,
    domain: DOMAIN = None,
    role: ROLE = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 for the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free port.")] = 8000,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key that callers must send.")
    ] = None,
    most_waiting: Annotated[
        int, typer.Option(min=1, help="Episodes that may wait; more are refused with 429.")
    ] = 4096,
    learn: Annotated[
        bool, typer.Option("--learn", help="Take outcomes back, and update the judge with them.")
    ] = False,
    learn_every: Annotated[
        int, typer.Option(min=1, help="Number of episodes with outcomes per update.")
    ] = 64,
    out: Annotated[
        Path | None,
        typer.Option(help="A new directory for a judge that learns; not needed to continue one."),
    ] = None,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Serve a judge over HTTP: POST /judge scores every step of episodes, /docs describes it.

    Concurrent callers with the same seed are judged in one batch. With --learn, POST /outcomes
    takes the outcomes of judged episodes and updates the judge; the same command on its directory
    continues from the last update. Stop it with Ctrl-C.
    """
    import uvicorn

    from rlanything_judge.learning import open_learning_judge
    from rlanything_judge.serving.app import judge_app
    from rlanything_judge.serving.batching import BatchingJudge
    from rlanything_judge.serving.connections import LimitedConnection
    from rlanything_judge.serving.learning import LearningJudge
    from rlanything_judge.source import JudgeSource

    key = key_of(key_variable)
    if out is not None and not learn:
        raise ServeError("--out: only a judge that learns is saved; add --learn, or leave it out")
    progress = Progress(Terminal(stderr=True))
    source = JudgeSource(judge, tuple(overrides or ()), domain, allow_code, role)
    with ExitStack() as stack:
        listening = stack.enter_context(bound(host, port))  # before a model is loaded
        local = is_loopback(listening.getsockname()[0])
        if not local and key is None:
            _refuse_or_warn(host, learn, progress)
        learning = None
        if learn:
            run = stack.enter_context(open_learning_judge(source, out, progress))
            learning = LearningJudge(run, learn_every, progress.log)
            progress.log(f"{run.directory} keeps what it learns, after {run.updates} updates")
        opened = source.open(progress) if learning is None else learning
        batching = stack.enter_context(BatchingJudge(opened, most_waiting))
        app = judge_app(judge, batching, key, learning, local)
        config = uvicorn.Config(app, http=LimitedConnection, ws="none", log_level="warning")
        server = uvicorn.Server(config)
        listening.listen(server.config.backlog)  # before the next line announces the address
        progress.log(
            f"{judge} judges at http://{host}:{listening.getsockname()[1]}/judge "
            f"({'with a key' if key else 'for anybody who can reach it'}; see /docs)"
        )
        server.run([listening])


def _refuse_or_warn(host: str, learn: bool, progress: Progress) -> None:
    """Warns that anybody may use the judge without a key. Raises `ServeError` for a judge that
    learns, because they could teach it anything."""
    remedy = "choose a key, `export JUDGE_KEY=...`, and add --key-variable JUDGE_KEY"
    if learn:
        raise ServeError(
            f"--host {host} --learn: anybody who reaches this address could train the judge; "
            f"{remedy}, or leave --host out"
        )
    progress.warn(f"--host {host}: anybody who reaches this address may use the judge; {remedy}")
