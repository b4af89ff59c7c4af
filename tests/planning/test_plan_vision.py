"""Plans of models that see: their tower is counted to the byte, apart from the text model."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.seeing import seeing_model
from rlanything.config.roles import LoraSettings, PolicyConfig
from rlanything.engines.hf.model import load_model
from rlanything.planning.architecture import Architecture, architecture_of
from rlanything.planning.memory import held


@pytest.fixture(scope="module", params=["qwen3_vl", "smolvlm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / request.param
    seeing_model(request.param)[0].save(folder)
    return folder


def planned(role: PolicyConfig) -> tuple[Architecture, dict[str, float]]:
    made, _ = architecture_of(role, "policy")
    return made, {part.name: part.bytes for part in held(made, role, learns=True)}


def test_the_papers_model_that_sees_has_its_published_size() -> None:
    made, how = architecture_of(PolicyConfig(model="Qwen/Qwen3-VL-8B-Thinking"), "policy")
    assert made.parameters + made.tower == 8_767_123_696
    assert "576,388,336 more in the tower that reads images" in how


@pytest.mark.parametrize("trains", [False, True], ids=["frozen", "trained"])
def test_text_and_tower_are_counted_to_the_byte(folder: Path, trains: bool) -> None:
    made, parts = planned(PolicyConfig(model=str(folder), train_vision=trains))
    weights = list(load_model(folder, "float32", train_vision=trains).network.parameters())
    learned = sum(w.nbytes for w in weights if w.requires_grad)
    # Beside a weight that learns there are its gradient and two moments.
    assert sum(parts.values()) == sum(w.nbytes for w in weights) + 3 * learned
    assert parts["weights"] == parts["gradients"] == 4 * made.parameters
    assert parts["tower"] == 4 * made.tower * (4 if trains else 1)


def test_adapters_leave_the_tower_alone(folder: Path) -> None:
    made, parts = planned(PolicyConfig(model=str(folder), lora=LoraSettings(rank=4)))
    whole, _ = planned(PolicyConfig(model=str(folder)))
    assert (made.parameters, made.tower) == (whole.parameters, whole.tower)
    assert parts["gradients"] == 4 * made.adapters > 0


def test_every_seat_has_the_whole_tower(folder: Path) -> None:
    role = PolicyConfig(model=str(folder), reference_kl_weight=0.1)
    made, one = planned(role)
    four = {part.name: part.bytes for part in held(made, role, learns=True, seats=4)}
    assert one["tower"] == four["tower"]
    assert four["weights"] == one["weights"] / 4
    tower = 4 * made.tower
    assert four["reference model"] - tower == (one["reference model"] - tower) / 4
