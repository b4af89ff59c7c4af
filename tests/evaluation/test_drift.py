"""How far rewritten tasks move from their roots."""

from __future__ import annotations

import importlib.util

import pytest

from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.evaluation.drift import MODULE, find_embedder
from rlanything.loop import IterationResult
from rlanything.records import Task
from rlanything.runs.metrics.iteration import drift
from rlanything.runs.results import IterationRecord


def test_without_the_package_nobody_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_embedder() is None


def test_only_rewritten_tasks_count() -> None:
    pool = Pool([Task("a", "put a mug"), Task("b", "put a cup")], 0.2, 0.8)

    def distance(one: str, other: str) -> float:
        assert (one, other) == ("put a mug", "put a vase")
        return 0.25

    record = IterationRecord(result=IterationResult(1), pool=pool, distance=distance)
    assert drift(record) == {"tasks/drift": None}
    pool.record("a", "a", 0.1)
    pool.propose("a", Candidate(Task("a@1", "put a vase"), "easier", 0.1, (), 1))
    assert pool.settle("a", 0.5, 2, None)
    assert drift(record) == {"tasks/drift": 0.25}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(MODULE) is None, reason=f"{MODULE} is not installed")
def test_the_model_tells_a_rewrite_from_another_matter() -> None:
    embedder = find_embedder()
    assert embedder is not None
    root = "put a clean mug in shelf"
    assert embedder.distance(root, root) == pytest.approx(0, abs=1e-6)
    other_object = embedder.distance(root, "put a clean bowl in shelf")
    other_matter = embedder.distance(root, "Print the sum of the integers on the first line.")
    assert 0 < other_object < 0.5 < other_matter
