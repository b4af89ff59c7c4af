"""Where a recipe's `cluster` section puts models, and what it may not say."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from rlanything.cluster.open import open_models
from rlanything.config.cluster import ClusterConfig
from rlanything.engines.base import ModelError


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
