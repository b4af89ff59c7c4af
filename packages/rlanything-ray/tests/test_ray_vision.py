"""Models that look at screenshots on seats of a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.ray_runs import ON_RAY, close_models
from helpers.vision import vision_model
from helpers.vision_runs import QUIET, recipe, weights
from rlanything.runs.trainer import Trainer

pytestmark = pytest.mark.timeout(900)


def test_seats_on_two_machines_see_what_one_process_sees(cluster: Any, tmp_path: Path) -> None:
    for name, kind in (("policy", "qwen3_vl"), ("judge", "smolvlm")):
        vision_model(kind)[0].save(tmp_path / name)
    source = recipe(tmp_path / "policy", tmp_path / "judge")
    for place, changes in (("here", ()), ("ray", ON_RAY)):
        overrides = [f"run_dir={tmp_path / place}", "loop.iterations=1", *changes]
        begun = Trainer(source, overrides=overrides, allow_code=True, progress=QUIET)
        [record] = list(begun)
        close_models(begun)
        difference = record.metrics["policy/mismatch_kl"]
        assert difference is not None
        assert difference < 1e-9
    one, two = (weights(tmp_path / place, 1, "policy") for place in ("here", "ray"))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-5
