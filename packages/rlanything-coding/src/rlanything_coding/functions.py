"""Functions that code checks (HumanEval), or that tests call (LeetCode): called in one run, checked
in another, or here."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlanything_coding.function_harness import encoded
from rlanything_coding.problem import Problem
from rlanything_coding.sandbox.base import Executor, Grading, Job, Limits, RunResult, Verdict

MOST_ROUNDS = 64
"""Largest number of times a check may request more calls; nearly all checks request them at
once."""
_RESULTS_BYTES = 1 << 20
"""Largest total size in bytes of a function's results in one round of calls."""


def check_function(
    executor: Executor, check: str, name: str, program: str, limits: Limits
) -> RunResult:
    """Returns the verdict of a check on a program's function of this name. The check is code that
    raises an exception if the function is wrong.

    Program and check never share a process, and only plain values pass between them. The program
    can neither read the expected values nor return an object that equals everything."""
    limits = replace(limits, output_bytes=_RESULTS_BYTES)
    rounds: list[tuple[list[object], str]] = []
    left = limits.wall
    called = RunResult(Verdict.OK)
    for _ in range(MOST_ROUNDS):
        checked = executor.run(_job(limits, name, check=check, rounds=rounds))
        if checked.verdict is not Verdict.OK:
            return _without_output(checked)
        answer = json.loads(checked.stdout)
        if rounds and "passed" in answer:
            passed = Verdict.OK if answer["passed"] else Verdict.WRONG
            return replace(_without_output(called), verdict=passed)
        calls = answer.get("calls", [])
        called = executor.run(_job(limits, name, program=program, calls=calls))
        if called.verdict is not Verdict.OK:
            return _without_output(called)
        rounds.append((calls, called.text))
        left -= checked.seconds + called.seconds
        if left < 0:
            reason = f"more than {limits.wall:g} s in all calls and checks"
            return RunResult(Verdict.TIMEOUT, reason=reason)
    return RunResult(Verdict.WRONG, reason=f"more than {MOST_ROUNDS} rounds of calls")


def _job(limits: Limits, name: str, **parts: object) -> Job:
    return Job(_harness(), json.dumps({"name": name, **parts}), limits=limits)


@cache
def _harness() -> str:
    return Path(__file__).with_name("function_harness.py").read_text(encoding="utf-8")


def _without_output(result: RunResult) -> RunResult:
    return replace(result, stdout=b"")


def call_function(
    executor: Executor, problem: Problem, program: str, limits: Limits
) -> list[RunResult]:
    """Returns one result for each of a problem's tests, which call its `entry_point`.

    Each call is a run of its own. The program sees the arguments, never the expected value."""
    name = problem.entry_point
    calls = [
        [encoded([json.loads(line) for line in test.input.splitlines()]), encoded({})]
        for test in problem.tests
    ]
    runs = executor.run_all(
        [_job(limits, name, program=program, calls=[call], prelude=True) for call in calls]
    )
    return [
        _judged(run, json.loads(test.output), problem.grading)
        for run, test in zip(runs, problem.tests, strict=True)
    ]


def _judged(run: RunResult, expected: object, grading: Grading) -> RunResult:
    if run.verdict is not Verdict.OK:
        return run
    try:
        [returned] = json.loads(run.text)
        if not returned:
            return replace(run, verdict=Verdict.ERROR, reason="it raised an exception")
        right = _same(_plain(returned[0]), expected, grading.tolerance)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        right = False  # the program exited, or printed or returned something else
    return replace(run, verdict=Verdict.OK if right else Verdict.WRONG)


def _plain(value: Any) -> Any:
    """Returns the JSON value of an encoded one; tuples become lists. Raises `ValueError` for types
    that JSON does not have."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "tuple":
        return [_plain(each) for each in content]
    if kind == "dict":
        return {str(_plain(key)): _plain(each) for key, each in content}
    raise ValueError(f"{kind} is not a JSON value")


def _same(said: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(said, list) and isinstance(expected, list):
        return len(said) == len(expected) and all(
            _same(one, other, tolerance) for one, other in zip(said, expected, strict=True)
        )
    if isinstance(said, dict) and isinstance(expected, dict):
        return said.keys() == expected.keys() and all(
            _same(said[key], expected[key], tolerance) for key in expected
        )
    if isinstance(expected, float) and isinstance(said, int | float):
        return math.isclose(said, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(said == expected)
