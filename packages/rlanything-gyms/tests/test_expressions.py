"""Formulas of a policy that sympy may evaluate."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rlanything_gyms.reasoning_gym.expressions import evaluates, is_huge, is_plain, limit_eval

PLAIN = ("3*(4 + 5)/2 - 1", "x**2/2 + C", "2*exp(-x)*sin(3*x)", "x = 1.5, -2", "-.5*sqrt(pi)", "")
PLAIN += ("exp(-x**2)", "(x^2 + 1)^10/20 + C", "(3*(4 + 5) = 27", "9**99", "1/(2*n + 1)**(3/2)")
PROGRAMS = (
    *('__import__("os").system("true")', "len('xxxxxxx')", "len(xxxxxxx)", "().a", "x.real"),
    *("[1][0]", "{1}", "lambda x: x", "(y:=3)", "open(x)", "3 . real", "x_", "1 @ 2", "ｅxec(x)"),
    *("test()", "S(1)\\", "`x`", "x;y"),
)
HUGE = ("9**9**9", "24=10^10^10", "((9**99)**99)**99", "N(pi, 999999999)", "exp(exp(exp(9)))")


@pytest.mark.parametrize("formula", PLAIN)
def test_formulas_are_plain(formula: str) -> None:
    assert is_plain(formula)


@pytest.mark.parametrize("program", [*PROGRAMS, *HUGE, "(" * 99 + "9**9**9" + ")" * 99])
def test_programs_are_not(program: str) -> None:
    assert not is_plain(program)


def test_a_number_with_millions_of_digits_is_huge() -> None:
    assert [is_huge(text) for text in ("1e999999999", "is 3.5E+1_000_000")] == [True, True]
    assert not any(map(is_huge, ("1e9", "0x1e99999999", "1" * 99, "made1e9999999")))


def test_a_dataset_that_calls_eval_reads_literals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dataset:
        datasets = None

        def score_answer(self, answer: str, entry: Any) -> Any:
            return eval(answer)

    names = vars(sys.modules[Dataset.__module__])
    monkeypatch.setitem(names, "eval", eval)
    assert Dataset().score_answer("1 + 1", {}) == 2
    limit_eval(Dataset(), {})
    assert Dataset().score_answer("[1, 'a']", {}) == [1, "a"]
    with pytest.raises(ValueError, match="malformed"):
        Dataset().score_answer("1 + 1", {})


def test_a_dataset_that_uses_sympy_evaluates_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dataset:
        datasets = None

    assert not evaluates(Dataset(), {})
    whole = Dataset()
    monkeypatch.setattr(whole, "datasets", {"part": whole}, raising=False)
    monkeypatch.setitem(globals(), "parse_expr", None)
    assert evaluates(Dataset(), {})
    assert evaluates(whole, {"metadata": {"source_dataset": "part"}})
