"""The building blocks of the embedded problems: lines of Python with the words for them.

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
    """Its name, also the word for it in a thought."""
    role: Literal["keep", "map", "print"]
    """keep: leaves values out; map: changes every value; print: ends the program."""
    takes: Kind
    gives: Kind
    line: str
    """Its code, from the variable of the kind it takes to that of the kind it gives."""
    phrases: tuple[str, ...]
    """Its words in a question: a clause for `keep` and `map`, a noun for `print`."""
    slips: tuple[str, ...]
    """Code that might be written instead by mistake."""
    constants: tuple[Constant, ...] = ()
    """Values of `{k}`, easier ones first; neighbours are easily taken for each other."""
    empty: str = ""
    """The output of a `print` block where nothing is left; "" where that needs no mention."""

    def code(self, line: str, constant: Constant | None) -> str:
        """Returns one of the block's lines with the constant, or with the variable `k` if that is
        None."""
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
    """Returns a block whose line and slips put different cores in the same frame."""
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
