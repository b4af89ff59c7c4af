"""Two seats whose policy is served by vLLM: every seat's engine has the weights that learned."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.paths import TINY
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

pytestmark = pytest.mark.timeout(400)
CHANGES = (
    *("cluster.seats=2", "policy.engine={name: vllm, memory_gib: 0.25}", "threads=2"),
    *("policy.minibatches=1", "loop.max_steps=8", "evaluation.episodes=0"),
    *("judge.learning_rate=0.0", "loop.iterations=3"),
)


def children(parent: int, named: str) -> list[int]:
    """The processes that a process started, by what stands in their command."""
    found: list[int] = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            stat = (place / "stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[1]) == parent and named in (place / "cmdline").read_text():
                found.append(int(place.name))
    return found


def test_both_engines_have_every_update_also_one_that_was_killed_and_a_seat_too(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    trainer: Any = Trainer(
        TINY, overrides=[f"run_dir={run}", *CHANGES], progress=Progress(Console(quiet=True))
    )

    def seats() -> list[int]:
        return trainer._session.loaded.components.models._seats.process_ids

    first = seats()
    for record in trainer:
        engines = [children(seat, "vllm.worker") for seat in seats()]
        assert all(len(workers) == 1 for workers in engines)
        if record.number == 1:  # the engine alone: its seat starts another, with the weights of now
            os.kill(engines[1][0], signal.SIGKILL)
        if record.number == 2:  # the seat, and its engine with it
            assert seats() == first
            os.kill(first[0], signal.SIGKILL)
    assert not set(seats()) & set(first)
    assert not any(Path(f"/proc/{seat}").exists() for seat in first)
    with closing(Store(run / "run.sqlite")) as store:
        query = "SELECT value FROM metrics WHERE name = 'policy/ratio_mean' ORDER BY iteration"
        ratios = [value for (value,) in store.query(query)]
        query = "SELECT value FROM metrics WHERE name = 'policy/grad_norm' ORDER BY iteration"
        norms = [value for (value,) in store.query(query)]
    # One update an iteration: before it the learner has the weights that sampled.
    assert ratios == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)
    assert min(norms) > 0
