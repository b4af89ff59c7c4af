"""Adapters train, are saved and come back; what they belong to stays as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from helpers.guess import FEW, GUESS
from helpers.tiny import plain_logits, sample_of, tiny_model
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.base import ModelError
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, has_adapters, load_model
from rlanything.learning.learner import Learner
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer

IDS = [20, 30, 40, 50, 60]
QUIET = Progress(Console(quiet=True))


@pytest.fixture
def model(tmp_path: Path) -> LanguageModel:
    tiny_model(1).save(tmp_path / "base")
    return load_model(tmp_path / "base", "float32")


def trained(model: LanguageModel) -> LanguageModel:
    samples = [("t", sample_of(IDS[:2], IDS[2:], 1.0, [-1.0] * 3))]
    Learner(model, TrainedRoleConfig(learning_rate=0.05)).update(samples, seed=0)
    return model


def test_adapters_begin_as_nothing_and_only_they_train(model: LanguageModel) -> None:
    before = plain_logits(model, IDS)
    frozen = {name: w.detach().clone() for name, w in model.network.named_parameters()}
    add_adapters(model, LoraSettings(rank=4), seed=1)
    torch.testing.assert_close(plain_logits(model, IDS), before, rtol=0, atol=0)
    trained(model)
    assert not torch.equal(plain_logits(model, IDS), before)
    after = {
        name.replace(".base_layer", ""): weight for name, weight in model.network.named_parameters()
    }
    for name, weight in frozen.items():
        torch.testing.assert_close(after[name].detach(), weight, rtol=0, atol=0)


def test_adapters_of_another_size_are_not_taken_for_those_that_are_asked_for(
    model: LanguageModel,
) -> None:
    add_adapters(model, LoraSettings(rank=4), seed=1)
    add_adapters(model, LoraSettings(rank=4), seed=2)
    with pytest.raises(ModelError, match="has adapters of rank 4 and alpha 32, but lora asks for"):
        add_adapters(model, LoraSettings(rank=8), seed=1)


def test_the_seed_decides_how_adapters_begin(tmp_path: Path) -> None:
    def adapters(seed: int) -> torch.Tensor:
        model = tiny_model(1)
        torch.manual_seed(seed + 17)  # whatever others drew before
        add_adapters(model, LoraSettings(rank=4), seed)
        named = model.network.named_parameters()
        return torch.cat([weight.detach().flatten() for name, weight in named if ".lora_" in name])

    torch.testing.assert_close(adapters(1), adapters(1), rtol=0, atol=0)
    assert not torch.equal(adapters(1), adapters(2))


def test_a_checkpoint_holds_adapters_only_and_opens_as_what_was_saved(
    model: LanguageModel, tmp_path: Path
) -> None:
    add_adapters(model, LoraSettings(rank=4), seed=1)
    logits = plain_logits(trained(model), IDS)
    model.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "model.safetensors").exists()
    again = load_model(tmp_path / "saved", "float32")
    assert has_adapters(again.network)
    torch.testing.assert_close(plain_logits(again, IDS), logits, rtol=0, atol=0)
    named = again.network.named_parameters()
    assert all(weight.requires_grad == (".lora_" in name) for name, weight in named)
    add_adapters(again, LoraSettings(rank=4), seed=2)  # it keeps those it has
    torch.testing.assert_close(plain_logits(again, IDS), logits, rtol=0, atol=0)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    with torch.no_grad():
        theirs = opened(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(theirs, logits, rtol=1e-4, atol=1e-4)


def test_names_that_no_layer_has_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ModelError, match=r"set lora\.targets"):
        add_adapters(model, LoraSettings(targets=["no_such_layer"]), seed=0)


@pytest.mark.slow
def test_a_run_with_adapters_resumes_as_the_run_it_was(tmp_path: Path) -> None:
    changes = ["policy.lora={rank: 4}", "judge.lora={rank: 4}", "loop.tasks_per_iteration=3"]
    changes += ["loop.rollouts_per_task=2", "loop.max_steps=8", "evaluation.episodes=0", "seed=9"]
    changes += ["curriculum.alpha_low=0.4", "curriculum.alpha_high=0.6"]

    def adapters(run: Path) -> dict[str, str]:
        files = (run / "checkpoints" / "iter-00003").glob("*/adapter_model.safetensors")
        return {f.parent.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    whole, parted = tmp_path / "whole", tmp_path / "parted"
    Trainer(
        load_recipe(GUESS, [*FEW, f"run_dir={whole}", "loop.iterations=3", *changes]),
        progress=QUIET,
    ).train()
    Trainer(
        load_recipe(GUESS, [*FEW, f"run_dir={parted}", "loop.iterations=1", *changes]),
        progress=QUIET,
    ).train()
    Trainer.resume(parted, overrides=["loop.iterations=3"], progress=QUIET).train()
    assert adapters(whole).keys() == {"policy", "judge"}
    assert adapters(parted) == adapters(whole)
