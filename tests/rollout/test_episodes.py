"""What a response brings about counts against its episode; a fault that is nobody's doing is named.

The environment below does what it is told, also what no honest one does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import agents
from helpers.delayed import delayed, spoken
from rlanything.domains.base import DomainError, Episode, EpisodeError, Observation, StepResult
from rlanything.domains.requests import ModelRequest, RequestsRefused
from rlanything.domains.text import TextRollouts
from rlanything.records import Completion, Task
from rlanything.rollout.episodes import (
    RecordedAgent,
    RolloutRequest,
    Rollouts,
    faults,
    rollout,
)
from rlanything.rollout.workers import EnvironmentPool

MASKED = "masked, because the environment failed and not the policy"


class Obedient(TextRollouts):
    """Episodes whose responses decide how the environment fails."""

    def environment(self) -> ObedientEnvironment:
        return ObedientEnvironment()


class ObedientEnvironment:
    def reset(self, task: Task) -> Observation:
        self._id = task.id
        if task.data.get("harm") == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.data.get("harm") == "raise":
            raise ValueError("damaged")
        return Observation("?")

    def step(self, response: str) -> StepResult:
        match response.split():
            case ["int", digits]:
                int(digits)  # as careless environments do
            case ["divide"]:
                _ = 1 / (len(response) - 6)
            case ["recurse"]:
                self.step(response)
            case ["die"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["hang"]:
                time.sleep(60)
            case ["fault"]:
                raise EpisodeError(self._id, "the network is down")
            case ["other", task]:
                raise EpisodeError(task, ValueError("it went away"), lost=False)  # type: ignore[arg-type]
            case ["choices"]:
                return StepResult(Observation("!", ("a", 3)), response, True)  # type: ignore[arg-type]
            case ["image"]:
                return StepResult(Observation("!", image=b"PNG"), response, True)  # type: ignore[arg-type]
            case ["gone"]:
                raise DomainError("no Chromium found: install one")
            case ["draw"]:
                return StepResult(Observation("!"), response, True, 0)
            case ["part", share]:
                return StepResult(Observation("!"), response, True, None, float(share))
            case _:
                pass
        return StepResult(Observation("!"), response, True, 1 if response == "win" else None)


class Scripted:
    """Says what each task names, and then that it would win."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        del seeds
        return [
            Completion.unsampled("win" if episode.steps else episode.task.data["says"])
            for episode in episodes
        ]

    def release_cache(self) -> None: ...


def played(said: Sequence[dict[str, str]], workers: int, timeout_seconds: float = 20.0) -> Rollouts:
    tasks = [Task(str(i), "", data={"says": "wait"} | data) for i, data in enumerate(said)]
    with EnvironmentPool(Obedient(), {}, workers, timeout_seconds) as pool:
        requests = [RolloutRequest(task.id, task, 0) for task in tasks]
        return rollout(Scripted(), pool, requests, 5, 8)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "response", ["int x", "int 2e", "divide", "recurse", "int " + "9" * 9999, "draw", "part nan"]
)
def test_an_error_that_a_response_brings_about_loses_the_episode(
    response: str, workers: int
) -> None:
    rollouts = played([{"says": response}, {}], workers)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]
    assert not rollouts.failures
    [crash] = rollouts.crashes
    assert crash.task_id == "0"
    [step] = rollouts.trajectories[0].steps
    assert (step.response, step.action, step.valid) == (response, None, False)
    assert step.next_observation == "The environment failed at this response: the episode is lost."


def test_a_refusal_after_a_record_names_the_episode_that_asked() -> None:
    def episode(name: str, asked: ModelRequest | None = None) -> Episode:
        task = Task(name, "", data={"says": [f"refuse: {name} is too long"]})
        return Episode(name, task, Observation("", request=asked))

    count = ModelRequest("count", (), count_only=True)
    episodes = [episode("recorded"), episode("new"), episode("counting", count)]
    recorded = {each.id: [agents.said("as before")] for each in episodes} | {"new": []}
    with pytest.raises(RequestsRefused) as refused:
        RecordedAgent(recorded, agents.Scripted()).respond(episodes, [0, 0, 0])
    assert refused.value.reasons == {1: "new is too long", 2: "counting is too long"}
    [again] = RecordedAgent(recorded, agents.Scripted()).respond(episodes[:1], [0])
    assert again.text == "as before"


def test_what_an_outcome_may_be_is_said() -> None:
    [crash] = played([{"says": "draw"}], 0).crashes
    assert "an outcome is 1 (won) or -1 (lost), not 0" in crash.reason
    [crash] = played([{"says": "part inf"}], 0).crashes
    assert "a reward is a finite number or None, not inf" in crash.reason


