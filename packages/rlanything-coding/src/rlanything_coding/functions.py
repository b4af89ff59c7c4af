"""Functions that code checks (HumanEval): called in one run, checked in another."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from rlanything_coding.sandbox.base import Executor, Job, Limits, RunResult, Verdict

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
