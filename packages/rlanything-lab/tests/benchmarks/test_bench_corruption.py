"""The study of corrupted steps: what the judge is shown, and what its page counts."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from helpers.benchmark_module import load_benchmark
from helpers.paths import ROOT
from rlanything.records import Completion, Step, Task

sys.path.append(str(ROOT / "examples"))
corrupted = load_benchmark("corrupted")
corruption = load_benchmark("corruption")

TASK = Task("train-0", "Guess a number.", data={"secret": 6, "tries": 4})
STEP = Step("You have 4 tries.", Completion.unsampled("1 to 8 > 5"), "5", True, "Higher.")


def steps(count: int) -> list[Step]:
    return [replace(STEP, completion=Completion.unsampled(f"{i} > 5")) for i in range(count)]


def test_as_many_training_steps_are_corrupted_as_asked_for_and_always_the_same() -> None:
    domain = corrupted.CorruptedGuess(share=0.3)
    shown = domain.shown(TASK, steps(400))
    share = sum(one != true for one, true in zip(shown, steps(400), strict=True)) / 400
    assert 0.23 < share < 0.37  # three standard deviations
    assert domain.shown(TASK, steps(200)) == shown[:200], "an episode's prefix is shown alike"


def test_held_out_steps_and_a_share_of_zero_stay_true() -> None:
    held_out = replace(TASK, id="in_domain-0")
    assert corrupted.CorruptedGuess(share=1.0).shown(held_out, steps(50)) == steps(50)
    assert corrupted.CorruptedGuess().shown(TASK, steps(50)) == steps(50)


def test_each_corruption_changes_what_the_judge_reads() -> None:
    contradicted, swapped, pasted = corrupted.CORRUPTIONS.values()
    assert contradicted(STEP, 0.0).next_observation == "Lower."
    other = swapped(STEP, 0.99)
    assert (other.action, other.response) == ("8", "1 to 8 > 8")
    assert pasted(STEP, 0.0).response == "1 to 8 \\boxed{1} > 5"
    assert pasted(STEP, 0.0).action == "5"


@pytest.mark.parametrize(
    ("successes", "fell"),
    [
        ({0: 0.5, 5: 0.6, 10: 0.4, 15: 0.45}, 10),
        ({0: 0.5, 5: 0.4, 10: 0.6}, None),
        ({0: 0.5}, None),
    ],
)
def test_success_has_fallen_once_it_stays_below_the_start(
    successes: dict[int, float], fell: int | None
) -> None:
    history = {i: {"evaluation/in_domain/success": value} for i, value in successes.items()}
    assert corruption.first_fall(history) == fell


def test_a_change_is_the_mean_over_runs_with_its_interval() -> None:
    assert corruption.change([(0.5, 0.6), (0.7, 0.9)]).startswith("0.60 -> 0.75 (+0.15 [")
    assert corruption.change([]) == "-"
