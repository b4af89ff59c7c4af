"""A problem without its wording: how input is read, and the blocks that process it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlanything_coding.families.blocks import VARIABLES, Block, Constant
from rlanything_coding.families.numbers import NUMBERS
from rlanything_coding.families.programs import Line, Program
from rlanything_coding.families.readers import READERS, Reader
from rlanything_coding.families.words import WORDS

BLOCKS: dict[str, Block] = {block.name: block for block in (*NUMBERS, *WORDS)}


@dataclass(frozen=True, slots=True)
class Stage:
    """A block with its constant; None if it has none or the program reads it."""

    block: Block
    constant: Constant | None = None

    @property
    def says(self) -> str:
        """Short description of the stage, as used in thoughts."""
        return f"{self.block.name} {self._k()}".strip()

    def phrase(self, phrase: str) -> str:
        """Returns a phrase with the constant filled in."""
        return phrase.replace("{k}", self._k())

    def _k(self) -> str:
        if not self.block.constants:
            return ""
        return "k" if self.constant is None else str(self.constant)

    def line(self, code: str | None = None) -> Line:
        """Returns the stage's line of a program, or the line of a slip."""
        code = self.block.code(code or self.block.line, self.constant)
        ends = self.block.role == "print"
        return Line(self.says, code, "" if ends else VARIABLES[self.block.gives])

    def mistaken(self) -> Iterator[Line | None]:
        """Yields lines that somebody might write instead by mistake; None stands for a missing
        line."""
        options = self.block.constants
        yield from map(self.line, self.block.slips)
        if self.constant is not None:
            at = options.index(self.constant)
            for neighbour in (*options[max(at - 1, 0) : at], *options[at + 1 : at + 2]):
                yield Stage(self.block, neighbour).line()
        elif options and isinstance(options[0], int):
            for wrong in ("({k} + 1)", "({k} - 1)"):
                yield self.line(self.block.line.replace("{k}", wrong))
        if self.block.takes == self.block.gives and self.block.role != "print":
            yield None


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of a program: how it reads its input, and its stages."""

    reader: Reader
    stages: tuple[Stage, ...]
    """The last stage prints; no other does."""

    @property
    def combination(self) -> tuple[frozenset[str], frozenset[str], str]:
        """Names of the blocks that keep, of those that map, and of the one that prints."""
        names = {
            role: frozenset(stage.block.name for stage in self.stages if stage.block.role == role)
            for role in ("keep", "map")
        }
        return names["keep"], names["map"], self.stages[-1].block.name

    def program(self) -> Program:
        """Returns a correct program."""
        return (self._reading(), *(stage.line() for stage in self.stages))

    def rivals(self) -> Iterator[Program]:
        """Yields programs with one typical mistake; some still behave like the correct one."""
        lines = self.program()
        for at, stage in enumerate(self.stages, start=1):
            for wrong in stage.mistaken():
                yield (*lines[:at], *([] if wrong is None else [wrong]), *lines[at + 1 :])

    def _reading(self) -> Line:
        shows = f"{VARIABLES[self.reader.gives]} {self.reader.also}"
        return Line("read", self.reader.line, shows)

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as `from_json` reads it."""
        return {
            "reader": self.reader.name,
            "stages": [[stage.block.name, stage.constant] for stage in self.stages],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Returns the spec that `to_json` wrote."""
        stages = tuple(Stage(BLOCKS[name], constant) for name, constant in data["stages"])
        return cls(READERS[data["reader"]], stages)
