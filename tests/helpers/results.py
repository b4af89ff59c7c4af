"""Records of iterations and evaluations, made without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlanything.algorithm.curriculum import Pool
from rlanything.domains.base import EpisodeError
from rlanything.evaluation.counts import Counts
from rlanything.evaluation.diagnostics import diagnose
from rlanything.evaluation.judge_eval import JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.loop import IterationResult
from rlanything.records import Completion, Sample, Step, Task, Trajectory
from rlanything.roles.adapter import Proposal
from rlanything.rollout.groups import RolloutGroup
from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers

NOTHING = diagnose([], [], [], 1.0)
STEP = Step("", Completion.unsampled(""), "go", True, "")


def iteration_record(
    number: int,
    *,
    groups: Sequence[RolloutGroup],
    labels: Mapping[str, Sequence[int]],
    samples: Mapping[str, Sequence[Sample]],
    proposals: Sequence[Proposal],
    failures: Sequence[tuple[str, str]],
    pool: Pool,
    metrics: Numbers,
    checkpoint: str,
    finished: str,
) -> IterationRecord:
    """`samples` by role; `failures`: (task, reason)."""
    result = IterationResult(
        number,
        groups=list(groups),
        failures=tuple(EpisodeError(*failure) for failure in failures),
        proposals=list(proposals),
        samples={role: list(own) for role, own in samples.items()},
    )
    return IterationRecord(
        result=result,
        pool=pool,
        labels=labels,
        metrics=metrics,
        checkpoint=checkpoint,
        finished=finished,
    )


def evaluation_record(
    number: int,
    rows: Mapping[str, Sequence[tuple[str, str, int, int]]],
    counts: Mapping[str, Mapping[str, Counts]],
    metrics: Numbers,
    judge_episodes: Sequence[Trajectory] = (),
    labels: Mapping[str, Sequence[int]] | None = None,
) -> EvaluationRecord:
    """`rows`: (task, kind, outcome, steps) by split; with an outcome of 0 it was not played.
    `counts` by judge and item."""
    evaluations = [
        Evaluation(
            split,
            tuple(
                Trajectory(f"{split}/{i}", Task(task, "", kind), (STEP,) * steps, outcome)
                for i, (task, kind, outcome, steps) in enumerate(played)
                if outcome
            ),
            unplayable=tuple(
                Task(task, "", kind) for task, kind, outcome, _ in played if not outcome
            ),
            seconds=0.0,
        )
        for split, played in rows.items()
    ]
    return EvaluationRecord(
        number=number,
        evaluations=evaluations,
        judges={judge: JudgeEvaluation(NOTHING, dict(own)) for judge, own in counts.items()},
        judge_episodes=judge_episodes,
        labels=labels or {},
        metrics=metrics,
    )
