"""Answers as Python. Some datasets evaluate them by sympy or `eval`, which run any program: only
literals, and formulas of elementary functions without huge numbers, may reach these."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from typing import Any

_GROWING = {"exp", "sinh", "cosh", "tanh"}
_FUNCTIONS = {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "asinh", "acosh"}
_FUNCTIONS |= {"atanh", "log", "ln", "sqrt", "Abs", "abs", "pi", *_GROWING}
_FORMULA = re.compile(r"[A-Za-z0-9\s.,+\-*/^=()]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PROGRAM = re.compile(r"\.\s*[A-Za-z]|\b[A-Za-z]\s*\(")
"""An attribute, or the call of a letter: sympy's N computes any number of digits."""
_HUGE = re.compile(r"(?<!\w)\d[\d_.]*[eE][+-]?[\d_]{7,}")
_BITS = 1e5
"""Limit of the size of numbers on the way to a formula's value."""


def is_plain(answer: str) -> bool:
    """Returns whether a formula has only numbers, operators, letters and elementary functions, and
    no number on the way to its value is huge."""
    words = _WORD.findall(answer)
    known = all(len(word) == 1 or word in _FUNCTIONS for word in words)
    if not (_FORMULA.fullmatch(answer) and known) or _PROGRAM.search(answer):
        return False
    try:
        for side in answer.replace("^", "**").split("="):
            if _bits(ast.parse(side.strip() or "0", mode="eval").body) > _BITS:
                return False
    except SyntaxError:  # sympy reads Python's syntax
        return True
    except (RecursionError, MemoryError, OverflowError):
        return False
    return True


def is_huge(answer: str) -> bool:
    """Returns whether an answer has a number such as 1e999999999, of which a fraction takes for
    ever."""
    return bool(_HUGE.search(answer))


def evaluates(dataset: Any, entry: Mapping[str, Any]) -> bool:
    """Returns whether a dataset evaluates answers by sympy: whether its module, or that of the part
    which asked the question, uses it."""
    return bool({"sympy", "parse_expr"} & _globals(_asking(dataset, entry)).keys())


def limit_eval(dataset: Any, entry: Mapping[str, Any]) -> None:
    """Makes a dataset whose `score_answer` calls `eval` read literals alone."""
    asking = _asking(dataset, entry)
    if {"eval", "exec"} & {*type(asking).score_answer.__code__.co_names}:
        _globals(asking).update(eval=ast.literal_eval, exec=ast.literal_eval)


def _asking(dataset: Any, entry: Mapping[str, Any]) -> Any:
    parts = getattr(dataset, "datasets", None) or {}
    return parts.get(entry.get("metadata", {}).get("source_dataset"), dataset)


def _globals(dataset: Any) -> dict[str, Any]:
    return vars(sys.modules[type(dataset).__module__])


def _bits(node: ast.AST) -> float:
    """Returns a limit of the bits of a formula's value, and of all numbers on the way to it."""
    match node:
        case ast.BinOp(left, ast.Pow(), right):
            return _bits(left) * 2.0 ** _bits(right)
        case ast.Call(ast.Name(name), arguments) if name in _GROWING:
            return 2.0 * 2.0 ** sum(map(_bits, arguments))
        case ast.Constant(int(value)):
            return float(max(value.bit_length(), 1))
        case ast.Constant(value):
            return 4.0 * len(str(value))
        case ast.Name():
            return 1.0
        case _:
            return 1.0 + sum(map(_bits, ast.iter_child_nodes(node)))
