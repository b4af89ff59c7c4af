"""A run in this process: its loaded models, its open files, and its iterations one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from rlanything.algorithm.curriculum import Pool
from rlanything.cluster.base import SeatLost
from rlanything.cluster.open import environment_workers
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.evaluation.drift import Embedder, find_embedder
from rlanything.evaluation.labels import oracle_labels
from rlanything.evaluation.success import Evaluation
from rlanything.experience import Experience
from rlanything.loop import IterationResult, Loop
from rlanything.progress import Progress
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.episodes import faults
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.baseline import take_baseline
from rlanything.runs.build import RunComponents, build_components, new_pool, pool_worlds
from rlanything.runs.checkpoint import begin_checkpoint, checkpoint_name, load_pool, prune
from rlanything.runs.directory import change_recipe, create_run, explain, find_holder, now, run_lock
from rlanything.runs.evaluator import Evaluator
from rlanything.runs.metrics.measuring import Meter, read
from rlanything.runs.paths import CHECKPOINTS, IMAGES, STORE
from rlanything.runs.plan import RunPlan
from rlanything.runs.recovery import Position, last_position, recover, resuming_line, retain
from rlanything.runs.report.writing import Reporter
from rlanything.runs.results import IterationRecord
from rlanything.runs.stopping import Stopped, Stopper
from rlanything.runs.store.store import Store
from rlanything.runs.summary import LEGEND, closing_lines, iteration_line, judge_lines
from rlanything.runs.trackers import Track, check_trackers, tracking
from rlanything.runs.warnings import find_warnings

MAX_LOSSES = 3
"""Stop after this many consecutive worker losses with no completed iteration."""
MAX_UNPLAYED = 3
"""Stop after this many consecutive iterations without an episode: later ones would be the same."""


class NothingPlayed(ValueError):
    """No episode could be played for several iterations; the message is one line."""


def check_played(result: IterationResult, store: Store, total: int) -> None:
    """Raises `NothingPlayed` if neither this iteration nor the ones before it had an episode. It is
    not kept, so a resumed run repeats it. `total`: planned number of iterations."""
    if result.groups:
        return
    history = store.history()
    episodes = [read(history[t], "rollouts/episodes") for t in sorted(history, reverse=True) if t]
    unplayed = 1 + sum(1 for _ in takewhile(lambda played: not played, episodes))
    if unplayed < (patience := min(total, MAX_UNPLAYED)):
        return
    why = faults(result.failures, ())
    if not why:
        raise NothingPlayed("no task is left that can be played: begin a run on other tasks")
    lasted = "this iteration" if patience == 1 else f"{patience} iterations in a row"
    raise NothingPlayed(f"nothing was played in {lasted}: {why[0]}; see to that first")


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run in memory, as it stands after one iteration."""

    position: Position
    domain: Domain
    evaluator: Evaluator
    components: RunComponents
    pool: Pool


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Everything that is open while a run is under way, and closed when it ends or stops."""

    begun: float
    """Time on the performance counter at which it was opened."""
    stopper: Stopper
    store: Store
    reporter: Reporter
    track: Track
    environments: EnvironmentPool
    meter: Meter
    embedder: Embedder | None


class Session:
    """Everything about a `Trainer` that changes. Models are loaded at most once at a time."""

    def __init__(self, plan: RunPlan, progress: Progress) -> None:
        """Loads a new run completely, so that nothing is written if a part of it is unusable; a
        resumed run is loaded when it is first needed."""
        self.plan = plan
        self.loaded: LoadedRun | None = None
        """The run in memory; None before it is needed."""
        self.opened: OpenRun | None = None
        """None unless the run is under way."""
        self.closing: list[str] | None = None
        """The closing lines; None before the run is finished."""
        self._loop: Loop | None = None
        """The loop that iterates, while the run is under way."""
        self._writing: tuple[int, Future[str]] | None = None
        """The checkpoint that is being written, by its iteration."""
        self._progress = progress
        self._created = plan.resumed
        if not plan.resumed:
            self._load(Position(0, None), labels=True)

    def iterate(self) -> Iterator[IterationRecord]:
        """Creates the run's directory, or recovers the run from it, and yields the iterations that
        are left. Adds to an error how to continue."""
        plan = self.plan
        if new := not self._created:
            create_run(plan.directory, plan.recipe, plan.begun.isoformat())
            self._created = True
        try:
            yield from self._under_way(new)
        except (Exception, Stopped) as error:
            explain(error, plan.directory, plan.recipe)
            raise

    def evaluate(self, split: str, episodes: int, seed: int) -> Evaluation:
        """Returns the success of the policy on held-out tasks, as `Trainer.evaluate` says."""
        loaded = self._usable()
        if self._loop is not None:
            self._loop.experience.finish()
        tasks = checked_tasks(loaded.domain, split, episodes, seed)
        with ExitStack() as stack:
            if self.opened is not None:
                environments = self.opened.environments
            else:
                images = loaded.components.passing_images
                environments = stack.enter_context(self._open_environments(images))
            evaluation = loaded.evaluator.play(
                loaded.components, environments, split, tasks, seed, rollouts=1
            )
        loaded.components.pop_usage()  # or it would count as the next iteration's
        return evaluation

    def _usable(self) -> LoadedRun:
        """Returns the run in memory. Loads it if it is not there, or its workers are lost."""
        if self.loaded is not None and not self.loaded.components.models.lost:
            return self.loaded
        position = last_position(self.plan.directory, self._progress.log)
        return self._load(position, labels=position.checkpoint is None)

    def _load(self, position: Position, labels: bool) -> LoadedRun:
        """Loads the run as it stands at a position. `labels`: its judge's held-out steps have no
        labels yet, so their labeller is loaded too."""
        recipe, parts, checkpoint = self.plan.recipe, self.plan.parts, position.checkpoint
        check_trackers(recipe.tracker)
        domain = parts.domain or load_domain(recipe.domain.name, recipe.domain.options)
        evaluator = Evaluator(recipe, domain, self._progress)
        if self.loaded is not None:  # their workers are lost, or know another iteration
            self.loaded.components.models.close()
            self.loaded = None  # frees the memory that the new models need
        day, images = self.plan.begun, self.plan.directory / IMAGES
        components = build_components(
            recipe,
            domain,
            checkpoint,
            parts,
            day,
            images,
            lambda stage, _: self._progress.log(stage),
        )
        try:
            if checkpoint is None:
                pool = new_pool(recipe, domain)
                evaluator.warn_of(pool)
            else:
                pool = load_pool(checkpoint)
                pool.worlds = pool_worlds(recipe, domain)
                for role, trained in components.trained_models.items():
                    trained.load_state(checkpoint / role)
            if labels:
                evaluator.labeller = components.labeller(recipe, domain, day)
        except BaseException:
            components.models.close()
            raise
        self.loaded = LoadedRun(position, domain, evaluator, components, pool)
        return self.loaded

    def _recover(self, store: Store) -> None:
        """Goes back to the last complete iteration, on disk, in the store and in memory."""
        plan, log = self.plan, self._progress.log
        if self._writing is not None:  # its seats are lost
            wait([self._writing[1]])
            self._writing = None
        position = recover(plan.directory, store, log)
        loaded = self._load(position, labels=0 not in store.evaluated_iterations())
        done = position.iteration
        change_recipe(plan.directory, store, plan.written, plan.changes, done)
        store.write_pool(loaded.pool)
        retain(plan.directory, store, plan.recipe, done)
        log(resuming_line(plan.directory, done, plan.recipe.loop.iterations))
        if again := len(loaded.pool.under_way):
            log(
                f"{again} tasks were under way and begin again: with loop.max_staleness a resumed "
                "run does not repeat bit for bit"
            )
        if any(change.startswith("cluster.seats=") for change in plan.changes):
            log("on another number of seats results are the same up to rounding")

    def _open_environments(self, images: Path | None) -> EnvironmentPool:
        recipe = self.plan.recipe
        return EnvironmentPool(
            self.plan.parts.domain or recipe.domain.name,
            recipe.domain.options,
            environment_workers(recipe.environment),
            recipe.environment.timeout_seconds,
            images,
        )

    def _under_way(self, new: bool) -> Iterator[IterationRecord]:
        """Yields the iterations that are left, with everything open that they need."""
        begun, stopper, progress = time.perf_counter(), Stopper(), self._progress
        directory, recipe = self.plan.directory, self.plan.recipe
        with ExitStack() as stack:
            stack.enter_context(stopper.listening())
            holder = find_holder(directory)
            stack.enter_context(run_lock(directory))
            if holder is not None:
                progress.log(f"process {holder.pid} was killed while it worked on this run")
            store = stack.enter_context(closing(Store(directory / STORE)))
            reporter = Reporter(store, directory, progress.log)
            # Also if the run stops early: the report shows everything that was kept.
            stack.callback(reporter.write)
            if new:
                self._usable()
            else:
                self._recover(store)
            stack.enter_context(progress.live())
            track = stack.enter_context(tracking(recipe, directory, store, progress.warn))
            environments = stack.enter_context(self._open_environments(directory / IMAGES))
            meter, embedder = Meter(progress.warn), find_embedder()
            self.opened = OpenRun(
                begun, stopper, store, reporter, track, environments, meter, embedder
            )
            stack.callback(self._leave, self.opened)
            try:
                yield from self._iterations(self.opened)
            finally:
                self.opened = self._loop = None

    def _iterations(self, opened: OpenRun) -> Iterator[IterationRecord]:
        """Yields the iterations that are left. If a worker is lost, all are restarted, and the
        iteration is repeated from the last checkpoint."""
        losses, kept = 0, None
        while True:
            try:
                return (yield from self._iterations_left(opened))
            except SeatLost as loss:
                opened.stopper.check()
                before, kept = kept, opened.store.last_iteration()
                losses = losses + 1 if kept == before else 1
                if losses == MAX_LOSSES:
                    raise
                self._progress.warn(f"{loss}: all seats are started again")
                self._recover(opened.store)

    def _iterations_left(self, opened: OpenRun) -> Iterator[IterationRecord]:
        recipe, progress, loaded = self.plan.recipe, self._progress, self.loaded
        assert loaded is not None  # it was loaded, or recovered, before anything else was opened
        done, total = loaded.position.iteration, recipe.loop.iterations
        self._loop = loop = self._new_loop(opened, loaded)
        self._evaluate(done, opened, loaded)
        self._report(opened)
        begun = time.perf_counter()
        progress.seconds.pop("iterations", None)  # of the iterations before a worker was lost
        with progress.phase("iterations", total, "iterations") as advance:
            advance(done)
            if done < total:
                progress.log(LEGEND)
            for iteration in range(done + 1, total + 1):
                self._settle(opened, waits=False)
                result = loop.iterate(iteration)
                check_played(result, opened.store, total)
                seconds = (time.perf_counter() - begun) / (iteration - done)
                with opened.stopper.deferred():
                    record = self._keep(result, seconds * (total - iteration), opened, loaded)
                advance(1)
                self._evaluate(iteration, opened, loaded)
                retain(self.plan.directory, opened.store, recipe, iteration)
                self._report(opened)
                yield record
        self._settle(opened)
        seconds = time.perf_counter() - opened.begun
        lines = closing_lines(self.plan.directory, opened.store, recipe, loaded.pool, seconds)
        opened.store.describe({"closing": json.dumps(lines), "finished": now()})
        self.closing = lines

    def _new_loop(self, opened: OpenRun, loaded: LoadedRun) -> Loop:
        recipe, components = self.plan.recipe, loaded.components
        policy, environments = components.train_policy, opened.environments
        adaptive = recipe.feedback.policy_lambda_control == "adaptive"
        return Loop(
            recipe=recipe,
            domain=loaded.domain,
            pool=loaded.pool,
            experience=Experience(recipe, loaded.pool, policy, environments, self._progress),
            judges=components.judges if recipe.reads_scores else JudgePanel({}),
            adapter=components.adapter,
            learners={role: one.learner for role, one in components.trained_models.items()},
            engines=components.engines,
            progress=self._progress,
            agreements=opened.store.agreements() if adaptive else {},
        )

    def _report(self, opened: OpenRun) -> None:
        with self._progress.phase("report", 1, "page"):
            opened.reporter.update()

    def _evaluate(self, iteration: int, opened: OpenRun, loaded: LoadedRun) -> None:
        """Evaluates policy and judge if it is due, and keeps and logs the result."""
        recipe, store, log = self.plan.recipe, opened.store, self._progress.log
        if not loaded.evaluator.due(iteration, store):
            return
        if iteration == 0 and recipe.evaluation.baseline:
            take_baseline(store, recipe, self.plan.directory)
            opened.track(0, store.metrics(0))
            return log(f"before training: as {recipe.evaluation.baseline} has it")
        if self._loop is not None:
            self._loop.experience.finish()
        record = opened.meter.measure(
            loaded.evaluator.evaluate(iteration, loaded.components, opened.environments, store)
        )
        for line in judge_lines(record):
            log(line)
        with opened.stopper.deferred():
            store.record_evaluation(record)
        opened.track(iteration, record.metrics)

    def _keep(
        self, result: IterationResult, seconds_left: float, opened: OpenRun, loaded: LoadedRun
    ) -> IterationRecord:
        """Takes the snapshot of a checkpoint if it is due, keeps the iteration in one transaction,
        and begins to write. Returns what was kept."""
        recipe, iteration, progress = self.plan.recipe, result.number, self._progress
        components, pool, store = loaded.components, loaded.pool, opened.store
        judged = [judged for group in result.groups for judged in group.judged]
        labels = oracle_labels(loaded.domain, [one.trajectory for one in judged])
        write = None
        if iteration % recipe.checkpoints.write_every == 0 or iteration >= recipe.loop.iterations:
            self._settle(opened)
            with progress.phase("checkpoint", 1, "checkpoint"):
                models, folder = components.trained_models, self.plan.directory / CHECKPOINTS
                write = begin_checkpoint(folder, iteration, models, pool)
        record = opened.meter.measure(
            IterationRecord(
                result=result,
                pool=pool,
                feedback=recipe.feedback,
                judges=tuple(recipe.judges),
                labels=labels,
                judge_counts=components.judges.counts(judged),
                usage=components.pop_usage(),
                # The store's own seconds are counted with the next iteration's.
                seconds=progress.pop_seconds(),
                distance=opened.embedder.distance if opened.embedder else None,
                finished=now(),
            )
        )
        with progress.phase("store", 1, "transaction"):
            store.record_iteration(record)
        if write is not None:  # after that: a complete checkpoint is of an iteration in the store
            self._writing = iteration, ThreadPoolExecutor(1, "checkpoint").submit(write)
            record = replace(record, checkpoint=checkpoint_name(iteration))
        opened.track(iteration, record.metrics)
        progress.log(iteration_line(record, recipe.loop.iterations, seconds_left))
        for fault in faults(result.failures, result.crashes):
            progress.warn(fault)
        for warned in find_warnings(store.history(), store.roles()):
            if warned.iteration == iteration:
                progress.warn(warned.line())
        return record

    def _settle(self, opened: OpenRun, waits: bool = True) -> None:
        """Waits for the checkpoint under way, if any (unless `waits` is false), names it in the
        store, and deletes older ones. Raises what writing it raised."""
        if self._writing is None or not (waits or self._writing[1].done()):
            return
        iteration, write = self._writing
        with self._progress.phase("checkpoint", 1, "checkpoint"):
            wait([write])
        self._writing, kept = None, self.plan.recipe.checkpoints
        with opened.stopper.deferred():
            opened.store.record_checkpoint(iteration, write.result())
            prune(self.plan.directory / CHECKPOINTS, kept.keep, kept.every)

    def _leave(self, opened: OpenRun) -> None:
        """Waits for the checkpoint under way when a run stops, and only warns if it fails."""
        if self._writing is not None:
            self._progress.log("waiting until the last checkpoint is written")
            try:
                with opened.stopper.deferred():
                    self._settle(opened)
            except Exception as error:
                self._progress.warn(str(error))
        if self.loaded is not None and self.loaded.components.models.lost:
            self.loaded.components.models.close()
