"""The oracle judge: the domain's own step labels, made wrong at a given rate.

A diagnostic: it separates the policy's learning from the judge's quality."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlanything.domains.base import Domain, DomainError
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import JudgeError, StepJudge
from rlanything.seeds import derive


class OracleJudge(StepJudge):
    """Scores every step with its label, each judgement flipped with probability `noise`."""

    def __init__(self, domain: Domain, samples: int, noise: float = 0.0) -> None:
        """Raises `JudgeError` unless noise is in [0, 1]."""
        if not isinstance(noise, int | float) or not 0 <= noise <= 1:
            raise JudgeError(f"judge.options.noise is {noise!r:.40}: give a number from 0 to 1")
        self.samples = samples
        self._domain = domain
        self._noise = noise

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: Callable[[int], None] | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns m judgements for every step, [trajectories][steps][m], without text or tokens.

        Raises `DomainError` if the domain has no labels."""
        judged: list[JudgedTrajectory] = []
        for trajectory in trajectories:
            labels = self._domain.oracle(trajectory.task, trajectory.steps)
            if labels is None:
                raise DomainError(
                    f"task {trajectory.task.id}: the domain has no step labels; "
                    "the judge `oracle` needs them, choose a model as judge (judge.name=llm)"
                )
            rng = np.random.default_rng(derive(seed, trajectory.id, "oracle"))
            flipped = rng.random((len(labels), self.samples)) < self._noise
            scores = np.where(flipped, -1, 1) * np.array(labels, dtype=int)[:, None]
            judged.append(
                JudgedTrajectory(
                    trajectory,
                    tuple(
                        tuple(Judgement(Completion.unsampled(""), int(score)) for score in step)
                        for step in scores
                    ),
                )
            )
            if on_judgements is not None:
                on_judgements(scores.size)
        return judged
