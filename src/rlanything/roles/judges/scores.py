"""Parsing of a judgement's score or grade."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from rlanything.records import Completion

_SCORES = {"1": 1, "+1": 1, "-1": -1}
_GRADES = {str(grade): grade for grade in range(11)}
WON_AT = tuple(f"won at grade {grade}" for grade in _GRADES)
"""A judge's measures: the share of won episodes among the answers of each grade."""
QUADRATIC = "quadratic score"
"""A judge's measure: 1 - the Brier score of its answers, with an unreadable one as the worst."""
_SIGNS = str.maketrans("\uff0b\uff0d\u2212\uff11", "+--1")
"""Full-width plus, minus and one, and the mathematical minus, to ASCII."""
_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|boldsymbol)\s*\{([^{}\\]*)\}")
_BOX = re.compile(r"\\boxed\{[ \t\r\n]*([+-]?\d+)[ \t\r\n]*\}")
_BRACE = re.compile(r"(\\boxed\s*)?\{|\}")
_NAMES = frozenset({"score", "judgement", "judgment", "verdict"})
_STATED = re.compile(
    r"(?:^\s*[-\u2022]?|[.!?;:,)\]]\s)\s*(?:(?:the|my|final|overall|step)\s+)*"
    rf"(?:{'|'.join(sorted(_NAMES))})\s*(?:[:=\uff1a]|is\b)\s*(\S+?)\.?\s*$",
    re.IGNORECASE,
)
"""A line that ends with a named score."""
_LINES, _LONGEST_LINE = 100, 400
"""Number of last lines searched for it, and their maximum length in characters."""
_MARKUP = re.compile(r"[*_`#$]+")


def score_of(completion: Completion, score_first: bool = False) -> int:
    """Returns the score of a judgement; 0 if its answer has none or was truncated.

    `score_first`: answers begin with their score, so a truncated one may still have it."""
    return parse_score(_readable_part(completion, score_first))


def grade_of(completion: Completion, score_first: bool = False) -> int:
    """Returns the grade of a judgement, 0 to 10, read like a score; -1 if there is none."""
    grade = _parse(_readable_part(completion, score_first), _GRADES)
    return -1 if grade is None else grade


def _readable_part(completion: Completion, score_first: bool) -> str:
    """Returns the answer; empty if it was truncated before its score."""
    whole = completion.stop_reason != "length"
    begins = score_first and completion.answer.lstrip().startswith("\\boxed")
    return completion.answer if whole or begins else ""


def parse_score(text: str) -> int:
    r"""Returns the score of an answer: +1 or -1 from its last `\boxed{...}`, or, without a box,
    from its JSON object (`{"score": 1}`) or a line that names it (`Score: 1`).

    0 if that box holds anything but a score, is not closed, or is nested in another box, and if the
    named values are not scores or disagree."""
    return _parse(text, _SCORES) or 0


def _parse(text: str, known: Mapping[str, int]) -> int | None:
    """Returns the value of an answer, as `parse_score`; None if it is not a known one."""
    start = text.rfind("\\boxed")
    if start < 0:
        return _named(text, known)
    box = _BOX.match(_FONT.sub(r"\1", text[start:].translate(_SIGNS)))
    if box is None or _ends_in_a_box(text[:start]):
        return None
    return known.get(box[1])


def _named(text: str, known: Mapping[str, int]) -> int | None:
    """Returns the value that an answer without a box names, if it names exactly one."""
    lines = [line for line in text.splitlines()[-_LINES:] if len(line) <= _LONGEST_LINE]
    stated = (_STATED.search(_MARKUP.sub("", line)) for line in lines)
    named = [*(each[1] for each in stated if each), *_keyed(text)]
    values = {known.get(_written(value)) for value in named}
    return values.pop() if len(values) == 1 else None


def _keyed(text: str) -> list[object]:
    """Returns the values of score keys in the JSON object of an answer."""
    start, end = text.find("{"), text.rfind("}") + 1
    try:
        pairs = json.loads(text[start:end], object_pairs_hook=list) if 0 <= start < end else []
    except (ValueError, RecursionError):
        return []
    return [value for key, value in pairs if key.strip().lower() in _NAMES]


def _written(value: object) -> str:
    # True would otherwise pass for 1.
    written = value if isinstance(value, str) else str(value) if type(value) is int else ""
    return written.translate(_SIGNS).strip()


def _ends_in_a_box(text: str) -> bool:
    """Returns whether a box that opens in the text is still open at its end."""
    open_braces: list[bool] = []  # whether each belongs to a box
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            open_braces.append(brace[1] is not None)
        elif open_braces:
            open_braces.pop()
    return any(open_braces)
