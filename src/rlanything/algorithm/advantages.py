"""The policy's advantages: pure functions from one task's rollout group to a number for each step.

With R_i the feedback of step i (Eq. 1, or one of its terms alone, as `policy_reward` says):

| name | A_i | source |
|---|---|---|
| `step` | R_i standardized over the trajectories that reached index i | the paper |
| `trajectory` | R_i standardized over all steps of the task | GRPO, arXiv 2402.03300, 4.1.3 |
| `state` | R_i standardized over the steps in the same state | GiGPO, arXiv 2505.10978 |
| `leave_one_out` | R_i minus the mean R of the other trajectories | RLOO, arXiv 2402.14740 |
| `gae` | sum_k (gamma lambda)^k delta_(i+k) | GAE, arXiv 1506.02438 |
| `graph` | progress between states that several rollouts met | GraphGPO, arXiv 2605.26684 |

A step without anything to compare it with, or equal to all of it, gets exactly 0, which does not
train."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from rlanything.algorithm.feedback import (
    RESOLUTION,
    FeedbackSettings,
    Floats,
    Moments,
    TrajectoryScores,
    combined_score,
    moments,
    policy_feedback,
    standardize,
)
from rlanything.algorithm.options import Options, needs

StepKeys: TypeAlias = Sequence[Sequence[Hashable]]
"""Keys of steps, [G][steps]; steps with equal keys are compared."""


@dataclass(frozen=True)
class AdvantageInputs:
    """The rollout group of one task: G trajectories, which may differ in length."""

    outcomes: Sequence[int]
    """O, [G], each -1 or +1."""
    scores: Mapping[str, Sequence[TrajectoryScores]]
    """S_ij, [G][steps][m], by the name of the judge."""
    weights: Mapping[str, float]
    """The weight of each judge in the mean score of a step, above 0."""
    settings: FeedbackSettings
    """The recipe's settings; `feedback` reads `policy_lambda`, `policy_reward` and `unreadable`."""
    rewards: Sequence[float] | None = None
    """Rewards of the environment beyond won or lost, [G]; None if any trajectory has none."""
    values: Sequence[Sequence[float]] | None = None
    """V of the state before each step and after the last one, [G][steps + 1]; None without a role
    that gives values."""
    states: StepKeys | None = None
    """Key of the state in which each step began, [G][steps]: equal keys, same state. None:
    unknown."""
    lengths: Sequence[Sequence[int]] | None = None
    """Tokens of each response, [G][steps]; None: unknown."""

    @cached_property
    def steps(self) -> list[int]:
        """The number of steps of each trajectory, [G]."""
        return [len(steps) for steps in next(iter(self.scores.values()))]

    def feedback(self, compared: StepKeys) -> list[Floats]:
        """Returns R_i, [G] arrays [steps]. With `unreadable: missing`, a step with judgements but
        no readable one takes the mean score of the readable steps it is `compared` with (0 without
        any): its outcome alone tells it apart."""
        unreadable = self.settings.unreadable
        weights = [self.weights[name] for name in self.scores]
        # Scores of each judge, by trajectory and step.
        trajectories = zip(*self.scores.values(), strict=True)
        judged = [list(zip(*of_judges, strict=True)) for of_judges in trajectories]
        means = [
            np.array([combined_score(step, weights, unreadable) for step in steps])
            for steps in judged
        ]
        if unreadable == "missing":
            unread = [
                np.array([any(map(len, step)) and not any(map(any, step)) for step in steps], bool)
                for steps in judged
            ]
            means = _fill_missing(means, unread, compared)
        rewards = self.rewards or [None] * len(self.outcomes)
        return [
            policy_feedback(int(outcome), mean, self.settings, reward)
            for outcome, mean, reward in zip(self.outcomes, means, rewards, strict=True)
        ]


Advantages: TypeAlias = Sequence[Floats | Sequence[Floats]]
"""[G][steps], or [G][steps][tokens] where each token of a response has its own."""
Advantage: TypeAlias = Callable[[AdvantageInputs], Advantages]
"""An advantage function with its options."""


