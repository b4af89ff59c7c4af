"""The arms of an ablation: variants of a recipe, as overrides of its keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


class ArmError(ValueError):
    """An unknown arm; the message is one line that lists the existing ones."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A variant of a recipe. Its overrides name every key it is about, even if the recipe already
    has that value."""

    name: str
    overrides: tuple[str, ...]
    against: str | None = None
    """The arm to compare its results with, if that one takes part; otherwise the arm before it."""
    judge_of: str | None = None
    """The arm whose finished run of the same seed provides this arm's judge, fully trained; it runs
    first. None: the judge is the recipe's."""


def _components(reward: str, judge: bool, environment: bool) -> tuple[str, ...]:
    return (
        f"feedback.policy_reward={reward}",
        f"judge.train={str(judge).lower()}",
        f"curriculum.adapt_tasks={str(environment).lower()}",
    )


OUTCOMES = _components("outcome", judge=False, environment=False)
EVERYTHING = _components("integrated", judge=True, environment=True)
WHOLE = "policy_judge_env"
ANCHOR = "judge.reference_kl_weight=0.1"
# Not a quarter for the judge: up to 1, lambda does not change what it learns (`FeedbackSettings`).
LAMBDAS = (("policy", 0.25), ("policy", 4), ("judge", 4))

GROUPS: dict[str, tuple[Arm, ...]] = {
    # The paper's Table 1, framed by outcomes alone and by the judge's scores alone.
    "components": (
        Arm("outcome_only", OUTCOMES),
        Arm("policy", _components("integrated", judge=False, environment=False), "outcome_only"),
        Arm("policy_judge", _components("integrated", judge=True, environment=False), "policy"),
        Arm(WHOLE, EVERYTHING, "policy_judge"),
        Arm("judge_only", _components("judge", judge=True, environment=False), "outcome_only"),
    ),
    # The paper's section 3.2.6: what a judge trained in the whole loop teaches alone. It is frozen,
    # no outcome enters any advantage, and no task is excluded for its accuracy.
    "judge_alone": (
        Arm("outcome_only", OUTCOMES),
        Arm(WHOLE, EVERYTHING, "outcome_only"),
        Arm(
            "optimized_judge_only",
            (
                *_components("judge", judge=False, environment=False),
                "feedback.policy_window=[0, 1]",
            ),
            "outcome_only",
            judge_of=WHOLE,
        ),
    ),
    # The paper's Table 2: lambda of the policy's feedback and of the judge's, varied separately.
    "lambda": (
        Arm(WHOLE, EVERYTHING),
        *(
            Arm(f"{role}_lambda_{value}", (*EVERYTHING, f"feedback.{role}_lambda={value}"), WHOLE)
            for role, value in LAMBDAS
        ),
    ),
    # The steps with which the policy's advantage compares a step: the same index, or others.
    "comparison": (
        Arm(WHOLE, EVERYTHING),
        *(
            Arm(f"compare_{over}", (*EVERYTHING, f"feedback.advantage={over}"), WHOLE)
            for over in ("trajectory", "state")
        ),
    ),
    # Remedies for a judge that collapses to one answer because most steps are lost (Theorem 2).
    "remedies": tuple(
        Arm(name, (*EVERYTHING, *changes), None if name == "plain" else "plain")
        for name, changes in {
            "plain": ("feedback.judge_reward.options.balance=none", "judge.reference_kl_weight=0"),
            "balanced": (
                "feedback.judge_reward.options.balance=outcome",
                "judge.reference_kl_weight=0",
            ),
            "anchored": ("feedback.judge_reward.options.balance=none", ANCHOR),
            "balanced_anchored": ("feedback.judge_reward.options.balance=outcome", ANCHOR),
        }.items()
    ),
    # Credit without a judge, from outcomes and from states that rollouts share: the bar for judges.
    "baselines": (
        Arm("outcome_only", OUTCOMES),
        *(
            Arm(name, (*OUTCOMES, f"feedback.advantage={name}"), "outcome_only")
            for name in ("leave_one_out", "state", "graph")
        ),
    ),
    # Nothing can be learned in these: they measure chance.
    "controls": (
        Arm("shuffled", (*EVERYTHING, "loop.shuffle_advantages=true")),
        Arm("unmoved", (*EVERYTHING, "policy.learning_rate=0", "judge.learning_rate=0")),
    ),
}
"""Arms that belong together, by the name of their group."""

ARMS = {arm.name: arm for group in GROUPS.values() for arm in group}
"""Single arms by name."""


def find_arms(wanted: Sequence[str]) -> list[Arm]:
    """Returns the requested arms in order, without duplicates. Each entry is a list of groups and
    names with commas, or `NAME:section.key=value,...` for your own arm, which is compared with the
    one before it. Raises `ArmError`."""
    arms: dict[str, Arm] = {}
    for text in wanted:
        for arm in _own(text) if ":" in text else _known(text):
            if arms.setdefault(arm.name, arm).overrides != arm.overrides:
                raise ArmError(f"--arms: two arms are called {arm.name!r}; rename one")
    if not arms:
        raise ArmError("--arms: name at least one arm")
    for arm in arms.values():
        if arm.judge_of is not None and arm.judge_of not in arms:
            raise ArmError(
                f"--arms: {arm.name} takes the judge that {arm.judge_of} trains: name both "
                f"(--arms {arm.judge_of},{arm.name}); runs that are there are kept"
            )
    return list(arms.values())


def _known(text: str) -> list[Arm]:
    arms: list[Arm] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in GROUPS and name not in ARMS:
            raise ArmError(
                f"--arms: no arm or group is called {name!r:.80}; groups: {', '.join(GROUPS)}; "
                f"arms: {', '.join(ARMS)}; or write NAME:section.key=value"
            )
        arms += GROUPS.get(name) or (ARMS[name],)
    return arms


def _own(text: str) -> list[Arm]:
    name, _, changes = text.partition(":")
    if not re.fullmatch(r"\w[\w.-]*", name) or name in GROUPS or name in ARMS:
        raise ArmError(
            f"--arms: {name!r:.80} cannot name an arm of your own: use letters, digits and _, and "
            "no name that is taken"
        )
    # A comma in brackets belongs to a value, and so does one without `key=` after it.
    overrides = re.split(r",(?=[\w.]+=)", changes)
    if not all("=" in each for each in overrides):
        raise ArmError(f"--arms: {text!r:.80}: write NAME:section.key=value,section.key=value")
    return [Arm(name, tuple(overrides))]
