"""`rlanything ablate`: compares a recipe with parts left out, over several seeds."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE, RECIPE_HELP
from rlanything.progress import Progress
from rlanything.terminal import Terminal, show, write_json


def ablate(
    recipe: Annotated[str, typer.Argument(help=RECIPE_HELP)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value for all arms, as for train")
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            help="components (default), judge_alone, lambda, baselines, comparison, remedies, "
            "controls, single arms, or NAME:section.key=value,... Repeat, or separate names by "
            "commas."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, one run of each arm.")] = 5,
    first_seed: Annotated[
        int, typer.Option(min=0, help="First seed, to divide seeds over machines or days.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; default: runs/ablation-RECIPE.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel runs; default: one per core.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the table to this Markdown file, with its curves."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw gains and curves to this .svg, .png or .pdf (extra: figures)."),
    ] = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a recipe with parts left out, over several seeds, and compare.

    The same command again keeps finished runs and continues interrupted ones.
    """
    from rlanything.config.shipped import find_recipe, shipped_files
    from rlanything_lab.ablation.ablate import AblationRequest
    from rlanything_lab.ablation.ablate import ablate as run_ablation

    progress = Progress(Terminal(stderr=True))
    file = find_recipe(recipe, shipped_files())
    result = run_ablation(
        AblationRequest(
            file,
            overrides or [],
            arms or ["components"],
            range(first_seed, first_seed + seeds),
            out or Path("runs") / f"ablation-{file.stem}",
            parallel,
            page,
            figure,
            shlex.join(["rlanything", *sys.argv[1:]]),
            allow_code,
        ),
        progress,
    )
    from rlanything_lab.ablation.table import difference_lines, terminal, value_lines

    if as_json:
        write_json(result.to_json())
    elif result.results.rows:
        show(terminal("After training", value_lines(result.results)))
        show(terminal("Paired differences", difference_lines(result.results)))
    if result.failed:
        raise typer.Exit(1)
