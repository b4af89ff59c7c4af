"""Answers that are formulas. Some datasets evaluate them with sympy, which runs any Python: only
numbers, operators, letters and elementary functions may reach it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_FUNCTIONS = {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh"}
_FUNCTIONS |= {"tanh", "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs", "abs", "pi"}
_FORMULA = re.compile(r"[A-Za-z0-9\s.,+\-*/^=()]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z]")


def is_plain(answer: str) -> bool:
    """Returns whether a formula has only numbers, operators, letters and elementary functions."""
    words = _WORD.findall(answer)
    known = all(len(word) == 1 or word in _FUNCTIONS for word in words)
    return bool(_FORMULA.fullmatch(answer)) and known and not _ATTRIBUTE.search(answer)


def evaluates(dataset: Any, entry: Mapping[str, Any]) -> bool:
    """Returns whether a dataset evaluates answers: whether its module, or that of the part which
    asked the question, uses sympy."""
    parts = getattr(dataset, "datasets", None) or {}
    asked = parts.get(entry.get("metadata", {}).get("source_dataset"), dataset)
    return bool({"sympy", "parse_expr"} & vars(sys.modules[type(asked).__module__]).keys())
