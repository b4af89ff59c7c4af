"""The building blocks of the embedded problems: each is a line of Python and the words for it.

All families are made of these, so that what is learned from one serves the others. A program reads
(`readers`), passes what it read through some blocks (`numbers`, `words`), and prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["numbers", "words", "word"]
Constant: TypeAlias = int | str
VARIABLES: dict[Kind, str] = {"numbers": "xs", "words": "ws", "word": "s"}
"""The name that a value of each kind has in every program."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stage of a program. `{k}` in its texts stands for a constant."""

    name: str
    """Also the word for it in a thought."""
    role: Literal["keep", "map", "print"]
    """Whether it leaves things out, changes each, or ends the program."""
    takes: Kind
    gives: Kind
    line: str
    """Its code, from the variable of what it takes to that of what it gives."""
    phrases: tuple[str, ...]
    """What it asks for: a clause for `keep` and `map`, a noun for `print`."""
    slips: tuple[str, ...]
    """Code that someone might write instead by mistake."""
    constants: tuple[Constant, ...] = ()
    """What `{k}` may be, easier ones first; neighbours are easily taken for each other."""
    empty: str = ""
    """What a `print` block prints where nothing is left; "" where that goes without saying."""

    def code(self, line: str, constant: Constant | None) -> str:
        """One of its lines with the constant, or with the variable `k` if that is None."""
        return line.replace("{k}", "k" if constant is None else repr(constant))


def stage(
    role: Literal["keep", "map", "print"],
    frame: str,
    name: str,
    core: str,
    phrases: Sequence[str],
    *slips: str,
    takes: Kind,
    gives: Kind | None = None,
    constants: Sequence[Constant] = (),
    empty: str = "",
) -> Block:
    """A block whose line, and whose slips, are some core in the same frame."""
    line, *wrong = (frame.replace("...", text) for text in (core, *slips))
    return Block(
        name,
        role,
        takes,
        gives or takes,
        line,
        tuple(phrases),
        tuple(wrong),
        tuple(constants),
        empty,
    )
