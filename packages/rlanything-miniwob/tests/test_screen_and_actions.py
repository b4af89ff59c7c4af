"""What agents read and write: text to elements, text to actions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything_miniwob.actions import (
    LONGEST_TEXT,
    Click,
    ClickAt,
    InvalidAction,
    Press,
    Scroll,
    Select,
    Type,
    find_action,
    parse_action,
)
from rlanything_miniwob.screen import Element, read, text_of

SAID = st.text(st.characters(exclude_characters='"', exclude_categories=["C", "Z"]), max_size=20)


@given(
    st.lists(
        st.builds(
            Element,
            st.just(0),
            st.sampled_from(("button", "textbox", "select", "text")),
            SAID,
            st.none() | SAID,
            st.lists(SAID, max_size=3).map(tuple),
            st.lists(st.sampled_from(("checked", "focused")), max_size=2, unique=True).map(tuple),
        )
    )
)
def test_what_is_written_is_read_again(elements: list[Element]) -> None:
    assert read(text_of(elements)) == tuple(elements)


def test_other_lines_are_passed_over() -> None:
    text = 'There is no element 9.\nbutton "OK" [1] focused\n\nbutton OK [2]\nbutton "x" [y]'
    assert read(text) == (Element(1, "button", "OK", state=("focused",)),)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [3]", Click(3)),
        ("click 10 200", ClickAt(10, 200)),
        ("type [2] hello there", Type(2, "hello there")),
        ("type [2] ", Type(2, "")),
        ("select [1] New York", Select(1, "New York")),
        ("press enter", Press("Enter")),
        ("press Control+A", Press("Control+a")),
        ("scroll down", Scroll(down=True)),
        ("scroll up", Scroll(down=False)),
    ],
)
def test_an_action_is_read(text: str, action: object) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    "text",
    [
        *("click", "click 3", "click [x]", "click [3] now", "Click [3]", "click [99999]"),
        *("", "type hello", "select [1]", "press Hyper", "scroll left"),
        f"type [1] {'a' * (LONGEST_TEXT + 1)}",
    ],
)
def test_what_is_no_action_is_said_in_one_line(text: str) -> None:
    with pytest.raises(InvalidAction) as refusal:
        parse_action(text)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


def test_the_action_stands_after_the_last_marker() -> None:
    assert find_action('button "Next > last" [1] > click [1]\nmore') == "click [1]"
    assert find_action("click [1]") is None


@given(st.text(max_size=200))
def test_no_text_breaks_a_reader(text: str) -> None:
    read(text)
    find_action(text)
    with contextlib.suppress(InvalidAction):
        parse_action(text)
