"""Problems of random stages, from which tiny models learn to combine blocks.

The families of `TRAIN` show so few combinations that a model memorizes them. Drills show all valid
combinations except those of `OOD`, which stay unseen.
"""

from __future__ import annotations

import random
from functools import cache

from rlanything_coding.families.blocks import Block, Constant
from rlanything_coding.families.catalogue import OOD, easy_constants
from rlanything_coding.families.problem_generator import problem_of
from rlanything_coding.families.readers import READERS
from rlanything_coding.families.spec import BLOCKS, Spec, Stage
from rlanything_coding.problem import Problem

DRILL = "drill"
"""Used in place of a family's name."""
_MOST_STAGES = 3
"""Largest number of stages before the last one."""


def drill(difficulty: int, rng: random.Random, tests: int = 8) -> Problem:
    """Returns a problem that belongs to no family. `rng` draws it, with constants and inputs of the
    difficulty."""
    while True:
        spec = _drawn(difficulty, rng)
        if spec is not None and spec.combination not in _held_out():
            return problem_of(spec, DRILL, difficulty, tests, rng)


@cache
def _held_out() -> frozenset[object]:
    return frozenset(spec.combination for family in OOD for spec in family.combinations())


def _drawn(difficulty: int, rng: random.Random) -> Spec | None:
    """Returns a random spec, or None if the drawn blocks leave part of the input unused."""
    reader = rng.choice(list(READERS.values()))
    kind = reader.gives
    blocks = list[Block]()
    for number in range(rng.randint(0, _MOST_STAGES)):
        fitting = [
            block
            for block in BLOCKS.values()
            if block.takes == kind
            and block.role != "print"
            and block not in blocks
            and _pairs(block) == (number == 0 and reader.name == "rows")
        ]
        blocks.append(rng.choice(fitting))
        kind = blocks[-1].gives
    ends = [block for block in BLOCKS.values() if block.takes == kind and block.role == "print"]
    blocks.append(rng.choice(ends))
    if reader.name == "rows" and not _pairs(blocks[0]):
        return None
    if not reader.reads_constant:
        stages = (Stage(block, _constant(block, difficulty, rng)) for block in blocks)
        return Spec(reader, tuple(stages))
    return Spec(reader, tuple(map(Stage, blocks))) if any(b.constants for b in blocks) else None


def _pairs(block: Block) -> bool:
    """Returns whether a block takes two rows of numbers."""
    return "zip(xs, ys)" in block.line


def _constant(block: Block, difficulty: int, rng: random.Random) -> Constant | None:
    return rng.choice(easy_constants(block, difficulty)) if block.constants else None
