"""Two and three seats do the update of one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from helpers import seats
from helpers.tiny import tiny_model
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import ModelError
from rlanything.learning.learner import Learner
from rlanything.learning.sharding import SINGLE

pytestmark = pytest.mark.timeout(1800)
SIZES = (1, 2, 3)
SKIPPED = ("updates", "skipped_updates", "samples", "loss", "grad_norm")
"""Statistics that know nothing of the tokens that were seen before an update was given up."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seats")


@pytest.fixture(scope="module")
def worlds(folder: Path) -> dict[int, list[seats.Report]]:
    """What each seat of one, two and three reports; each world is there once."""
    return {size: seats.world(size, folder) for size in SIZES}


several = pytest.mark.parametrize("size", SIZES[1:])
Worlds = dict[int, list[Any]]


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Relative to the largest number of each tensor; and to a tenth of that of all, below which
    the bias of keys lies, whose gradient is what rounding leaves."""
    assert found.keys() == expected.keys()
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    for name, tensor in expected.items():
        allowed = tolerance * max(float(tensor.abs().max()), 1e-3 * largest)
        assert float((found[name] - tensor).abs().max()) <= allowed, name


@several
@pytest.mark.parametrize("name", seats.CASES)
def test_gradients_weights_and_statistics_are_those_of_one_seat(
    worlds: Worlds, size: int, name: str
) -> None:
    [expected], found = worlds[1], worlds[size]
    one, first = expected[name], found[0][name]
    # AdamW divides by the size of a gradient, so a second update begins from weights that differ by
    # more than rounding, and how much depends on the processor.
    several_updates = "minibatches" in seats.CASES[name].settings
    tolerance = 1e-5 if several_updates else 1e-6
    assert max(float(tensor.abs().max()) for tensor in one["gradients"].values()) > 0
    assert_alike(first["gradients"], one["gradients"], tolerance)
    assert_alike(first["weights"], one["weights"], tolerance)
    names = SKIPPED if seats.CASES[name].poison else one["statistics"].keys()
    for statistic in names:
        expected_value = pytest.approx(one["statistics"][statistic], rel=tolerance, abs=1e-9)
        assert first["statistics"][statistic] == expected_value, statistic
    for other in found[1:]:
        assert other[name]["statistics"] == first["statistics"]
        for weight, tensor in first["weights"].items():
            assert torch.equal(other[name]["weights"][weight], tensor)


@several
def test_every_seat_tells_of_its_own_samples_only(worlds: Worlds, size: int) -> None:
    for name, case in seats.CASES.items():
        told = [report[name]["told"] for report in worlds[size]]
        assert sum(told) == case.samples
    assert [report["fewer packs than seats"]["told"] for report in worlds[size]][1:] == [0] * (
        size - 1
    )


@pytest.mark.parametrize("size", SIZES)
def test_what_is_not_finite_at_one_seat_is_skipped_by_all(worlds: Worlds, size: int) -> None:
    for report in worlds[size]:
        found = report["a NaN at one seat"]
        assert found["statistics"]["skipped_updates"] == 1
        assert found["statistics"]["updates"] == 2
        assert all(tensor.isfinite().all() for tensor in found["weights"].values())
    for report in worlds[size][1:]:
        assert report["diverged"].startswith("model '': the loss or gradient of 1 updates in a row")


@pytest.mark.parametrize("size", SIZES)
def test_the_same_seats_give_the_same_bits(worlds: Worlds, size: int) -> None:
    for report in worlds[size]:
        for kind in ("weights", "gradients"):
            first, again = report["three minibatches"][kind], report["again"][kind]
            assert all(torch.equal(first[name], again[name]) for name in first)


def test_logits_in_chunks_have_the_gradient_and_statistics_of_all_at_once(worlds: Worlds) -> None:
    [one] = worlds[1]
    chunks, whole = one["logits in chunks"], one["tied embeddings"]
    assert_alike(chunks["gradients"], whole["gradients"], 1e-6)
    assert chunks["statistics"] == pytest.approx(whole["statistics"], rel=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_saved_and_loaded_goes_on_with_the_same_bits(worlds: Worlds, size: int) -> None:
    for report in worlds[size]:
        found = report["resumed"]
        assert found["state"]
        for name, tensor in found["straight"].items():
            assert torch.equal(found["resumed"][name], tensor)


def test_any_number_of_seats_reads_what_another_wrote(worlds: Worlds, folder: Path) -> None:
    """2 -> 2, 2 -> 3, 1 -> 3, and what these wrote of it -> 1."""
    two, one = worlds[2][0]["resumed"]["state"], worlds[1][0]["resumed"]["state"]
    _, alone = seats.learner_of(seats.LEARNS, SINGLE)
    for written, expected in (("2 by 2", two), ("2 by 3", two), ("1 by 3", one)):
        alone.load(folder / f"optimizer of {written}")
        found = seats.remembered(alone)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    for report in worlds[3]:
        found = report["read from two"]
        assert all(torch.equal(found[name], tensor) for name, tensor in two.items())


def test_each_seat_writes_its_own_shard(worlds: Worlds, folder: Path) -> None:
    for size in worlds:
        files = list((folder / f"optimizer of {size}").iterdir())
        assert len(files) == size
        assert all(file.suffix == ".safetensors" for file in files)
        assert max(file.stat().st_size for file in files) < 1.5 * sum(
            file.stat().st_size for file in files
        ) / len(files)


@several
def test_damaged_files_are_one_line_at_every_seat(worlds: Worlds, size: int) -> None:
    for report in worlds[size]:
        assert "cannot go on from" in report["damage"]
        assert "\n" not in report["damage"]


@several
@pytest.mark.parametrize("name", seats.SAVED)
def test_seats_write_the_folder_that_one_writes(
    worlds: Worlds, folder: Path, name: str, size: int
) -> None:
    def digests(path: Path) -> dict[str, str]:
        # Names of layers are a set, which every process writes in an order of its own.
        contents = {f.name: f.read_bytes() for f in path.iterdir()}
        if config := contents.pop("adapter_config.json", None):
            parsed = json.loads(config)
            contents["config"] = repr(parsed | {"target_modules": 0}).encode()
            contents["layers"] = repr(sorted(parsed["target_modules"])).encode()
        return {key: hashlib.sha256(content).hexdigest() for key, content in contents.items()}

    assert worlds[size]
    written = folder / f"{name} by {size}"
    assert digests(written) == digests(folder / f"{name} by 1")
    if name == "saved":
        opened = AutoModelForCausalLM.from_pretrained(str(written))
        own: Any = seats.SAVED[name].model().network
        for (key, tensor), expected in zip(
            opened.named_parameters(), own.parameters(), strict=True
        ):
            assert torch.equal(tensor, expected), key


@several
@pytest.mark.parametrize("name", ["tied embeddings", "adapters"])
def test_seats_without_weights_are_given_them_by_the_first(
    worlds: Worlds, size: int, name: str
) -> None:
    expected = dict(seats.CASES[name].model().network.named_buffers())
    for report in worlds[size]:
        for kind in ("weights", "gradients"):
            found, plain = report[f"{name}, sent"][kind], report[name][kind]
            assert found.keys() == plain.keys()
            assert all(torch.equal(found[key], plain[key]) for key in plain)
        buffers = report[f"{name}, buffers"]
        assert buffers.keys() == expected.keys()
        assert any("inv_freq" in key for key in buffers)
        assert all(torch.equal(buffers[key], value) for key, value in expected.items())


def test_an_outline_has_no_weights_and_all_that_was_measured() -> None:
    model = tiny_model()
    outline = model.outline()
    assert all(weights.is_meta for weights in outline.network.parameters())
    assert outline.network.get_output_embeddings() is outline.head
    config = outline.network.config
    assert config._attn_implementation == model.network.config._attn_implementation
    assert (outline.sharing_problem, outline.own_cache_works) == (None, True)
    assert not any(weights.is_meta for weights in model.network.parameters())


def test_another_models_optimizer_is_refused_in_one_line(tmp_path: Path) -> None:
    Learner(tiny_model(), role := TrainedRoleConfig()).snapshot(tmp_path / "nothing")()
    learner = Learner(tiny_model(), role)
    learner.update(seats.samples(2), 0)
    learner.snapshot(tmp_path / "optimizer")()
    learner.load(tmp_path / "nothing")
    assert not seats.remembered(Learner(tiny_model(), role))
    other = Learner(tiny_model(kind="llama"), role)
    with pytest.raises(ModelError, match="which this model does not train"):
        other.load(tmp_path / "optimizer")
    with pytest.raises(ModelError, match="cannot go on from"):
        learner.load(tmp_path / "nowhere")
