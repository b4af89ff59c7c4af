"""Runs in a box, as a program: calls a model-written function, or checks what it returned.

The two never share a process. One run has the model's program and the arguments of the calls; the
other has the check and the plain return values. So the first has nothing to spy on, and the second
contains nothing that the program defined. Reads one JSON object from stdin and prints one.
Standalone.
"""

from __future__ import annotations

import ast
import io
import json
import os
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

FURTHER = "_further_calls"


def encoded(value: Any) -> Any:
    """Returns a JSON form of a value of a built-in type; a subclass counts as its base. Raises
    `TypeError` for any other type."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list):
        return [encoded(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(each)] for key, each in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encoded(each) for each in value]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).decode("latin-1")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, Decimal | Fraction):
        return {type(value).__name__: str(value)}
    if type(value).__module__ == "numpy":
        return encoded(value.item())
    raise TypeError(f"{type(value).__name__} is no plain value")


def decoded(value: Any) -> Any:
    """Returns the value that `encoded` encoded."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(name, content)] = value.items()
    match name:
        case "dict":
            return {decoded(key): decoded(each) for key, each in content}
        case "bytes":
            return content.encode("latin-1")
        case "complex":
            return complex(*content)
        case _:
            kinds: dict[str, Callable[[Any], Any]] = {
                "tuple": tuple,
                "set": set,
                "frozenset": frozenset,
                "Decimal": Decimal,
                "Fraction": Fraction,
            }
            return kinds[name](decoded(content))


PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from string import *
from typing import *
from builtins import *  # such as pow, which others above have replaced
inf = float("inf")
sys.setrecursionlimit(50_000)
"""
"""Names and recursion limit that LeetCode and LiveCodeBench set before a solution; its signature
already needs `List`."""


def call(program: str, name: str, calls: list[Any], prelude: bool = False) -> list[Any]:
    """Returns the results of a program's function in each call, up to the first failure: a list
    with the value, or an empty list. `name`: a function, or CLASS.METHOD of a new object each
    time; `prelude`: define the names of `PRELUDE` first."""
    # Output of the program, and code under a main guard, are not part of the function.
    printed = sys.stdout
    sys.stdout = io.StringIO()
    results: list[Any] = []
    try:
        names: dict[str, Any] = {"__name__": "program"}
        if prelude:
            exec(PRELUDE, names)
        exec(compile(program, "program.py", "exec", dont_inherit=True), names)
        first, _, method = name.partition(".")
        function = names[first]
        for positional, named in calls:
            try:
                bound = getattr(function(), method) if method else function
                result = bound(*decoded(positional), **decoded(named))
                results.append([encoded(result)])
            except Exception as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n"[:500])
                results.append([])
                break
    finally:
        sys.stdout = printed
    return results


class Patient(ast.NodeTransformer):
    """Lets a check continue after an assertion about a call that has not been made yet."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        [patient] = ast.parse(f"try: pass\nexcept Exception:\n    if not {FURTHER}: raise").body
        assert isinstance(patient, ast.Try)
        patient.body = [node]
        return patient


def check(source: str, name: str, rounds: list[tuple[list[Any], str]]) -> dict[str, Any]:
    """Runs a check on what `call` printed in each round of calls. Returns {"calls": [...]} with the
    further calls that it needs, else {"passed": whether it raised nothing}."""
    results: dict[str, list[Any]] = {}
    further: dict[str, Any] = {}
    try:
        for calls, printed in rounds:
            answers = dict(zip(map(json.dumps, calls), json.loads(printed), strict=False))
            if calls and not answers:
                return {"passed": False}  # it would request the same calls again
            results |= answers
    except (ValueError, TypeError, RecursionError):
        return {"passed": False}  # the program exited, or printed a result of its own making

    def function(*positional: Any, **named: Any) -> Any:
        made = [encoded(list(positional)), encoded(named)]
        key = json.dumps(made)
        if key not in results:
            further[key] = made
            return None
        [value] = results[key]
        return decoded(value)

    random.seed(0)  # the same calls each time
    try:
        tree = ast.fix_missing_locations(Patient().visit(ast.parse(source)))
        exec(compile(tree, "check.py", "exec"), {name: function, FURTHER: further})
        passed = True
    except Exception:
        passed = False
    return {"calls": list(further.values())} if further else {"passed": passed}


def main() -> None:
    sys.set_int_max_str_digits(0)
    # Anything else written to stdout, even at process exit, is not part of the answer.
    stdout = os.dup(1)
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.read())
    if "program" in asked:
        answer: Any = call(asked["program"], asked["name"], asked["calls"], "prelude" in asked)
    else:
        answer = check(asked["check"], asked["name"], asked["rounds"])
    with open(stdout, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
