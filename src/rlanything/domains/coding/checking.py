"""Runs programs on tests, and decides whether rollouts agree with a test at all."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence

from rlanything.domains.coding.problem import Example, Problem
from rlanything.domains.coding.sandbox.base import Executor, Job, Limits, RunResult, Verdict
from rlanything.domains.coding.sandbox.comparison import same_tokens

_CHECKED = """\
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()):
    exec(compile({source!r}, "program.py", "exec"), {{"__name__": "program"}})
print({proof!r})
"""
"""What a program prints, and what it does only when run by itself, is no part of the function that
is checked."""
AGREEING = 2
"""Solutions that must print the same before it counts as what the problem asks for."""


def ground_truth_jobs(problem: Problem, program: str, memory_mb: int) -> list[Job]:
    """Returns one job for each test; a single job where code checks the program."""
    limits = limits_of(problem, memory_mb)
    if problem.check is None:
        return [Job(program, test.input, test.output, limits=limits) for test in problem.tests]
    # Printed after the check, and not to be guessed: a program that ends early has not passed. (One
    # that looks for the word in its own code could; these problems are for evaluation only.)
    proof = secrets.token_hex(16)
    checked = _CHECKED.format(source=f"{program}\n\n{problem.check}\n", proof=proof)
    return [Job(checked, b"", proof, limits=limits)]


def limits_of(problem: Problem, memory_mb: int) -> Limits:
    """Returns what a run of a program for this problem may use."""
    return Limits(cpu_seconds=problem.time_limit_seconds, memory_mb=memory_mb)


def run_table(
    executor: Executor, programs: Sequence[str], inputs: Sequence[str], limits: Limits
) -> list[list[RunResult]]:
    """Returns the runs [programs][inputs]; a program that occurs several times runs once."""
    different = list(dict.fromkeys(programs))
    jobs = [Job(program, given, limits=limits) for program in different for given in inputs]
    results = iter(executor.run_all(jobs))
    rows = {program: [next(results) for _ in inputs] for program in different}
    return [rows[program] for program in programs]


def scores_on(table: Sequence[Sequence[RunResult]], tests: Sequence[Example]) -> list[list[int]]:
    """Returns scores [programs][tests]: +1 passed, -1 not passed, 0 where the sandbox failed."""
    return [
        [_score(result, test) for result, test in zip(row, tests, strict=True)] for row in table
    ]


def _score(result: RunResult, test: Example) -> int:
    if result.verdict is Verdict.BROKEN:
        return 0
    return 1 if result.verdict is Verdict.OK and same_tokens(result.text, test.output) else -1


def disagreement(
    executor: Executor, problem: Problem, programs: Sequence[str], memory_mb: int
) -> str | None:
    """Returns why independently sampled solutions contradict a problem's tests; None if they do
    not.

    For every test, the output that most solutions print must be the expected one, at least two
    solutions must print it, and a solution must print the same when it runs again."""
    inputs = [test.input for test in problem.tests]
    limits = limits_of(problem, memory_mb)
    first, again = (run_table(executor, programs, inputs, limits) for _ in range(2))
    for number, test in enumerate(problem.tests):
        said = Counter[str]()
        for one, other in zip(first, again, strict=True):
            if one[number].verdict is not Verdict.OK:
                continue
            words = " ".join(one[number].text.split())
            if words != " ".join(other[number].text.split()):
                return f"test {number + 1}: what solutions print changes from run to run"
            said[words] += 1
        answer, count = said.most_common(1)[0] if said else ("", 0)
        if count < AGREEING:
            return f"test {number + 1}: no {AGREEING} solutions print the same"
        expected = " ".join(test.output.split())
        if answer != expected:
            return (
                f"test {number + 1} expects {expected[:40]!r}, but {count} of {len(programs)} "
                f"solutions print {answer[:40]!r}"
            )
    return None
