"""The same run on one seat and on two."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from helpers.guess import FEW, GUESS
from rlanything.algorithm.losses import LossConfig, LossInputs, LossOutputs
from rlanything.config.recipe import RecipeError
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

pytestmark = pytest.mark.timeout(900)
QUIET = Progress(Console(quiet=True))

SMALL = ("evaluation.episodes=0", "loop.tasks_per_iteration=3", "loop.rollouts_per_task=3")
SMALL += ("loop.max_steps=10",)
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"


def train(run: Path, *changes: str, **parts: object) -> Path:
    overrides = [f"run_dir={run}", *SMALL, *changes]
    Trainer(GUESS, overrides=[*FEW, *overrides], progress=QUIET, **parts).train()  # pyright: ignore[reportArgumentType]
    return run


def digests(run: Path) -> dict[str, str]:
    files = (run / "checkpoints").glob("*/*/model.safetensors")
    return {str(f.relative_to(run)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    place = tmp_path_factory.mktemp("runs")
    return {seats: train(place / str(seats), f"cluster.seats={seats}") for seats in (1, 2)}


def assert_same_up_to_rounding(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    apart = torch.cat([(one[key] - other[key]).abs().flatten() for key in one])
    # AdamW makes steps of one size of gradients that are hardly more than rounding.
    assert float((apart > 1e-6).double().mean()) < 1e-4
    assert float(apart.max()) < 1e-4


def test_two_seats_act_and_score_as_one_and_learn_the_same_up_to_rounding(
    runs: dict[int, Path],
) -> None:
    # Transcripts hold log-probs, metrics are made of them, and all else is text, scores and counts.
    rounded, said = {"run", "iterations", "transcripts", "metrics"}, list[dict[str, list[str]]]()
    for run in runs.values():
        with closing(Store(run / "run.sqlite")) as store:
            tables = {name for (name,) in store.query(TABLES)} - rounded
            contents = {name: store.query(f"SELECT * FROM {name}") for name in tables}
            said.append({name: sorted(map(repr, rows)) for name, rows in contents.items()})
    assert said[0] == said[1]
    assert sum(len(rows) for rows in said[0].values()) > 300
    for role in ("policy", "judge"):
        name = f"checkpoints/iter-00002/{role}/model.safetensors"
        one, two = (load_file(runs[seats] / name) for seats in (1, 2))
        assert_same_up_to_rounding(one, two)
        began = load_file(runs[1] / f"checkpoints/iter-00001/{role}/model.safetensors")
        assert max(float((one[key] - began[key]).abs().max()) for key in one) > 1e-4


def test_the_same_seed_and_seats_give_the_same_bits(runs: dict[int, Path], tmp_path: Path) -> None:
    again = train(tmp_path / "again", "cluster.seats=2")
    assert digests(again) == digests(runs[2])
    assert len(digests(again)) == 4
    assert digests(runs[1]) != digests(runs[2])  # else nothing was divided


@pytest.mark.slow  # the learner's own tests read at one number of seats what another wrote
def test_a_run_goes_on_at_another_number_of_seats_and_says_so(
    runs: dict[int, Path], tmp_path: Path
) -> None:
    run = train(tmp_path / "run", "cluster.seats=2", "loop.iterations=1")
    with (tmp_path / "said").open("w") as said:
        progress = Progress(Console(file=said, width=500))
        changes = ["cluster.seats=3", "loop.iterations=2"]
        Trainer.resume(run, overrides=changes, progress=progress).train()
    assert "results are the same up to rounding" in (tmp_path / "said").read_text()
    for role in ("policy", "judge"):
        name = f"checkpoints/iter-00002/{role}/model.safetensors"
        assert_same_up_to_rounding(load_file(runs[1] / name), load_file(run / name))


def test_a_loss_of_a_notebook_and_adapters_travel_to_the_seats(tmp_path: Path) -> None:
    clipped = LossConfig().function

    def doubled(inputs: LossInputs) -> LossOutputs:
        outputs = clipped(inputs)
        outputs.loss.mul_(2.0)
        return outputs

    changes = ("cluster.seats=2", "loop.iterations=1", "policy.lora={rank: 2}")
    run = train(tmp_path / "run", *changes, loss=doubled)
    assert (run / "checkpoints/iter-00001/policy/adapter_model.safetensors").is_file()


def test_a_seat_has_its_own_gpu_so_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cuda:1 is one GPU, and a role is on all 2 seats"):
        train(tmp_path / "run", "cluster.seats=2", "policy.device=cuda:1")
