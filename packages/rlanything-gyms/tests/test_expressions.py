"""Formulas of a policy that sympy may evaluate."""

from __future__ import annotations

import pytest

from rlanything_gyms.reasoning_gym.expressions import evaluates, is_plain

PLAIN = ("3*(4 + 5)/2 - 1", "x**2/2 + C", "2*exp(-x)*sin(3*x)", "x = 1.5, -2", "-.5*sqrt(pi)", "")
PROGRAMS = (
    *('__import__("os").system("true")', "len('xxxxxxx')", "len(xxxxxxx)", "().a", "x.real"),
    *("[1][0]", "{1}", "lambda x: x", "(y:=3)", "open(x)", "3 . real", "x_", "1 @ 2", "ｅxec(x)"),
    *("test()", "S(1)\\", "`x`", "x;y"),
)


@pytest.mark.parametrize("formula", PLAIN)
def test_formulas_are_plain(formula: str) -> None:
    assert is_plain(formula)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_not(program: str) -> None:
    assert not is_plain(program)


def test_a_dataset_that_uses_sympy_evaluates_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dataset:
        datasets = None

    assert not evaluates(Dataset(), {})
    whole = Dataset()
    monkeypatch.setattr(whole, "datasets", {"part": whole}, raising=False)
    monkeypatch.setitem(globals(), "parse_expr", None)
    assert evaluates(Dataset(), {})
    assert evaluates(whole, {"metadata": {"source_dataset": "part"}})
