"""The building blocks of the embedded problems: lines of Python with the words for them.

All families use the same blocks, so that skills learned on one family carry over to the others. A
program reads (`readers`), passes its input through some blocks (`numbers`, `words`), and prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["numbers", "words", "word"]
Constant: TypeAlias = int | str
VARIABLES: dict[Kind, str] = {"numbers": "xs", "words": "ws", "word": "s"}
"""Name of the variable that holds a value of each kind, in every program."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stage of a program. `{k}` in its texts stands for a constant."""

    name: str
    """Its name, also used in thoughts."""
    role: Literal["keep", "map", "print"]
    """keep: leaves values out; map: changes every value; print: ends the program."""
    takes: Kind
    gives: Kind
    line: str
    """Its code, from the variable of the kind it takes to that of the kind it gives."""
    phrases: tuple[str, ...]
    """Wordings for a question: a clause for `keep` and `map`, a noun for `print`."""
    slips: tuple[str, ...]
    """Code that somebody might write instead by mistake."""
    constants: tuple[Constant, ...] = ()
    """Values of `{k}`, easier ones first; neighbours are easy to confuse."""
    empty: str = ""
    """Output of a `print` block if nothing is left; "" if that needs no mention."""

    def code(self, line: str, constant: Constant | None) -> str:
        """Returns one of the block's lines with the constant filled in, or with the variable `k` if
        the constant is None."""
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
