"""The loop on seats of a Ray cluster, whose seats and machines are killed while it runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray  # pyright: ignore[reportMissingImports]
import torch
from rich.console import Console
from safetensors.torch import load_file

from helpers.ray_runs import ON_RAY, QUIET, close_models, train, trainer
from rlanything.cluster.base import Call
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from runs.test_survival import fingerprint

pytestmark = pytest.mark.timeout(480)
NODE_OF = Call(lambda seat: ray.get_runtime_context().get_node_id())
PROCESS_OF = Call(lambda seat: os.getpid())


@pytest.fixture(scope="module")
def undisturbed(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(trainer(run, *ON_RAY))
    return run


class Blow(Progress):
    """Strikes once, in the second iteration, a while after a phase began."""

    def __init__(self, phase: str, aim: Callable[[Any], Callable[[], object]], delay: float):
        super().__init__(Console(quiet=True))
        self.trainer: Any = None
        self.warnings: list[str] = []
        self.fell = 0
        self._phase, self._aim, self._delay, self._seen = phase, aim, delay, 0

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        self._seen += name == self._phase
        if self._seen == 2 and name == self._phase:
            assert self.trainer._session.loaded is not None
            strike = self._aim(self.trainer._session.loaded.components.models._seats)
            threading.Thread(target=self._strike, args=(strike,), daemon=True).start()
        with super().phase(name, total, unit) as advance:
            yield advance

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def _strike(self, strike: Callable[[], object]) -> None:
        time.sleep(self._delay)
        strike()
        self.fell += 1


def struck(run: Path, blow: Blow) -> list[str]:
    """The warnings of a run that a blow struck."""
    blow.trainer = trainer(run, *ON_RAY, progress=blow)
    train(blow.trainer)
    assert blow.fell == 1
    return [each for each in blow.warnings if "started again" in each]


def answers(run: Path) -> tuple[list[Any], list[Any]]:
    """All actions of a run, and all scores."""
    store = Store(run / "run.sqlite")
    actions = store.query("SELECT trajectory, step, action FROM steps ORDER BY 1, 2")
    scores = store.query(
        "SELECT trajectory, step, judgement, score FROM judgements ORDER BY 1, 2, 3"
    )
    store.close()
    return actions, scores


def test_ray_seats_do_what_local_ones_do_and_what_one_does_up_to_rounding(
    undisturbed: Path, tmp_path: Path
) -> None:
    trainer(tmp_path / "local", "cluster.seats=2").train()
    assert fingerprint(tmp_path / "local") == fingerprint(undisturbed)
    trainer(tmp_path / "one").train()
    assert answers(tmp_path / "one") == answers(undisturbed)
    for role in ("policy", "judge"):
        one, two = (
            load_file(run / "checkpoints/iter-00002" / role / "model.safetensors")
            for run in (tmp_path / "one", undisturbed)
        )
        apart = torch.cat([(one[name] - two[name]).abs().flatten() for name in one])
        # AdamW makes steps of one size of gradients that are hardly more than rounding.
        assert float((apart > 1e-6).double().mean()) < 1e-4
        assert float(apart.max()) < 1e-4


@pytest.mark.parametrize("phase", ["rollouts", "checkpoint"])
def test_a_seat_that_is_killed_changes_nothing(
    undisturbed: Path, tmp_path: Path, phase: str
) -> None:
    def aim(seats: Any) -> Callable[[], object]:
        [process] = seats.ask({1: PROCESS_OF}, 30).values()
        return lambda: os.kill(process, signal.SIGKILL)

    [warning] = struck(tmp_path / "run", Blow(phase, aim, 0.02))
    assert warning.startswith("seat 1 on ")
    assert fingerprint(tmp_path / "run") == fingerprint(undisturbed)


def test_a_machine_that_is_killed_is_replaced_by_a_spare_one(
    undisturbed: Path, tmp_path: Path, cluster: Any
) -> None:
    def aim(seats: Any) -> Callable[[], object]:
        there = seats.ask(dict.fromkeys((0, 1), NODE_OF), 30).values()
        node = next(n for n in cluster.worker_nodes if n.node_id in there)
        return lambda: cluster.remove_node(node, allow_graceful=False)

    try:
        [warning] = struck(tmp_path / "run", Blow("policy update", aim, 0.02))
    finally:
        cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)  # for the tests that follow
    assert " on " in warning
    assert fingerprint(tmp_path / "run") == fingerprint(undisturbed)


def test_a_run_that_was_left_resumes(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun = trainer(run, *ON_RAY)
    iterations = iter(begun)
    assert next(iterations).number == 1
    iterations.close()  # pyright: ignore[reportAttributeAccessIssue]
    close_models(begun)
    train(Trainer.resume(run, progress=QUIET))
    assert fingerprint(run) == fingerprint(undisturbed)
