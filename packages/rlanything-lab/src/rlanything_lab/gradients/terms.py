"""The terms of Eq. 1, O and lambda times the mean score of a step, as advantages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlanything.algorithm.advantages import AdvantageInputs, step_moments
from rlanything.algorithm.feedback import (
    RESOLUTION,
    AdvantageConfig,
    FeedbackSettings,
    Floats,
    Moments,
    PolicyReward,
    standardize,
)
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import RolloutGroup

TERMS: tuple[PolicyReward, PolicyReward] = ("outcome", "judge")


def has_terms(settings: FeedbackSettings) -> bool:
    """Returns whether the policy's advantages are the sum of the two terms."""
    default = AdvantageConfig.default()
    fixed = settings.policy_lambda_control == "fixed"
    return fixed and settings.policy_reward == "integrated" and settings.advantage.same_as(default)


def of_term(
    group: RolloutGroup, judges: JudgePanel, settings: FeedbackSettings, term: PolicyReward
) -> RolloutGroup:
    """Returns a rollout group with the policy's advantages of one term."""
    advantage = AdvantageConfig.model_validate(one_term)
    own = settings.model_copy(update={"policy_reward": term, "advantage": advantage})
    return replace(group, signals=judges.signals(group.judged, own))


def one_term(inputs: AdvantageInputs) -> list[Floats]:
    """A_i of the term that `policy_reward` names: the term minus its mean, over the deviation of
    R_i. Both terms share this deviation, so they add up to the advantage `step`."""
    keys = [range(steps) for steps in inputs.steps]
    inputs = replace(inputs, rewards=None)  # Eq. 1 reads O, even if the environment has rewards.
    whole = inputs.settings.model_copy(update={"policy_reward": "integrated"})
    std = step_moments(replace(inputs, settings=whole).feedback(keys)).std
    std = np.where(std > RESOLUTION, std, np.inf)
    own = inputs.feedback(keys)
    mean = step_moments(own).mean
    return [standardize(steps, Moments(mean[: len(steps)], std[: len(steps)])) for steps in own]
