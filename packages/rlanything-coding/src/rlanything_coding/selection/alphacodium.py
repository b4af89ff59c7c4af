"""AlphaCodium (arXiv 2401.08500): run the tests, repair failures, and keep what already works.

Every program goes through the tests in one order. Tests that it passes become its anchors. When it
fails a test, it is repaired, and the repair is kept only if it passes this test and every anchor so
far. A test that a repair could not satisfy is skipped: the test itself may be wrong.

Simplified from the paper: its order has the public tests first, which are known to be right.
Problems here have no tests that the policy may see, so tests are ordered by how many programs pass
them, most first; agreement replaces the public tests. Left out: the reflection on problem and
tests, the choice among solutions in words, and structured (YAML) answers; the programs are the
policy's own samples. The paper has one program and does not choose among several; here the one that
passes most tests is chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlanything_coding.selection.programs import Bench, TaskPrograms, repaired

ROUNDS = 4
"""Largest number of repairs of a program."""


def alphacodium(tasks: Sequence[TaskPrograms], bench: Bench, rounds: int = ROUNDS) -> list[str]:
    """Returns for each task the program that passes most tests after all repairs."""
    orders = [order_of(task.scores) for task in tasks]
    tried: dict[tuple[int, int], set[int]] = defaultdict(set)
    state = list(tasks)

    def ask(k: int, i: int) -> int | None:
        row = state[k].scores[i]
        failing = (j for j in orders[k] if row[j] == -1 and j not in tried[k, i])
        test = next(failing, None)
        if test is not None:
            tried[k, i].add(test)
        return test

    def keep(k: int, i: int, j: int, row: Sequence[int]) -> bool:
        before = orders[k][: orders[k].index(j)]
        anchors = [a for a in before if state[k].scores[i][a] == 1]
        return row[j] == 1 and all(row[a] == 1 for a in anchors)

    for _ in range(rounds):
        state = repaired(state, bench, ask, keep)
    return [task.best for task in state]


def order_of(scores: Sequence[Sequence[int]]) -> list[int]:
    """Returns the tests by how many programs pass them, most first; `scores` [programs][tests]."""
    passes = [sum(score == 1 for score in column) for column in zip(*scores, strict=True)]
    return sorted(range(len(passes)), key=lambda j: -passes[j])
