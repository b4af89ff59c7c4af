"""Pass rates of a task's programs, as the adapter reads them: overall, and on every test.

Each test is on its own line, as JSON: {"input": ..., "output": ..., "passed_by": share}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from rlanything.records import JudgedTrajectory
from rlanything_coding.answers import InvalidTest
from rlanything_coding.environment import failed_tests
from rlanything_coding.problem import Example, Problem

SHOWN_CHARACTERS = 100
"""Characters of an input, and of an output, that the adapter reads."""
UNKNOWN = "nothing is known"


def accuracy(rollouts: Sequence[JudgedTrajectory]) -> str:
    """Returns the number of programs that pass every ground-truth test, and the average share of
    tests that they pass."""
    if not rollouts:
        return UNKNOWN
    won = sum(judged.trajectory.outcome == 1 for judged in rollouts)
    rewards = [judged.trajectory.reward or 0.0 for judged in rollouts]
    return (
        f"{won} of {len(rollouts)} programs pass every test (accuracy {won / len(rollouts):.2f}); "
        f"a program passes {sum(rewards) / len(rewards):.0%} of them on average"
    )


def ground_truth_tests(problem: Problem, rollouts: Sequence[JudgedTrajectory]) -> str:
    """Returns the problem's tests, each with the share of programs that pass it, over the episodes
    that record it."""
    failed = [failed_tests(judged.trajectory, len(problem.tests)) for judged in rollouts]
    known = [tests for tests in failed if tests is not None]
    lines = [
        _line(test, [1 if i not in tests else -1 for tests in known])
        for i, test in enumerate(problem.tests)
    ]
    return "\n".join(lines) or UNKNOWN


def generated_tests(
    rollouts: Sequence[JudgedTrajectory], read_test: Callable[[str], Example]
) -> str:
    """Returns the judge's tests without duplicates, each with the share of programs that pass it.
    Unreadable tests are counted; sandbox failures are ignored."""
    scores: dict[Example, list[int]] = {}
    unreadable = 0
    for column in zip(*(judged.judgements[0] for judged in rollouts), strict=True):
        written = column[0].completion
        try:
            test = read_test("" if written.stop_reason == "length" else written.answer)
        except InvalidTest:
            unreadable += 1
        else:
            scores.setdefault(test, []).extend(judgement.score for judgement in column)
    lines = [_line(test, marks) for test, marks in scores.items()]
    if unreadable:
        lines.append(f"({unreadable} more could not be read)")
    return "\n".join(lines) or UNKNOWN


def _line(test: Example, scores: Sequence[int]) -> str:
    known = [score for score in scores if score]
    rate = {"passed_by": round(known.count(1) / len(known), 2)} if known else {}
    shown = {"input": _cut(test.input), "output": _cut(test.output)}
    return json.dumps(shown | rate, ensure_ascii=False)


def _cut(text: str) -> str:
    whole = text.rstrip("\n")
    return whole if len(whole) <= SHOWN_CHARACTERS else f"{whole[:SHOWN_CHARACTERS]}..."
