"""How programs read their input, and how inputs are drawn for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlanything_coding.families.blocks import Constant, Kind

Draw: TypeAlias = Callable[[random.Random, int, Sequence[Constant]], str]
"""Maps (random source, difficulty, the constants of the problem) to an input."""

# Short words: many are palindromes, begin with a vowel, or have equal length.
VOCABULARY = (
    *("a", "an", "ant", "arena", "area", "bee", "bird", "bob", "book", "cat", "civic", "dad"),
    *("deed", "deer", "dog", "east", "egg", "era", "eve", "eye", "fish", "green", "hat", "idea"),
    *("ice", "kayak", "lamp", "level", "lion", "madam", "moon", "mouse", "noon", "nut", "oil"),
    *("onion", "open", "otter", "owl", "peep", "pop", "radar", "rain", "red", "river", "rotor"),
    *("sea", "sees", "stone", "sun", "tea", "ten", "tiger", "toot", "tree", "under", "unit"),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """The beginning of a program, which reads its input."""

    name: str
    gives: Kind
    line: str
    phrases: tuple[str, ...]
    """Nouns for the input."""
    draw: Draw
    also: str = ""
    """A second variable that the reader fills."""
    reads_constant: bool = False
    """Whether it reads `k`, which blocks then use instead of a constant."""


def numbers(rng: random.Random, difficulty: int, near: Sequence[Constant]) -> list[int]:
    """Returns 2 to `difficulty` + 3 numbers: digits with a few minus signs at difficulty 1,
    otherwise up to 5 x `difficulty` in absolute value.

    From difficulty 2 on, most lists have an edge case: a single number, ties, one sign, or numbers
    close to the constants in `near` and multiples of them."""
    if difficulty == 1:
        return [rng.randint(-3, 9) for _ in range(rng.randint(2, 4))]
    reach = 5 * difficulty
    size = rng.randint(2, difficulty + 3)
    edge = rng.choice(("none", "single", "ties", "sign", "near", "near"))
    values: Sequence[int] = range(-reach, reach + 1)
    if edge == "single":
        size = 1
    elif edge == "ties":
        values = rng.sample(values, 2)
    elif edge == "sign":
        values = rng.choice((range(-reach, 0), range(1, reach + 1)))
    elif edge == "near":
        values = [n for k in (*near, 0) if isinstance(k, int) for n in (k - 1, k, k + 1, -k, 2 * k)]
    return [rng.choice(values) for _ in range(size)]


def words(rng: random.Random, difficulty: int, near: Sequence[Constant]) -> list[str]:
    """Returns 2 to `difficulty` + 2 words; from difficulty 2 on sometimes a single word, or
    repeated ones."""
    size = rng.randint(2, difficulty + 2)
    if difficulty == 1:
        return rng.sample(VOCABULARY, size)
    edge = rng.choice(("none", "single", "ties"))
    known = rng.sample(VOCABULARY, 2) if edge == "ties" else VOCABULARY
    return [rng.choice(known) for _ in range(1 if edge == "single" else size)]


def word(rng: random.Random, difficulty: int, near: Sequence[Constant]) -> str:
    """Returns a word; from difficulty 3 on sometimes two joined words, or one letter repeated."""
    letters = [k for k in near if isinstance(k, str)]
    edge = rng.choice(("none", "joined", "repeated")) if difficulty > 2 else "none"
    if edge == "repeated":
        return rng.choice((*letters, *"abe")) * rng.randint(1, difficulty)
    return "".join(rng.choice(VOCABULARY) for _ in range(2 if edge == "joined" else 1))


def _row(values: Sequence[object]) -> str:
    return " ".join(map(str, values))


def _rows(rng: random.Random, difficulty: int, near: Sequence[Constant]) -> str:
    upper = numbers(rng, difficulty, near)
    lower = [rng.choice(upper) if rng.random() < 0.3 else rng.randint(0, 9) for _ in upper]
    return f"{_row(upper)}\n{_row(lower)}\n"


def _with_count(rng: random.Random, difficulty: int, near: Sequence[Constant], by: str) -> str:
    values = numbers(rng, difficulty, near)
    return f"{len(values)}\n{by.join(map(str, values))}\n"


def _digits(rng: random.Random, difficulty: int, near: Sequence[Constant]) -> str:
    return f"{rng.randrange(10 ** rng.randint(1, difficulty + 2))}\n"


READERS = {
    reader.name: reader
    for reader in (
        Reader(
            "numbers",
            "numbers",
            "xs = list(map(int, input().split()))",
            ("a line of integers", "integers on one line"),
            lambda rng, difficulty, near: f"{_row(numbers(rng, difficulty, near))}\n",
        ),
        Reader(
            "numbers and k",
            "numbers",
            "xs = list(map(int, input().split()))\nk = int(input())",
            ("a line of integers and, below it, an integer k", "integers on one line, then k"),
            lambda rng, difficulty, near: (
                f"{_row(numbers(rng, difficulty, near))}\n{rng.choice(near)}\n"
            ),
            also="k",
            reads_constant=True,
        ),
        Reader(
            "counted",
            "numbers",
            "n = int(input())\nxs = list(map(int, input().split()))",
            ("a number n and, below it, n integers", "n, then a line of n integers"),
            lambda rng, difficulty, near: _with_count(rng, difficulty, near, " "),
        ),
        Reader(
            "column",
            "numbers",
            "xs = [int(input()) for _ in range(int(input()))]",
            ("a number n, then n lines of one integer", "n, then n integers, each on its line"),
            lambda rng, difficulty, near: _with_count(rng, difficulty, near, "\n"),
        ),
        Reader(
            "rows",
            "numbers",
            "xs = list(map(int, input().split()))\nys = list(map(int, input().split()))",
            ("two lines of equally many integers", "two rows of integers, one below the other"),
            _rows,
            also="ys",
        ),
        Reader(
            "digits",
            "numbers",
            "xs = [int(c) for c in input()]",
            ("an integer whose digits are the numbers", "one integer; take its digits as numbers"),
            _digits,
        ),
        Reader(
            "words",
            "words",
            "ws = input().split()",
            ("a line of words", "words on one line"),
            lambda rng, difficulty, near: f"{_row(words(rng, difficulty, near))}\n",
        ),
        Reader(
            "word",
            "word",
            "s = input()",
            ("a word", "a line with one word"),
            lambda rng, difficulty, near: f"{word(rng, difficulty, near)}\n",
        ),
        Reader(
            "word and k",
            "word",
            "s = input()\nk = input()",
            ("a word and, below it, a letter k", "a word on one line, then a letter k"),
            lambda rng, difficulty, near: f"{word(rng, difficulty, near)}\n{rng.choice(near)}\n",
            also="k",
            reads_constant=True,
        ),
    )
}
