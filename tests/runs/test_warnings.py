"""What worries whoever watches a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rlanything.config.roles import SHORT_FORM
from rlanything.runs.results import Numbers
from rlanything.runs.warnings import RULES, Warned, find_warnings

WELL: Numbers = {
    "rollouts/episodes": 128.0,
    "rollouts/success": 0.5,
    "judge/commonest_share": 0.6,
    "judge/unparsable_rate": 0.0,
    "judge/mean_score": 0.1,
    "judge/lost_mean_score": -0.2,
    "judge/balanced_process_accuracy": 0.7,
    "judge/outcome_accuracy": 0.6,
    "judge/mu": 1.2,
    "judge/weight_ratio": 1.1,
    "judge/window_share": 0.5,
    "judge/clip_share": 0.01,
    "judge/kl": 0.002,
    "judge/mismatch_kl": 1e-12,
    "policy/window_share": 0.5,
    "policy/clip_share": 0.01,
    "policy/kl": 0.1,
    "policy/mismatch_kl": 1e-12,
    "policy/mismatch_outside": 0.0,
    "policy/entropy": 0.5,
    "policy/skipped_updates": 0.0,
    "tasks/asked": 8.0,
    "tasks/parsed": 8.0,
    "tasks/valid": 6.0,
    "tasks/proposed": 5.0,
    "tasks/accepted": 1.0,
    "tasks/rejected": 4.0,
    "tasks/drift": 0.2,
}


def warnings_of(history: Mapping[int, Numbers]) -> list[Warned]:
    """The warnings about a run with the paper's roles."""
    return find_warnings(history, SHORT_FORM)


def raised(*changes: Numbers) -> dict[str, int]:
    """Name and iteration of the warnings about a run that is well but for these changes."""
    rows = {i: {**WELL, **change} for i, change in enumerate(changes, start=1)}
    return {warned.name: warned.iteration for warned in warnings_of(rows)}


def test_a_run_that_is_well_raises_nothing() -> None:
    assert raised(*[{}] * 50) == {}
    assert warnings_of({}) == []


def test_a_judge_of_value_is_not_held_to_what_scores_are() -> None:
    odd = {"judge/commonest_share": 0.99, "judge/mu": 0.9, "judge/weight_ratio": 9.0}
    assert raised(*[odd] * 6).keys() >= {"judge collapse", "mu", "weight ratio"}
    graded = {**odd, "judge/quadratic_score": 0.8}
    assert raised(*[graded] * 6) == {}
    unread = {**graded, "judge/unparsable_rate": 0.95}
    assert raised(unread).keys() == {"foreign judge"}


def test_what_was_evaluated_before_training_is_no_iteration() -> None:
    assert warnings_of({0: {"evaluation/judge/mu": 0.1}}) == []


@pytest.mark.parametrize(
    ("name", "change", "iterations"),
    [
        ("judge collapse", {"judge/commonest_share": 0.97}, 3),
        ("judge unreadable", {"judge/unparsable_rate": 0.4}, 3),
        ("foreign judge", {"judge/unparsable_rate": 0.95}, 1),
        ("foreign adapter", {"tasks/parsed": 0.0, "tasks/valid": 0.0}, 1),
        ("mu", {"judge/mu": 1.0}, 3),
        ("weight ratio", {"judge/weight_ratio": 0.2}, 5),
        ("weight ratio", {"judge/weight_ratio": 5.0}, 5),
        ("weight ratio", {"judge/weight_ratio": None}, 5),
        ("mismatch", {"policy/mismatch_kl": 0.02}, 1),
        ("mismatch", {"policy/mismatch_outside": 0.06}, 1),
        ("clipping", {"judge/clip_share": 0.3}, 3),
        ("large updates", {"policy/kl": 0.4}, 1),
        ("large updates", {"judge/kl": 0.4}, 1),
        ("skipped updates", {"policy/skipped_updates": 1.0}, 1),
        ("prompts too long", {"judge/too_long": 1.0}, 1),
        ("nothing trains", {"policy/window_share": 0.0}, 3),
        ("nothing trains", {"judge/window_share": 0.0}, 3),
        ("proposal funnel", {"tasks/valid": 1.0, "tasks/proposed": 0.0}, 2),
        ("proposal funnel", {"tasks/accepted": 0.0, "tasks/rejected": 8.0}, 2),
        ("task drift", {"tasks/drift": 0.85}, 1),
        (
            "masked rollouts",
            {"rollouts/masked": 4.0, "rollouts/failures": 4.0, "rollouts/episodes": 32.0},
            1,
        ),
    ],
)
def test_a_bad_state_is_called_once_it_has_lasted(
    name: str, change: Numbers, iterations: int
) -> None:
    start = 4
    lasted = raised(*[{}] * start, *[change] * 10)
    if name == "proposal funnel":  # it counts over several iterations, the good ones too
        assert set(lasted) == {name}
        return
    assert lasted == {name: start + iterations}
    assert raised(*[{}] * start, *[change] * (iterations - 1), {}) == {}


