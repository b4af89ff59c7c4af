"""Arms are the recipes they claim to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scripted import judged
from rlanything.config.recipe import load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.records import Sample, Task
from rlanything.roles.judges.base import StepJudge
from rlanything.rollout.groups import ScheduledTask, grouped
from rlanything_lab.ablation.arms import ARMS, GROUPS, ArmError, find_arms

QUICKSTART = shipped_files()["quickstart"]


def changed(name: str) -> dict[str, Any]:
    """What an arm does otherwise than the recipe, key by key."""
    plain = load_recipe(QUICKSTART).model_dump()
    arm = load_recipe(QUICKSTART, ARMS[name].overrides).model_dump()
    return {
        key.removeprefix("roles."): value
        for key, value in flat(arm).items()
        if value != flat(plain).get(key)
    }


def flat(data: dict[str, Any], *place: str) -> dict[str, Any]:
    """Returns the values of nested mappings by their dotted keys."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        inner = isinstance(value, dict)
        values |= flat(value, *place, key) if inner else {".".join([*place, key]): value}
    return values


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize(
    "recipe", ["quickstart", "coding-nano", "miniwob-nano", "alfworld-qwen2.5-7b"]
)
def test_every_arm_is_a_recipe(recipe: str, name: str) -> None:
    load_recipe(shipped_files()[recipe], ARMS[name].overrides)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "outcome_only",
            {
                "feedback.policy_reward": "outcome",
                "judge.train": False,
                "curriculum.adapt_tasks": False,
            },
        ),
        ("policy", {"judge.train": False, "curriculum.adapt_tasks": False}),
        ("policy_judge", {"curriculum.adapt_tasks": False}),
        ("policy_judge_env", {}),
        ("judge_only", {"feedback.policy_reward": "judge", "curriculum.adapt_tasks": False}),
        (
            "optimized_judge_only",
            {
                "feedback.policy_reward": "judge",
                "feedback.policy_window": (0.0, 1.0),
                "judge.train": False,
                "curriculum.adapt_tasks": False,
            },
        ),
        ("policy_lambda_0.25", {"feedback.policy_lambda": 0.25}),
        ("policy_lambda_4", {"feedback.policy_lambda": 4.0}),
        ("judge_lambda_4", {"feedback.judge_lambda": 4.0}),
        ("compare_trajectory", {"feedback.advantage.name": "trajectory"}),
        ("compare_state", {"feedback.advantage.name": "state"}),
        ("plain", {"feedback.judge_reward.options.balance": "none"}),
        ("balanced", {"feedback.judge_reward.options.balance": "outcome"}),
        (
            "anchored",
            {"feedback.judge_reward.options.balance": "none", "judge.reference_kl_weight": 0.1},
        ),
        (
            "balanced_anchored",
            {"feedback.judge_reward.options.balance": "outcome", "judge.reference_kl_weight": 0.1},
        ),
        (
            "graph",
            {
                "feedback.policy_reward": "outcome",
                "feedback.advantage.name": "graph",
                "judge.train": False,
                "curriculum.adapt_tasks": False,
            },
        ),
        ("shuffled", {"loop.shuffle_advantages": True}),
        ("unmoved", {"policy.learning_rate": 0.0, "judge.learning_rate": 0.0}),
    ],
)
def test_an_arm_changes_what_it_is_about_and_nothing_else(
    name: str, expected: dict[str, Any]
) -> None:
    assert changed(name) == expected


def test_the_arms_with_outcomes_alone_ask_no_judge_and_the_others_do() -> None:
    silent = {n for n, a in ARMS.items() if not load_recipe(QUICKSTART, a.overrides).reads_scores}
    assert silent == {arm.name for arm in GROUPS["baselines"]}


def test_an_arm_is_compared_with_one_of_its_own_group() -> None:
    for arms in GROUPS.values():
        names = [arm.name for arm in arms]
        for arm in arms:
            assert arm.against is None or arm.against in names


