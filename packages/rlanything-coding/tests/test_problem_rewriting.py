"""An adapter's answers: sound problems are read, all others refused with the reason."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.domains.base import InvalidTask
from rlanything_coding.families import make_problem
from rlanything_coding.problem import Example, Problem
from rlanything_coding.rewriting import MOST_TESTS, rewritten

ROOT = Problem(
    "Print the sum of a line of integers.",
    (Example("1 2\n", "3"), Example("4\n", "4"), Example("0 0\n", "0"), Example("2 2\n", "4")),
    time_limit_seconds=2.5,
    family="total",
    difficulty=2,
    spec={"seed": 0},
)
TESTS = [{"input": f"{n} {n + 1}\n", "output": str(2 * n + 1)} for n in range(4)]
NEW = {"question": "Print the sum of the even numbers of a line.", "tests": TESTS}


def answer(**changes: Any) -> str:
    return json.dumps(NEW | changes)


def test_a_problem_is_read_and_anchored_to_its_root() -> None:
    problem = rewritten(answer(), ROOT)
    assert problem.question == NEW["question"]
    assert problem.tests == tuple(Example(t["input"], t["output"]) for t in TESTS)
    assert (problem.time_limit_seconds, problem.family, problem.difficulty) == (2.5, "total", 2)
    assert problem.spec is None


@pytest.mark.parametrize(
    "text",
    [
        answer(),
        f"Harder: {{x}} {{'a': 1}}\n{answer()} as asked }}.",
        f"```json\n{answer()}\n```",
        f"```json\n{{}}\n```\nNo:\n```json\n{json.dumps({'why': 'x', **NEW}, indent=2)}\n```\nSo.",
        f"```\n{answer()}\n```",
        f"{answer(question='Print 1, whatever is read.')}\nBetter:\n{json.dumps(NEW, indent=1)}",
        f"```json\n{answer()}".replace("\n", "\r\n"),
        json.dumps({"tests": TESTS, "question": NEW["question"]}),
    ],
)
def test_the_last_object_of_an_answer_counts(text: str) -> None:
    assert rewritten(text, ROOT) == rewritten(answer(), ROOT)


def test_tests_are_normalised_and_repeated_ones_dropped() -> None:
    tests = [*TESTS, {"input": " 0  1 ", "output": "1 "}, {"input": "7", "output": "\n7\n", "x": 1}]
    problem = rewritten(answer(tests=tests), ROOT)
    assert problem.tests[:4] == rewritten(answer(), ROOT).tests
    assert problem.tests[4:] == (Example("7\n", "7"),)


def test_a_question_may_have_lines_and_any_script() -> None:
    question = "整数を読み、\n\tその和を出力してください。 Ünïcode 🎉"
    assert rewritten(answer(question=f" {question}\r\n"), ROOT).question == question


FAULTS: tuple[tuple[str, str], ...] = (
    ("", 'no {"question"'),
    ("{}", 'no {"question"'),
    ("```json\n```", "not JSON"),
    ("```json\n[1]\n```", "no object"),
    (f"{answer()}\n```json\nnull\n```", "no object"),
    (answer()[:-1], "not JSON"),
    (answer() + '{"question": ', "not JSON"),
    ('{"question": 1' + "0" * 5000 + "}", "a number is too long"),
    ('{"tests": ' + "[" * 100_000, "nested too deeply"),
    (answer(question=None), "'question' is missing"),
    (json.dumps({"tests": TESTS}), "'question' is missing"),
    (answer(question=["Print the sum of all numbers."]), "'question' is missing"),
    (answer(question="Print the sum."), "14 characters; 20 to 4000"),
    (answer(question="x" * 4001), "4001 characters"),
    (answer(question=" " * 40), "0 characters"),
    *(
        (answer(question=f"Print the sum of {sign} a line."), f"U+{ord(sign):04X}")
        for sign in "\x00\x1b\x7f\x85\r\u200b\u202e\ufeff\ufffe\ue000\ud83d"
    ),
    (answer(tests=None), "'tests' is missing"),
    (answer(tests={"input": "1", "output": "1"}), "'tests' is missing"),
    (answer(tests=[]), "0 tests; 4 to 64"),
    (answer(tests=TESTS[:3]), "3 tests"),
    (answer(tests=TESTS * 17), "68 tests"),
    (answer(tests=[*TESTS, 1]), "test 5 is not"),
    (answer(tests=[*TESTS, ["1", "1"]]), "test 5 is not"),
    (answer(tests=[*TESTS, {"input": "1"}]), "test 5 is not"),
    (answer(tests=[*TESTS, {"input": 1, "output": "1"}]), "test 5 is not"),
    (answer(tests=[*TESTS, {"input": "1", "output": " \n"}]), "test 5: the output is empty"),
    (answer(tests=[*TESTS, {"input": "1" * 10_001, "output": "1"}]), "test 5: the input has"),
    (answer(tests=[*TESTS, {"input": "1", "output": "1" * 10_001}]), "test 5: the output has"),
    (answer(tests=[*TESTS, {"input": "\ud800", "output": "1"}]), "half of a character"),
    (answer(tests=[*TESTS, {"input": "0  1", "output": "2"}]), "test 5 contradicts"),
    (answer(tests=[*TESTS[:3], TESTS[0]]), "3 different tests"),
    (answer(question="print the SUM  of a\nline of integers."), "the question is the old one"),
    (
        answer(tests=[{"input": test.input, "output": test.output} for test in ROOT.tests]),
        "the tests are the old ones",
    ),
)


@pytest.mark.parametrize(("text", "reason"), FAULTS)
def test_an_unsound_problem_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        rewritten(text, ROOT)
    (message,) = str(caught.value).splitlines()
    assert reason in message
    assert len(message) < 200


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("no idea", "unreadable"),
        (answer()[:-1], "unreadable"),
        (answer(tests=None), "unreadable"),
        (answer(question="Print the sum."), "invalid"),
        (answer(tests=TESTS[:3]), "invalid"),
    ],
)
def test_a_refusal_says_whether_there_was_something_to_read(text: str, stage: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        rewritten(text, ROOT)
    assert caught.value.stage == stage


def test_it_must_differ_from_the_active_problem_too() -> None:
    active = rewritten(answer(), ROOT)
    other = [{"input": f"{n}\n", "output": f"{n}"} for n in range(4)]
    for same in (answer(tests=other), answer(question="Print what you make of it.")):
        assert rewritten(same, ROOT)
        with pytest.raises(InvalidTask, match="old"):
            rewritten(same, active)
    assert rewritten(answer(question="Print the first number.", tests=other), active)


def test_how_many_tests_are_needed_is_a_setting() -> None:
    assert len(rewritten(answer(tests=TESTS[:1]), ROOT, least_tests=1).tests) == 1
    with pytest.raises(InvalidTask, match="4 tests; 5 to 64"):
        rewritten(answer(), ROOT, least_tests=5)
    many = [{"input": f"{n}\n", "output": f"{n}"} for n in range(MOST_TESTS)]
    assert len(rewritten(answer(tests=many), ROOT).tests) == MOST_TESTS


def test_problems_checked_by_code_are_not_rewritten() -> None:
    with pytest.raises(InvalidTask, match="about a function"):
        rewritten(answer(), Problem("Complete f.", (), check="check(f)", entry_point="f"))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_json_in_the_place_of_a_part_crashes(part: Any) -> None:
    for changed in ({"question": part}, {"tests": part}, {"tests": [*TESTS, part]}):
        with suppress(InvalidTask):
            rewritten(answer(**changed), ROOT)


def test_no_cut_and_no_change_of_a_character_crashes() -> None:
    rng = random.Random(0)
    text = f"Here it is:\n```json\n{json.dumps(NEW, indent=1)}\n```\n"
    for _ in range(3000):
        at = rng.randrange(len(text))
        sign = rng.choice('{}[]":,\\`\n\x00\ud8000a')
        for broken in (text[:at], text[at:], text[:at] + sign + text[at + 1 :]):
            with suppress(InvalidTask):
                assert len(rewritten(broken, ROOT).tests) >= 4


def test_embedded_problems_are_rewritten_like_any_other() -> None:
    root, harder = make_problem("total", 1, 0), make_problem("total", 3, 0)
    tests = [{"input": test.input, "output": test.output} for test in harder.tests]
    found = rewritten(json.dumps({"question": harder.question, "tests": tests}), root)
    assert (found.question, found.tests) == (harder.question, harder.tests)
