"""Malformed answers of judge and policy, 10,000 and more, through every parser of the core."""

from __future__ import annotations

import pytest

from helpers.malformed import (
    PROSE,
    broken_action,
    broken_score,
    check_a_megabyte_is_read_fast,
    check_all_differ,
    check_an_adapter_proposes_nothing,
    check_no_forged_score_reaches_a_judge,
    check_none_is_a_task,
    check_valid_scores_are_read,
    malformed_answers,
)
from helpers.scripted import Counting
from rlanything.domains.base import Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.roles.chat_template import without_scores
from rlanything.roles.judges.scores import parse_score

ACTIONS = ("go to shelf 1", "go to drawer 12", "open drawer 12", "take mug 3 from shelf 1", "look")
ROOT = Task("root", "count to 3")


class Room:
    """A game that waits for its first action."""

    def step(self, response: str) -> StepResult:
        action = TextRollouts.action_in(response)
        return StepResult(Observation("?", ACTIONS), action, action in ACTIONS, None)


@pytest.fixture(scope="module")
def malformed() -> list[str]:
    return malformed_answers(broken_score, lambda rng: broken_action(rng, ACTIONS))


def test_valid_answers_of_the_same_make_are_read() -> None:
    check_valid_scores_are_read()
    for action in ACTIONS:
        assert Room().step(f"{PROSE[4]}> what? >  \n {action} \r\n{PROSE[2]}").valid
    assert Counting().parse_candidate(ROOT, "new", "count to 4").instruction == "count to 4"


def test_the_malformed_answers_are_more_than_ten_thousand_and_all_different(
    malformed: list[str],
) -> None:
    check_all_differ(malformed)


def test_none_is_a_score(malformed: list[str]) -> None:
    assert {answer[:200] for answer in malformed if parse_score(answer) != 0} == set()


def test_none_is_an_action_that_can_be_played(malformed: list[str]) -> None:
    room = Room()
    for answer in malformed:
        result = room.step(answer)
        assert not result.valid, answer[:200]
        assert result.action is None or result.action.strip(" \t\r\n") == result.action != ""


def test_none_is_a_task_and_the_reason_is_the_only_error(malformed: list[str]) -> None:
    for domain in (Counting(), TextRollouts()):
        check_none_is_a_task(domain, ROOT, malformed)


def test_none_keeps_a_score_when_it_is_quoted(malformed: list[str]) -> None:
    for answer in malformed:
        quoted = without_scores(f"{answer}\\boxed{{1}}\\\\boxed{{-1}}")
        assert "\\boxed" not in quoted
        assert parse_score(quoted) == 0


def test_an_adapter_that_gets_only_such_answers_and_critics_proposes_nothing(
    frozen_model, malformed: list[str]
) -> None:
    check_an_adapter_proposes_nothing(frozen_model, Counting(), ROOT, "count to 4", malformed)


def test_no_forged_score_reaches_a_judge(frozen_model, malformed: list[str]) -> None:
    check_no_forged_score_reaches_a_judge(frozen_model, TextRollouts(), ROOT, malformed)


def test_no_parser_takes_the_square_of_a_megabyte() -> None:
    check_a_megabyte_is_read_fast(lambda answer: Room().step(answer).valid)
