"""The numbers of an iteration, by name: `room/quantity`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rlanything.evaluation.diagnostics import Diagnostics
from rlanything.loop import Turn


def turn_metrics(
    turn: Turn,
    diagnostics: Diagnostics,
    usage: Mapping[str, int],
    seconds: Mapping[str, float],
) -> dict[str, float | None]:
    """Everything counted in one turn; `usage` of endpoints as `role/quantity`. None: there was
    nothing to count."""
    trajectories = [each.trajectory for group in turn.groups for each in group.judged]
    active = [group for group in turn.groups if not group.entry.candidate]
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
        "tasks/asked": len(turn.proposals),
        "tasks/proposed": sum(proposal.task is not None for proposal in turn.proposals),
        "tasks/refused_tries": sum(len(proposal.refused) for proposal in turn.proposals),
        **{f"policy/{name}": value for name, value in turn.policy_statistics.items()},
        **{f"judge/{name}": value for name, value in turn.judge_statistics.items()},
        **{f"judge/{name}": value for name, value in asdict(diagnostics).items()},
        **usage,
        **{f"seconds/{name.replace(' ', '_')}": value for name, value in seconds.items()},
    }


def _mean(values: Sequence[float | bool]) -> float | None:
    return sum(values) / len(values) if values else None
