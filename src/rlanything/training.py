"""A run from its recipe to its closing lines: set up, evaluate, turn the loop, keep everything."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import torch
import transformers
import yaml

from rlanything import __version__
from rlanything.assembly import Cast, assemble
from rlanything.config import Recipe, RecipeError
from rlanything.curriculum import Pool
from rlanything.environments.base import Domain
from rlanything.environments.registry import load_domain
from rlanything.environments.workers import EnvironmentPool
from rlanything.evaluation.judge_exam import Examination, JudgeExam, diagnose_judged, oracle_labels
from rlanything.evaluation.success import Evaluation, evaluate
from rlanything.loop import Loop, Turn
from rlanything.records import Task
from rlanything.runs.checkpoint import save_checkpoint
from rlanything.runs.metrics import turn_metrics
from rlanything.runs.store import Store
from rlanything.runs.summary import closing_lines, evaluation_line, judge_line, turn_line
from rlanything.seeds import derive
from rlanything.view import View


class Run:
    """One training run and its directory."""

    def __init__(self, recipe: Recipe, view: View) -> None:
        """Checks and loads everything before anything is written.

        Raises `RecipeError` if the directory exists, `DomainError` or `ModelError` if a part cannot
        be set up."""
        self._recipe, self._view = recipe, view
        self._directory = recipe.directory
        if self._directory.exists():
            raise RecipeError(
                f"run directory {self._directory} exists already; choose another with run_dir=PATH "
                "or remove it"
            )
        self._domain: Domain = load_domain(recipe.domain.name, recipe.domain.options)
        roots = self._domain.tasks("train", recipe.loop.tasks, derive(recipe.seed, "roots"))
        curriculum = recipe.curriculum
        self._pool = Pool(roots, curriculum.alpha_low, curriculum.alpha_high)
        self._held_out = self._load_held_out()
        self._cast: Cast = assemble(recipe, self._domain)

    def _load_held_out(self) -> dict[str, Sequence[Task]]:
        # Not the run's own seed: runs are compared on the same games.
        wanted = self._recipe.evaluation
        if not wanted.episodes:
            return {}
        return {s: self._domain.tasks(s, wanted.episodes, wanted.seed) for s in wanted.splits}

    def train(self) -> list[str]:
        """Runs to the end; returns the closing lines."""
        recipe, view, cast = self._recipe, self._view, self._cast
        begun = time.perf_counter()
        self._store = self._create_directory()
        options = recipe.domain.options
        environment = recipe.environment
        with (
            view.live(),
            EnvironmentPool(
                recipe.domain.name, options, environment.workers, environment.timeout_seconds
            ) as environments,
        ):
            self.environments = environments
            loop = Loop(
                recipe=recipe,
                pool=self._pool,
                policy=cast.actor,
                judge=cast.critic,
                adapter=cast.adapter,
                policy_learner=cast.policy.learner,
                judge_learner=cast.judge.learner if cast.judge else None,
                environments=environments,
                view=view,
            )
            first = last = self._evaluate(0)
            episodes = [trajectory for each in first for trajectory in each.trajectories]
            exam = JudgeExam(self._domain, episodes[: recipe.evaluation.judged_episodes])
            judged_first = judged_last = self._examine(exam, 0)
            turning = time.perf_counter()
            with view.phase("iterations", recipe.loop.iterations, "turns") as progress:
                for iteration in range(1, recipe.loop.iterations + 1):
                    turn = loop.iterate(iteration)
                    for trainee in cast.trainees.values():
                        trainee.engine.weights_changed()
                    self._keep(turn, time.perf_counter() - turning)
                    progress(1)
                    if self._evaluates_after(iteration):
                        last = self._evaluate(iteration)
                        judged_last = self._examine(exam, iteration)
        lines = closing_lines(
            self._directory,
            self._pool,
            list(zip(first, last, strict=True)),
            (judged_first.diagnostics, judged_last.diagnostics),
            exam.gain(judged_first, judged_last) if episodes else None,
            time.perf_counter() - begun,
        )
        self._store.describe({"closing": json.dumps(lines), "finished": _now()})
        self._store.close()
        return lines

    def _create_directory(self) -> Store:
        self._directory.mkdir(parents=True)
        recipe = self._recipe.model_dump(mode="json")
        header = (
            f"# rlanything {__version__}, python {platform.python_version()}, "
            f"torch {torch.__version__}, transformers {transformers.__version__}\n"
        )
        text = header + yaml.safe_dump(recipe, sort_keys=False)
        (self._directory / "recipe.yaml").write_text(text, encoding="utf-8")
        store = Store.create(self._directory / "run.sqlite")
        store.describe({"recipe": json.dumps(recipe), "version": __version__, "begun": _now()})
        return store

    def _evaluates_after(self, iteration: int) -> bool:
        every = self._recipe.evaluation.every
        return iteration == self._recipe.loop.iterations or bool(every and iteration % every == 0)

    def _evaluate(self, iteration: int) -> list[Evaluation]:
        """The policy on every held-out split; stored and said."""
        recipe = self._recipe
        results: list[Evaluation] = []
        for split, tasks in self._held_out.items():
            result = evaluate(
                self._cast.examinee,
                self.environments,
                tasks,
                split,
                max_steps=recipe.evaluation.max_steps or recipe.loop.max_steps,
                parallel_episodes=recipe.environment.parallel_episodes,
                seed=derive(recipe.seed, "evaluation"),
                view=self._view,
            )
            rows = [(t.task.id, t.task.kind, t.outcome, len(t.steps)) for t in result.trajectories]
            self._store.record_evaluation(iteration, split, rows)
            self._view.say(evaluation_line(iteration, result))
            results.append(result)
        metrics = {
            f"evaluation/{each.split}/success": each.success.estimate
            for each in results
            if each.success is not None
        }
        self._store.record_metrics(iteration, metrics)
        return results

    def _examine(self, exam: JudgeExam, iteration: int) -> Examination:
        """The judge on recorded held-out episodes; stored and said."""
        recipe = self._recipe
        seed = derive(recipe.seed, "examination")
        result = exam.sit(self._cast.critic, recipe.feedback.judge_weight, seed, self._view)
        found = asdict(result.diagnostics)
        self._store.record_metrics(
            iteration, {f"evaluation/judge/{name}": value for name, value in found.items()}
        )
        if result.judged:
            self._view.say(judge_line(iteration, result.diagnostics))
        return result

    def _keep(self, turn: Turn, seconds: float) -> None:
        """Checkpoint first, then one transaction that names it."""
        recipe, cast = self._recipe, self._cast
        judged = [each for group in turn.groups for each in group.judged]
        labels = oracle_labels(self._domain, [each.trajectory for each in judged])
        diagnostics = diagnose_judged(judged, labels, recipe.feedback.judge_weight)
        checkpoint = save_checkpoint(
            self._directory / "checkpoints",
            turn.iteration,
            cast.trainees,
            self._pool,
        )
        metrics = turn_metrics(turn, diagnostics, self._view.take_seconds())
        self._store.record_iteration(
            turn.iteration,
            groups=turn.groups,
            labels=labels,
            samples={"policy": turn.policy_samples, "judge": turn.judge_samples},
            proposals=[
                (p.slot, p.task.id if p.task else None, p.critics, p.refused)
                for p in turn.proposals
            ],
            failures=[(failure.task_id, failure.reason) for failure in turn.failures],
            pool=self._pool,
            metrics=metrics,
            checkpoint=checkpoint,
            finished=_now(),
        )
        left = seconds / turn.iteration * (recipe.loop.iterations - turn.iteration)
        self._view.say(turn_line(turn.iteration, recipe.loop.iterations, metrics, left))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
