"""Grades of states for a judge of value to learn from: how often the policy still wins from there.

Environments repeat exactly. A state that a rollout reached is reached again by its responses, and
the policy continues from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlanything.records import Completion, Trajectory
from rlanything.rollout.episodes import Agent, RecordedAgent, RolloutRequest
from rlanything.seeds import derive
from rlanything_nano.teaching import StepPlan

Play = Callable[[Agent, Sequence[RolloutRequest]], Sequence[Trajectory]]
"""Plays episodes with an agent."""


def grades_of_states(
    rollouts: Sequence[Trajectory], agent: Agent, play: Play, plan: StepPlan
) -> list[list[tuple[int, int]]]:
    """Returns for each rollout the states to learn from, as pairs of the number of steps before the
    state and its grade: the share of continuations that the agent wins from there, in tenths.

    Up to `plan.valued_states` states of each rollout are drawn. The last state is always among the
    pairs, with 10 if the episode was won and 0 if it was lost."""
    rng = random.Random(derive(plan.seed, "valued states"))
    drawn = [
        sorted(rng.sample(range(1, n), min(plan.valued_states, n - 1))) if n > 1 else []
        for n in (len(t.steps) for t in rollouts)
    ]
    begun: dict[str, Sequence[Completion]] = {}
    requests: list[RolloutRequest] = []
    for t, states in zip(rollouts, drawn, strict=True):
        for i in states:
            for k in range(plan.continuations):
                name = f"{t.id}/{i}/{k}"
                begun[name] = [step.completion for step in t.steps[:i]]
                requests.append(RolloutRequest(name, t.task, derive(plan.seed, "continued", name)))
    won = {each.id: each.outcome == 1 for each in play(RecordedAgent(begun, agent), requests)}

    def grade(t: Trajectory, i: int) -> int:
        wins = [won.get(f"{t.id}/{i}/{k}", False) for k in range(plan.continuations)]
        return int(10 * sum(wins) / len(wins) + 0.5)

    return [
        [*((i, grade(t, i)) for i in states), (len(t.steps), 10 * (t.outcome == 1))]
        for t, states in zip(rollouts, drawn, strict=True)
    ]
