"""What an attentive player remembers, and how observations are condensed."""

from __future__ import annotations

import pytest

from rlanything_alfworld.player_memory import PlayerMemory, condense, names_in

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a drawer 10, a drawer 2, "
    "a fridge 1, and a shelf 1."
)


def after(*observations: str, task: str = "put a hot mug in fridge") -> PlayerMemory:
    memory = PlayerMemory.at_start(task, ROOM)
    for observation in observations:
        memory.read(observation)
    return memory


def test_every_place_is_unseen_at_the_start_in_natural_order() -> None:
    assert after().unseen == ["drawer 2", "drawer 10", "fridge 1", "shelf 1"]


def test_of_a_full_house_the_first_unseen_place_of_each_kind_is_remembered() -> None:
    memory = PlayerMemory.at_start("put a hot mug in fridge", ROOM, first_of_kind=True)
    assert memory.unseen == ["drawer 2", "fridge 1", "shelf 1"]
    memory.read("You arrive at drawer 2. On the drawer 2, you see nothing.")
    assert memory.unseen == ["drawer 10", "fridge 1", "shelf 1"]


def test_a_closed_place_stays_unseen_until_it_is_opened() -> None:
    memory = after("You arrive at fridge 1. The fridge 1 is closed.")
    assert "fridge 1" in memory.unseen
    assert "fridge 1" in memory.closed
    memory.read("You open the fridge 1. The fridge 1 is open. In it, you see a egg 1.")
    assert "fridge 1" not in memory.unseen
    assert "fridge 1" not in memory.closed


def test_only_what_the_task_speaks_of_is_listed_as_seen() -> None:
    memory = after("You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pan 1.")
    assert "saw mug 2 at shelf 1 |" in memory.line()
    assert "pan" not in memory.line()


def test_what_is_taken_is_held_and_no_longer_lies_there() -> None:
    memory = after(
        "You arrive at shelf 1. On the shelf 1, you see a mug 2.",
        "You pick up the mug 2 from the shelf 1.",
    )
    assert memory.holds == "mug 2"
    assert "saw nothing" in memory.line()
    memory.read("You heat the mug 2 using the microwave 1.")
    assert "hold mug 2 hot" in memory.line()
    memory.read("You move the mug 2 to the fridge 1.")
    assert memory.holds is None
    assert "mug 2 hot at fridge 1" in memory.line()


def test_a_lit_lamp_is_remembered_until_it_is_turned_off() -> None:
    memory = after("You turn on the desklamp 1.")
    assert "lit desklamp 1" in memory.line()
    memory.read("You turn off the desklamp 1.")
    assert "lit" not in memory.line()


def test_an_observation_without_news_changes_nothing() -> None:
    assert after("Nothing happens.").line() == after().line()


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        ("a mug 1, and a cup 2", ["mug 1", "cup 2"]),
        ("an apple 12", ["apple 12"]),
        ("nothing", []),
    ],
)
def test_names_are_read_from_listings(listing: str, names: list[str]) -> None:
    assert names_in(listing) == names


@pytest.mark.parametrize(
    ("observation", "short"),
    [
        (
            "You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pan 1.",
            "shelf 1: mug 2, pan 1.",
        ),
        (
            "You open the fridge 1. The fridge 1 is open. In it, you see nothing.",
            "fridge 1 in: nothing.",
        ),
        ("Nothing happens.", "Nothing happens."),
    ],
)
def test_condensing_keeps_every_name(observation: str, short: str) -> None:
    assert condense(observation) == short
