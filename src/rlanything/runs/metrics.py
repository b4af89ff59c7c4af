"""The numbers of an iteration, by name: `room/quantity`. `docs/metrics.md` says what each means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from rlanything.algorithm.curriculum import Pool
from rlanything.algorithm.feedback import FeedbackSettings, in_window
from rlanything.evaluation.counts import pooled
from rlanything.evaluation.diagnostics import Diagnostics
from rlanything.evaluation.judge_eval import JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.loop import IterationResult
from rlanything.records import Sample
from rlanything.roles.adapter import Proposal
from rlanything.rollout.groups import RolloutGroup


def iteration_metrics(
    turn: IterationResult,
    diagnostics: Diagnostics,
    settings: FeedbackSettings,
    counted: Mapping[str, float],
    usage: Mapping[str, int],
    seconds: Mapping[str, float],
) -> dict[str, float | None]:
    """Everything counted in one turn; `counted` of the judge by measure, `usage` of models as
    `role/quantity`. None: there was nothing to count."""
    trajectories = [each.trajectory for group in turn.groups for each in group.judged]
    active = [group for group in turn.groups if not group.scheduled.candidate]
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    return {
        "rollouts/episodes": len(trajectories),
        "rollouts/steps": len(steps),
        "rollouts/success": _mean([trajectory.outcome == 1 for trajectory in trajectories]),
        "rollouts/invalid_share": _mean([not step.valid for step in steps]),
        "rollouts/failures": len(turn.failures),
        "tasks/active_accuracy": _mean([group.accuracy for group in active]),
        "tasks/accepted": len(turn.accepted),
        "tasks/rejected": len(turn.rejected),
        **_funnel(turn.proposals),
        **_signals(turn, settings),
        **{f"policy/{name}": value for name, value in turn.policy_statistics.items()},
        **{f"judge/{name}": value for name, value in turn.judge_statistics.items()},
        **{f"judge/{name}": value for name, value in asdict(diagnostics).items()},
        **{f"judge/{_slug(measure)}": value for measure, value in counted.items()},
        **usage,
        **{f"seconds/{_slug(phase)}": value for phase, value in seconds.items()},
    }


def drift_metrics(pool: Pool, distance: Callable[[str, str], float]) -> dict[str, float | None]:
    """How far the active tasks that were rewritten lie from their roots."""
    rewritten = [slot for slot in pool.slots if slot.active != slot.root]
    distances = [distance(slot.root.instruction, slot.active.instruction) for slot in rewritten]
    return {"tasks/drift": _mean(distances)}


def evaluation_metrics(
    evaluations: Iterable[Evaluation], examination: JudgeEvaluation, usage: Mapping[str, int]
) -> dict[str, float | None]:
    """Everything counted when policy and judge were examined on what they never train on."""
    counted = pooled(examination.counts)
    return {
        **{
            f"evaluation/{each.split}/success": each.success.estimate
            for each in evaluations
            if each.success is not None
        },
        **{f"evaluation/judge/{k}": v for k, v in asdict(examination.diagnostics).items()},
        **{f"evaluation/judge/{_slug(measure)}": value for measure, value in counted.items()},
        **{f"evaluation/{name}": count for name, count in usage.items() if count},
    }


def _funnel(proposals: Sequence[Proposal]) -> dict[str, float | None]:
    """Slots for which the adapter was asked, and for how many of them the best of its tries could
    be read, broke no rule, and became a candidate."""
    reached = [proposal.reached for proposal in proposals]
    return {
        "tasks/asked": len(reached),
        "tasks/parsed": sum(stage >= 1 for stage in reached),
        "tasks/valid": sum(stage >= 2 for stage in reached),
        "tasks/proposed": sum(stage >= 3 for stage in reached),
        "tasks/refused_tries": sum(len(proposal.refused) for proposal in proposals),
    }


def _signals(turn: IterationResult, settings: FeedbackSettings) -> dict[str, float | None]:
    """How much of what was lived through trains, and how strongly."""
    judged = [each for group in turn.trainable_groups for each in group.judged]
    steps = sum(len(each.trajectory.steps) for each in judged)
    judgements = sum(len(step) for each in judged for step in each.judgements)
    return {
        "policy/window_share": _window_share(turn.trainable_groups, settings.policy_window),
        "policy/trained_share": len(turn.policy_samples) / steps if steps else None,
        "policy/advantage": _strength(turn.policy_samples),
        "judge/window_share": _window_share(turn.trainable_groups, settings.judge_window),
        "judge/trained_share": len(turn.judge_samples) / judgements if judgements else None,
        "judge/advantage": _strength(turn.judge_samples),
    }


def _window_share(groups: Iterable[RolloutGroup], window: tuple[float, float]) -> float | None:
    return _mean([in_window(group.accuracy, window) for group in groups])


def _strength(samples: Iterable[Sample]) -> float | None:
    return _mean([abs(sample.advantage) for sample in samples])


def _slug(name: str) -> str:
    return name.lower().replace(" ", "_")


def _mean(values: Sequence[float | bool]) -> float | None:
    return sum(values) / len(values) if values else None
