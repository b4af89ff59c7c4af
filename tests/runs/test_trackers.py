"""Metrics outside the store, under the same names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
    return load_recipe({"name": "r", "domain": {"name": "alfworld"}, "tracker": tracker})


def record(store: Store, iteration: int, **metrics: float | None) -> dict[str, float | None]:
    named = {f"room/{name}": value for name, value in metrics.items()}
    store.record_evaluation(evaluation_record(iteration, {}, {}, named))
    return named


def test_tensorboard_gets_the_names_of_the_store(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({}), tmp_path, store) as track:
        track(1, record(store, 1, kl=0.5, none=None))
        track(2, record(store, 2, kl=0.25, loss=-1.0))
    assert points(tmp_path / "tensorboard") == [
        ("room/kl", 1, 0.5),
        ("room/kl", 2, 0.25),
        ("room/loss", 2, -1.0),
    ]


def test_a_run_that_goes_on_has_every_point_once(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({}), tmp_path, store) as track:
        track(0, record(store, 0, success=0.5))
        track(1, record(store, 1, kl=0.5))
        track(2, {"room/kl": 9.0})  # an iteration that was undone
    record(store, 2, kl=0.25)  # one that was stored when the process was killed
    with tracking(recipe({}), tmp_path, store) as track:
        track(3, record(store, 3, kl=0.125))
    assert points(tmp_path / "tensorboard") == [
        ("room/success", 0, 0.5),
        ("room/kl", 1, 0.5),
        ("room/kl", 2, 0.25),
        ("room/kl", 3, 0.125),
    ]


def test_no_tracker_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with tracking(recipe({"tensorboard": False}), tmp_path, store) as track:
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
        with tracking(settings, tmp_path, store) as track:
            track(iteration, record(store, iteration, kl=0.5, none=None))
    assert fake.logged == [{"iteration": i, "room/kl": 0.5} for i in (1, 2)]
    assert fake.finished == 2
    first, second = fake.begun
    assert first == second
    assert (first["mode"], first["resume"], first["name"]) == ("offline", "allow", "r")


def test_without_a_mode_wandb_itself_decides(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with tracking(recipe({"tensorboard": False, "wandb": {}}), tmp_path, store):
        pass
    assert fake.begun[0]["mode"] is None  # by WANDB_MODE
