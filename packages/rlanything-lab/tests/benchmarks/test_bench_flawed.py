"""AlfWorld with flawed outcomes: how many are wrong or missing, and where none may be."""

from __future__ import annotations

from helpers.benchmark_module import load_benchmark
from rlanything_alfworld.expert import plan
from rlanything_alfworld.tasks import load_game
from rlanything_alfworld.world import World

flawed = load_benchmark("flawed")


def outcomes(domain, split: str, tries: int = 1) -> list[list[int | None]]:
    """[tasks][tries], of episodes that end after one step without an action."""
    environment = domain.environment()

    def outcome(task, number: int) -> int | None:
        environment.reset(task)
        return environment.step(f"say {number}").outcome

    return [[outcome(t, i) for i in range(tries)] for t in domain.tasks(split, 30, 0)]


def test_so_many_outcomes_are_wrong_as_asked_for_and_always_the_same() -> None:
    domain = flawed.FlawedOutcomes(max_steps=1, wrong=0.2)
    told = outcomes(domain, "train", 10)
    assert {outcome for episodes in told for outcome in episodes} == {1, -1}
    share = sum(episodes.count(1) for episodes in told) / 300
    assert 0.13 < share < 0.27  # three standard deviations
    assert outcomes(domain, "train", 10) == told


def test_won_episodes_are_told_as_lost_where_outcomes_are_wrong_or_missing() -> None:
    for flaws in ({"wrong": 1.0}, {"missing": 1.0}, {}):
        domain = flawed.FlawedOutcomes(max_steps=50, **flaws)
        task = domain.tasks("train", 1, 0)[0]
        game = load_game(task.data)
        environment = domain.environment()
        environment.reset(task)
        actions = plan(World(game.scene_pddl), game.goal)
        *before, last = [environment.step(f"> {action}") for action in actions]
        assert {result.outcome for result in before} <= {None}
        assert last.outcome == (-1 if flaws else 1)


def test_an_episode_that_goes_on_has_no_outcome() -> None:
    domain = flawed.FlawedOutcomes(max_steps=2, wrong=1.0)
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    assert [environment.step("nothing").outcome for _ in range(2)] == [None, 1]


def test_all_episodes_of_a_task_miss_their_outcome_or_none() -> None:
    domain = flawed.FlawedOutcomes(max_steps=1, wrong=0.5, missing=0.5)
    counts = [len({*episodes}) for episodes in outcomes(domain, "train", 12)]
    assert 8 < counts.count(1) < 22
    assert 8 < counts.count(2) < 22


def test_held_out_episodes_are_told_as_they_are() -> None:
    domain = flawed.FlawedOutcomes(max_steps=1, wrong=1.0, missing=1.0)
    assert outcomes(domain, "in_domain") == [[None]] * 30
