"""Labels of good and bad steps: a domain's ground truth, or the verdict of a stronger model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from rlanything.domains.base import Domain, DomainError
from rlanything.evaluation.diagnostics import majority
from rlanything.progress import Progress
from rlanything.records import Trajectory
from rlanything.roles.chat_model import ChatModel
from rlanything.roles.judges.llm import LLMJudge


def oracle_labels(domain: Domain, trajectories: Sequence[Trajectory]) -> dict[str, list[int]]:
    """Returns the oracle's step labels by trajectory, of each player's view; trajectories that it
    cannot label are missing. Raises `DomainError` for invalid labels."""
    labels: dict[str, list[int]] = {}
    for trajectory in chain.from_iterable(whole.views for whole in trajectories):
        of_steps = domain.oracle(trajectory.task, trajectory.steps)
        if of_steps is not None:
            labels[trajectory.id] = _checked(of_steps, trajectory)
    return labels


def _checked(labels: Sequence[int], trajectory: Trajectory) -> list[int]:
    """Returns the labels as Python ints, because the store does not take numpy's."""
    # Booleans would pass as 0 and 1.
    numbers = [label for label in labels if not isinstance(label, bool | np.bool_)]
    known = [label for label in numbers if label in (-1, 0, 1)]
    if len(known) == len(labels) == len(trajectory.steps):
        return [int(label) for label in known]
    raise DomainError(
        f"the oracle labels the {len(trajectory.steps)} step(s) of task {trajectory.task.id!r} "
        f"with {list(labels)!r:.200}: return one number per step, 1 (good), -1 (bad) or 0 "
        "(unknown), or None instead of a list"
    )


class Labeller:
    """A model stronger than the judge, whose majority vote is a step's label, as in the paper's
    Process Acc. It reads the same prompts as the judge."""

    def __init__(self, chat_model: ChatModel, judge: LLMJudge) -> None:
        """`judge` judges with the model behind `chat_model`."""
        self._chat_model = chat_model
        self._judge = judge

    def label(
        self, trajectories: Sequence[Trajectory], seed: int, progress: Progress
    ) -> dict[str, list[int]]:
        """Returns [steps] in {-1, 0, +1} by trajectory; 0 for a tie."""
        count = sum(len(trajectory.steps) for trajectory in trajectories) * self._judge.samples
        with progress.phase("eval labels", count, "judgements") as advance:
            judged = self._judge.judge(trajectories, seed, advance)
        return {
            episode.trajectory.id: majority(np.array(episode.scores)).tolist()
            for episode in judged
            if episode.scores
        }

    def pop_usage(self) -> dict[str, int]:
        """Returns the model's usage since the last call, as `labeller/quantity`."""
        return {f"labeller/{name}": count for name, count in self._chat_model.pop_usage().items()}
