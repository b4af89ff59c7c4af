"""The blocks that work on numbers, `xs`."""

from __future__ import annotations

from functools import partial

from rlanything_coding.families.blocks import stage

_keep = partial(stage, "keep", "xs = [x for x in xs if ...]", takes="numbers")
_map = partial(stage, "map", "xs = [... for x in xs]", takes="numbers")
_pair = partial(stage, "map", "xs = [... for x, y in zip(xs, ys)]", takes="numbers")
_print = partial(stage, "print", "print(...)", takes="numbers")

NUMBERS = (
    _keep("even", "x % 2 == 0", ("keep the even numbers", "drop the odd numbers"), "x % 2 == 1"),
    _keep("odd", "x % 2 == 1", ("keep the odd numbers", "drop the even numbers"), "x % 2 == 0"),
    _keep(
        "positive",
        "x > 0",
        ("keep the positive numbers", "drop zeros and negative numbers"),
        "x >= 0",
        "x < 0",
    ),
    _keep(
        "negative",
        "x < 0",
        ("keep the negative numbers", "drop zeros and positive numbers"),
        "x <= 0",
        "x > 0",
    ),
    _keep(
        "above",
        "x > {k}",
        ("keep the numbers greater than {k}", "drop all numbers up to {k}"),
        "x >= {k}",
        "x < {k}",
        constants=range(1, 13),
    ),
    _keep(
        "below",
        "x < {k}",
        ("keep the numbers less than {k}", "drop the numbers that are {k} or more"),
        "x <= {k}",
        "x > {k}",
        constants=range(3, 13),
    ),
    _keep(
        "multiple",
        "x % {k} == 0",
        ("keep the multiples of {k}", "keep the numbers that {k} divides"),
        "x % {k} != 0",
        "x % {k} == 1",
        constants=range(3, 8),
    ),
    stage(
        "keep",
        "xs = ...",
        "distinct",
        "list(dict.fromkeys(xs))",
        ("keep the first of equal numbers", "drop repeats of earlier numbers"),
        "[x for x in xs if xs.count(x) == 1]",
        takes="numbers",
    ),
    _map("double", "x * 2", ("double every number", "multiply each by 2"), "x + 2", "x ** 2"),
    _map("square", "x * x", ("square every number", "multiply each by itself"), "x * 2", "x + x"),
    _map("negate", "-x", ("negate every number", "change the sign of each"), "abs(x)"),
    _map("absolute", "abs(x)", ("take absolute values", "drop all minus signs"), "-x"),
    _map(
        "add",
        "x + {k}",
        ("add {k} to every number", "increase each by {k}"),
        "x - {k}",
        "x * {k}",
        constants=range(1, 10),
    ),
    _map(
        "times",
        "x * {k}",
        ("multiply every number by {k}", "make each {k} times as large"),
        "x + {k}",
        constants=range(3, 8),
    ),
    _pair("pair sum", "x + y", ("add the lines number by number", "add each pair"), "x - y"),
    _pair(
        "pair product",
        "x * y",
        ("multiply the lines number by number", "multiply each pair"),
        "x + y",
    ),
    _pair(
        "pair max",
        "max(x, y)",
        ("take the larger of each pair", "keep the larger number of each pair"),
        "min(x, y)",
    ),
    _print("sum", "sum(xs)", ("the sum", "the total"), "max(xs, default=0)", "len(xs)", empty="0"),
    stage(
        "print",
        "import math\nprint(...)",
        "product",
        "math.prod(xs)",
        ("the product", "all numbers multiplied"),
        "sum(xs)",
        takes="numbers",
        empty="1",
    ),
    _print("count", "len(xs)", ("how many numbers there are", "the count"), "sum(xs)", empty="0"),
    _print(
        "max",
        "max(xs, default=0)",
        ("the largest number", "the maximum"),
        "min(xs, default=0)",
        "max(xs)",
        "xs[-1] if xs else 0",
        empty="0",
    ),
    _print(
        "min",
        "min(xs, default=0)",
        ("the smallest number", "the minimum"),
        "max(xs, default=0)",
        "min(xs)",
        "xs[0] if xs else 0",
        empty="0",
    ),
    _print(
        "range",
        "max(xs, default=0) - min(xs, default=0)",
        ("the difference of maximum and minimum", "the largest number minus the smallest"),
        "max(xs, default=0)",
        "max(xs) - min(xs)",
        "xs[-1] - xs[0] if xs else 0",
        empty="0",
    ),
    _print(
        "list",
        '*xs or ["none"]',
        ("the numbers in their order", "the numbers on one line"),
        "*xs",
        '*sorted(xs) or ["none"]',
        empty="none",
    ),
    _print(
        "ascending",
        '*sorted(xs) or ["none"]',
        ("the numbers in ascending order", "the numbers sorted upwards"),
        '*sorted(xs)[::-1] or ["none"]',
        '*sorted(set(xs)) or ["none"]',
        '*xs or ["none"]',
        empty="none",
    ),
    _print(
        "descending",
        '*sorted(xs)[::-1] or ["none"]',
        ("the numbers in descending order", "the numbers sorted downwards"),
        '*sorted(xs) or ["none"]',
        '*xs[::-1] or ["none"]',
        empty="none",
    ),
    _print(
        "backwards",
        '*xs[::-1] or ["none"]',
        ("the numbers from last to first", "the numbers in reverse"),
        '*xs or ["none"]',
        '*sorted(xs)[::-1] or ["none"]',
        empty="none",
    ),
)
