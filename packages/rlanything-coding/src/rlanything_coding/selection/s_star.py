"""S* (arXiv 2502.14382): repair in rounds, then compare in pairs where outputs differ.

In each round, programs are repaired for the first test that they fail, until they pass all.
Programs that then print the same on every input form one cluster, and one program represents it.
Two clusters are compared on the inputs that distinguish them: the one that is right on more of them
wins. If several share the most victories, the judge writes further tests. Of these, only tests
whose inputs distinguish the leaders count, and all clusters are compared again.

Simplified from the paper: it repairs with public tests, which the policy may not see here.
Generated tests replace them; since they may be wrong, a repair that passes fewer of them is
dropped. The paper has a model write inputs for a pair with both programs at hand, and judge the
outputs. Here the judge's tests give both input and verdict, and it writes them from the problem
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from rlanything_coding.selection.programs import Bench, TaskPrograms, repaired

ROUNDS = 4
"""Largest number of repairs of a program."""


def s_star(tasks: Sequence[TaskPrograms], bench: Bench, rounds: int = ROUNDS) -> list[str]:
    """Returns for each task the program of the cluster with most victories; among equals the one of
    the largest cluster, then the first."""
    state = list(tasks)

    def ask(k: int, i: int) -> int | None:
        row = state[k].scores[i]
        return row.index(-1) if -1 in row else None

    def keep(k: int, i: int, j: int, row: Sequence[int]) -> bool:
        del j
        return list(row).count(1) >= state[k].scores[i].count(1)

    for _ in range(rounds):
        state = repaired(state, bench, ask, keep)
    leading = [_leaders(task, bench) for task in state]
    open_ones = [k for k, leaders in enumerate(leading) if len(leaders) > 1]
    fresh = bench.more_tests([state[k].task for k in open_ones]) if open_ones else []
    for k, tests in zip(open_ones, fresh, strict=True):
        leaders = [state[k].programs[i] for i in leading[k]]
        printed = zip(*bench.outputs(state[k].task, leaders, tests), strict=True)
        telling = [test for test, said in zip(tests, printed, strict=True) if len({*said}) > 1]
        state[k] = _with_tests(state[k], telling, bench)
        leading[k] = _leaders(state[k], bench)
    return [task.programs[leaders[0]] for task, leaders in zip(state, leading, strict=True)]


def leaders_of(outputs: Sequence[Sequence[str]], scores: Sequence[Sequence[int]]) -> list[int]:
    """Returns the first program of each cluster with the most victories, the largest cluster first.
    `outputs` and `scores`: [programs][tests]."""
    clusters: dict[tuple[str, ...], list[int]] = {}
    for i, printed in enumerate(outputs):
        clusters.setdefault(tuple(printed), []).append(i)
    victories = dict.fromkeys((members[0] for members in clusters.values()), 0)
    for one, other in combinations(victories, 2):
        apart = [j for j, text in enumerate(outputs[one]) if text != outputs[other][j]]
        lead = sum(scores[one][j] - scores[other][j] for j in apart)
        if lead:
            victories[one if lead > 0 else other] += 1
    most = max(victories.values())
    sizes = {members[0]: len(members) for members in clusters.values()}
    return sorted((i for i in victories if victories[i] == most), key=lambda i: -sizes[i])


def _leaders(task: TaskPrograms, bench: Bench) -> list[int]:
    return leaders_of(bench.outputs(task.task, task.programs, task.tests), task.scores)


def _with_tests(task: TaskPrograms, tests: Sequence[str], bench: Bench) -> TaskPrograms:
    rows = bench.run(task.task, task.programs, tests)
    scores = tuple((*old, *new) for old, new in zip(task.scores, rows, strict=True))
    return replace(task, tests=(*task.tests, *tests), scores=scores)
