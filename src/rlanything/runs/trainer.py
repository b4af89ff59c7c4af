"""A run from its recipe to its closing lines: set up, evaluate, turn the loop, keep everything.

Whenever it is stopped, `Run.resume` goes on at the last iteration that was kept, and the result is
bit for bit that of a run that was never stopped.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import torch
import transformers
import yaml

from rlanything import __version__
from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.evaluation.drift import find_embedder
from rlanything.evaluation.judge_eval import JudgeEvalSet
from rlanything.evaluation.labels import oracle_labels
from rlanything.evaluation.success import Evaluation, evaluate
from rlanything.loop import IterationResult, Loop
from rlanything.progress import Progress
from rlanything.records import Task, Trajectory
from rlanything.roles.judges.llm import NullJudge
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.baseline import open_baseline, take_baseline
from rlanything.runs.build import RunComponents, build_components, build_labeller
from rlanything.runs.checkpoint import OPTIMIZER, load_pool, prune, save_checkpoint, sync
from rlanything.runs.checks import run_checks
from rlanything.runs.lock import RunLock, find_holder
from rlanything.runs.metrics.measuring import Meter
from rlanything.runs.recovery import Position, recover
from rlanything.runs.report.writing import Reporter
from rlanything.runs.results import EvaluationRecord, IterationRecord
from rlanything.runs.stopping import Stopped, Stopper
from rlanything.runs.store.store import Store
from rlanything.runs.summary import closing_lines, evaluation_line, iteration_line, judge_line
from rlanything.runs.trackers import check_trackers, tracking
from rlanything.seeds import derive

RECIPE, STORE, CHECKPOINTS = "recipe.yaml", "run.sqlite", "checkpoints"
IMAGES = "images"

MAY_CHANGE = ("environment.", "checkpoints.", "store.", "tracker.", "loop.iterations")
"""What a resumed run may do otherwise: it changes no result, or how many there are."""
MAY_MOVE = re.compile(
    r"(adapter|judge|evaluation\.labeller)\.engine\.(url|key_variable|concurrency|retries|timeout_seconds)="
)
"""Nor does the way to the endpoint of a frozen role."""


class Run:
    """One training run and its directory."""

    def __init__(self, recipe: Recipe, progress: Progress) -> None:
        """A new run. Checks and loads everything before anything is written.

        Raises `RecipeError` if the directory exists, `DomainError` or `ModelError` if a part cannot
        be set up, `TrackerError` for a tracker that is not installed."""
        self._recipe, self._progress = recipe, progress
        self._directory = recipe.directory
        if self._directory.exists():
            raise RecipeError(
                f"run directory {self._directory} exists already; go on with it by `rlanything "
                f"resume {self._directory}`, or choose another with run_dir=PATH"
            )
        if recipe.evaluation.baseline:
            open_baseline(recipe.evaluation.baseline, recipe).close()
        self._at = Position(0, None)
        self._set_up()
        self._labeller = build_labeller(recipe, self._domain)
        self._new = True

    @classmethod
    def resume(cls, directory: Path, overrides: Sequence[str], progress: Progress) -> Self:
        """A run that was stopped, however it was. It goes on when it is told to `train`.

        Raises `RecipeError` for a directory that is no run's and for overrides that would make it
        another run, and what `__init__` raises."""
        path = directory / RECIPE
        if not path.is_file() or not (directory / STORE).is_file():
            raise RecipeError(f"{directory} is no run directory: it has no {RECIPE} or no {STORE}")
        for override in overrides:
            if not override.startswith(MAY_CHANGE) and not MAY_MOVE.match(override):
                raise RecipeError(
                    f"override {override!r}: a resumed run stays the run it was; only "
                    f"{', '.join(each.rstrip('.') for each in MAY_CHANGE)} and the way to an "
                    "endpoint may change. Train another run for anything else"
                )
        run = cls.__new__(cls)
        recipe = load_recipe(path, overrides)
        run._recipe, run._progress = recipe.model_copy(update={"run_dir": directory}), progress
        run._directory, run._new = directory, False
        return run

    def _set_up(self) -> None:
        """Domain and held-out tasks, and pool, models and optimizers as they stand at `_at`."""
        recipe, checkpoint = self._recipe, self._at.checkpoint
        check_trackers(recipe.tracker)
        self._meter = Meter(self._progress.warn)
        self._domain: Domain = load_domain(recipe.domain.name, recipe.domain.options)
        self._held_out = self._load_held_out()
        self._embedder = find_embedder()
        self._cast: RunComponents = build_components(recipe, self._domain, checkpoint)
        if checkpoint is None:
            curriculum = recipe.curriculum
            roots = self._domain.tasks("train", recipe.loop.tasks, derive(recipe.seed, "roots"))
            self._pool = Pool(roots, curriculum.alpha_low, curriculum.alpha_high)
        else:
            self._pool = load_pool(checkpoint)
            for role, trained_model in self._cast.trained_models.items():
                trained_model.learner.load_state(checkpoint / role / OPTIMIZER)

    def _load_held_out(self) -> dict[str, Sequence[Task]]:
        # Not the run's own seed: runs are compared on the same games.
        wanted = self._recipe.evaluation
        if not wanted.episodes:
            return {}
        return {s: self._domain.tasks(s, wanted.episodes, wanted.seed) for s in wanted.splits}

    def train(self) -> list[str]:
        """Runs to the end; returns the closing lines.

        Raises `LockedError` if another process is at it, `Stopped` on SIGINT and SIGTERM; whatever
        it raises has a note that says how to go on."""
        begun = time.perf_counter()
        if self._new:
            self._create_directory()
        self._stopper = Stopper()
        try:
            with self._stopper.listening():
                holder = find_holder(self._directory)
                with RunLock(self._directory):
                    if holder is not None:
                        self._progress.log(f"process {holder.pid} ended here without a word")
                    return self._train(begun)
        except (Exception, Stopped) as error:
            error.add_note(f"go on with `rlanything resume {self._directory}`")
            raise

    def _train(self, begun: float) -> list[str]:
        recipe, progress = self._recipe, self._progress
        self._store = Store(self._directory / STORE)
        self._reporter = Reporter(self._store, self._directory, progress.log)
        try:
            if not self._new:
                self._go_back()
            environment, cast = recipe.environment, self._cast
            with (
                progress.live(),
                tracking(recipe, self._directory, self._store) as self._track,
                EnvironmentPool(
                    recipe.domain.name,
                    recipe.domain.options,
                    environment.workers,
                    environment.timeout_seconds,
                    self._directory / IMAGES,
                ) as environments,
            ):
                self.environments = environments
                loop = Loop(
                    recipe=recipe,
                    domain=self._domain,
                    pool=self._pool,
                    policy=cast.train_policy,
                    judge=cast.critic if recipe.reads_scores else NullJudge(),
                    adapter=cast.adapter,
                    policy_learner=cast.policy.learner,
                    judge_learner=cast.judge.learner if cast.judge else None,
                    environments=environments,
                    progress=progress,
                )
                self._turn(loop)
            lines = closing_lines(
                self._directory,
                self._store,
                recipe.evaluation.splits,
                self._pool,
                time.perf_counter() - begun,
            )
            self._store.describe({"closing": json.dumps(lines), "finished": _now()})
            return lines
        finally:
            try:
                # Whether it ends here or stops: what was kept until now is in the report.
                self._reporter.write()
            finally:
                self._store.close()

    def _go_back(self) -> None:
        """To the last iteration that is whole."""
        self._at = recover(self._directory, self._store, self._progress.log)
        self._set_up()
        examined = 0 in self._store.evaluated_iterations()
        self._labeller = None if examined else build_labeller(self._recipe, self._domain)
        self._store.write_pool(self._pool)
        self._retain(self._at.iteration)
        self._progress.log(f"resuming after iteration {self._at.iteration}")

    def _turn(self, loop: Loop) -> None:
        done, iterations = self._at.iteration, self._recipe.loop.iterations
        self._sit(done)
        self._report()
        turning = time.perf_counter()
        with self._progress.phase("iterations", iterations, "turns") as advance:
            advance(done)
            for iteration in range(done + 1, iterations + 1):
                # What an engine remembers changes no answer but for rounding; a resumed run's
                # remembers nothing.
                for engine in self._cast.engines:
                    engine.sync_weights()
                turn = loop.iterate(iteration)
                for trained_model in self._cast.trained_models.values():
                    trained_model.engine.sync_weights()
                seconds = (time.perf_counter() - turning) / (iteration - done)
                with self._stopper.deferred():
                    self._keep(turn, seconds * (iterations - iteration))
                advance(1)
                self._sit(iteration)
                self._report()

    def _report(self) -> None:
        with self._progress.phase("report", 1, "page"):
            self._reporter.update()

    def _create_directory(self) -> None:
        """Recipe and store appear together or not at all."""
        partial = self._directory.with_name(f".{self._directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        recipe = self._recipe.model_dump(mode="json")
        header = (
            f"# rlanything {__version__}, python {platform.python_version()}, "
            f"torch {torch.__version__}, transformers {transformers.__version__}\n"
        )
        path = partial / RECIPE
        path.write_text(header + yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
        store = Store.create(partial / STORE)
        store.describe({"recipe": json.dumps(recipe), "version": __version__, "begun": _now()})
        store.close()
        sync(path)
        sync(partial)
        partial.rename(self._directory)
        sync(self._directory.parent)

    def _sit(self, iteration: int) -> None:
        """Policy and judge are examined on what they never train on, if it is time; stored and
        said. The judge always reads the episodes that were played before training."""
        recipe, progress = self._recipe, self._progress
        last, every = recipe.loop.iterations, recipe.evaluation.every
        due = iteration in (0, last) or (every and iteration % every == 0)
        if not due or not self._held_out or iteration in self._store.evaluated_iterations():
            return
        if iteration == 0 and recipe.evaluation.baseline:
            take_baseline(self._store, recipe)
            self._track(0, self._store.metrics(0))
            return progress.log(f"before training: as {recipe.evaluation.baseline} found it")
        evaluations = [self._evaluate(split) for split in self._held_out]
        for each in evaluations:
            progress.log(evaluation_line(iteration, each))
        played: list[Trajectory] = []
        if iteration == 0:
            played = [trajectory for each in evaluations for trajectory in each.trajectories]
            played = played[: recipe.evaluation.judged_episodes]
        labels = self._labels(played) if played else self._store.judge_eval_labels()
        judge_eval = JudgeEvalSet(played or self._store.judge_eval_episodes(), labels)
        seed = derive(recipe.seed, "examination")
        judge = judge_eval.evaluate(self._cast.critic, recipe.feedback.judge_lambda, seed, progress)
        usage = self._cast.pop_usage()
        if self._labeller is not None:
            usage |= self._labeller.pop_usage()
            self._labeller = None  # and with it its model: nobody asks again
        record = self._meter.measure(
            EvaluationRecord(
                number=iteration,
                evaluations=evaluations,
                judge=judge,
                usage=usage,
                judge_episodes=played,
                labels=labels,
            )
        )
        if judge_eval.trajectories:
            progress.log(judge_line(record))
        with self._stopper.deferred():
            self._store.record_evaluation(record)
        self._track(iteration, record.metrics)

    def _labels(self, played: Sequence[Trajectory]) -> dict[str, list[int]]:
        """Of the steps that the judge will always be examined on."""
        if self._labeller is None:
            return oracle_labels(self._domain, played)
        return self._labeller.label(played, derive(self._recipe.seed, "labels"), self._progress)

    def _evaluate(self, split: str) -> Evaluation:
        """The policy on a held-out split."""
        recipe = self._recipe
        return evaluate(
            self._cast.eval_policy,
            self.environments,
            self._held_out[split],
            split,
            max_steps=recipe.evaluation.max_steps or recipe.loop.max_steps,
            parallel_episodes=recipe.environment.parallel_episodes,
            seed=derive(recipe.seed, "evaluation"),
            progress=self._progress,
            rollouts=recipe.evaluation.rollouts_per_task,
        )

    def _keep(self, result: IterationResult, seconds_left: float) -> IterationRecord:
        """Checkpoint first, then one transaction that names it, then older ones may go. Returns
        what was kept."""
        recipe, iteration = self._recipe, result.number
        judged = [judged for group in result.groups for judged in group.judged]
        labels = oracle_labels(self._domain, [one.trajectory for one in judged])
        with self._progress.phase("checkpoint", 1, "checkpoint"):
            checkpoint = save_checkpoint(
                self._directory / CHECKPOINTS, iteration, self._cast.trained_models, self._pool
            )
        record = self._meter.measure(
            IterationRecord(
                result=result,
                pool=self._pool,
                feedback=recipe.feedback.settings(),
                labels=labels,
                judge_counts=self._cast.critic.counts(judged),
                usage=self._cast.pop_usage(),
                # The store's own seconds are counted with the next iteration's.
                seconds=self._progress.pop_seconds(),
                distance=self._embedder.distance if self._embedder else None,
                checkpoint=checkpoint,
                finished=_now(),
            )
        )
        with self._progress.phase("store", 1, "transaction"):
            self._store.record_iteration(record)
        self._track(iteration, record.metrics)
        self._retain(iteration)
        self._progress.log(iteration_line(record, recipe.loop.iterations, seconds_left))
        for check in run_checks(self._store.history()):
            if check.iteration == iteration:
                self._progress.warn(check.line())
        return record

    def _retain(self, iteration: int) -> None:
        """Lets go of what the recipe does not keep, after an iteration that is kept."""
        recipe = self._recipe
        prune(self._directory / CHECKPOINTS, recipe.checkpoints.keep, recipe.checkpoints.every)
        if recipe.store.keep_iterations:
            self._store.forget_texts(iteration - recipe.store.keep_iterations + 1)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