def test_an_episode_at_its_step_limit_earns_what_the_environment_gave_last() -> None:
    with EnvironmentPool(Obedient(), {}, 0, 20.0) as pool:
        request = RolloutRequest("0", Task("0", "", data={"says": "part 0.25"}), 0)
        [trajectory] = rollout(Scripted(), pool, [request], 1, 8).trajectories
    assert (trajectory.outcome, trajectory.reward) == (-1, 0.25)


@pytest.mark.parametrize(("response", "timeout_seconds"), [("die", 20.0), ("hang", 0.5)])
def test_a_response_at_which_three_workers_die_or_hang_loses_the_episode(
    response: str, timeout_seconds: float
) -> None:
    rollouts = played([{"says": response}, {}], 1, timeout_seconds)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]
    assert not rollouts.failures
    assert [crash.reason for crash in rollouts.crashes] == [
        "its worker died or hung 3 times in a row"
    ]


@pytest.mark.parametrize(
    ("task", "workers", "became"),
    [
        ({"harm": "die"}, 1, "could not be played"),
        ({"harm": "raise"}, 0, "could not be played"),
        ({"harm": "raise"}, 1, "could not be played"),
        ({"says": "fault"}, 0, MASKED),
        ({"says": "gone"}, 1, MASKED),
    ],
)
def test_what_no_response_brought_about_is_not_among_the_trajectories(
    task: dict[str, str], workers: int, became: str
) -> None:
    rollouts = played([{}, task], workers)
    assert [trajectory.id for trajectory in rollouts.trajectories] == ["0"]
    assert [failure.task_id for failure in rollouts.failures] == ["1"]
    assert [task.id for task in rollouts.unplayable] == ["1"]
    assert not rollouts.crashes
    [failure] = rollouts.failures
    assert faults([failure], []) == [f"1 episode {became}: {failure.reason}"]


def test_what_could_not_be_played_is_said_with_the_commonest_reason() -> None:
    errors = [EpisodeError("t", reason) for reason in ("none", "no display", "no display")]
    assert faults(errors, errors[1:]) == [
        "3 episodes could not be played: 2 of them: no display",
        "2 episodes lost where the environment failed at a response: no display",
    ]
    assert faults([], []) == []


class Gymnast(TextRollouts):
    """Answers as another library would have it."""

    def environment(self) -> Any:
        return GymnastEnvironment()


class GymnastEnvironment:
    def reset(self, task: Task) -> Any:
        return "begin" if task.data["harm"] == "reset" else Observation("begin")

    def step(self, response: str) -> Any:
        return ("an observation", 1.0, True, {})


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_answers_with_something_else_is_told_what_is_due(workers: int) -> None:
    with EnvironmentPool(Gymnast(), {}, workers, 20.0) as pool:
        requests = [
            RolloutRequest(harm, Task(harm, "", data={"harm": harm, "says": "go"}), 0)
            for harm in ("reset", "step")
        ]
        rollouts = rollout(Scripted(), pool, requests, 2, 8)
    [failure], [crash] = rollouts.failures, rollouts.crashes
    assert failure.reason == (
        "TypeError: GymnastEnvironment.reset returned 'begin'; return an rlanything.Observation"
    )
    assert "GymnastEnvironment.step returned ('an observation', 1.0," in crash.reason


