"""Episodes are judged while others still play, with the results of judging them at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from helpers.scripted import trajectory
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import StepJudge
from rlanything.roles.judges.judging import Judging
from rlanything.roles.judges.panel import JudgePanel

SEEDS = {"judge": 7}
EPISODES = [trajectory(str(i), 1 + i % 3) for i in range(6)]


class Slow(StepJudge):
    """Writes its seed; its calls wait until they are let go, and it keeps them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[list[str]] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.error = error
        self.ended = 0
        """Number of calls that returned judgements."""

    def judge(
        self, trajectories: Sequence[Trajectory], seed: int, on_judgements: Any = None
    ) -> list[JudgedTrajectory]:
        self.calls.append([one.id for one in trajectories])
        self.begun.release()
        assert self.go.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        if on_judgements is not None:
            on_judgements(sum(len(one.steps) for one in trajectories))
        self.ended += 1
        row = (Judgement(Completion.unsampled(f"seed {seed}"), 1),)
        return [JudgedTrajectory(one, (row,) * len(one.steps)) for one in trajectories]


def at_the_end() -> list[JudgedTrajectory]:
    judge = Slow()
    judge.go.release()
    return JudgePanel({"judge": judge}).judge(EPISODES, SEEDS)


def test_episodes_are_judged_as_they_end_and_in_one_call_what_ended_meanwhile() -> None:
    judge, done = Slow(), list[int]()
    with Judging(JudgePanel({"judge": judge}), SEEDS) as judging:
        judging.add(EPISODES[3:4])
        assert judge.begun.acquire(timeout=60)  # before the others have ended
        judging.add(EPISODES[0:1])
        judging.add(EPISODES[4:6])
        for _ in range(3):
            judge.go.release()
        judged = judging.finish(EPISODES, done.append)
    assert judged == at_the_end()
    assert judge.calls == [["3"], ["0", "4", "5"], ["1", "2"]]
    assert sum(done) == sum(len(one.steps) for one in EPISODES)


def test_episodes_that_were_not_added_are_judged_at_the_end() -> None:
    judge, done = Slow(), list[int]()
    judge.go.release()
    with Judging(JudgePanel({"judge": judge}), SEEDS) as judging:
        assert judging.finish(EPISODES, done.append) == at_the_end()
    assert judge.calls == [[one.id for one in EPISODES]]
    assert sum(done) == sum(len(one.steps) for one in EPISODES)
    with Judging(JudgePanel({}), {}) as judging:
        assert [one.trajectory for one in judging.finish(EPISODES, done.append)] == EPISODES


def test_an_error_of_the_judge_is_raised() -> None:
    judge = Slow(ValueError("judge: the endpoint fails; start it"))
    judge.go.release()
    with Judging(JudgePanel({"judge": judge}), SEEDS) as judging:
        judging.add(EPISODES[:2])
        with pytest.raises(ValueError, match="the endpoint fails; start it"):
            judging.finish(EPISODES, lambda _: None)
        with pytest.raises(ValueError, match="the endpoint fails; start it"):
            judging.add(EPISODES[2:])  # no more episodes are played in vain


def test_an_interrupted_iteration_judges_no_more() -> None:
    judge = Slow()
    with Judging(JudgePanel({"judge": judge}), SEEDS) as judging:  # left without `finish`
        judging.add(EPISODES[:1])
        assert judge.begun.acquire(timeout=60)
        judging.add(EPISODES[1:])
    judge.go.release()
    for thread in threading.enumerate():
        if thread.name == "judging":
            thread.join(10)
            assert not thread.is_alive()
    assert judge.calls == [["0"]]
    assert judge.ended == 0  # the answer under way ended the call
