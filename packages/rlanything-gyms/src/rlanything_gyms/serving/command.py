"""`rlanything serve-domain`: offers a recipe's domain to clients of another standard."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Annotated, Literal

import typer

from rlanything.commands.train import ALLOW_CODE, RECIPE_HELP
from rlanything.progress import Progress
from rlanything.terminal import Terminal


class ServingError(ValueError):
    """A domain cannot be served; the message is one line with the remedy."""


def serve_domain(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. loop.max_steps=20 domain.options.KEY=VALUE"),
    ] = None,
    standard: Annotated[
        Literal["ors", "openenv"], typer.Option("--as", help="The standard that clients speak.")
    ] = "ors",
    host: Annotated[str, typer.Option(help="0.0.0.0 for the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free port.")] = 8080,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key that clients must send.")
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, help="Episodes at a time, each in a process of its own.")
    ] = 16,
    tasks: Annotated[int, typer.Option(min=1, help="Most tasks to offer of each split.")] = 240,
    seed: Annotated[int, typer.Option(help="Seed of the choice of tasks.")] = 1,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Serve the domain of a recipe to clients of ORS or OpenEnv: its tasks, and its episodes.

    A won episode earns 1 and a lost one 0, at its end. Stop it with Ctrl-C.
    """
    from rlanything.config.recipe import load_recipe
    from rlanything.domains.registry import load_domain
    from rlanything.rollout.workers import EnvironmentPool

    try:
        import uvicorn

        from rlanything_gyms.serving.guard import DomainGuard, is_loopback
        from rlanything_gyms.serving.ors import OrsServer
        from rlanything_gyms.serving.sessions import Sessions

        openenv = None
        if standard == "openenv":
            openenv = import_module("rlanything_gyms.serving.openenv")
    except ModuleNotFoundError as fault:
        extras = "serve,openenv" if standard == "openenv" else "serve"
        raise ServingError(
            f"--as {standard} needs {fault.name}: pip install 'rlanything-gyms[{extras}]'"
        ) from None

    key = None if key_variable is None else os.environ.get(key_variable)
    if key_variable is not None and not key:
        raise ServingError(f"--key-variable: {key_variable} is empty: set it to the key")
    loaded = load_recipe(recipe, overrides or [], allow_code=allow_code)
    progress = Progress(Terminal(stderr=True))
    with ExitStack() as stack:
        listening = stack.enter_context(_bound(host, port))
        local = is_loopback(listening.getsockname()[0])
        if not local and key is None:
            raise ServingError(
                f"--host {host}: anybody who reaches this address could play; choose a key, "
                "`export DOMAIN_KEY=...`, and add --key-variable DOMAIN_KEY, or leave --host out"
            )
        domain = load_domain(loaded.domain.name, loaded.domain.options)
        environment = loaded.environment
        workers = min(1, environment.workers)
        pool = partial(
            EnvironmentPool,
            loaded.domain.name,
            loaded.domain.options,
            workers,
            environment.timeout_seconds,
        )
        playing = stack.enter_context(
            Sessions(domain, pool, loaded.loop.max_steps, tasks, seed, sessions)
        )
        name = loaded.domain.name.rpartition(":")[2].lower()
        if openenv is None:
            app = OrsServer(name, playing).app()
        else:
            app = openenv.openenv_app(playing, domain.action_marker, sessions)
        server = uvicorn.Server(
            uvicorn.Config(DomainGuard(app, key, local), log_level="warning", lifespan="off")
        )
        listening.listen(server.config.backlog)  # before the next line announces the address
        splits = ", ".join(f"{len(each)} in {split}" for split, each in playing.tasks.items())
        progress.log(
            f"{name} speaks {standard} at http://{host}:{listening.getsockname()[1]} "
            f"({'with a key' if key else 'to this machine'}); tasks: {splits}"
        )
        server.run([listening])


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound to an address, not listening yet. Raises `ServingError`."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ServingError(
            f"--host {host} --port {port}: {error.strerror}; choose another port (0: a free one), "
            "or an address of this machine"
        ) from None
    return listening
