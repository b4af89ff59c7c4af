"""An ablation from the words that ask for it to its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlanything.ablation.arms import find_arms
from rlanything.ablation.grid import (
    GridError,
    make_cells,
    run_grid,
    runs_at_once,
    spent_seconds,
)
from rlanything.view import View

if TYPE_CHECKING:
    from rlanything.ablation.results import Results


@dataclass(frozen=True, slots=True)
class AblationRequest:
    """What the command line asks for."""

    recipe: Path
    overrides: Sequence[str]
    arms: Sequence[str]
    seeds: int
    out: Path
    parallel: int | None
    """None: as many as there are cores for."""
    page: Path | None
    command: str
    """As it was given, for the page."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """What came of it."""

    results: Results
    failed: dict[str, str]
    """By run, why."""

    def to_json(self) -> dict[str, Any]:
        return {"failed": self.failed, **self.results.to_json()}


def ablate(request: AblationRequest, view: View) -> Ablation:
    """Runs what is left of the grid and reads its table; writes the page if no run failed.

    Raises `ArmError`, `GridError` or `RecipeError` before anything runs, and what `run_grid`
    raises."""
    arms = find_arms(request.arms)
    cells = make_cells(request.recipe, request.overrides, arms, request.seeds, request.out)
    if request.page is not None and not request.page.parent.is_dir():
        raise GridError(f"--page: there is no folder {request.page.parent}; create it first")
    parallel = request.parallel or runs_at_once(cells)
    view.say(
        f"{len(arms)} arms x {request.seeds} seeds = {len(cells)} runs, {parallel} at once, in "
        f"{request.out}"
    )
    failed = run_grid(request.recipe, cells, request.out, parallel, view)
    # Only now: they load torch, for which a grid has no use as long as it runs.
    from rlanything.ablation.page import Circumstances, write_page
    from rlanything.ablation.results import results_of

    results = results_of(arms, cells)
    if failed:
        view.say(f"{len(failed)} of {len(cells)} runs failed; the same command tries them again")
    elif request.page is not None:
        seconds = spent_seconds(request.out, cells)
        how = Circumstances(request.command, seconds, parallel)
        curves = write_page(request.page, results, arms, cells, how)
        view.say(f"written: {request.page} and {curves}")
    return Ablation(results, failed)
