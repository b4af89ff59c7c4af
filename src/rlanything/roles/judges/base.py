"""The judge interface, and judges without a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.signals import TaskSignals, task_signals
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory

OnJudgements: TypeAlias = Callable[[int], None]
"""Called with each number of judgements made, for a progress bar."""
ScoreFunction: TypeAlias = Callable[[Trajectory, int], int | tuple[int, str]]
"""Scores step i of a trajectory: +1, -1, or 0 for no verdict; or a pair of score and reason."""


class JudgeError(ValueError):
    """A judge cannot be used, or gave no score; the message is one line with the remedy."""


@runtime_checkable
class Judge(Protocol):
    """A judge (generative reward model): scores every step, and turns the scores into signals.

    Inherit `StepJudge` to have `signals` and `counts` of a judge that scores steps one by one."""

    samples: int
    """m, the number of judgements per step."""

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories in order, with m judgements for every step."""
        ...

    def signals(
        self, judged: Sequence[JudgedTrajectory], settings: FeedbackSettings
    ) -> TaskSignals:
        """Returns the advantages of policy and judge from the judged trajectories of one task."""
        ...

    def counts(self, judged: Sequence[JudgedTrajectory]) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns the judge's own measures beyond the diagnostics: by task and measure, hits and
        total."""
        ...


class StepJudge:
    """Base class of judges that score steps one by one: Eq. 1 and Eq. 2 by `task_signals`."""

    samples = 1

    def signals(
        self, judged: Sequence[JudgedTrajectory], settings: FeedbackSettings
    ) -> TaskSignals:
        """Returns the advantages of policy and judge from the judged trajectories of one task."""
        return group_signals(judged, {"judge": judged}, settings)

    def counts(self, judged: Sequence[JudgedTrajectory]) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns nothing: the diagnostics cover step scores."""
        del judged
        return {}


def group_signals(
    judged: Sequence[JudgedTrajectory],
    given: Mapping[str, Sequence[JudgedTrajectory]],
    settings: FeedbackSettings,
    weights: Mapping[str, float] = MappingProxyType({}),
) -> TaskSignals:
    """Returns `task_signals` of the trajectories of one task with what each judge has given them,
    by its name."""
    trajectories = [member.trajectory for member in judged]
    gains = [member.gains for member in judged if member.gains is not None]
    return task_signals(
        [trajectory.outcome for trajectory in trajectories],
        {name: [one.scores for one in its] for name, its in given.items()},
        settings,
        [trajectory.reward for trajectory in trajectories],
        [[(step.observation, step.image) for step in one.steps] for one in trajectories],
        weights=weights,
        lengths=[[len(step.completion.token_ids) for step in one.steps] for one in trajectories],
        grades={
            name: [one.grades for one in its]
            for name, its in given.items()
            if all(each.grade is not None for one in its for row in one.judgements for each in row)
        },
        gains=gains if len(gains) == len(judged) else None,
    )


class FunctionJudge(StepJudge):
    """A judge made from a function: `function(trajectory, i)` scores step i, once (m = 1).

    The function returns +1 or -1, 0 for no verdict, or a pair of score and reason, which the report
    shows. It must be deterministic: a resumed run calls it again."""

    def __init__(self, function: ScoreFunction) -> None:
        """Raises `JudgeError` if the function is not callable."""
        if not callable(function):
            raise JudgeError(f"{function!r:.80} is no function: give one of (trajectory, i)")
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.__wrapped__, "__qualname__", type(self.__wrapped__).__qualname__)

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories with one judgement of each step, [trajectories][steps][1].

        Raises `JudgeError` if the function fails or returns a value that is not a score."""
        del seed
        judged: list[JudgedTrajectory] = []
        for trajectory in trajectories:
            steps = range(len(trajectory.steps))
            judged.append(
                JudgedTrajectory(trajectory, tuple((self._score(trajectory, i),) for i in steps))
            )
            if on_judgements is not None:
                on_judgements(len(trajectory.steps))
        return judged

    def _score(self, trajectory: Trajectory, i: int) -> Judgement:
        try:
            returned = self.__wrapped__(trajectory, i)
        except Exception as error:
            raise JudgeError(
                f"judge {self.name} failed at step {i} of {trajectory.id} "
                f"({type(error).__name__}: {error}): "
                "fix it, or return 0 where it has no verdict"
            ) from error
        pair = returned if isinstance(returned, tuple) else (returned, "")
        score, reason = pair if len(pair) == 2 else (pair, "")
        # False would otherwise pass for 0, no verdict.
        if score not in (-1, 0, 1) or isinstance(score, (bool, np.bool_)):
            raise JudgeError(
                f"judge {self.name} returned {score!r:.40} for step {i} of {trajectory.id}: return "
                "+1, -1, or 0 for no verdict, or a pair of that and the reason"
            )
        return Judgement(Completion.unsampled(str(reason)), int(score))
