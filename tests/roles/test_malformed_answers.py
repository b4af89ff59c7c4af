"""Malformed answers of judge and policy, 10,000 and more, through every parser of the core."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from helpers.malformed import (
    GIANTS,
    LONG_ROADS,
    MEGABYTE,
    PROSE,
    SECONDS,
    Sayings,
    broken_action,
    broken_score,
    check_no_forged_score_reaches_a_judge,
)
from helpers.scripted import Counting, judged
from rlanything.domains.base import InvalidTask, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.engines.base import Sampling
from rlanything.records import Task
from rlanything.roles.adapter import LLMAdapter, RewriteRequest
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.chat_template import without_scores
from rlanything.roles.judges.scores import parse_score

COUNT = 10_500
"""Number of different malformed answers; the giants of a megabyte come on top."""
ACTIONS = ("go to shelf 1", "go to drawer 12", "open drawer 12", "take mug 3 from shelf 1", "look")
ROOT = Task("root", "count to 3")


class Room:
    """A game that waits for its first action."""

    def step(self, response: str) -> StepResult:
        action = TextDomain.action_in(response)
        return StepResult(Observation("?", ACTIONS), action, action in ACTIONS, None)


@pytest.fixture(scope="module")
def malformed() -> list[str]:
    rng = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < COUNT:
        found[broken_score(rng)] = None
        found[broken_action(rng, ACTIONS)] = None
    return [*found]


def test_valid_answers_of_the_same_make_are_read() -> None:
    for prose in PROSE:
        assert parse_score(f"{prose}\\boxed{{ +1 }}{prose}") == 1
        assert parse_score(f"{prose}\\boxed{{1}} no, {prose}\\boxed{{-1\n}}}} {prose}") == -1
    for action in ACTIONS:
        assert Room().step(f"{PROSE[4]}> what? >  \n {action} \r\n{PROSE[2]}").valid
    assert Counting().parse_candidate(ROOT, "new", "count to 4").instruction == "count to 4"


def test_the_malformed_answers_are_more_than_ten_thousand_and_all_different(
    malformed: list[str],
) -> None:
    assert len(malformed) == len(set(malformed)) >= 10_000
    assert len(GIANTS) >= 30
    assert all(len(giant) > MEGABYTE - 20 for giant in GIANTS)


def test_none_is_a_score(malformed: list[str]) -> None:
    assert {answer[:200] for answer in malformed if parse_score(answer) != 0} == set()


def test_none_is_an_action_that_can_be_played(malformed: list[str]) -> None:
    room = Room()
    for answer in malformed:
        result = room.step(answer)
        assert not result.valid, answer[:200]
        assert result.action is None or result.action.strip(" \t\r\n") == result.action != ""


def test_none_is_a_task_and_the_reason_is_the_only_error(malformed: list[str]) -> None:
    for domain in (Counting(), TextDomain()):
        for answer in malformed:
            with pytest.raises(InvalidTask):
                domain.parse_candidate(ROOT, "new", answer)


def test_none_keeps_a_score_when_it_is_quoted(malformed: list[str]) -> None:
    for answer in malformed:
        quoted = without_scores(f"{answer}\\boxed{{1}}\\\\boxed{{-1}}")
        assert "\\boxed" not in quoted
        assert parse_score(quoted) == 0


def test_an_adapter_that_gets_only_such_answers_and_critics_proposes_nothing(
    frozen_model, malformed: list[str]
) -> None:
    # A valid answer that a critic wrote is no answer of the adapter's.
    critics = ["count to 4", *malformed[:: COUNT // 150]]
    failed = tuple(judged(f"failed {i}", [(-1, 1)]) for i in range(len(critics)))
    ask = RewriteRequest("slot", ROOT, ROOT, "harder", failed)
    chat_model = LocalChatModel(frozen_model, Sayings([*critics, *malformed]))
    adapter = LLMAdapter(chat_model, Counting(), Sampling(1.0, 16), 500, len(critics))
    (proposal,) = adapter.propose([ask], 1, seed=0)
    assert proposal.task is None
    assert proposal.critics == tuple(critic.strip() for critic in critics)
    assert len(proposal.refused) == 500
    assert all(len(each.text.splitlines()) == 1 for each in proposal.refused)


def test_no_forged_score_reaches_a_judge(frozen_model, malformed: list[str]) -> None:
    check_no_forged_score_reaches_a_judge(frozen_model, TextDomain(), ROOT, malformed)


def test_a_megabyte_is_read_in_less_than_a_second_by_every_parser() -> None:
    parsers: tuple[Callable[[str], object], ...] = (
        parse_score,
        lambda answer: "\\boxed" in without_scores(answer),
        lambda answer: Room().step(answer).valid,
    )
    for answer in (*GIANTS, *LONG_ROADS):
        for parse in parsers:
            start = time.process_time()
            found = parse(answer)
            assert time.process_time() - start < SECONDS, answer[:40]
            assert not found or answer in LONG_ROADS, answer[:40]
