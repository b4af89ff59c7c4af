"""`rlanything serve-policy`: serves a policy to agents, and lets it learn from their episodes."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.serving.address import ServeError, bound, is_loopback, key_of
from rlanything.terminal import Terminal

if TYPE_CHECKING:
    import uvicorn

    from rlanything_agent.serving.app import Keys
    from rlanything_agent.serving.service import PolicyService

_STOP_SECONDS = 5.0


def serve_policy(
    policy: Annotated[
        str,
        typer.Argument(help="A run directory, a recipe, or the directory of a served policy."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.learning_rate=1e-5"),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Learn from the episodes that agents play.")
    ] = False,
    learn_every: Annotated[int, typer.Option(min=2, help="Number of episodes per update.")] = 64,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory that keeps what it learns; new, or one to continue."),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Take no outcomes: an episode ends after this time, and judges score it."
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Make the updates of this served policy again in --out, then end."),
    ] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 for the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free port.")] = 8000,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key of clients that ask.")
    ] = None,
    outcome_key_variable: Annotated[
        str | None, typer.Option(help="Variable with the key of clients that may also teach.")
    ] = None,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Serve a policy in chat completions, Messages and Responses.

    With --learn, POST /outcomes takes the outcomes of episodes, every --learn-every of them train
    the policy, and the new weights answer the next request. Everything is in --out before it is
    answered, so the same command goes on after a kill. Stop it with Ctrl-C.
    """
    keys = _keys(key_variable, outcome_key_variable, learn)
    directory = _directory(policy, learn, out, replay, idle_seconds)
    progress = Progress(Terminal(stderr=True))
    with ExitStack() as stack:
        listening = None
        if replay is None:
            listening = stack.enter_context(bound(host, port))  # before a model is loaded
            _refuse_open(listening, host, keys)
        from rlanything_agent.serving.journal import Journal
        from rlanything_agent.serving.run_command import JOURNAL, PolicySource, open_policy
        from rlanything_agent.serving.service import PolicyService, ServiceSettings

        source = PolicySource(
            policy, tuple(overrides or ()), allow_code, judged_alone=idle_seconds is not None
        )
        served, version = stack.enter_context(open_policy(source, directory, replay, progress))
        journal = None
        if directory is not None:
            journal = stack.enter_context(closing(Journal(directory / JOURNAL)))
        settings = ServiceSettings(
            served.recipe.seed, learn_every, idle_seconds, served.reads_calls
        )
        service = PolicyService(served, journal, version, settings, progress.log)
        service.catch_up()
        if listening is None:
            progress.log(f"{directory} has made {service.version} updates again")
            return
        server, local = _server(service, keys, listening)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        address = f"http://{host}:{listening.getsockname()[1]}"
        learns = f", version {service.version}, learns in {directory}" if learn else ""
        progress.log(f"{policy} answers at {address}/v1 ({_access(keys, local)}{learns})")
        try:
            service.run()
        finally:
            service.stop()
            server.should_exit = True
            thread.join(_STOP_SECONDS)


def _keys(ask: str | None, teach: str | None, learn: bool) -> Keys:
    """Returns the keys that environment variables hold. Raises `ServeError`."""
    from rlanything_agent.serving.app import Keys

    keys = Keys(key_of(ask), key_of(teach, "--outcome-key-variable"))
    if teach is not None and not learn:
        raise ServeError("--outcome-key-variable: only for --learn; add that, or leave it out")
    if learn and (keys.ask is None) != (keys.teach is None):
        raise ServeError(
            "--learn: give both keys, --key-variable for clients that ask and "
            "--outcome-key-variable for those that may teach, or neither"
        )
    if keys.ask is not None and keys.ask == keys.teach:
        raise ServeError(
            "--outcome-key-variable: it is the key of all clients; choose another, which only the "
            "sender of outcomes has"
        )
    return keys


def _directory(
    policy: str, learn: bool, out: Path | None, replay: Path | None, idle: float | None
) -> Path | None:
    """Returns the directory that keeps what the policy learns; None if it does not learn. Raises
    `ServeError`."""
    given = {"--out": out, "--replay": replay, "--idle-seconds": idle}
    if not learn:
        option = next((name for name, value in given.items() if value is not None), None)
        if option is not None:
            raise ServeError(f"{option}: only for --learn; add that, or leave it out")
        return None
    if out is not None:
        return out
    from rlanything_agent.serving.run_command import policy_served_from

    if policy_served_from(Path(policy)) is not None:
        return Path(policy)
    raise ServeError("--learn: name the directory that is to keep what it learns with --out")


def _refuse_open(listening: socket.socket, host: str, keys: Keys) -> None:
    if keys.ask is None and not is_loopback(listening.getsockname()[0]):
        raise ServeError(
            f"--host {host}: anybody who reaches this address could use the policy; choose a key, "
            "`export POLICY_KEY=...`, and add --key-variable POLICY_KEY, or leave --host out"
        )


def _access(keys: Keys, local: bool) -> str:
    if keys.ask is None:
        return "for every program of this machine"
    return "with a key, on this machine" if local else "with a key"


def _server(
    service: PolicyService, keys: Keys, listening: socket.socket
) -> tuple[uvicorn.Server, bool]:
    import uvicorn

    from rlanything_agent.serving.app import PolicyApi

    local = is_loopback(listening.getsockname()[0])
    app = PolicyApi(service, keys, local).app
    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="warning", access_log=False)
    listening.listen(config.backlog)
    return uvicorn.Server(config), local