def step(inputs: AdvantageInputs) -> list[Floats]:
    """A_i = (R_i - mean) / population std over the trajectories that reached step index i: the
    paper's, and the default."""
    feedback = inputs.feedback([range(steps) for steps in inputs.steps])
    over = step_moments(feedback)
    return [
        standardize(steps, Moments(over.mean[: len(steps)], over.std[: len(steps)]))
        for steps in feedback
    ]


def step_moments(feedback: Sequence[Floats]) -> Moments:
    """Mean and population std of R_i [G][steps] at each step index, over the trajectories that
    reached it."""
    table = np.full((len(feedback), max(map(len, feedback))), np.nan)
    for row, steps in zip(table, feedback, strict=True):
        row[: len(steps)] = steps
    return Moments(np.nanmean(table, axis=0), np.nanstd(table, axis=0))


def trajectory(inputs: AdvantageInputs) -> list[Floats]:
    """A_i = (R_i - mean) / population std over all steps of all trajectories of the task, as
    DeepSeekMath normalises process rewards, but without the sum over later steps."""
    feedback = inputs.feedback(_one_key(inputs))
    over = moments(np.concatenate(feedback))
    return [standardize(steps, over) for steps in feedback]


@needs("states")
def state(inputs: AdvantageInputs) -> list[Floats]:
    """A_i = (R_i - mean) / population std over all steps of all trajectories that began in the
    same state: the anchor states of GiGPO.

    GiGPO's A^S compares discounted returns and is added to an episode-level advantage. Here R_i is
    compared and nothing is added. A state met once gives 0."""
    states = inputs.states or ()
    return _standardized_by(states, inputs.feedback(states))


def leave_one_out(inputs: AdvantageInputs) -> list[Floats]:
    """A_i = R_i minus the mean R of the task's other trajectories, each the mean of its own R_i.

    With `policy_reward: outcome` this is RLOO: O minus the mean outcome of the others. It is not
    divided by a deviation, so the exception in a nearly uniform group gets no extra weight. A
    trajectory without steps does not count."""
    feedback = inputs.feedback(_one_key(inputs))
    of_trajectory = [float(steps.mean()) for steps in feedback if len(steps)]
    others = len(of_trajectory) - 1
    if others < 1:
        return [np.zeros(len(steps)) for steps in feedback]
    total = math.fsum(of_trajectory)
    advantages: list[Floats] = []
    for steps in feedback:
        baseline = (total - float(steps.mean())) / others if len(steps) else 0.0
        deviation = steps - baseline
        rounding = np.abs(deviation) <= RESOLUTION * max(1.0, abs(baseline))
        advantages.append(np.where(rounding, 0.0, deviation))
    return advantages


class GaeOptions(Options):
    """Options of `gae`."""

    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """gamma, the discount per step."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """lambda of GAE: 0 relies on the values, 1 on the returns."""


@needs("values")
def gae(inputs: AdvantageInputs, options: GaeOptions) -> list[Floats]:
    """Generalized advantage estimation: A_i = sum_k (gamma lambda)^k delta_(i+k) with delta_i =
    r_i + gamma V_(i+1) - V_i.

    r_i is the part of R_i that belongs to step i, lambda of Eq. 1 times its mean score; the last
    step earns the outcome as well. The value after the last step is 0 where the episode ended."""
    feedback = inputs.feedback([range(steps) for steps in inputs.steps])
    rewards = inputs.rewards or [None] * len(feedback)
    advantages: list[Floats] = []
    for row, steps in enumerate(feedback):
        value = np.asarray((inputs.values or ())[row], dtype=np.float64)
        outcome = policy_feedback(inputs.outcomes[row], 0.0, inputs.settings, rewards[row])
        earned = steps - outcome
        earned[-1:] += outcome
        delta = earned + options.gamma * value[1:] - value[:-1]
        advantage = np.zeros(len(steps) + 1)
        for i in reversed(range(len(steps))):
            advantage[i] = delta[i] + options.gamma * options.gae_lambda * advantage[i + 1]
        advantages.append(advantage[:-1])
    return advantages


class GraphOptions(Options):
    """Options of `graph`."""

    omega: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """omega: a step earns omega^d with d the distance to a win that is left after it."""
    episode_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the outcome, standardized over the task's trajectories. 0: progress alone."""


