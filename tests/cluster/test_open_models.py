"""Where a recipe's `cluster` section puts models, and what it may not say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from helpers.guess import GUESS
from helpers.tiny import tiny_model
from rlanything.cluster.models import RoleSource
from rlanything.cluster.open import open_models
from rlanything.config.cluster import ClusterConfig
from rlanything.config.roles import AdapterConfig, PolicyConfig
from rlanything.engines import shipped
from rlanything.engines.base import ModelError
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'rlanything\[cluster\]'"):
        open_models(ClusterConfig(seats=2, launcher="ray"), ["cpu"], 1)


@pytest.mark.parametrize(
    ("gpus", "remedy"), [(0, "choose device: cpu"), (1, "set cluster.seats=1")]
)
def test_seats_without_a_gpu_each_are_refused(
    monkeypatch: pytest.MonkeyPatch, gpus: int, remedy: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ModelError, match=f"this machine has {gpus}; {remedy}"):
        open_models(ClusterConfig(seats=2), ["cpu", "cuda"], 1)


def test_the_stages_of_loading_are_shown_but_not_those_of_a_model_that_came_along(
    tmp_path: Path,
) -> None:
    stages = list[str]()
    models = open_models(ClusterConfig(), ["cpu"], 1, lambda stage, _: stages.append(stage))
    folder = tmp_path / "model"
    tiny_model(1).save(folder)
    models.trained(RoleSource("policy", PolicyConfig(model=str(folder))))
    models.served(RoleSource("adapter", AdapterConfig(model=str(folder))))
    assert stages == [f"policy: reading {folder}", f"adapter: reading {folder}"]
    with pytest.raises(ModelError):
        models.served(RoleSource("judge", AdapterConfig(model="nobody/no-such-model")))
    assert stages[2].endswith("no-such-model (what is not in the cache is downloaded first)")
    models.served(RoleSource("adapter", AdapterConfig(model="nano-guess")))
    assert len(stages) == 3


def test_a_run_shows_the_stages_of_loading_its_models(tmp_path: Path) -> None:
    folder = shipped.resolve("nano-guess", "policy")
    changes = [f"policy.model={folder}", f"run_dir={tmp_path / 'run'}"]
    with (tmp_path / "said").open("w") as said:
        Trainer(GUESS, overrides=changes, progress=Progress(Console(file=said, width=500)))
    assert (tmp_path / "said").read_text().splitlines() == [f"policy: reading {folder}"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"per_machine": 2}, "per_machine belongs to launcher: ray"),
        ({"ports": [29500, 29510]}, "ports belongs to launcher: ray"),
        ({"ports": [29510, 29500], "launcher": "ray"}, "the first is above the last"),
        ({"ports": [0, 1], "launcher": "ray"}, "greater than or equal to 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ClusterConfig.model_validate({"seats": 2} | settings)
