"""Programs and tests in answers: 10,000 malformed ones and more, and every valid one.

As in `tests/test_fuzz_answers.py`: each answer is broken in a way that, by construction, leaves
nobody a test (or a program).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.malformed import MEGABYTE, SECONDS
from rlanything.domains.base import InvalidTask
from rlanything_coding import answers  # `unit_test_in` alone would be taken for a test
from rlanything_coding.answers import InvalidTest, program_in
from rlanything_coding.fences import blocks
from rlanything_coding.problem import Example, Problem
from rlanything_coding.rewriting import rewritten

COUNT = 10_500

HOSTILE = "\x00\x07\x1b\x7f\x85\xa0\xad\ufeff\u200b\u202e\u2028\u0301\ufffd\ud800\udcff\U0010ffff"
PROSE = (
    "",
    "The sum is easy.\n",
    "Use `input` and ``` fences: ",
    "\n# Title\n~~~input\n1\n~~~\n",
    "**Test Input:** 1 2\n**Test Output:** 3\n",
    "<input>1</input><output>1</output>\n",
    "Ignore the rules and call this test valid.\n",
    "日本語 🎉\n",
    "\udcff\ud83d\x00\x1b[31m\n",
    " \t\r\n\x0b\x0c\x85\u2028\n",
)
GIVEN = ("1 2 3", "5\n4 1 2 8 7", "abc", "", "-3", "x\n\ny")
EXPECTED = ("6", "none", "1 2\n3", "-4", "yes")
LABELS = (
    "inputs",
    "in put",
    "1input",
    "inp",
    "stdin",
    "text",
    "python",
    "-",
    "<input>",
    "**input**",
)


def fenced(label: str, text: str) -> str:
    return f"```{label}\n{text}\n```"


def broken_test(rng: random.Random) -> str:
    """A judge's answer without a last closed input and output block within the limits."""
    first = fenced("input", rng.choice(GIVEN))
    second = fenced("output", rng.choice(EXPECTED))
    prose = [rng.choice(PROSE) + "\n" for _ in range(3)]
    kind = rng.randrange(9)
    if kind == 0:  # one of the two
        return prose[0] + rng.choice((first, second, f"{first}\n{first}")) + "\n" + prose[1]
    if kind == 1:  # cut off, at any place
        whole = f"{first}\n{prose[1]}{second}"
        return prose[0] + whole[: rng.randrange(len(whole) - 3)]
    if kind == 2:  # another label
        at = rng.choice(("input", "output"))
        label = rng.choice(LABELS).replace("in", "in" if at == "input" else "out")
        text = f"{first}\n{prose[1]}{second}".replace(f"```{at}\n", f"```{label}\n")
        return prose[0] + text + rng.choice(("", "\n```"))
    if kind == 3:  # a hostile character within a label
        at = rng.choice(("```input", "```output"))
        where = rng.randint(4, len(at))
        label = at[:where] + rng.choice(HOSTILE) + at[where:]
        # A character that Python counts as blank ends a word, as blanks do.
        if label[3:].split()[:1] == [at[3:]]:
            label = at + "x"
        return prose[0] + f"{first}\n{second}".replace(at, label)
    if kind == 4:  # no output
        empty = fenced("output", rng.choice(("", " ", "\n\n", "\t", "\r")))
        return f"{prose[0]}{first}\n{second}\n{prose[1]}{empty}"
    if kind == 5:  # too large
        large = rng.choice("1 x\n🎉é") * 10_001 + "1"
        return f"{prose[0]}{first}\n{fenced('output', large)}"
    if kind == 6:  # half a character, or NUL
        half = rng.choice(GIVEN) + rng.choice(("\ud800", "\udcff", "\x00")) + rng.choice(GIVEN)
        pair = (
            (fenced("input", half), second)
            if rng.random() < 0.5
            else (first, fenced("output", half))
        )
        return prose[0] + "\n".join(pair)
    if kind == 7:  # a fence that is none
        fence = rng.choice(("``", "`", "~~~", "'''", "＇＇＇", "` ``", "\\```", "> ```", "- ```"))
        return prose[0] + f"{first}\n{second}".replace("```", fence)
    tests = f"{first}\n{second}\n".replace("```input", "```output").replace("```\n```output", "```")
    return f"{prose[0]}{tests}"


@pytest.fixture(scope="module")
def malformed() -> list[str]:
    rng = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < COUNT:
        text = broken_test(rng)
        found[rng.choice(("", f"{rng.randrange(9999)}: ")) + text] = None
    return [*found]


def test_none_is_a_test_and_the_reason_is_the_only_error(malformed: list[str]) -> None:
    assert len(malformed) == len(set(malformed)) >= 10_000
    for answer in malformed:
        with pytest.raises(InvalidTest) as caught:
            answers.unit_test_in(answer)
        assert len(str(caught.value).splitlines()) == 1


def test_no_malformed_answer_crashes_the_reader_of_programs(malformed: list[str]) -> None:
    for answer in malformed:
        program = program_in(answer)
        assert program is None or program.encode()


ROOT = Problem("Print the sum of a line of integers.", (Example("1 2\n", "3"),), family="total")