@needs("states")
def graph(inputs: AdvantageInputs, options: GraphOptions) -> list[Floats]:
    """Progress between states that the task's rollouts have met: A_i = A^graph_i + w A^episode.

    As in GraphGPO, the states of all rollouts are the nodes of one graph and their steps its edges.
    d is the least number of edges from a state to a win; where none is reached, 1 more than the
    longest. A step to a state at distance d earns omega^d, standardized over the steps that leave
    the same state; a state left once, or with no win in the group, gives 0. Our choices: O alone is
    A^episode; population deviations; the state after the last step of a lost rollout is a dead end
    of its own. Judges' scores are not read."""
    states, won, lost = inputs.states or (), object(), object()
    after = [
        (*own[1:], won if outcome == 1 else lost)[: len(own)]
        for own, outcome in zip(states, inputs.outcomes, strict=True)
    ]
    before: dict[object, set[object]] = defaultdict(set)
    for here, there in chain.from_iterable(map(zip, states, after)):
        before[there].add(here)
    distance, queue = {won: 0}, [won]
    for node in queue:  # grows while it is read: breadth first
        for earlier in before[node] - distance.keys():
            distance[earlier] = distance[node] + 1
            queue.append(earlier)
    far = max(distance.values()) + 1

    def earned(here: object, there: object) -> float:
        # Divided by the most that the state allows, which keeps distant states above rounding.
        return options.omega ** (1 + distance.get(there, far) - distance.get(here, far))

    progress = [np.array([*map(earned, *pair)]) for pair in zip(states, after, strict=True)]
    outcomes = np.array(inputs.outcomes, dtype=np.float64)
    episode = options.episode_weight * standardize(outcomes, moments(outcomes))
    return [a + b for a, b in zip(_standardized_by(states, progress), episode, strict=True)]


def _standardized_by(keys: StepKeys, values: Sequence[Floats]) -> list[Floats]:
    """Returns the values [G][steps], standardized over the steps with the same key."""
    met: dict[Hashable, list[float]] = defaultdict(list)
    for own, steps in zip(keys, values, strict=True):
        for key, value in zip(own, steps.tolist(), strict=True):
            met[key].append(value)
    # Sorted: the rounding must not depend on the order of rollouts.
    known = {key: moments(sorted(given)) for key, given in met.items()}
    return [
        standardize(
            steps,
            Moments(
                np.array([known[key].mean for key in own]),
                np.array([known[key].std for key in own]),
            ),
        )
        for own, steps in zip(keys, values, strict=True)
    ]


def _one_key(inputs: AdvantageInputs) -> StepKeys:
    """Returns keys by which all steps of the task are compared with each other."""
    return [("",) * steps for steps in inputs.steps]


def _fill_missing(
    mean_scores: Sequence[Floats], unread: Sequence[np.ndarray], compared: StepKeys
) -> list[Floats]:
    """Returns mean scores [G][steps] in which an unreadable step takes the mean of the steps with
    the same key."""
    if not any(map(np.any, unread)):
        return list(mean_scores)
    known: dict[Hashable, list[float]] = defaultdict(list)
    for own, means, gone in zip(compared, mean_scores, unread, strict=True):
        for key, mean in compress(zip(own, means.tolist(), strict=True), ~gone):
            known[key].append(mean)
    fill = {key: float(moments(sorted(means)).mean) for key, means in known.items()}
    return [
        np.where(gone, [fill.get(key, 0.0) for key in own], means)
        for own, means, gone in zip(compared, mean_scores, unread, strict=True)
    ]