OUTCOMES = st.sampled_from((-1, 1))
SCORES = st.lists(st.lists(st.sampled_from((-1, 0, 1)), min_size=3, max_size=3), max_size=4)
ROLLOUTS = st.lists(st.tuples(OUTCOMES, OUTCOMES, SCORES), min_size=1, max_size=8)


def samples(arm: str, outcomes: Sequence[int], scores: Sequence[list[list[int]]]) -> list[Sample]:
    """What the rollouts of one task teach the policy and the judge in an arm of the quickstart."""
    recipe = load_recipe(QUICKSTART, ARMS[arm].overrides)
    judge, settings = StepJudge(), recipe.feedback
    both = zip(scores, outcomes, strict=True)
    members = [judged(str(i), own, o) for i, (own, o) in enumerate(both)]
    whole = [replace(m, trajectory=replace(m.trajectory, task=Task("t", ""))) for m in members]
    scheduled = [ScheduledTask("t", Task("t", ""), False)]
    [group] = grouped(scheduled, whole, lambda group: judge.signals(group, settings))
    learned = [*group.samples("judge")] if "judge" in recipe.trained_roles else []
    return [*group.samples("policy"), *learned]


@given(ROLLOUTS)
def test_no_outcome_enters_what_an_optimized_judge_alone_teaches(
    rollouts: list[tuple[int, int, list[list[int]]]],
) -> None:
    one, other, scores = zip(*rollouts, strict=True)
    arm = "optimized_judge_only"
    assert samples(arm, one, scores) == samples(arm, other, scores)
    assert samples(arm, one, scores) == samples(arm, [-o for o in one], scores)


def test_outcomes_enter_what_the_other_arms_teach() -> None:
    # The same comparison, where it can fail: the judge learns by Eq. 2, and tasks have a window.
    scores = [[[1, -1, 1]], [[-1, -1, 1]], [[-1, -1, -1]], [[1, 1, 1]]]
    for arm in ("judge_only", "policy", "outcome_only"):
        assert samples(arm, (1, -1, -1, -1), scores) != samples(arm, (-1, 1, 1, -1), scores), arm
    assert samples("judge_only", (-1, -1, -1, -1), scores) == []
    assert samples("optimized_judge_only", (-1, -1, -1, -1), scores) != []


def test_an_arm_that_takes_a_judge_is_refused_without_the_arm_that_trains_it() -> None:
    with pytest.raises(ArmError, match="--arms policy_judge_env,optimized_judge_only"):
        find_arms(["optimized_judge_only,outcome_only"])
    assert len(find_arms(["optimized_judge_only,policy_judge_env"])) == 2


def test_groups_names_and_arms_of_ones_own_may_be_mixed() -> None:
    found = find_arms(
        [
            "components",
            "lambda,shuffled",
            "mine:feedback.policy_window=[0.1, 0.9],judge.train=false",
        ]
    )
    names = [arm.name for arm in found]
    assert names[:5] == [arm.name for arm in GROUPS["components"]]
    assert names[5:] == [*(arm.name for arm in GROUPS["lambda"][1:]), "shuffled", "mine"]
    assert found[-1].overrides == ("feedback.policy_window=[0.1, 0.9]", "judge.train=false")
    load_recipe(QUICKSTART, found[-1].overrides)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["nothing"], "no arm or group is called 'nothing'; groups: components"),
        ([""], "at least one"),
        (["mine:judge"], "write NAME:section.key=value"),
        (["a/b:judge.train=false"], "cannot name an arm"),
        (["policy:judge.train=false"], "no name that is taken"),
        (["mine:judge.train=false", "mine:judge.train=true"], "two arms are called 'mine'"),
    ],
)
def test_what_is_no_arm_is_refused_in_one_line(wanted: list[str], expected: str) -> None:
    with pytest.raises(ArmError) as error:
        find_arms(wanted)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)
