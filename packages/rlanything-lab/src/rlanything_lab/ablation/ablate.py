"""An ablation, from its request to its table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything_lab.ablation.arms import Arm, find_arms
from rlanything_lab.ablation.figure import check_figure, draw
from rlanything_lab.ablation.grid import (
    Cell,
    GridError,
    make_cells,
    run_grid,
    runs_at_once,
    spent_seconds,
)

if TYPE_CHECKING:
    from rlanything_lab.ablation.results import Results


@dataclass(frozen=True, slots=True)
class AblationRequest:
    """The arguments of the command."""

    recipe: Path
    overrides: Sequence[str]
    arms: Sequence[str]
    seeds: Sequence[int]
    out: Path
    parallel: int | None
    """Number of parallel runs; None: as many as the cores allow."""
    page: Path | None
    figure: Path | None
    command: str
    """The command line, for the page."""
    allow_code: bool = False
    """Whether to import code that the recipe names."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The results of a grid, and the runs that failed."""

    results: Results
    failed: dict[str, str]
    """Reason of each failure, by run."""

    def to_json(self) -> dict[str, Any]:
        return {"failed": self.failed, **self.results.to_json()}


def ablate(request: AblationRequest, progress: Progress) -> Ablation:
    """Runs the rest of the grid and reads its table; writes page and figure if no run failed.

    Raises `ArmError`, `GridError` or `RecipeError` before anything runs, and the errors of
    `run_grid`."""
    arms = find_arms(request.arms)
    cells = make_cells(
        request.recipe, request.overrides, arms, request.seeds, request.out, request.allow_code
    )
    _check_paths(request)
    parallel = request.parallel or runs_at_once(cells)
    runs = f"{len(arms)} arms x {len(request.seeds)} seeds = {len(cells)} runs"
    progress.log(f"{runs}, {parallel} at once, in {request.out}")
    failed = run_grid(request.recipe, cells, request.out, parallel, progress)
    # Imported late: it loads torch, which the grid itself does not need.
    from rlanything_lab.ablation.results import results_of

    results = results_of(arms, cells)
    if failed:
        progress.log(
            f"{len(failed)} of {len(cells)} runs failed; the same command tries them again"
        )
    else:
        try:
            written = _write(request, results, arms, cells, parallel)
        except OSError as error:
            raise GridError(
                f"{error.filename}: cannot be written ({error.strerror}); the runs are kept: the "
                "same command with another --page or --figure writes their table"
            ) from error
        for path in written:
            progress.log(f"written: {path}")
    return Ablation(results, failed)


def _check_paths(request: AblationRequest) -> None:
    for option, path in (("--page", request.page), ("--figure", request.figure)):
        if path is not None and not path.parent.is_dir():
            raise GridError(f"{option}: there is no folder {path.parent}; create it first")
    if request.page is not None and (request.page.suffix != ".md" or request.page.is_dir()):
        raise GridError(f"--page {request.page}: name a Markdown file, as page.md")
    if request.figure is not None:
        check_figure(request.figure)


def _write(
    request: AblationRequest,
    results: Results,
    arms: Sequence[Arm],
    cells: Sequence[Cell],
    parallel: int,
) -> list[Path]:
    """Writes the requested page and figure, and returns their paths."""
    from rlanything_lab.ablation.page import Circumstances, write_page

    written: list[Path] = []
    with ExitStack() as stack:
        stores = {
            (cell.arm, str(cell.seed)): stack.enter_context(closing(Store(cell.store)))
            for cell in cells
        }
        if request.figure is not None:
            draw(request.figure, results, stores)
            written.append(request.figure)
        if request.page is not None:
            how = Circumstances(request.command, spent_seconds(request.out, cells), parallel)
            curves = write_page(
                request.page, results, arms, cells, stores, how, figure=request.figure
            )
            written += [request.page, curves]
    return written
