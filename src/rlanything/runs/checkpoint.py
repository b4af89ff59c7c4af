"""Checkpoints: models in Hugging Face format, optimizers, and the pool of tasks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch

from rlanything.curriculum import Pool
from rlanything.engines.model import LanguageModel
from rlanything.learning.learner import Learner


class Trained(Protocol):
    """A model and the learner that moves it."""

    @property
    def model(self) -> LanguageModel: ...

    @property
    def learner(self) -> Learner: ...


def checkpoint_name(iteration: int) -> str:
    return f"iter-{iteration:05d}"


def save_checkpoint(
    folder: Path,
    iteration: int,
    roles: Mapping[str, Trained],
    pool: Pool,
) -> str:
    """Writes `folder/iter-NNNNN` and returns its name. It appears complete or not at all.

    Random numbers derive from the run's seed and the iteration: there is no other state."""
    name = checkpoint_name(iteration)
    partial = folder / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for role, trained in roles.items():
        trained.model.save(partial / role)
        torch.save(trained.learner.state(), partial / role / "optimizer.pt")
    (partial / "pool.json").write_text(pool.to_json(), encoding="utf-8")
    (partial / "state.json").write_text(json.dumps({"iteration": iteration}), encoding="utf-8")
    os.replace(partial, folder / name)
    return name


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, or None."""
    found = sorted(folder.glob("iter-*"))
    return found[-1] if found else None
