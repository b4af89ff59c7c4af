"""Malformed answers of all three roles, 10,000 and more, through what AlfWorld reads and shows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

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
    corrupted,
    malformed_answers,
    reassembling,
)
from rlanything.domains.base import InvalidTask
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.roles.chat_template import without_scores
from rlanything_alfworld.commands import find_action
from rlanything_alfworld.domain import AlfWorld
from rlanything_alfworld.environment import AlfWorldEnvironment
from rlanything_alfworld.player_memory import condense
from rlanything_alfworld.tasks import candidate_goals


@dataclass(frozen=True)
class Stage:
    """A game that waits for its first action, and what may be said to it."""

    domain: AlfWorld
    root: Task
    environment: AlfWorldEnvironment
    actions: tuple[str, ...]
    goals: tuple[tuple[str, str], ...]
    """Object and place of every task that the root can be rewritten to, in lower case."""


@pytest.fixture(scope="module")
def stage() -> Stage:
    domain = AlfWorld()
    root = next(t for t in domain.tasks("train", 12, 0) if len(candidate_goals(t)) >= 3)
    environment = domain.environment()
    actions = environment.reset(root).choices or ()
    goals = [(goal.object.lower(), goal.receptacle.lower()) for goal in candidate_goals(root)]
    return Stage(domain, root, environment, actions, tuple(goals))


@pytest.fixture(scope="module")
def malformed(stage: Stage) -> list[str]:
    return malformed_answers(
        broken_score,
        lambda rng: broken_action(rng, stage.actions),
        lambda rng: broken_task(rng, stage),
    )


def broken_task(rng: random.Random, stage: Stage) -> str:
    """An adapter's answer without one object and one place, or with some that do not exist."""
    (thing, place), (thing2, place2) = rng.sample(stage.goals, 2)
    first, second = f"object: {thing}", f"place: {place}"
    gap = rng.choice((" ", ", ", "\n", ". Its new "))
    kind = rng.randrange(9)
    if kind == 0:  # one of the two
        broken = rng.choice((first, second, f"{first} {first}", f"{second}{gap}{first}"))
    elif kind == 1:  # a label misspelt
        label = rng.choice(("objekt:", "ob ject:", "object :", "object：", "object;", "subobject:"))
        broken = f"{label} {thing}{gap}{second}"
    elif kind == 2:  # within a label, at the word or in it
        hurt = rng.choice((first, second))
        hurt_again = corrupted(rng, hurt, 1, len(hurt))
        broken = f"{first}{gap}{second}".replace(hurt, hurt_again)
    elif kind == 3:  # two answers that contradict
        other = f"object: {thing2}{gap}place: {place2}"
        both = f"{first}{gap}{second}", other
        broken = rng.choice((" or ", "\n", " object: ", " place: ")).join(rng.sample(both, 2))
    elif kind == 4:
        word = rng.choice(
            ("unicorn", "mοοn", "ｍｕｇ", "\u212aettle", "nothing", "42", f"{thing}１", f"x{thing}")
        )
        broken = rng.choice((f"object: {word}{gap}{second}", f"{first}{gap}place: {word}"))
    elif kind == 5:  # cut off
        whole = f"{first}{gap}place: "
        return rng.choice(PROSE) + whole[: rng.randint(1, len(whole))]
    elif kind == 6:
        broken = rng.choice(
            (
                f"object: {{{thing}}}{gap}place: {{{place}}}",
                f"object: {thing}}}{gap}place: {{{place}",
                f'{{"object": "{thing}", "place": "{place}"}}',
                f"object: \\boxed{{{thing}}}{gap}{second}",
                f"object={thing}{gap}place={place}",
                f"object: {thing}-like{gap}{second}",
                f"object: $object{gap}place: $place",
            )
        )
    elif kind == 7:  # the question repeated before an answer
        broken = f"Answer with object: and place: {first}{gap}{second}"
    else:
        broken = rng.choice((f"{first} " * rng.randint(2, 20), f"{first}{gap}" + "place: " * 9))
    return f"{rng.choice(PROSE)}{broken} {rng.choice(PROSE)}"


def test_valid_answers_of_the_same_make_are_read(stage: Stage) -> None:
    check_valid_scores_are_read()
    for action in stage.actions:
        response = f"{PROSE[4]}> what? >  \n {action} \r\n{PROSE[2]}"
        assert find_action(response) == TextRollouts.action_in(response) == action
    for thing, place in stage.goals:
        for answer in (
            f"object: {thing} place: {place}",
            f"So: Object:{thing.upper()}, nothing else.\nPLACE:\n{place}.",
            f"object: {thing} place: {place}\n" * 2,
        ):
            task = stage.domain.parse_candidate(stage.root, "new", answer)
            assert task.data["goal"]["object"].lower() == thing
            assert task.data["goal"]["receptacle"].lower() == place


def test_the_malformed_answers_are_more_than_ten_thousand_and_all_different(
    malformed: list[str],
) -> None:
    check_all_differ(malformed)


def test_none_is_an_action_that_can_be_played(stage: Stage, malformed: list[str]) -> None:
    before = stage.environment.reset(stage.root)
    for answer in malformed:
        action = find_action(answer)
        assert action == TextRollouts.action_in(answer)
        assert action is None or action.strip(" \t\r\n") == action != ""
        result = stage.environment.step(answer)
        assert (result.valid, result.outcome, result.action) == (False, None, action), answer[:200]
        assert result.observation.choices == before.choices


def test_none_is_a_task_and_the_reason_is_the_only_error(
    stage: Stage, malformed: list[str]
) -> None:
    for domain in (stage.domain, TextRollouts()):
        check_none_is_a_task(domain, stage.root, malformed)


def test_an_adapter_that_gets_only_such_answers_and_critics_proposes_nothing(
    frozen_model, stage: Stage, malformed: list[str]
) -> None:
    (thing, place), *_ = stage.goals
    valid = f"object: {thing} place: {place}"
    check_an_adapter_proposes_nothing(frozen_model, stage.domain, stage.root, valid, malformed)


def test_no_forged_text_is_a_score_after_alfworld_has_condensed_it() -> None:
    for text in reassembling():
        assert "\\boxed" not in condense(without_scores(text)), text


def test_no_parser_takes_the_square_of_a_megabyte(stage: Stage) -> None:
    def candidate(answer: str) -> Task | None:
        try:
            return stage.domain.parse_candidate(stage.root, "new", answer)
        except InvalidTask:
            return None

    stage.environment.reset(stage.root)
    check_a_megabyte_is_read_fast(
        lambda answer: TextRollouts.action_in(answer) in stage.actions,
        lambda answer: stage.environment.step(answer).valid,
        candidate,
    )


@pytest.mark.parametrize("style", ["nano", "paper"])
def test_no_forged_score_reaches_a_judge(
    frozen_model, style: Literal["nano", "paper"], stage: Stage, malformed: list[str]
) -> None:
    domain = AlfWorld(style=style)
    check_no_forged_score_reaches_a_judge(frozen_model, domain, stage.root, malformed)
