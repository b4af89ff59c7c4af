"""A spec put into words, in one of four ways and with one of two phrases for each stage."""

from __future__ import annotations

import random

from rlanything_coding.families.spec import Spec

WAYS = 4


def question(spec: Spec, rng: random.Random) -> str:
    """Returns the question in a random wording."""
    return worded(spec, rng.randrange(WAYS), rng)


def worded(spec: Spec, way: int, rng: random.Random) -> str:
    """Returns the question in the given way, with phrases drawn by `rng`."""
    reads = rng.choice(spec.reader.phrases)
    *steps, result = (stage.phrase(rng.choice(stage.block.phrases)) for stage in spec.stages)
    if way == 0:
        orders = [f"Read {reads}", *map(_capital, steps), f"Print {result}"]
        text = ". ".join(orders)
    elif way == 1:
        chain = ", then ".join([*steps, f"print {result}"])
        text = f"Given {reads}, {'first ' if steps else ''}{chain}"
    elif way == 2:
        middle = f"\nSteps: {'; '.join(steps)}" if steps else ""
        text = f"Input: {reads}{middle}\nOutput: {result}"
    else:
        before = f" Before that, {' and then '.join(steps)}." if steps else ""
        text = f"Your program prints {result}. It is given {reads}.{before}".removesuffix(".")
    empty = spec.stages[-1].block.empty
    leaves_out = any(stage.block.role == "keep" for stage in spec.stages)
    note = f" If nothing is left, print {empty}." if leaves_out and empty else ""
    return f"{text}.{note}"


def _capital(clause: str) -> str:
    return clause[0].upper() + clause[1:]
