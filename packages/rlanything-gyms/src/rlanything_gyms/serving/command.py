"""`rlanything serve-domain`: offers a recipe's domain to clients of another standard."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Annotated, Literal

import typer

from rlanything.commands.train import ALLOW_CODE, RECIPE_HELP
from rlanything.progress import Progress
from rlanything.serving.address import ServeError, bound, is_loopback, key_of
from rlanything.terminal import Terminal


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

        from rlanything_gyms.serving.guard import DomainGuard
        from rlanything_gyms.serving.ors import OrsServer
        from rlanything_gyms.serving.sessions import Sessions

        openenv = None
        if standard == "openenv":
            openenv = import_module("rlanything_gyms.serving.openenv")
    except ModuleNotFoundError as fault:
        extras = "serve,openenv" if standard == "openenv" else "serve"
        raise ServeError(
            f"--as {standard} needs {fault.name}: pip install 'rlanything-gyms[{extras}]'"
        ) from None

    key = key_of(key_variable)
    loaded = load_recipe(recipe, overrides or [], allow_code=allow_code)
    progress = Progress(Terminal(stderr=True))
    with ExitStack() as stack:
        listening = stack.enter_context(bound(host, port))
        local = is_loopback(listening.getsockname()[0])
        if not local and key is None:
            raise ServeError(
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