class SaysItsSeed:
    """Says the seed it was asked with, and keeps who was asked together."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        self.calls.append([episode.id for episode in episodes])
        return [Completion.unsampled(f"{seed}") for seed in seeds]

    def release_cache(self) -> None: ...


def test_no_episode_waits_for_another_ones_slow_environment():
    # Each is slow at another step: in lockstep every step would take the time of the slowest.
    delays = [[2.0 if step == i else 0.0 for step in range(4)] for i in range(4)]
    agent = SaysItsSeed()
    rollouts, seconds = delayed(agent, delays, 4, lockstep=False)
    assert len(rollouts.trajectories) == 4
    assert 2 <= seconds < 7  # in lockstep 8
    assert len(agent.calls) > 4


def test_the_next_episode_begins_when_one_has_ended():
    # A slow one and three quick ones, two at a time: the quick ones play while the slow one does.
    agent = SaysItsSeed()
    delays = [[1.5] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4]
    rollouts, _ = delayed(agent, delays, 2, lockstep=False, at_once=2)
    assert [each.id for each in rollouts.trajectories] == ["0", "1", "2", "3"]
    last = [max(n for n, call in enumerate(agent.calls) if str(i) in call) for i in range(4)]
    assert last[0] == max(last)
    open_together = [
        sum(any(str(i) in call for call in agent.calls[: n + 1]) and last[i] > n for i in range(4))
        for n in range(len(agent.calls))
    ]
    assert max(open_together) <= 2


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_do_not_depend_on_how_many_are_played_at_once(workers: int, tmp_path: Path):
    delays = np.random.default_rng(0).choice([0.0, 0.03], (7, 4)).tolist()
    expected, _ = delayed(SaysItsSeed(), delays, 0, lockstep=True)
    dies = {"dies": str(tmp_path / "died")} if workers else {}
    for at_once in (1, 2, 5):
        rollouts, _ = delayed(SaysItsSeed(), delays, workers, False, at_once, **dies)
        assert spoken(rollouts) == spoken(expected)
        assert [each.id for each in rollouts.trajectories] == [str(i) for i in range(7)]
    assert not dies or (tmp_path / "died").exists()


def test_what_cannot_be_played_leaves_its_place_to_the_next():
    requests = [
        RolloutRequest(
            str(i), Task(str(i), "", data={"harm": "raise"} if i < 3 else {"says": "win"}), 0
        )
        for i in range(5)
    ]
    with EnvironmentPool(Obedient(), {}, 1, 20.0) as pool:
        rollouts = rollout(Scripted(), pool, requests, 1, 1, None, lockstep=False)
    assert [trajectory.id for trajectory in rollouts.trajectories] == ["3", "4"]
    assert [failure.task_id for failure in rollouts.failures] == ["0", "1", "2"]


def test_results_do_not_depend_on_who_answers_first():
    none = [[0.0] * 4] * 6
    agent = SaysItsSeed()
    expected, _ = delayed(agent, none, 0, lockstep=True)
    assert agent.calls == [[str(i) for i in range(6)]] * 4
    for seed in range(3):
        delays = np.random.default_rng(seed).choice([0.0, 0.03, 0.1], (6, 4)).tolist()
        rollouts, _ = delayed(SaysItsSeed(), delays, 3, lockstep=False)
        assert spoken(rollouts) == spoken(expected)
        assert [each.id for each in rollouts.trajectories] == [str(i) for i in range(6)]


@pytest.mark.parametrize(
    ("at_once", "together"),
    [(8, ["aaabbbcc"]), (3, ["abc", "abc", "ab"]), (4, ["aabc", "abbc"]), (1, [*"abcabcab"])],
)
def test_the_rollouts_of_a_task_are_spread_over_those_played_at_once(
    at_once: int, together: list[str]
):
    agent, attempts = SaysItsSeed(), list[RolloutRequest]()
    for i, name in enumerate("aaabbbcc"):
        attempts.append(RolloutRequest(f"{name}{i}", Task(name, "", data={}), i))
    with EnvironmentPool(Obedient(), {}, 0, 20.0) as pool:
        rollouts = rollout(agent, pool, attempts, 1, at_once)
    assert ["".join(name[0] for name in call) for call in agent.calls] == together
    assert [each.id for each in rollouts.trajectories] == [each.id for each in attempts]


def test_a_worker_that_dies_while_others_go_on_changes_no_result(tmp_path: Path):
    delays = [[0.0, 0.02 * i, 0.0, 0.05] for i in range(6)]
    expected, _ = delayed(SaysItsSeed(), delays, 0, lockstep=True)
    rollouts, _ = delayed(SaysItsSeed(), delays, 3, lockstep=False, dies=str(tmp_path / "died"))
    assert (tmp_path / "died").exists()
    assert spoken(rollouts) == spoken(expected)
    assert not rollouts.crashes


def test_a_step_of_a_domain_that_computes_with_numpy_is_kept_as_pythons_numbers() -> None:
    result = StepResult(Observation(""), "go", np.bool_(False), np.int64(1), np.float32(0.5))  # type: ignore[arg-type]
    assert [type(each) for each in (result.valid, result.outcome, result.reward)] == [
        *(bool, int, float)
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_that_names_something_else_is_of_the_episode_that_raised_it(workers: int) -> None:
    rollouts = played([{"says": "other container-7"}, {}], workers)
    [failure] = rollouts.failures
    assert (failure.task_id, failure.reason) == ("0", "container-7: it went away")
    assert [trajectory.task.id for trajectory in rollouts.trajectories] == ["1"]


@pytest.mark.parametrize("says", ["choices", "image"])
def test_an_observation_that_holds_something_else_costs_its_episode_alone(says: str) -> None:
    rollouts = played([{"says": says}, {}], 0)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]
    [crash] = rollouts.crashes
    assert f"returned an observation whose {says} is" in crash.reason
