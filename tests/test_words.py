"""Words of docstrings, attribute docstrings, comments and errors: the field's own, in phrases."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FRAGMENT = re.compile(
    r"(?:All that|Beside|How (?:many|much|often)|Nor|Of|That (?:of|which)|Those"
    r"|What|Where|Who|Whose)\b"
)
"""Beginnings of fragments: a text begins with the thing, a noun phrase, or with `Returns`."""
INSTEAD = {
    r"beside": "next to, besides",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "fix",
    r"whoever": "the caller, or another noun",
    r"so (?:many|much)": "this many, a number with its unit",
    r"all the same": "anyway, still",
    r"of (?:one|somebody|the user|someone)'s own": "your own, separate",
    r"be it": "whether",
    r"is told": "receives, is given",
    r"heard of": "last message from",
    r"in the way": "blocking",
    r"reads badly": "is unclear",
    r"told (?:apart|alike)": "distinguished",
    r"where (?:there is none|that cannot be|it cannot)": "if ...",
}
"""Words of a dialect, as patterns, with the plain ones."""
WORDS = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of every docstring, attribute docstring and comment of a file."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, " ".join(text.split())
    yield from comments(source)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of every comment; consecutive lines are one comment."""
    begun, lines, column = 0, list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, at = token.start
        if not lines or (line, at) != (begun + len(lines), column):
            if lines:
                yield begun, " ".join(lines)
            begun, lines, column = line, [], at
        lines.append(token.string.lstrip("#! "))
    if lines:
        yield begun, " ".join(lines)


def errors(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of every string in a `raise` statement."""
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Raise):
            for node in ast.walk(statement):
                match node:
                    case ast.Constant(value=str(text)):
                        yield node.lineno, text


def faults(source: str) -> list[str]:
    """Returns a line for every text of a file that needs other words."""
    found = [
        f"{line}: begin with the thing, not with {match[0]!r}: {text[:60]}"
        for line, text in texts(source)
        if (match := FRAGMENT.match(text))
    ]
    for line, text in (*texts(source), *errors(source)):
        for match in WORDS.finditer(text):
            words = match[0].lower()
            plain = next(plain for old, plain in INSTEAD.items() if re.fullmatch(old, words))
            found.append(f"{line}: write {plain!r} instead of {words!r}: {text[:60]}")
    return found


def sources() -> list[Path]:
    """Returns the files to check."""
    roots = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
    return [file for root in roots for file in sorted(root.rglob("*.py"))]


def test_docstrings_comments_and_errors_are_in_plain_words() -> None:
    offenders = [
        f"{file.relative_to(ROOT)}:{fault}"
        for file in sources()
        for fault in faults(file.read_text(encoding="utf-8"))
    ]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            '"""Of the rollouts that could not be played."""',
            "1: begin with the thing, not with 'Of'",
        ),
        ('most = 3\n"""How many are kept."""', "2: begin with the thing, not with 'How many'"),
        ("a = 1  # Nor more pixels.", "1: begin with the thing, not with 'Nor'"),
        ("# It stands beside\n# the other one.", "1: write 'next to, besides' instead of 'beside'"),
        ('def run():\n    """Begins anew."""', "2: write 'again' instead of 'anew'"),
        ('raise KeyError(f"{name}: mend it")', "1: write 'fix' instead of 'mend'"),
        ("# The first so\n# many steps.", "1: write 'this many, a number with its unit'"),
    ],
)
def test_other_words_are_named_with_their_line(source: str, fault: str) -> None:
    [found] = faults(source)
    assert found.startswith(fault)


def test_other_texts_pass() -> None:
    source = (
        '"""Offers of others: besides, mending."""\nsay("Of those beside it")\n# Returns whoever.'
    )
    assert [found.split(":")[0] for found in faults(source)] == ["1", "3"]
