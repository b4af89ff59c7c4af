"""A run from its recipe to its closing lines: set up, evaluate, iterate, keep everything.

Whenever it is stopped, `Trainer.resume` continues at the last iteration that was kept, and the
result is bit for bit that of a run that was never stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from rlanything.algorithm.advantages import Advantage
from rlanything.algorithm.losses import Loss
from rlanything.cluster.base import SeatLost
from rlanything.cluster.open import environment_workers
from rlanything.config.recipe import Overrides, Recipe, Source, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.evaluation.drift import find_embedder
from rlanything.evaluation.labels import oracle_labels
from rlanything.evaluation.success import Evaluation
from rlanything.loop import IterationResult, Loop
from rlanything.progress import Progress, progress_of
from rlanything.roles.adapter import Adapter
from rlanything.roles.judges.base import Judge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.episodes import faults
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.baseline import open_baseline, take_baseline
from rlanything.runs.build import RunComponents, build_components, new_pool
from rlanything.runs.checkpoint import load_pool, save_checkpoint
from rlanything.runs.directory import (
    allowed_changes,
    change_recipe,
    check_resumable,
    create_run,
    day_begun,
    existing,
    explain,
    now,
)
from rlanything.runs.held_out import HeldOut
from rlanything.runs.inside import CHECKPOINTS, IMAGES, RECIPE, STORE
from rlanything.runs.lock import RunLock, find_holder
from rlanything.runs.metrics.measuring import Meter
from rlanything.runs.parts import Parts
from rlanything.runs.recovery import Position, last_position, recover, resuming_line
from rlanything.runs.report.writing import Reporter
from rlanything.runs.results import IterationRecord
from rlanything.runs.retention import retain
from rlanything.runs.stopping import Plays, Stopped, Stopper
from rlanything.runs.store.store import Store
from rlanything.runs.summary import LEGEND, closing_lines, iteration_line, judge_lines
from rlanything.runs.trackers import check_trackers, tracking
from rlanything.runs.warnings import find_warnings

MAX_LOSSES = 3
"""So many losses of seats in a row, without an iteration in between, end the run."""


class Trainer:
    """One training run and its directory: iterate over it, or call `train()`.

    Quiet in a script or a notebook unless `progress` is true; in a terminal it shows bars."""

    def __init__(
        self,
        recipe: Source,
        *,
        domain: Domain | None = None,
        judge: Judge | None = None,
        adapter: Adapter | None = None,
        loss: Loss | None = None,
        advantage: Advantage | None = None,
        run_dir: str | Path | None = None,
        overrides: Overrides = (),
        allow_code: bool = False,
        progress: bool | Progress | None = None,
    ) -> None:
        """A new run. Checks and loads everything before anything is written.

        `recipe`: a shipped recipe by its name, a path, a mapping, or a `Recipe`. Objects for
        `domain`, `judge`, `adapter`, and the policy's `loss` and `advantage`, win over what the
        recipe names.
        `overrides`: `{"section.key": value}`, or lines `section.key=value` as on the command line.
        `allow_code`: what the recipe names as `module:name` may be imported; what an override names
        always may.

        Raises `RecipeError` where the recipe is wrong or the directory exists, `DomainError`,
        `ModelError`, `JudgeError` or `TrackerError` where a part cannot be set up: all are
        ValueErrors with one line that ends with the remedy."""
        self._parts = Parts(domain, judge, adapter, loss, advantage)
        self._progress = progress_of(progress)
        loaded = load_recipe(recipe, overrides, allow_code=allow_code)
        if run_dir is not None:
            loaded = loaded.model_copy(update={"run_dir": Path(run_dir)})
        self._recipe = self._parts.named_in(loaded)
        self._directory = self._recipe.directory
        if self._directory.exists():
            raise existing(self._directory)
        if self._recipe.evaluation.baseline:
            open_baseline(self._recipe.evaluation.baseline, self._recipe).close()
        self._position = Position(0, None)
        self._begun = now()
        self._set_up()
        self._held_out.labeller = self._components.labeller(self._recipe, self._domain, self._day)
        self._fresh = True
        self._environments: EnvironmentPool | None = None
        self._lines: list[str] | None = None

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        domain: Domain | None = None,
        judge: Judge | None = None,
        adapter: Adapter | None = None,
        loss: Loss | None = None,
        advantage: Advantage | None = None,
        overrides: Overrides = (),
        allow_code: bool = False,
        progress: bool | Progress | None = None,
    ) -> Self:
        """Returns a run that was stopped, however it was; it continues when told to.

        Parts that were objects must be handed over again, and code that the run's recipe names must
        be allowed again; overrides hold from now on, and are written into the run's recipe. Raises
        `RecipeError` for a directory that is no run's, for a missing object and for overrides that
        would make it another run, `RunDirectoryError` for a directory with links in it; loading the
        last checkpoint, on the first iteration, raises what `__init__` raises."""
        directory = Path(run_dir)
        check_resumable(directory)
        changes = allowed_changes(overrides)
        trainer = cls.__new__(cls)
        trainer._parts = Parts(domain, judge, adapter, loss, advantage)
        trainer._progress = progress_of(progress)
        recipe = load_recipe(directory / RECIPE, overrides, allow_code=allow_code)
        trainer._written_recipe, trainer._changes = recipe, changes
        recipe = recipe.model_copy(update={"run_dir": directory})
        trainer._recipe = trainer._parts.named_in(recipe)
        trainer._directory, trainer._fresh = directory, False
        trainer._environments, trainer._lines = None, None
        return trainer

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        return self._directory

    @property
    def recipe(self) -> Recipe:
        """The recipe, resolved."""
        return self._recipe

    def __repr__(self) -> str:
        return f"<rlanything.Trainer of {self._recipe.name}, in {self._directory}>"

    def train(self) -> list[str]:
        """Runs to the end, and returns the closing lines: what improved, by how much.

        Raises `LockedError` if another process is at work there, `Stopped` on SIGINT and SIGTERM;
        every error carries a note that says how to continue, but for `RunDirectoryError`: the
        directory went away."""
        for _ in self:
            pass
        assert self._lines is not None
        return self._lines

    def __iter__(self) -> Iterator[IterationRecord]:
        """Yields each iteration once it is kept: `.number`, `.metrics`, `.groups`. Whoever leaves
        early may iterate again, or resume later. Raises as `train`, and `RecipeError` where another
        process has made the run directory meanwhile."""
        if self._lines is not None:
            return
        if fresh := self._fresh:
            create_run(self._directory, self._recipe, self._begun)
            self._fresh, self._written_recipe, self._changes = False, self._recipe, []
        try:
            with self._session(fresh) as environments:
                yield from self._iterations(environments)
        except (Exception, Stopped) as error:
            explain(error, self._directory, self._recipe)
            raise

    def evaluate(self, split: str, episodes: int = 240, seed: int = 1) -> Evaluation:
        """Returns the success of the policy as it is now on `episodes` held-out tasks of a split,
        with its 95% interval. `seed` chooses tasks and random numbers.

        Raises `DomainError` for a split that is not there, and `SeatLost`: call it again."""
        if not hasattr(self, "_components") or self._components.models.lost:
            self._position = last_position(self._directory, self._progress.log)
            self._set_up()
        tasks = checked_tasks(self._domain, split, episodes, seed)
        with ExitStack() as stack:
            environments = self._environments or stack.enter_context(self._open_environments())
            evaluation = self._held_out.play(self._components, environments, split, tasks, seed, 1)
        self._components.pop_usage()  # or it would count as the next iteration's
        return evaluation

    def _set_up(self) -> None:
        """Loads domain and held-out tasks, and pool, models and optimizers as they stand at the
        position."""
        recipe, checkpoint = self._recipe, self._position.checkpoint
        check_trackers(recipe.tracker)
        # A run that is there keeps the day on which it began.
        there = (self._directory / STORE).is_file()
        self._day = day_begun(self._directory) if there else datetime.fromisoformat(self._begun)
        self._domain: Domain = self._parts.domain or load_domain(
            recipe.domain.name, recipe.domain.options
        )
        self._held_out = HeldOut(recipe, self._domain, self._progress)
        self._embedder = find_embedder()
        self._meter = Meter(self._progress.warn)
        if hasattr(self, "_components"):  # their seats are lost, or know another iteration
            self._components.models.close()
            del self._components  # or both would be in memory while the new ones load
        self._components: RunComponents = build_components(
            recipe, self._domain, checkpoint, self._parts, self._day, self._directory / IMAGES
        )
        if checkpoint is None:
            self._pool = new_pool(recipe, self._domain)
            self._held_out.warn_of(self._pool)
        else:
            self._pool = load_pool(checkpoint)
            for role, trained in self._components.trained_models.items():
                trained.load_state(checkpoint / role)

    def _open_environments(self, images: Path | None = None) -> EnvironmentPool:
        recipe = self._recipe
        return EnvironmentPool(
            self._parts.domain or recipe.domain.name,
            recipe.domain.options,
            environment_workers(recipe.environment),
            recipe.environment.timeout_seconds,
            images or self._components.passing_images,
        )

    @contextmanager
    def _session(self, fresh: bool) -> Iterator[EnvironmentPool]:
        """Holds all that a run under way holds: its lock, store, trackers and environments."""
        begun = time.perf_counter()
        self._stopper = Stopper()
        with ExitStack() as stack:
            stack.enter_context(self._stopper.listening())
            holder = find_holder(self._directory)
            stack.enter_context(RunLock(self._directory))
            if holder is not None:
                self._progress.log(f"process {holder.pid} was killed while it worked on this run")
            self._store = Store(self._directory / STORE)
            stack.callback(self._store.close)
            self._reporter = Reporter(self._store, self._directory, self._progress.log)
            # Whether it ends here or stops: what was kept until now is in the report.
            stack.callback(self._reporter.write)
            if not fresh:
                self._load_last()
            stack.enter_context(self._progress.live())
            told = tracking(self._recipe, self._directory, self._store, self._progress.warn)
            self._track = stack.enter_context(told)
            with self._open_environments(self._directory / IMAGES) as environments:
                self._environments = environments
                try:
                    yield environments
                finally:
                    self._environments = None
            self._close(time.perf_counter() - begun)

    def _load_last(self) -> None:
        """Goes back to the last iteration that is whole, as the store is told too."""
        self._position = recover(self._directory, self._store, self._progress.log)
        self._set_up()
        done = self._position.iteration
        change_recipe(self._directory, self._store, self._written_recipe, self._changes, done)
        if 0 not in self._store.evaluated_iterations():
            self._held_out.labeller = self._components.labeller(
                self._recipe, self._domain, self._day
            )
        self._store.write_pool(self._pool)
        retain(self._directory, self._store, self._recipe, done)
        self._progress.log(resuming_line(self._directory, done, self._recipe.loop.iterations))
        if any(change.startswith("cluster.seats=") for change in self._changes):
            self._progress.log("on another number of seats results are the same up to rounding")

    def _loop(self, environments: EnvironmentPool) -> Loop:
        components = self._components
        return Loop(
            recipe=self._recipe,
            domain=self._domain,
            pool=self._pool,
            policy=components.train_policy,
            judges=components.judges if self._recipe.reads_scores else JudgePanel({}),
            adapter=components.adapter,
            learners={role: one.learner for role, one in components.trained_models.items()},
            engines=components.engines,
            environments=environments,
            progress=self._progress,
        )

    def _iterations(self, environments: EnvironmentPool) -> Iterator[IterationRecord]:
        """Yields the iterations that are left. Where a seat is lost, all are started anew, and the
        iteration is repeated from the last checkpoint."""
        losses, kept = 0, None
        while True:
            try:
                return (yield from self._iterations_left(self._loop(environments)))
            except SeatLost as loss:
                before, kept = kept, self._store.last_iteration()
                losses = losses + 1 if kept == before else 1
                if losses == MAX_LOSSES:
                    raise
                self._progress.warn(f"{loss}: all seats are started anew")
                self._load_last()

    def _iterations_left(self, loop: Loop) -> Iterator[IterationRecord]:
        done, iterations = self._position.iteration, self._recipe.loop.iterations
        self._evaluate_all(done)
        self._report()
        begun, plays = time.perf_counter(), Plays(self._store.history(), iterations)
        self._progress.seconds.pop("iterations", None)  # of a loop that was left
        with self._progress.phase("iterations", iterations, "iterations") as advance:
            advance(done)
            if done < iterations:
                self._progress.log(LEGEND)
            for iteration in range(done + 1, iterations + 1):
                plays.watch(result := loop.iterate(iteration))
                seconds = (time.perf_counter() - begun) / (iteration - done)
                with self._stopper.deferred():
                    record = self._keep(result, seconds * (iterations - iteration))
                advance(1)
                self._evaluate_all(iteration)
                retain(self._directory, self._store, self._recipe, iteration)
                self._report()
                yield record

    def _report(self) -> None:
        with self._progress.phase("report", 1, "page"):
            self._reporter.update()

    def _close(self, seconds: float) -> None:
        """Writes down the closing lines, and that the run is finished."""
        self._lines = closing_lines(self._directory, self._store, self._recipe, self._pool, seconds)
        self._store.describe({"closing": json.dumps(self._lines), "finished": now()})

    def _evaluate_all(self, iteration: int) -> None:
        """Evaluates policy and judge, if it is time, and keeps and says what came of it."""
        recipe, log = self._recipe, self._progress.log
        last, every = recipe.loop.iterations, recipe.evaluation.every
        due = iteration == 0 or iteration >= last or (every and iteration % every == 0)
        if not due or not self._held_out.tasks or iteration in self._store.evaluated_iterations():
            return
        if iteration == 0 and recipe.evaluation.baseline:
            take_baseline(self._store, recipe, self._directory)
            self._track(0, self._store.metrics(0))
            return log(f"before training: as {recipe.evaluation.baseline} has it")
        assert self._environments is not None
        record = self._meter.measure(
            self._held_out.evaluate(iteration, self._components, self._environments, self._store)
        )
        for line in judge_lines(record):
            log(line)
        with self._stopper.deferred():
            self._store.record_evaluation(record)
        self._track(iteration, record.metrics)

    def _keep(self, result: IterationResult, seconds_left: float) -> IterationRecord:
        """Writes the checkpoint, then one transaction that names it, and lets older ones go.
        Returns what was kept."""
        recipe, iteration = self._recipe, result.number
        judged = [judged for group in result.groups for judged in group.judged]
        labels = oracle_labels(self._domain, [one.trajectory for one in judged])
        with self._progress.phase("checkpoint", 1, "checkpoint"):
            models, folder = self._components.trained_models, self._directory / CHECKPOINTS
            checkpoint = save_checkpoint(folder, iteration, models, self._pool)
        record = self._meter.measure(
            IterationRecord(
                result=result,
                pool=self._pool,
                feedback=recipe.feedback,
                judges=tuple(recipe.judges),
                labels=labels,
                judge_counts=self._components.judges.counts(judged),
                usage=self._components.pop_usage(),
                # The store's own seconds are counted with the next iteration's.
                seconds=self._progress.pop_seconds(),
                distance=self._embedder.distance if self._embedder else None,
                checkpoint=checkpoint,
                finished=now(),
            )
        )
        with self._progress.phase("store", 1, "transaction"):
            self._store.record_iteration(record)
        self._track(iteration, record.metrics)
        self._progress.log(iteration_line(record, recipe.loop.iterations, seconds_left))
        for fault in faults(result.failures, result.crashes):
            self._progress.warn(fault)
        for warned in find_warnings(self._store.history(), self._store.roles()):
            if warned.iteration == iteration:
                self._progress.warn(warned.line())
        return record
