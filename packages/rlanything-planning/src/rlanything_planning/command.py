"""`rlanything plan`: estimates memory, tokens and seconds of a recipe."""

from __future__ import annotations

from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE, RECIPE_HELP
from rlanything.terminal import show, write_json


def plan(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value, as for train")
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu (this machine, measured) or a GPU by name, e.g. h100.")
    ] = "cpu",
    count: Annotated[
        int | None, typer.Option(min=1, help="Seats, one GPU each; default: cluster.seats.")
    ] = None,
    assume: Annotated[
        list[str] | None, typer.Option(help="name=value, replaces an assumption of the plan.")
    ] = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Estimate memory, tokens and seconds of a recipe, without its weights and without a GPU."""
    from rlanything.config.recipe import load_recipe
    from rlanything_planning.plan import make_plan
    from rlanything_planning.report import render

    loaded = load_recipe(recipe, overrides or [], allow_code=allow_code)
    made = make_plan(loaded, device, count, assume or [])
    if as_json:
        write_json(made.to_json())
    else:
        show(render(made))