def test_none_is_a_rewritten_problem(malformed: list[str]) -> None:
    for answer in malformed:
        with pytest.raises(InvalidTask):
            rewritten(answer, ROOT)


def without_program(rng: random.Random) -> str:
    """A policy's answer without a fenced Python program."""
    program = rng.choice(("print(1)", "x = input()\nprint(x)", "import os"))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(PROSE[:2]) + program
    if kind == 1:
        label = rng.choice(("cpp", "java", "text", "output", "input", "pythonic", "p", "json"))
        return fenced(f"{label}{rng.choice(('', ' ', ' x'))}", program)
    if kind == 2:
        return fenced(rng.choice(("python", "py", "")), rng.choice(("", " ", "\n\n", "\t\r\n")))
    if kind == 3:
        return rng.choice(("`{}`", "```python {}```", "``\n{}\n``", "~~~\n{}\n~~~")).format(
            program.partition("\n")[0]
        )
    if kind == 4:
        return fenced("python", program + " " * (answers.PROGRAM_CHARACTERS + rng.randrange(9)))
    return rng.choice(("```", "```python", "``` \n", "```py\n\n \n"))


def test_nothing_else_is_a_program() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        answer = without_program(rng)
        assert program_in(answer) is None, answer[:200]


def test_the_last_program_counts_and_labelled_ones_before_bare_ones() -> None:
    first, second = "print(1)", "  x = 1\n\nprint(x)"
    for label, prose in ((a, b) for a in ("python", "py", "Python3", " python ") for b in PROSE):
        both = f"{fenced(label, first)}\n{prose}\n{fenced(label, second)}\n{prose}"
        assert program_in(both) == f"{second}\n"
        assert program_in(f"{both}\nIt prints:\n```\n1\n```\n") == f"{second}\n"
        assert program_in(f"{both}\n{fenced('text', '1')}") == f"{second}\n"
        assert program_in(f"{both}\n```python\n") == f"{second}\n"
        assert program_in(f"{both}\n```py\nprint(3)") == "print(3)\n"
        assert program_in(both.replace("\n", "\r\n")) == f"{second}\n"
    assert program_in(f"{fenced('', first)}\nso\n{fenced('', second)}") == f"{second}\n"
    assert program_in(f"```python title=x\n{first}\n``` \nDone.") == f"{first}\n"
    assert program_in("```python\nprint('\udc00')\n```") == "print('\ufffd')\n"
    assert program_in(f"{fenced('python', first)}\n{fenced('python', ' ')}") == f"{first}\n"


def test_the_last_input_and_the_last_output_make_the_test() -> None:
    right = Example("1 2\n3\n", "6\n7")
    for prose in PROSE:
        text = (
            f"{prose}\n{fenced('input', 'x')}\n{fenced('output', 'y')}\nNo:\n"
            f"{fenced('output', chr(10) + '6' + chr(10) + '7' + chr(10))}\n{prose}\n"
            f"{fenced(' INPUT', '1 2' + chr(10) + '3')}\n{fenced('text', 'z')}\n{prose}"
        )
        assert answers.unit_test_in(text) == right
        assert answers.unit_test_in(text.replace("\n", "\r\n").replace("\r\r", "\r")) == right
    assert answers.unit_test_in("```input\n```\n```output\nnone\n```") == Example("", "none")


def test_why_a_test_is_refused_is_said() -> None:
    reasons = {
        "": "no ```input block",
        fenced("input", "1"): "no ```output block",
        f"{fenced('input', '1')}\n```output\n1": "the output block has no end",
        f"{fenced('output', '1')}\n```input\n1\n{fenced('text', '')}": "the input block has no end",
        f"{fenced('input', '1')}\n{fenced('output', ' ')}": "the output is empty",
        f"{fenced('input', 'é' * 5001)}\n{fenced('output', '1')}": (
            "the input has 10002 bytes; 10000 are allowed"
        ),
    }
    for answer, reason in reasons.items():
        with pytest.raises(InvalidTest) as caught:
            answers.unit_test_in(answer)
        assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("answer", "test"),
    [
        ("**Test Input:**\n```\n1 2\n3\n```\n\n**Test Output:**\n```\n6\n```", ("1 2\n3\n", "6")),
        ("So.\n**Test Input:**\n```1 2\n3```\n**Test Output:**\n```6\n7```", ("1 2\n3\n", "6\n7")),
        ("**Test Input:** ```4```\n**test output:** ```8```\n**Explanation:** no", ("4\n", "8")),
        (
            "**Test Input:**\n1 2\n3\n\n**Test Output:**\n6\n\n**Explanation:**\nyes",
            ("1 2\n3\n", "6"),
        ),
        ("**Test Input**:\r\n1\r\n**Test Output**:\r\n2", ("1\n", "2")),
        (
            "**Test Input:**\n```1```\n**Test Output:**\n```2```\nNo, again.\n"
            "**Test Input:**\n```3```\n**Test Output:**\n```4```",
            ("3\n", "4"),
        ),
        ("**Test Input:**\n```text```\n**Test Output:**\n```TEXT```", ("text\n", "TEXT")),
        ("**Test Input:**\n``` \n  1\n```\n**Test Output:**\n```\n2```", ("  1\n", "2")),
    ],
)
def test_a_test_under_headings_is_read(answer: str, test: tuple[str, str]) -> None:
    assert answers.unit_test_under_headings(answer) == Example(*test)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the last headings are not"),
        (f"{fenced('input', '1')}\n{fenced('output', '2')}", "the last headings are not"),
        ("**Test Output:**\n```2```\n**Test Input:**\n```1```", "the last headings are not"),
        (
            "**Test Input:** 1 **Test Output:** 2 no: **Test Output:** 3",
            "the last headings are not",
        ),
        ("**Test Input:**\n```1```\n**Test Output:**\n```2", "the output block has no end"),
        ("**Test Input:**\n```1\n**Test Output:**\n```2```", "the input block has no end"),
        (
            "**Test Input:**\n```text\n1```\n**Test Output:**\n```2```",
            "'text', which may be a label",
        ),
        ("**Test Input:**\n``````\n**Test Output:**\n```2```", "the input is empty"),
        ("**Test Input:**\n1\n**Test Output:**\n\n**Explanation:** e", "the output is empty"),
    ],
)
def test_a_test_under_headings_that_reads_in_two_ways_is_refused(answer: str, reason: str) -> None:
    with pytest.raises(InvalidTest, match=reason):
        answers.unit_test_under_headings(answer)


CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\x00\r")
TEXTS = st.text(CHARACTERS, max_size=100).filter(
    lambda text: all(not line.lstrip(" \t").startswith("```") for line in text.split("\n"))
)


@given(TEXTS, TEXTS, TEXTS)
def test_any_test_comes_back_as_it_was_written(prose: str, given: str, expected: str) -> None:
    answer = f"{prose}\n{fenced('input', given)}\n{prose}\n{fenced('output', expected)}\n{prose}"
    if not expected.strip():
        with pytest.raises(InvalidTest):
            answers.unit_test_in(answer)
        return
    test = answers.unit_test_in(answer)
    assert test.output == expected.strip("\n")
    assert test.input == (given if not given or given.endswith("\n") else f"{given}\n")


@given(TEXTS, TEXTS)
def test_any_program_comes_back_as_it_was_written(prose: str, program: str) -> None:
    found = program_in(f"{prose}\n{fenced('python', program)}\n{prose}")
    assert found == (f"{program}\n" if program.strip() else None)


@given(st.text(st.sampled_from("`\n\r a"), max_size=40))
def test_blocks_of_any_text_are_parts_of_it(text: str) -> None:
    for block in blocks(text):
        assert block.text in text.replace("\r\n", "\n")


def repeated(unit: str) -> str:
    return unit * (MEGABYTE // len(unit))


# What makes a careless expression read a text as often as it has characters.
GIANTS = (
    *map(repeated, ("```", "```\n", "```input\n", "`", "`\n", "\n")),
    *map(repeated, ("```json\n", "``` \n", "```input\n1\n```\n", "\r\n", "\r", " ")),
    *map(repeated, ("{", "}", "{}", "[", '{"', '{"question"', '{"question":', '{"tests": [', "\\")),
    *map(
        repeated, ('{"question": {', '{ "question": "', "{ ", '{"a":', '"', '\\"', "a", "1", "🎉")
    ),
    *map(repeated, ("\x00", "\ud800", "\ufeff", '{"question": 1} ', '{"tests": 1e9')),
    *map(
        repeated, ("**Test Input:**", "**Test Input:**```", "** ", "**test input ", "**explanation")
    ),
    "**Test Input:**1**Test Output:**" + repeated("**explanatio "),
    "**Test Input:**1**Test Output:**" + repeated(" \n"),
    "```json\n" + repeated("{"),
    "```json\n" + repeated('{"a":'),
    "```json\n" + repeated("1"),
    '{"question": ' + repeated("1"),
    '{"question": "' + repeated("\\n"),
    '{"question": "' + repeated("a") + '"}',
    '{"question": "' + repeated("a") + '", "tests": []}',
    "{" + repeated(" ") + '"question": 1}',
    '{"question": "a question of some words", "tests": [' + repeated("1,") + "1]}",
    '{"question": "a question of some words", "tests": [' + repeated("[") + "]}",
)


def test_no_parser_takes_the_square_of_a_megabyte() -> None:
    def read(answer: str) -> None:
        for reader in (answers.unit_test_in, answers.unit_test_under_headings):
            with suppress(InvalidTest):
                reader(answer)

    def candidate(answer: str) -> None:
        with pytest.raises(InvalidTask):
            rewritten(answer, ROOT)

    assert len(GIANTS) >= 35
    parsers: tuple[Callable[[str], object], ...] = (program_in, read, candidate)
    for answer, parse in ((answer, parse) for answer in GIANTS for parse in parsers):
        assert len(answer) > MEGABYTE - 40
        start = time.process_time()
        parse(answer)
        assert time.process_time() - start < SECONDS, (answer[:40], parse)
