"""What the teacher of tiny models shows: episodes that are won, slips, judgements, rewrites."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from rlanything.domains.base import InvalidTask
from rlanything.records import Task, Trajectory
from rlanything.roles.judges.scores import parse_score
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.pages import TRAIN
from rlanything_miniwob.teacher import MiniWobTeacher, target

TEACHER = MiniWobTeacher()


@pytest.fixture(scope="module")
def tasks(miniwob: MiniWob) -> list[Task]:
    """One of every page."""
    return miniwob.tasks("train", len(TRAIN), 5)


@pytest.fixture(scope="module")
def pool(miniwob: MiniWob) -> Iterator[EnvironmentPool]:
    del miniwob  # which skips where there is no browser
    with EnvironmentPool("miniwob", {}, 1, 60.0) as pool:
        yield pool


def demonstrations(pool: EnvironmentPool, tasks: list[Task], slip: float) -> list[Trajectory]:
    attempts = [
        RolloutRequest(f"{slip}/{task.id}", task, number) for number, task in enumerate(tasks)
    ]
    played = rollout(TEACHER.demonstrator(slip), pool, attempts, 12, 64)
    assert played.failures == ()
    return list(played.trajectories)


def test_a_demonstrator_wins_every_page_and_loses_by_slips(
    miniwob: MiniWob, pool: EnvironmentPool, tasks: list[Task]
) -> None:
    sure, slipping = (demonstrations(pool, tasks, slip) for slip in (0.0, 0.6))
    assert [each.outcome for each in sure] == [1] * len(tasks)
    assert 0 < sum(each.outcome == 1 for each in slipping) < 0.8 * len(tasks)
    for trajectory in sure:
        assert set(miniwob.oracle(trajectory.task, trajectory.steps) or ()) == {1}
        for step in trajectory.steps:
            thought, _, action = step.response.rpartition(" > ")
            assert thought == target(step.observation, action)
    known = [miniwob.oracle(each.task, each.steps) or [] for each in slipping]
    labels = Counter(label for labels in known for label in labels)
    assert labels[-1] > 0.3 * labels.total()


def test_judgements_name_what_is_next_and_critics_what_was_missed(
    pool: EnvironmentPool, tasks: list[Task]
) -> None:
    [task] = [task for task in tasks if task.kind == "enter-password"]
    [trajectory] = demonstrations(pool, [task], 0.0)
    for score in (1, -1):
        text = TEACHER.judgement(task, trajectory.steps[:1], score)
        assert text.startswith('textbox "" [2] is next')
        assert parse_score(text) == score
    critic = TEACHER.critic(task, trajectory.steps, [2])
    assert critic == 'It did not go on with button "Submit" [5]. It chose button "Submit" [5].'


def test_proposals_are_candidates(miniwob: MiniWob, tasks: list[Task]) -> None:
    rng, valid, refused = random.Random(0), 0, list[str]()
    for task in tasks:
        for direction in ("harder", "easier"):
            text = TEACHER.proposal(task, direction, rng)
            if text is None:
                continue
            try:
                miniwob.parse_candidate(task, "new", text)
                valid += 1
            except InvalidTask as reason:
                refused.append(f"{text!r}: {reason}")
    assert valid >= 40
    assert refused == []