@pytest.mark.parametrize(
    ("ratio", "success", "said"),
    [
        (None, 0.45, "the judge hardly ever scores a step of a lost episode -1"),
        (0.2, 0.45, "the judge hardly ever scores a step of a won episode +1"),
        (None, 1.0, "the tasks are too easy"),
        (0.1, 0.05, "the tasks are too hard"),
    ],
)
def test_tasks_are_called_too_easy_or_hard_only_where_success_says_so(
    ratio: float | None, success: float, said: str
) -> None:
    row = {**WELL, "judge/weight_ratio": ratio, "rollouts/success": success}
    [warned] = [w for w in warnings_of(dict.fromkeys(range(1, 7), row)) if w.name == "weight ratio"]
    assert warned.message.endswith(said)


def test_a_few_masked_rollouts_are_no_warning() -> None:
    few = {"rollouts/masked": 3.0, "rollouts/failures": 8.0, "rollouts/episodes": 24.0}
    assert raised(*[few] * 6) == {}


def test_a_ratio_of_scores_that_cannot_be_read_says_nothing() -> None:
    unread = {"judge/weight_ratio": None, "judge/commonest_share": 1.0, "judge/unparsable_rate": 1}
    assert set(raised(*[unread] * 6)) == {"foreign judge"}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("answers cut off", {"judge/cut": 4}, "40% of the judge's answers were cut off by judge.m"),
        ("answers cut off", {"adapter/cut": 3}, "30% of the adapter's answers were cut off"),
        ("answers withheld", {"judge/refused": 1}, "the endpoint withheld 1 answers of the judge"),
        ("answers withheld", {"judge/empty": 5}, "50% of the judge's answers came back empty"),
    ],
)
def test_how_answers_ended_is_said(name: str, change: Numbers, said: str) -> None:
    asked: Numbers = {"judge/requests": 10, "adapter/requests": 10}
    [warned] = warnings_of({1: {**WELL, **asked, **change}})
    assert (warned.name, warned.message[: len(said)]) == (name, said)
    assert warnings_of({1: {**WELL, **asked, "judge/cut": 2, "judge/empty": 2}}) == []


@pytest.mark.parametrize("success", [None, 0.2])
def test_where_nothing_was_judged_tasks_are_not_called_too_easy(success: float | None) -> None:
    nothing = {"judge/weight_ratio": None, "judge/commonest_share": None}
    assert "weight ratio" not in raised(*[{**nothing, "rollouts/success": success}] * 10)


@pytest.mark.parametrize("role", ["policy", "judge"])
def test_a_first_iteration_in_which_nothing_trains_is_called_at_once(role: str) -> None:
    nothing = {f"{role}/window_share": 0.0}
    assert raised(nothing, *[{}] * 5) == {"nothing trains": 1}
    assert raised({}, nothing, nothing, {}) == {}


def test_few_slots_without_an_answer_are_no_sign_of_a_foreign_adapter() -> None:
    assert raised(*[{"tasks/asked": 3.0, "tasks/valid": 0.0, "tasks/parsed": 0.0}] * 4) == {}


def test_one_answer_to_all_is_right_where_all_episodes_end_alike() -> None:
    assert raised(*[{"judge/commonest_share": 1.0, "rollouts/success": 0.0}] * 9) == {}


def test_entropy_that_is_gone_is_called() -> None:
    entropies = [0.5, 0.6, 0.4, 0.3, 0.04, 0.04, 0.04]
    assert raised(*[{"policy/entropy": each} for each in entropies]) == {"entropy": 7}


