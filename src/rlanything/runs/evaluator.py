"""Evaluation of a run's policy and judge on held-out tasks, which never train."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest

from rlanything.algorithm.curriculum import Pool, label_of
from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks
from rlanything.evaluation.judge_eval import JudgeEvalSet
from rlanything.evaluation.labels import Labeller, oracle_labels
from rlanything.evaluation.success import Evaluation, evaluate
from rlanything.progress import Progress
from rlanything.records import Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import LABELLER, RunComponents
from rlanything.runs.results import EvaluationRecord
from rlanything.runs.store.store import Store
from rlanything.runs.summary import evaluation_line
from rlanything.seeds import derive


class Evaluator:
    """Evaluates policy and judge on held-out tasks, the same for all runs with the same evaluation
    settings."""

    def __init__(self, recipe: Recipe, domain: Domain, progress: Progress) -> None:
        """Raises `DomainError` for a split that the domain does not have."""
        self._recipe, self._domain, self._progress = recipe, domain, progress
        self.labeller: Labeller | None = None
        """Labels the steps of the judge's episodes, once; None: the domain's oracle does."""
        settings = recipe.evaluation
        splits = recipe.splits if settings.episodes else ()
        # Not the run's own seed: runs are compared on the same tasks.
        self._tasks: dict[str, Sequence[Task]] = {
            split: checked_tasks(domain, split, settings.episodes, settings.seed)
            for split in splits
        }

    def due(self, iteration: int, store: Store) -> bool:
        """Whether an evaluation is planned after this iteration, and `store` does not have it."""
        last, every = self._recipe.loop.iterations, self._recipe.evaluation.every
        planned = iteration == 0 or iteration >= last or (every and iteration % every == 0)
        return bool(planned and self._tasks and iteration not in store.evaluated_iterations())

    def warn_of(self, pool: Pool) -> None:
        """Warns of held-out tasks that are also trained on. Tasks with identical content are
        matched by id; if most tasks share their content, all are."""
        asked = Counter(_content(slot.root) for slot in pool.slots)
        alone = {key for key, count in asked.items() if count == 1}
        trained = {slot.id for slot in pool.slots} | (
            alone if 2 * len(alone) > len(asked) else set()
        )
        for split, tasks in self._tasks.items():
            shared = [task.id for task in tasks if trained & {task.id, _content(task)}]
            if shared:
                self._progress.warn(
                    f"{len(shared)} of the {len(tasks)} held-out tasks of split {split!r} are "
                    f"trained on, such as {min(shared)!r}: gains on them do not show "
                    "generalization; give the split tasks that repeat neither id nor instruction "
                    "and data of one that trains"
                )

    def evaluate(
        self,
        iteration: int,
        components: RunComponents,
        environments: EnvironmentPool,
        store: Store,
    ) -> EvaluationRecord:
        """Returns the success of the policy on every split, and the accuracy of the judge. The
        judge always reads the episodes that were played before training, which `store` keeps."""
        recipe = self._recipe
        seed = derive(recipe.seed, "evaluation")
        rollouts = recipe.evaluation.rollouts_per_task
        evaluations = [
            self.play(components, environments, split, tasks, seed, rollouts)
            for split, tasks in self._tasks.items()
        ]
        for evaluation in evaluations:
            self._progress.log(evaluation_line(iteration, evaluation))
        played: list[Trajectory] = []
        if iteration == 0:
            played = self._judged(evaluations)
        labels = self._labels(played) if played else store.judge_eval_labels()
        episodes = JudgeEvalSet(played or store.judge_eval_episodes(), labels)
        weight, judge_seed = recipe.feedback.judge_lambda, derive(recipe.seed, "examination")
        judges = {
            name: episodes.evaluate(judge, weight, judge_seed, self._progress)
            for name, judge in components.judges.judges.items()
        }
        usage = components.pop_usage()
        if self.labeller is not None:
            usage |= self.labeller.pop_usage()
            self.labeller = None
            components.models.drop(LABELLER)  # it is not needed again
        return EvaluationRecord(
            number=iteration,
            evaluations=evaluations,
            judges=judges,
            usage=usage,
            judge_episodes=played,
            labels=labels,
        )

    def play(
        self,
        components: RunComponents,
        environments: EnvironmentPool,
        split: str,
        tasks: Sequence[Task],
        seed: int,
        rollouts: int,
    ) -> Evaluation:
        """Returns the success of the current policy on the given tasks of a split."""
        recipe = self._recipe
        return evaluate(
            components.eval_policy,
            environments,
            tasks,
            split,
            max_steps=recipe.evaluation.max_steps or recipe.loop.max_steps,
            parallel_episodes=recipe.environment.parallel_episodes,
            lockstep=recipe.environment.lockstep,
            seed=seed,
            progress=self._progress,
            rollouts=rollouts,
        )

    def _judged(self, evaluations: Sequence[Evaluation]) -> list[Trajectory]:
        """Returns the episodes that judges are evaluated on, as each player saw them: the first
        ones, with several worlds of each world in turn."""
        played = [t for evaluation in evaluations for t in evaluation.trajectories]
        if self._recipe.domain.worlds:
            by_world: dict[str, list[Trajectory]] = defaultdict(list)
            for trajectory in played:
                by_world[label_of(trajectory.task.id)].append(trajectory)
            turns = chain.from_iterable(zip_longest(*by_world.values()))
            played = [trajectory for trajectory in turns if trajectory is not None]
        judged = played[: self._recipe.evaluation.judged_episodes]
        return [view for trajectory in judged for view in trajectory.views]

    def _labels(self, played: Sequence[Trajectory]) -> dict[str, list[int]]:
        """Returns the labels of the steps that the judge will always be evaluated on."""
        if self.labeller is None:
            return oracle_labels(self._domain, played)
        return self.labeller.label(played, derive(self._recipe.seed, "labels"), self._progress)


def _content(task: Task) -> str:
    """Returns all of a task but its id."""
    return json.dumps([task.instruction, task.kind, task.data], sort_keys=True)
