"""The results of an iteration and of an evaluation, one object each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rlanything.algorithm.feedback import FeedbackSettings

if TYPE_CHECKING:  # reading a store needs neither the loop nor torch
    from rlanything.algorithm.curriculum import Pool
    from rlanything.evaluation.counts import Counts
    from rlanything.evaluation.judge_eval import JudgeEvaluation
    from rlanything.evaluation.success import Evaluation
    from rlanything.loop import IterationResult
    from rlanything.records import JudgedTrajectory, Trajectory
    from rlanything.rollout.groups import RolloutGroup

Numbers: TypeAlias = Mapping[str, float | None]
"""Metrics by name; None if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IterationRecord:
    """The results of one iteration, with measurements."""

    result: IterationResult
    pool: Pool
    """The pool after the iteration."""
    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)
    judges: Sequence[str] = ("judge",)
    """Names of the roles that score."""
    labels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The oracle's labels of the steps of each trajectory that it can label: [steps] in {-1, 0,
    +1}."""
    judge_counts: Mapping[str, Mapping[str, Counts]] = field(default_factory=dict)
    """Counts of each judge's own measures, by judge and task."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Requests and tokens of the models, as `role/quantity`."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    distance: Callable[[str, str], float] | None = None
    """Cosine distance of two sentences; None without the extra `drift`."""
    checkpoint: str = ""
    """Name of the checkpoint; empty: none is written. It is complete by the end of the next
    iteration that writes one, or of the run."""
    finished: str = ""
    """Time at which it was finished, in ISO 8601."""
    metrics: Numbers = field(default_factory=dict)

    def __repr__(self) -> str:
        """Returns one line, for notebooks: the record holds every token of its iteration."""
        success = self.metrics.get("rollouts/success")
        share = "" if success is None else f" ({success:.1%} won)"
        return (
            f"<IterationRecord {self.number}: {len(self.judged)} episodes{share} of "
            f"{len(self.groups)} tasks; {len(self.metrics)} metrics, see .metrics and .groups>"
        )

    @property
    def number(self) -> int:
        """The iteration, counted from 1."""
        return self.result.number

    @property
    def groups(self) -> list[RolloutGroup]:
        """The rollout groups, with their judgements and signals."""
        return self.result.groups

    @property
    def judged(self) -> list[JudgedTrajectory]:
        """All judged trajectories, group by group."""
        return [judged for group in self.groups for judged in group.judged]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """One evaluation of policy and judges on held-out tasks."""

    number: int
    """The iteration after which it was made; 0: before training."""
    evaluations: Sequence[Evaluation]
    """Evaluations of the policy, one per split."""
    judges: Mapping[str, JudgeEvaluation]
    """Evaluations of the judges, by name."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Requests and tokens of the models, as `role/quantity`."""
    judge_episodes: Sequence[Trajectory] = ()
    """The episodes that judges are evaluated on, if they are new."""
    labels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Labels of the steps of those episodes, by episode."""
    metrics: Numbers = field(default_factory=dict)