def test_iterations_without_an_update_are_no_fall_of_entropy() -> None:
    nothing = {"policy/entropy": None, "policy/window_share": 0.0}
    assert raised(*[{}] * 4, *[nothing] * 4) == {"nothing trains": 7}


def test_a_funnel_that_is_blocked_at_once_is_said_of_one_iteration() -> None:
    blocked = {**WELL, "tasks/asked": 16.0, "tasks/valid": 3.0, "tasks/proposed": 0.0}
    [warned] = warnings_of({1: blocked})
    assert "asked for 16 tasks in the first iteration: " in warned.message


def test_a_judge_that_gets_worse_is_called() -> None:
    falling = [{"judge/balanced_process_accuracy": 0.7 - 0.02 * i} for i in range(12)]
    assert raised(*falling) == {"judge accuracy": 10}


def test_scores_that_rise_alone_are_called_reward_hacking() -> None:
    rising = [{"judge/lost_mean_score": 0.02 * i} for i in range(15)]
    assert raised(*rising) == {"reward hacking": 10}


def test_a_mean_score_that_rises_but_not_where_episodes_are_lost_is_no_hacking() -> None:
    assert raised(*[{"judge/mean_score": 0.03 * i} for i in range(15)]) == {}


@pytest.mark.parametrize(("before", "after"), [(3, 3), (14, 6), (2, 2)])
def test_a_leap_of_scores_is_called_reward_hacking_also_in_a_short_run(
    before: int, after: int
) -> None:
    low: Numbers = {"judge/lost_mean_score": -0.4, "rollouts/success": 0.5}
    high: Numbers = {"judge/lost_mean_score": 0.16, "rollouts/success": 0.53}
    assert raised(*[low] * before, *[high] * after) == {"reward hacking": before + 2}
    assert raised(*[low] * before, *[high | {"rollouts/success": 0.7}] * after) == {}


def test_scores_that_rise_with_success_are_no_hacking() -> None:
    rising = [
        {"judge/lost_mean_score": 0.02 * i, "rollouts/success": 0.2 + 0.02 * i} for i in range(30)
    ]
    assert raised(*rising) == {}


def test_noise_raises_a_warning_in_hardly_any_run() -> None:
    rng = np.random.default_rng(0)
    warned = 0
    for _ in range(60):
        score, success, accuracy = (rng.normal(mean, 0.08, size=100) for mean in (0.1, 0.5, 0.7))
        warned += bool(
            raised(
                *(
                    {
                        "judge/lost_mean_score": float(score[i]),
                        "rollouts/success": float(success[i]),
                        "judge/balanced_process_accuracy": float(accuracy[i]),
                    }
                    for i in range(100)
                )
            )
        )
    assert warned <= 3


def test_every_warning_is_one_line_with_a_remedy() -> None:
    bad: Numbers = {
        "policy/mismatch_kl": 1.0,
        "policy/skipped_updates": 2.0,
        "tasks/drift": 0.9,
    }
    found = warnings_of({1: {**WELL, **bad}})
    assert [warned.name for warned in found] == ["mismatch", "skipped updates", "task drift"]
    for warned, role in zip(found, ("policy", "policy", "adapter"), strict=True):
        assert "\n" not in warned.line()
        assert warned.remedy in warned.line()
        assert warned.remedy == RULES[warned.name].remedy.format(role=role, section=role)


def test_every_judge_is_warned_of_by_its_name() -> None:
    roles = {"policy": "acts", "judge": "scores", "critic": "scores", "adapter": "rewrites"}
    bad = {"judge/mu": 0.9, "critic/mu": 0.8, "critic/commonest_share": 0.3}
    bad |= {"critic/mismatch_kl": 1.0}
    found = find_warnings({i: {**WELL, **bad} for i in (1, 2, 3)}, roles)
    told = {(warned.name, warned.message.split("'s ")[0]) for warned in found}
    assert told == {
        ("mismatch", "the critic"),
        ("mu", "the judge"),
        ("mu", "the critic"),
    }
    [mu] = [warned.remedy for warned in found if warned.message.startswith("the critic's mu")]
    assert "try a stronger roles.critic.model" in mu


def test_scores_that_nobody_could_read_say_nothing_of_the_tasks() -> None:
    unread = {"judge/weight_ratio": None, "judge/unparsable_rate": 1.0}
    assert "weight ratio" not in raised(*[unread] * 12)
