"""Chat templates with the date: a run resumed on another day is the run that it was."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from transformers.utils import chat_template_utils

from helpers.paths import TINY
from rlanything.engines import shipped
from rlanything.engines.hf.model import load_model
from rlanything.progress import Progress
from rlanything.runs import directory
from rlanything.runs.store.store import Store
from rlanything.runs.target import RunTarget
from rlanything.runs.trainer import Trainer

QUIET = Progress(Console(quiet=True))
CHANGES = ["loop.tasks=2", "loop.tasks_per_iteration=2", "loop.rollouts_per_task=2"]
CHANGES += ["loop.max_steps=2", "evaluation.episodes=0", "environment.workers=0"]


def set_clock(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    """Makes it noon of a day in May 2025, for the run and for chat templates."""
    then = datetime(2025, 5, day, 12, tzinfo=UTC)
    clock = SimpleNamespace(now=lambda zone=None: then, fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(directory, "datetime", clock)
    monkeypatch.setattr(chat_template_utils, "datetime", clock)


def dump(run: Path) -> list[str]:
    store = Store(run / "run.sqlite")
    lines = store.dump()
    store.close()
    return lines


def test_a_run_resumed_on_another_day_is_the_same_run(tmp_path, monkeypatch):
    model = load_model(shipped.resolve("nano", "policy"), "float32")
    model.tokenizer.chat_template = "{{ strftime_now('%d') }}" + str(model.tokenizer.chat_template)
    model.save(tmp_path / "dated")

    def begin(name: str, iterations: int) -> Path:
        run = tmp_path / name
        lines = [f"policy.model={tmp_path / 'dated'}", f"loop.iterations={iterations}", *CHANGES]
        Trainer(TINY, run_dir=run, overrides=lines, progress=QUIET).train()
        return run

    set_clock(monkeypatch, 3)
    whole, parted = begin("whole", 2), begin("parted", 1)
    set_clock(monkeypatch, 4)
    Trainer.resume(parted, overrides=["loop.iterations=2"], progress=QUIET).train()
    assert dump(parted) == dump(whole)
    assert dump(begin("later", 2)) != dump(whole)
    day = RunTarget(str(parted)).day
    assert day.day == 3
