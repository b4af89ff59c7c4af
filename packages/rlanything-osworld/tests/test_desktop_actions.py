"""The actions on a desktop: how they are found, what they ask for, which are refused."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from helpers.paths import PACKAGES
from rlanything_osworld.actions import (
    KEYS,
    DesktopAction,
    ImpossibleAction,
    Notation,
    find_action,
    listed_actions,
    parse_action,
)
from rlanything_osworld.screen import ScreenPlace
from rlanything_osworld.tasks import generated_tasks, goal_of

PLACES = {1: ScreenPlace(10, 20), 2: ScreenPlace(30, 40), 3: ScreenPlace(0, 0, window=77)}


def parsed(text: str, notation: Notation = "numbered") -> DesktopAction:
    return parse_action(text, notation, PLACES, (800, 600))


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("I save it. > press ctrl+s", "press ctrl+s"),
        ("Hm.\n> type a > b", "type a > b"),
        ("> click [1]\n\n", "click [1]"),
        ("first > wait\nthen\n> done", "done"),
        ("nothing", None),
        (">", None),
        ("", None),
    ],
)
def test_the_action_follows_the_first_marker_of_the_last_line_with_one(
    response: str, action: str | None
) -> None:
    assert find_action(response, "numbered") == action


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("```python\npyautogui.click(1, 2)\n```", "pyautogui.click(1, 2)"),
        ("```\na = 1 > 0\n```\nor\n```\nb\n```", "b"),
        ("I am done.\nDONE", "DONE"),
        ("pyautogui.click(1, 2)", None),
        ("``` ```", None),
    ],
)
def test_code_is_the_last_block_and_may_contain_the_marker(
    response: str, action: str | None
) -> None:
    assert find_action(response, "pyautogui") == action


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("click [1]", (("click", 10, 20),)),
        ("click 1", (("click", 10, 20),)),
        ("double_click [2]", (("doubleClick", 30, 40),)),
        ("right_click [1]", (("rightClick", 10, 20),)),
        ("click [3]", (("activate", 77),)),
        ("type two words", (("write", "two words"),)),
        ("press ctrl+S", (("hotkey", "ctrl", "S"),)),
        ("press CTRL++", (("hotkey", "ctrl", "+"),)),
        ("press +", (("hotkey", "+"),)),
        ("scroll down [2]", (("scroll", -5, 30, 40),)),
        ("scroll up", (("scroll", 5),)),
        ("drag [1] [2]", (("moveTo", 10, 20), ("dragTo", 30, 40))),
        ("wait", ()),
    ],
)
def test_a_numbered_action_is_calls_on_places(text: str, calls: tuple[Any, ...]) -> None:
    assert parsed(text) == DesktopAction(calls)


@pytest.mark.parametrize("text", ["done", "fail", "DONE"])
def test_an_episode_is_ended_by_a_word(text: str) -> None:
    assert parsed(text).ending == text.lower()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("click [4]", "no element 4"),
        ("click", "An action is one of"),
        ("click [1] now", "An action is one of"),
        ("drag [1] [3]", "is a window"),
        ("press nokey", "no key 'nokey'"),
        ("press ctrl+", "no key ''"),
        ("type " + "x" * 501, "No more than 500"),
        ("type a\x1bb", "no key gives"),
        ("rm -rf /", "An action is one of"),
    ],
)
def test_an_impossible_numbered_action_says_why(text: str, reason: str) -> None:
    with pytest.raises(ImpossibleAction, match=reason.replace("[", r"\[")):
        parsed(text)


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        ({"action_type": "CLICK", "parameters": {}}, (("click", None, None, 1, 0.0, "left"),)),
        (
            {"action_type": "CLICK", "x": 5, "y": 6.7, "button": "right", "num_clicks": 2},
            (("click", 5, 6, 2, 0.0, "right"),),
        ),
        ({"action_type": "DRAG_TO", "parameters": {"x": 1, "y": 2}}, (("dragTo", 1, 2),)),
        (
            {"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -3}},
            (("hscroll", 0), ("scroll", -3)),
        ),
        ({"action_type": "TYPING", "parameters": {"text": "hé"}}, (("write", "hé"),)),
        (
            {"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "a"]}},
            (("hotkey", "ctrl", "a"),),
        ),
        ({"action_type": "WAIT"}, ()),
        ("WAIT", ()),
    ],
)
def test_a_computer_13_action_is_calls_on_coordinates(action: Any, calls: tuple[Any, ...]) -> None:
    assert parsed(json.dumps(action), "computer_13").calls == calls


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"action_type": "CLICK", "x": 1}, "x and y"),
        ({"action_type": "CLICK", "x": 800, "y": 1}, "from 0 to 799"),
        ({"action_type": "CLICK", "x": True, "y": 1}, "A coordinate"),
        ({"action_type": "CLICK", "z": 1}, "has no z"),
        ({"action_type": "CLICK", "button": "x"}, "A button"),
        ({"action_type": "SCROLL", "dy": 10**9}, "whole number"),
        ({"action_type": "TYPING"}, "needs text"),
        ({"action_type": "TYPING", "text": 5}, "no text"),
        ({"action_type": "HOTKEY", "keys": []}, "one to eight"),
        ({"action_type": "PRESS", "key": ["a"]}, "no key"),
        ({"action_type": "HACK"}, "An action is one of"),
        ({"action_type": ["CLICK"]}, "An action is one of"),
        ({"action_type": "CLICK", "parameters": 3}, "no object"),
        ([], "An action is one of"),
    ],
)
def test_an_impossible_computer_13_action_says_why(action: Any, reason: str) -> None:
    with pytest.raises(ImpossibleAction, match=reason):
        parsed(json.dumps(action), "computer_13")


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "NaN", '{"action_type": "CLICK", "x": NaN, "y": 1}']
)
def test_what_is_no_json_of_an_action_is_refused(text: str) -> None:
    with pytest.raises(ImpossibleAction):
        parsed(text, "computer_13")


def test_code_of_any_length_is_not_run() -> None:
    assert parsed("pyautogui.click()", "pyautogui").code == "pyautogui.click()"
    with pytest.raises(ImpossibleAction, match="longer than"):
        parsed("x" * 4001, "pyautogui")


def test_every_named_key_is_one_that_the_desktop_knows() -> None:
    path = PACKAGES / "rlanything-osworld/src/rlanything_osworld/guest/pyautogui.py"
    (names,) = (
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_NAMES"
    )
    assert isinstance(names, ast.Dict)
    known = {key.value for key in names.keys if isinstance(key, ast.Constant)}
    known |= {f"f{number}" for number in range(1, 25)}
    assert known >= KEYS


def test_what_is_listed_can_be_done() -> None:
    listed = listed_actions("Rename may.txt to plan.txt (again), 'now'.", PLACES)
    for action in listed:
        parsed(action)
    assert len(set(listed)) == len(listed)
    assert {"double_click [2]", "click [3]", "press ctrl+s", "fail"} <= set(listed)
    assert "double_click [3]" not in listed  # a window
    assert {"type may.txt", "type /home/user/Desktop/plan.txt", "type now"} <= set(listed)
    assert "type /home/user/Desktop/now" not in listed


def test_a_screen_of_any_number_of_elements_and_a_long_word_do_not_make_a_list_long() -> None:
    many = {number: ScreenPlace(1, 1) for number in range(1, 10_000)}
    assert len(listed_actions("", many)) < 1_300
    assert not [each for each in listed_actions(f"Type {'a' * 61}", PLACES) if "aa" in each]


def test_experts_of_the_small_recipe_do_nothing_that_is_not_listed() -> None:
    for task in generated_tasks("train", 64, 0, ["editor", "files", "browser"]):
        goal = goal_of(task)
        assert goal is not None
        listed = listed_actions(task.instruction, {})
        pointing = ("click", "double_click")
        beside = [move.action for move in goal.moves if not move.action.startswith(pointing)]
        assert set(beside) <= set(listed), task.id
