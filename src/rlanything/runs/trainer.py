"""The front door to a training run: begin or resume it, iterate over it, evaluate it.

Whenever a run is stopped, `Trainer.resume` continues at the last checkpoint, and the result is bit
for bit that of a run that was never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from rlanything.algorithm.advantages import Advantage
from rlanything.algorithm.losses import Loss
from rlanything.config.recipe import Overrides, Recipe, RecipeError, Source
from rlanything.domains.base import Domain
from rlanything.evaluation.success import Evaluation
from rlanything.progress import Progress, progress_of
from rlanything.roles.adapter import Adapter
from rlanything.roles.judges.base import Judge
from rlanything.runs.parts import Parts
from rlanything.runs.plan import RunPlan, plan_new, plan_resumed
from rlanything.runs.results import IterationRecord
from rlanything.runs.session import Session


class Trainer:
    """One training run and its directory: iterate over it, or call `train()`.

    Quiet in a script or a notebook unless `progress` is true; shows bars in a terminal."""

    def __init__(
        self,
        recipe: Source | RunPlan,
        *,
        domain: Domain | None = None,
        judge: Judge | Mapping[str, Judge] | None = None,
        adapter: Adapter | None = None,
        loss: Loss | None = None,
        advantage: Advantage | None = None,
        run_dir: str | Path | None = None,
        overrides: Overrides = (),
        allow_code: bool = False,
        progress: bool | Progress | None = None,
    ) -> None:
        """A new run. Checks and loads everything before anything is written.

        `recipe`: name of a shipped recipe, path, mapping, `Recipe`, or a plan made of all but
        `progress`. Objects for `domain`, `judge`, `adapter`, and the policy's `loss` and
        `advantage`, replace what the recipe names; of several judges, give `judge` by the names of
        their roles. `overrides`: `{"section.key": value}`, or lines `section.key=value` as on
        the command line. `allow_code`: import what the recipe names as `module:name`; what an
        override names is always imported.

        Raises `RecipeError` if the recipe is wrong or the directory exists, `DomainError`,
        `ModelError`, `JudgeError` or `TrackerError` if a part cannot be set up: all are ValueErrors
        with one line that ends with the remedy."""
        parts = Parts(domain, judge, adapter, loss, advantage)
        if not isinstance(recipe, RunPlan):
            recipe = plan_new(recipe, parts, overrides, run_dir, allow_code)
        elif parts != Parts() or overrides or run_dir is not None or allow_code:
            raise RecipeError("a plan has its own parts, overrides and directory: leave them out")
        self._session = Session(recipe, progress_of(progress))

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        domain: Domain | None = None,
        judge: Judge | Mapping[str, Judge] | None = None,
        adapter: Adapter | None = None,
        loss: Loss | None = None,
        advantage: Advantage | None = None,
        overrides: Overrides = (),
        allow_code: bool = False,
        progress: bool | Progress | None = None,
    ) -> Self:
        """Returns a run that was stopped in any way; it continues when iterated over.

        Parts that were objects must be given again, and code that the run's recipe names must be
        allowed again. Overrides hold from now on and are written into the run's recipe. Raises
        `RecipeError` if the directory is not a run's, an object is missing, or an override would
        make it another run; `RunDirectoryError` if there are links in the directory. The first
        iteration loads the last checkpoint and raises what `__init__` raises."""
        parts = Parts(domain, judge, adapter, loss, advantage)
        plan = plan_resumed(Path(run_dir), parts, overrides, allow_code)
        return cls(plan, progress=progress)

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        return self._session.plan.directory

    @property
    def recipe(self) -> Recipe:
        """The recipe, resolved."""
        return self._session.plan.recipe

    def __repr__(self) -> str:
        return f"<rlanything.Trainer of {self.recipe.name}, in {self.run_dir}>"

    def train(self) -> list[str]:
        """Runs to the end, and returns the closing lines: what improved, by how much.

        Raises `LockedError` if another process works in the directory, `Stopped` on SIGINT and
        SIGTERM. Every error has a note that says how to continue, except `RunDirectoryError`: the
        directory is gone."""
        for _ in self:
            pass
        assert self._session.closing is not None
        return self._session.closing

    def __iter__(self) -> Iterator[IterationRecord]:
        """Yields each iteration once it is kept: `.number`, `.metrics`, `.groups`. After leaving
        early, iterate again or resume later. A lost worker, and leaving early, make it repeat the
        iterations after the last checkpoint (`checkpoints.write_every`). Raises as `train`, and
        `RecipeError` if another process has created the run directory in the meantime."""
        if self._session.closing is None:
            yield from self._session.iterate()

    def evaluate(self, split: str, episodes: int = 240, seed: int = 1) -> Evaluation:
        """Returns the success of the current policy on `episodes` held-out tasks of a split, with
        its 95% interval: before, during or after training. `seed` selects tasks and random numbers.

        Raises `DomainError` for an unknown split, and `SeatLost`: call it again."""
        return self._session.evaluate(split, episodes, seed)
