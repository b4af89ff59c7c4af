"""Moves that a game offers, told from the examples of its rules."""

from __future__ import annotations

import pytest

from rlanything_gyms.textarena.opponents import listed_moves


@pytest.mark.parametrize(
    ("said", "moves"),
    [
        ("Available Moves: '[0]', '[1]', '[8]'", ("[0]", "[1]", "[8]")),
        ("Your available actions are: '[check]', '[bet]'", ("[check]", "[bet]")),
        ("Valid moves: [a2a3] or [a2a3]\nPlayer 1 to move.", ("[a2a3]",)),
        ("Valid moves: [old]\nYour options: [draw], [take], [peek X Y]", ("[draw]", "[take]")),
        ("Possible actions are [up] [down]", ("[up]", "[down]")),
    ],
)
def test_the_moves_that_a_game_offered_last_are_listed(said: str, moves: tuple[str, ...]) -> None:
    assert listed_moves(said) == moves


@pytest.mark.parametrize(
    "rules",
    [
        "Take objects by '[pile quantity]', such as '[0 3]' for 3 from pile 0.",
        "Drop a disc with '[col 4]' or '[col 1]'.",
        "Invalid moves: [a] and such end the game.",
        "Available moves: up, down\nUse [w] for up.",
        "Possible actions: [bet X], [raise N], [<number>]",
        "",
    ],
)
def test_examples_of_rules_are_no_moves(rules: str) -> None:
    assert listed_moves(rules) == ()
