"""Multi-perspective self-consistency (MPSC, arXiv 2309.17272): programs and tests rank each other.

Programs and tests are the two sides of a graph. An edge of weight 1 joins a program and a test that
it passes. The scores f should differ little along edges (inter-consistency) and stay near a first
guess y of each side alone (intra-consistency). The paper's iteration

    f <- alpha D^-1/2 W D^-1/2 f + (1 - alpha) y

has one limit, which is computed here directly. Left out: the paper's third side, specifications
(pre- and postconditions), which no model here writes. Only one of its first guesses is used: the
"weighted cardinality" of nodes with exactly the same edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rlanything.algorithm.feedback import Floats
from rlanything_coding.selection.programs import Bench, TaskPrograms

ALPHA = 0.95
"""Weight of inter-consistency if there are enough edges."""
SPARSE_ALPHA, SPARSE = 0.01, 0.16
"""Its weight for sparse edges, and the mean weight below which edges are sparse. All three are from
the published code."""


def mpsc(tasks: Sequence[TaskPrograms], bench: Bench) -> list[str]:
    """Returns the program with the highest score for each task, the first of equals; it generates
    nothing beyond programs and tests."""
    del bench
    return [task.programs[int(np.argmax(consistency(task.scores)))] for task in tasks]


def consistency(scores: Sequence[Sequence[int]]) -> Floats:
    """Returns the score of each program [programs], from the scores [programs][tests] on tests. A
    program that passes no test has 0."""
    edges = (np.array(scores, dtype=np.float64).reshape(len(scores), -1) == 1).astype(np.float64)
    programs, tests = edges.shape
    if not edges.any():
        return np.zeros(programs)
    weights = np.zeros((programs + tests, programs + tests))
    weights[:programs, programs:] = edges
    weights[programs:, :programs] = edges.T
    degree = weights.sum(axis=1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0.0)
    transition = scale[:, None] * weights * scale[None, :]
    guess = np.concatenate([weighted_cardinality(edges), weighted_cardinality(edges.T)])
    alpha = SPARSE_ALPHA if edges.mean() < SPARSE else ALPHA
    f = np.linalg.solve(np.eye(len(guess)) - alpha * transition, (1 - alpha) * guess)
    return np.where(degree > 0, f, 0.0)[:programs]


def weighted_cardinality(edges: Floats) -> Floats:
    """Returns the first guess of one side [n], which sums to 1, from its edges [n, other side]: the
    number of nodes with the same edges, times the share of the other side that they reach."""
    rows = [tuple(row) for row in edges.tolist()]
    alike = Counter(rows)
    guess = np.array([alike[row] for row in rows]) * edges.mean(axis=1)
    return guess / guess.sum()
