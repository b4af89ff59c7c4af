"""Checkpoints are written while the run goes on, and hold what they were begun with."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.guess import GUESS
from rlanything.engines.hf.model import LanguageModel
from rlanything.progress import Progress, RunWarning
from rlanything.runs.checkpoint import CheckpointError, problems, saved_iterations
from rlanything.runs.recovery import recover
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from runs.test_survival import TINIER, fingerprint

CHANGES = (*TINIER, "evaluation.episodes=0", "checkpoints.keep=3")
QUIET = Progress(Console(quiet=True))


def trainer(run: Path, progress: Progress = QUIET, *more: str) -> Trainer:
    return Trainer(GUESS, overrides=[f"run_dir={run}", *CHANGES, *more], progress=progress)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    trainer(run).train()
    return run


class Told(Progress):
    """Sets an event when a phase begins for the `nth` time."""

    def __init__(self, phase: str, nth: int) -> None:
        super().__init__(Console(quiet=True))
        self.begun = threading.Event()
        self._phase, self._left = phase, nth

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        self._left -= name == self._phase
        if not self._left:
            self.begun.set()
        with super().phase(name, total, unit) as advance:
            yield advance


def write_with(patch: pytest.MonkeyPatch, before: Callable[[Path], object]) -> None:
    """Has `before` called with each folder of a model that is about to be written."""
    save = LanguageModel.save

    def saving(model: LanguageModel, folder: Path, *given: Any) -> None:
        before(folder)
        save(model, folder, *given)

    patch.setattr(LanguageModel, "save", saving)


def test_training_goes_on_during_a_write_which_keeps_the_weights_it_began_with(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the second checkpoint, iteration 2 has trained.
    progress = Told("checkpoint", 2)
    waited: list[bool] = []

    def wait(folder: Path) -> None:
        if ".iter-00001." in str(folder):
            waited.append(progress.begun.wait(60))

    write_with(monkeypatch, wait)
    trainer(tmp_path / "run", progress).train()
    assert waited == [True, True]  # policy and judge
    for role in ("policy", "judge"):
        file = f"checkpoints/iter-00001/{role}/model.safetensors"
        first = (tmp_path / "run" / file).read_bytes()
        assert first == (undisturbed / file).read_bytes()
        assert first != (undisturbed / file.replace("00001", "00002")).read_bytes()
    assert fingerprint(tmp_path / "run") == fingerprint(undisturbed)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_write_that_fails_ends_the_run_with_one_line_and_it_resumes_to_the_same_bits(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    run = tmp_path / "run"

    def fail(folder: Path) -> None:
        if f".iter-{failing:05d}." in str(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        write_with(patch, fail)
        with pytest.raises(CheckpointError) as caught:
            trainer(run).train()
    said = f"{run}/checkpoints/iter-{failing:05d}: cannot be written (No space left on device)"
    assert str(caught.value) == f"{said}; free space there, then resume"
    assert caught.value.__notes__ == [f"continue with `rlanything resume {run}`"]
    assert saved_iterations(run / "checkpoints") == list(range(1, failing))
    with closing(Store(run / "run.sqlite")) as store:
        rows = store.query("SELECT iteration, checkpoint FROM iterations ORDER BY 1")
    # Ahead of the checkpoints, which it names when they are complete.
    assert rows[:failing] == [(i, f"iter-{i:05d}") for i in range(1, failing)] + [(failing, "")]
    (run / "checkpoints" / f".iter-{failing:05d}.partial").mkdir()  # as a kill leaves it
    Trainer.resume(run, progress=QUIET).train()
    assert fingerprint(run) == fingerprint(undisturbed)


def test_leaving_a_run_waits_for_the_write_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, go = tmp_path / "run", threading.Event()
    write_with(monkeypatch, lambda _: go.wait(60))
    records = iter(trainer(run))
    assert next(records).checkpoint == "iter-00001"
    assert saved_iterations(run / "checkpoints") == []
    threading.Timer(0.2, go.set).start()
    records.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert problems(run / "checkpoints" / "iter-00001") == []
    with closing(Store(run / "run.sqlite")) as store:
        assert store.last_iteration() == (1, "iter-00001")


def test_a_run_that_stops_by_an_error_only_warns_of_a_write_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Told("rollouts", 2)

    def fail(folder: Path) -> None:
        progress.begun.wait(60)
        raise OSError("the disk is gone")

    write_with(monkeypatch, fail)
    records = iter(trainer(tmp_path / "run", progress))
    next(records)
    monkeypatch.setattr("rlanything.loop.Loop._judge", None)
    with (
        pytest.warns(RunWarning, match=r"iter-00001: cannot be written \(the disk is gone\)"),
        pytest.raises(TypeError, match="not callable"),
    ):
        next(records)


def test_older_checkpoints_go_once_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, there = tmp_path / "run", list[list[int]]()
    write_with(monkeypatch, lambda _: there.append(saved_iterations(run / "checkpoints")))
    trainer(run, QUIET, "checkpoints.keep=1", "judge.train=false").train()
    assert there == [[], [1], [2]]
    assert saved_iterations(run / "checkpoints") == [3]


def test_a_complete_checkpoint_counts_even_if_the_store_does_not_name_it_yet(
    undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    trainer(run, QUIET, "loop.iterations=1").train()
    with closing(Store(run / "run.sqlite")) as store:
        store.record_checkpoint(1, "")
        assert recover(run, store, print).iteration == 1
        assert store.last_iteration() == (1, "iter-00001")
        store.record_checkpoint(1, "")
        (run / "checkpoints" / "iter-00001" / "pool.json").write_text("{}")
        with pytest.raises(CheckpointError, match="none of its checkpoints is intact"):
            recover(run, store, print)
