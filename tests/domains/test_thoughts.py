"""Thoughts without the marks around them, whatever family of models wrote them."""

from __future__ import annotations

import time

import pytest

from rlanything.domains.thoughts import answer_start, bare_thought, in_think_marks

HARMONY = "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nfirst the drawer\n</think>\n\nI look.", "first the drawer", "I look."),
        ("first the drawer\n</think>\n\nI look.", "first the drawer", "I look."),
        ("<think>\n\n</think>\n\nI look.", "", "I look."),
        ("<think>\n  a\n\n  b\n</think>I look.", "  a\n\n  b", "I look."),
        ("<think>a</think><think>b</think>c", "a\nb", "c"),
        ("<think>and it never en", "and it never en", ""),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<seed:think>a</seed:think>b", "a", "b"),
        (f"{HARMONY}It is.", "I see.", "It is."),
        ("I look.", "", "I look."),
    ],
)
def test_a_response_is_a_thought_and_an_answer(text: str, thought: str, answer: str) -> None:
    start = answer_start(text)
    assert (bare_thought(text[:start]), text[start:]) == (thought, answer)


def test_a_thought_of_line_ends_takes_no_quadratic_time() -> None:
    begun = time.process_time()
    assert bare_thought("<think>a" + "\n" * 2**20 + "b</think>") == "a" + "\n" * 2**20 + "b"
    assert time.process_time() - begun < 20


def test_a_thought_in_marks_is_found_again() -> None:
    text = in_think_marks("first the drawer", "I look.")
    assert bare_thought(text[: answer_start(text)]) == "first the drawer"
    assert in_think_marks("", "I look.") == "I look."
