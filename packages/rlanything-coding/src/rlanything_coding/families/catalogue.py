"""The families of embedded problems: those to train on and those held out.

Each stage offers a choice of blocks. A problem of difficulty 1 has the stages of `core`; from 2 on
the first stage of `more` comes before its last stage, from 4 on both do. No combination of keep,
map and print blocks from a family of `OOD` occurs in a family of `TRAIN`, at any difficulty; each
of its single blocks does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

from rlanything_coding.families.blocks import Block, Constant
from rlanything_coding.families.readers import READERS, Reader
from rlanything_coding.families.spec import BLOCKS, Spec, Stage

DIFFICULTIES = range(1, 6)
_ADDED = {1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
"""Number of stages from `more`, by difficulty."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of similar problems."""

    name: str
    reader: Reader
    core: tuple[tuple[Block, ...], ...]
    """[stages][choices]."""
    more: tuple[tuple[Block, ...], ...]
    """[1 or 2][choices], stages added at higher difficulties."""

    def draw(self, difficulty: int, rng: random.Random) -> Spec:
        """Returns a spec. An `rng` with the same seed makes the same choices at every
        difficulty."""
        # Draw everything first, then drop the stages that the difficulty does not have.
        drawn = [
            Stage(block, self._constant(block, difficulty, rng.random()))
            for block in (rng.choice(blocks) for blocks in (*self.core, *self.more))
        ]
        core, more = drawn[: len(self.core)], drawn[len(self.core) :]
        return Spec(self.reader, (*core[:-1], *more[: _ADDED[difficulty]], core[-1]))

    def _constant(self, block: Block, difficulty: int, fraction: float) -> Constant | None:
        if not block.constants or self.reader.reads_constant:
            return None
        easy = easy_constants(block, difficulty)
        return easy[int(fraction * len(easy))]

    def combinations(self) -> Iterator[Spec]:
        """Yields every choice of blocks at any number of stages, without constants."""
        for added in range(len(self.more) + 1):
            for blocks in product(*self.core[:-1], *self.more[:added], self.core[-1]):
                yield Spec(self.reader, tuple(map(Stage, blocks)))


def easy_constants(block: Block, difficulty: int) -> tuple[Constant, ...]:
    """Returns the first fifth of a block's constants for difficulty 1, two fifths for 2, and so on;
    at least two."""
    return block.constants[: max(2, ceil(len(block.constants) * difficulty / 5))]


def _family(name: str, reader: str, core: Sequence[str], more: Sequence[str]) -> Family:
    def choices(stage: str) -> tuple[Block, ...]:
        return tuple(BLOCKS[block] for block in stage.split(" | "))

    return Family(name, READERS[reader], tuple(map(choices, core)), tuple(map(choices, more)))


TRAIN = (
    _family("total", "numbers", ["sum | product"], ["double | add", "positive | negative"]),
    _family("extreme", "numbers", ["max | min"], ["times | negate", "positive | negative"]),
    _family("spread", "counted", ["range"], ["double | times", "positive | above"]),
    _family(
        "order",
        "numbers",
        ["ascending | descending | backwards"],
        ["absolute | add", "even | odd"],
    ),
    _family("parity total", "numbers", ["even | odd", "sum"], ["square | negate", "above | below"]),
    _family("parity count", "column", ["even | odd", "count"], ["above | below", "distinct"]),
    _family("parity extreme", "numbers", ["even | odd", "max | min"], ["above | below"]),
    _family("threshold count", "numbers", ["above | below", "count"], ["multiple", "distinct"]),
    _family("threshold total", "numbers", ["above | below", "sum"], ["even | odd", "distinct"]),
    _family(
        "threshold list",
        "counted",
        ["above | below", "list | ascending"],
        ["add | double", "distinct"],
    ),
    _family(
        "multiples",
        "numbers",
        ["multiple", "sum | list | count"],
        ["positive | negative", "distinct"],
    ),
    _family(
        "changed list",
        "column",
        ["add | times | square", "list | backwards"],
        ["even | odd", "distinct"],
    ),
    _family(
        "changed extreme",
        "numbers",
        ["absolute | negate | square", "max | min"],
        ["add | double", "above | below"],
    ),
    _family("magnitudes", "numbers", ["absolute", "sum | range"], ["even | odd"]),
    _family(
        "given threshold",
        "numbers and k",
        ["above | below | multiple", "count | sum"],
        ["distinct", "even | odd"],
    ),
    _family(
        "given change",
        "numbers and k",
        ["add | times", "sum | list"],
        ["positive | negative", "distinct"],
    ),
    _family(
        "pairs",
        "rows",
        ["pair sum | pair product | pair max", "sum | max | list"],
        ["even | odd", "double"],
    ),
    _family("digits", "digits", ["sum | max | min"], ["above | below", "times"]),
    _family(
        "chosen word",
        "words",
        ["longest | shortest"],
        ["containing | vowel first", "mirror | upper"],
    ),
    _family(
        "counted words",
        "words",
        ["palindromes | vowel first | containing", "word count"],
        ["longer"],
    ),
    _family(
        "changed words",
        "words",
        ["upper | mirror", "words | words backwards"],
        ["longer", "initial"],
    ),
    _family(
        "sorted words",
        "words",
        ["longer | containing", "alphabetical | words backwards"],
        ["upper", "initial"],
    ),
    _family("lengths", "words", ["lengths", "sum | max | min"], ["even | odd", "square | add"]),
    _family("letters", "word", ["vowel count | length"], ["twice"]),
    _family("remaining letters", "word", ["without letter", "length | sorted letters"], ["twice"]),
    _family("given letter", "word and k", ["letter count"], ["twice"]),
    _family("spelling", "word", ["reverse | twice", "word"], ["without letter", "capitals"]),
    _family(
        "consonants",
        "word",
        ["consonants", "length | word | sorted letters"],
        ["twice"],
    ),
    _family("symmetry", "word", ["palindrome"], ["consonants"]),
)

OOD = (
    _family(
        "parity changed extreme",
        "numbers",
        ["even | odd", "square | negate", "max | min"],
        ["above | below"],
    ),
    _family(
        "threshold changed total",
        "numbers",
        ["above | below", "double | square", "sum"],
        ["distinct"],
    ),
    _family(
        "sign changed order",
        "counted",
        ["positive | negative", "add | times", "ascending | descending"],
        ["distinct"],
    ),
    _family(
        "multiples changed total",
        "numbers",
        ["multiple", "square | negate", "sum | max"],
        ["double"],
    ),
    _family(
        "pair signs",
        "rows",
        ["pair sum | pair product", "positive | negative", "sum | list"],
        ["distinct"],
    ),
    _family(
        "given parity change",
        "numbers and k",
        ["even | odd", "add | times", "sum | max"],
        ["positive | negative"],
    ),
    _family(
        "mirrored order",
        "words",
        ["containing | vowel first", "mirror", "alphabetical"],
        ["initial"],
    ),
    _family(
        "chosen lengths",
        "words",
        ["containing | vowel first", "lengths", "sum | max | min"],
        ["square | add"],
    ),
    _family("twisted consonants", "word", ["consonants", "reverse", "word"], ["twice"]),
)

FAMILIES: dict[str, Family] = {family.name: family for family in (*TRAIN, *OOD)}
