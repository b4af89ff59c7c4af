"""Runs programs on tests, and checks whether rollouts agree with a test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlanything_coding.functions import call_function, check_function
from rlanything_coding.problem import Example, Problem
from rlanything_coding.sandbox.base import Executor, Job, Limits, RunResult, Verdict

AGREEING = 2
"""Number of solutions that must print the same output before it counts as the right one."""
KEPT_BYTES = 1 << 14
"""Bytes of each output to keep: all programs of a task may print a lot."""


def ground_truth(
    executor: Executor, problem: Problem, program: str, memory_mb: int
) -> list[RunResult]:
    """Returns one result for each test, or a single one if code checks the program."""
    limits = _limits(problem, memory_mb)
    if problem.check is not None:
        return [check_function(executor, problem.check, problem.entry_point, program, limits)]
    if problem.entry_point:
        return call_function(executor, problem, program, limits)
    return executor.run_all([_job(problem, program, test, limits, 0) for test in problem.tests])


def run_table(
    executor: Executor,
    problem: Problem,
    programs: Sequence[str],
    tests: Sequence[Example],
    memory_mb: int,
) -> list[list[RunResult]]:
    """Returns the runs [programs][tests]; identical programs run once."""
    limits = _limits(problem, memory_mb)
    different = list(dict.fromkeys(programs))
    jobs = [
        _job(problem, program, test, limits, KEPT_BYTES) for program in different for test in tests
    ]
    results = iter(executor.run_all(jobs))
    rows = {program: [next(results) for _ in tests] for program in different}
    return [rows[program] for program in programs]


def score(result: RunResult) -> int:
    """Returns +1 for a passed test, -1 for a failed one, 0 if the sandbox failed."""
    if result.verdict is Verdict.BROKEN:
        return 0
    return 1 if result.verdict is Verdict.OK else -1


def shown(result: RunResult) -> str:
    """Returns what a program printed, with white space normalized, or how it ended if it failed. A
    long output is cut, and its digest distinguishes it from others."""
    if result.verdict not in (Verdict.OK, Verdict.WRONG):
        return f"({result.verdict})"
    words = " ".join(result.text.split())
    return f"{words}... ({result.digest})" if len(result.stdout) == KEPT_BYTES else words


def _limits(problem: Problem, memory_mb: int) -> Limits:
    return Limits(cpu_seconds=problem.time_limit_seconds, memory_mb=memory_mb)


def _job(problem: Problem, program: str, test: Example, limits: Limits, kept: int) -> Job:
    return Job(program, test.input, test.output, problem.grading, limits, kept)


def disagreement(
    executor: Executor, problem: Problem, programs: Sequence[str], memory_mb: int
) -> str | None:
    """Returns how independently sampled solutions contradict a problem's tests, or None if they
    agree.

    For every test, the output that most solutions print must be the expected one, at least two
    solutions must print it, and a solution must print the same in a second run."""
    tests = problem.tests
    first, again = (run_table(executor, problem, programs, tests, memory_mb) for _ in range(2))
    for number, test in enumerate(tests):
        said = Counter[str]()
        texts: dict[str, str] = {}
        for one, other in zip(first, again, strict=True):
            run, second = one[number], other[number]
            if run.verdict not in (Verdict.OK, Verdict.WRONG):
                continue
            right = run.verdict is Verdict.OK
            if not (right and second.verdict is Verdict.OK) and run.digest != second.digest:
                return f"test {number + 1}: what solutions print changes from run to run"
            # Outputs that pass count as one, even if they differ in digits.
            name = "" if right else run.digest
            said[name] += 1
            texts[name] = " ".join(run.text.split())
        # In a tie the expected output, "", is not what most print.
        ranked = sorted(said.items(), key=lambda each: (each[1], each[0] != ""))
        answer, count = ranked[-1] if ranked else ("", 0)
        if count < AGREEING:
            return f"test {number + 1}: no {AGREEING} solutions print the same"
        if answer:
            expected = " ".join(test.output.split())
            return (
                f"test {number + 1} expects {expected[:40]!r}, but {count} of {len(programs)} "
                f"solutions print {texts[answer][:40]!r}"
            )
    return None
