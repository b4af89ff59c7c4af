"""`rlanything rewrite-check`: by how many points do an adapter's rewrites move tasks?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE, RECIPE_HELP
from rlanything.progress import Progress
from rlanything.terminal import Terminal, write, write_json


def rewrite_check(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value, as for train")
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            help="Names of arms, separated by commas; the first is the control. By default all "
            "that the domain allows."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds, with tasks of their own.")
    ] = 5,
    candidates: Annotated[int, typer.Option(min=1, help="Tasks to rewrite, for each seed.")] = 60,
    rollouts: Annotated[int, typer.Option(min=8, help="Fresh rollouts of each task.")] = 24,
    page: Annotated[Path | None, typer.Option(help="Markdown file for the table.")] = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Play rewritten tasks and their parents again, with the recipe's policy, which stays frozen.

    Arms: null is the same task under a new id, random any change of the domain's `rewrites`, rule
    two of them by accuracy; adapter writes without critics, adapter_critics with them.
    """
    from rlanything.config.recipe import RecipeError, load_recipe
    from rlanything.config.shipped import find_recipe, shipped_files
    from rlanything_lab.rewrite_check.check import ARMS, CheckPlan, check, table, write_page

    names = None if arms is None else [name.strip() for name in arms.split(",")]
    if unknown := [name for name in names or () if name not in ARMS]:
        raise RecipeError(f"--arms: no arm is called {unknown[0]!r}: use {', '.join(ARMS)}")
    file = find_recipe(recipe, shipped_files())
    read = load_recipe(file, overrides or [], allow_code=allow_code)
    progress = Progress(Terminal(stderr=True))
    results = check(read, names, range(seeds), CheckPlan(candidates, rollouts), progress)
    if page is not None:
        write_page(page, table(results), shlex.join(["rlanything", *sys.argv[1:]]))
    if as_json:
        write_json({"arms": [result.to_json() for result in results]})
    else:
        write("\n".join([*table(results), ""]))
