"""`rlanything nano`: tiny models, those that ship and those of your own domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlanything.progress import Progress
from rlanything.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True, help="Tiny models: those that ship, and those of your own domain."
)


@app.command()
def build(
    domain: Annotated[
        str,
        typer.Option(
            help="The domain that they are trained for: a registered name, or module:Class for "
            "your own, which needs an expert and an oracle, and rewrites to teach an adapter. "
            "Several, separated by commas, share the models."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the models to; left out, models/NAME of the domain."),
    ] = None,
    seed: Annotated[int, typer.Option(help="All random choices derive from it.")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Environment processes.")] = 2,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="Only policy, judge, adapter or value (a judge of value, built only where it is "
            "named); the others are read from OUT."
        ),
    ] = None,
) -> None:
    """Build policy, judge and adapter from a seed, and measure what they can do.

    For a domain of your own (--domain module:Class) its methods teach them:
    the policy learns from expert(task, steps), the judge from oracle(task, steps),
    the adapter from rewrites(root, direction). A small game takes minutes.

    --role value teaches a judge of value (judge.name=value) how often the policy
    still wins from the states that its rollouts reach.
    """
    from rlanything.config.shipped import see_shipped
    from rlanything_nano.making import roles_named
    from rlanything_nano.plans import build as build_models

    names = [name.strip() for name in domain.split(",")]
    for name in names:
        see_shipped(name)
    out = out or Path("models", "-".join(name.rpartition(":")[2].lower() for name in names))
    roles = roles_named(role or (), out)
    progress = Progress(Terminal())
    build_models(domain, seed, out, workers, progress, roles)
    progress.log(f"written to {out}; measurements are in {out / 'card.json'}")
