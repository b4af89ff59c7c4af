"""Metrics outside the store, under the same names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboardX.record_writer import RecordWriter

from helpers.events import points
from helpers.results import evaluation_record
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.sections import TrackerConfig
from rlanything.runs.store.store import Store
from rlanything.runs.trackers import TrackerError, check_trackers, tracking


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.create(tmp_path / "run.sqlite")
    opened.describe({"begun": "2026-01-01T00:00:00+00:00"})
    yield opened
    opened.close()


def recipe(tracker: dict[str, Any]) -> Recipe:
    return load_recipe({"name": "r", "domain": {"name": "text"}, "tracker": tracker})


def record(store: Store, iteration: int, **metrics: float | None) -> dict[str, float | None]:
    named = {f"room/{name}": value for name, value in metrics.items()}
    store.record_evaluation(evaluation_record(iteration, {}, {}, named))
    return named


def test_tensorboard_gets_the_names_of_the_store(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({}), tmp_path, store, print) as track:
        track(1, record(store, 1, kl=0.5, none=None))
        track(2, record(store, 2, kl=0.25, loss=-1.0))
    assert points(tmp_path / "tensorboard") == [
        ("room/kl", 1, 0.5),
        ("room/kl", 2, 0.25),
        ("room/loss", 2, -1.0),
    ]


def test_a_run_that_goes_on_has_every_point_once(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({}), tmp_path, store, print) as track:
        track(0, record(store, 0, success=0.5))
        track(1, record(store, 1, kl=0.5))
        track(2, {"room/kl": 9.0})  # an iteration that was undone
    record(store, 2, kl=0.25)  # one that was stored when the process was killed
    with tracking(recipe({}), tmp_path, store, print) as track:
        track(3, record(store, 3, kl=0.125))
    assert points(tmp_path / "tensorboard") == [
        ("room/success", 0, 0.5),
        ("room/kl", 1, 0.5),
        ("room/kl", 2, 0.25),
        ("room/kl", 3, 0.125),
    ]


def test_an_iteration_that_is_repeated_after_a_lost_seat_is_sent_once(
    store: Store, tmp_path: Path
) -> None:
    with tracking(recipe({}), tmp_path, store, print) as track:
        for iteration in (1, 2, 1, 2, 3):
            track(iteration, {"room/kl": 0.5})
            track(iteration, {"room/eval": 0.25})
    sent = points(tmp_path / "tensorboard")
    assert sent == [
        (f"room/{name}", i, v) for i in (1, 2, 3) for name, v in (("kl", 0.5), ("eval", 0.25))
    ]


def test_a_tracker_that_fails_is_told_no_more_and_the_run_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = list[str]()
    with monkeypatch.context() as full, tracking(recipe({}), tmp_path, store, warnings.append) as t:
        t(1, record(store, 1, kl=0.5))
        full.setattr(RecordWriter, "write", no_space)
        for iteration in range(2, 40):
            t(iteration, record(store, iteration, kl=0.5, loss=0.25))
    [warning] = warnings
    assert warning.startswith("tracker.tensorboard: [Errno 28] No space left on device; ")

    with monkeypatch.context() as full:
        full.setattr(RecordWriter, "write", no_space)
        with tracking(recipe({}), tmp_path, store, warnings.append) as t:
            t(40, record(store, 40, kl=0.5))
    assert len(warnings) == 2
    with tracking(recipe({}), tmp_path, store, warnings.append):
        pass
    assert len(points(tmp_path / "tensorboard")) == 1 + 2 * 38 + 1
    assert len(warnings) == 2


def no_space(writer: RecordWriter, data: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_no_tracker_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({"tensorboard": False}), tmp_path, store, print) as track:
        track(1, {"room/kl": 0.5})
    assert not (tmp_path / "tensorboard").exists()


def test_a_tracker_that_is_not_installed_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_trackers(TrackerConfig())
    with pytest.raises(TrackerError, match=r"pip install 'rlanything\[wandb\]'") as refusal:
        check_trackers(recipe({"wandb": {}}).tracker)
    assert "\n" not in str(refusal.value)


class FakeWandb:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.finished = 0

    def init(self, **settings: Any) -> SimpleNamespace:
        self.begun.append(settings)
        return SimpleNamespace(
            log=self.logged.append, define_metric=lambda *a, **k: None, finish=self._finish
        )

    def _finish(self) -> None:
        self.finished += 1


def test_wandb_gets_the_same_names_and_goes_on_with_the_same_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    settings = recipe({"tensorboard": False, "wandb": {"mode": "offline"}})
    for iteration in (1, 2):
        with tracking(settings, tmp_path, store, print) as track:
            track(iteration, record(store, iteration, kl=0.5, none=None))
    assert fake.logged == [{"iteration": i, "room/kl": 0.5} for i in (1, 2)]
    assert fake.finished == 2
    first, second = fake.begun
    assert first == second
    assert (first["mode"], first["resume"], first["name"]) == ("offline", "allow", "r")


def test_wandb_keeps_runs_apart_that_begin_at_once_and_says_in_one_line_that_it_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    settings = recipe({"tensorboard": False, "wandb": {}})
    for name in ("a", "b"):
        opened = Store.create(tmp_path / name)
        opened.describe({"begun": "2026-01-01T00:00:00+00:00"})
        with tracking(settings, tmp_path, opened, print):
            pass
        opened.close()
    assert fake.begun[0]["id"] != fake.begun[1]["id"]

    def refuse(**settings: Any) -> SimpleNamespace:
        raise RuntimeError("api_key not configured\n(no-tty)")

    monkeypatch.setattr(fake, "init", refuse)
    with (
        pytest.raises(TrackerError, match=r"wandb: api_key not configured\\n.*mode=offline"),
        tracking(settings, tmp_path, Store(tmp_path / "a"), print),
    ):
        pass


def test_without_a_mode_wandb_itself_decides(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with tracking(recipe({"tensorboard": False, "wandb": {}}), tmp_path, store, print):
        pass
    assert fake.begun[0]["mode"] is None  # by WANDB_MODE
