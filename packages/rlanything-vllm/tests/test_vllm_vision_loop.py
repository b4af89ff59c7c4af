"""Loops whose policy and judge look at screens, both served by vLLM: on this machine, on seats."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.vision import vision_model
from helpers.vision_runs import recipe, train, weights

pytestmark = pytest.mark.timeout(500)
ON_VLLM = (
    *("policy.engine={name: vllm, memory_gib: 0.1}", "judge.engine={name: vllm, memory_gib: 0.1}"),
    *("policy.timeout_seconds=120", "judge.timeout_seconds=120"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    vision_model("qwen3_vl", head=32)[0].save(folder / "policy")
    vision_model("qwen2_5_vl", head=32)[0].save(folder / "judge")
    return folder / "policy", folder / "judge"


@pytest.mark.parametrize("seats", [1, 2])
def test_the_learner_finds_the_probabilities_that_vllm_drew_from(
    models: tuple[Path, Path], tmp_path: Path, seats: int
) -> None:
    changes = [*ON_VLLM, f"cluster.seats={seats}"]
    if seats == 1:
        changes.append("policy.train_vision=true")  # several seats do not train one
    records = train(tmp_path / "run", recipe(*models), *changes)
    assert len(records) == 2
    # Before the first update of an iteration the learner has the weights that sampled, and what
    # vLLM saw is what it sees; pictures that are not seen right are more than 0.01 off.
    assert all(record.metrics["policy/mismatch_kl"] < 1e-8 for record in records)
    one, two = (weights(tmp_path / "run", iteration, "policy") for iteration in (1, 2))
    moved = [name for name in one if not one[name].equal(two[name])]
    assert any("language_model" in name for name in moved)
    assert any("visual" in name for name in moved) == (seats == 1)
