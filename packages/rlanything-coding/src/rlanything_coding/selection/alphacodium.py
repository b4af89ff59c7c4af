"""AlphaCodium (arXiv 2401.08500): run the tests, repair what fails, and break nothing that held.

Every program goes through the tests in one order. Those that it passes become its anchors; at one
that it fails it is repaired, and the repair is kept only if it passes this test and every anchor so
far. A test that a repair could not satisfy is passed over: it may itself be wrong.

Simplified against the paper: its order is public tests first, which are known to be right and never
doubted. Problems here have none that the policy may see, so that the order is by how many of the
programs pass a test, most first: what most agree on stands in for what is public. Left out: the
reflection on problem and tests, the choice among solutions in words, and structured (YAML) answers;
the programs are the policy's own samples. How one of several is chosen is not in the paper, which
has one program: here it is the one that passes most tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlanything_coding.selection.programs import Bench, TaskPrograms, repaired

ROUNDS = 4
"""Repairs of a program at most."""


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
