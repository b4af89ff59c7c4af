"""TRL's step, as the benchmark drives it, computes our objective without its KL term."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from helpers.benchmark_module import load_part
from helpers.tiny import plain_logprobs, sample_of, tiny_model
from rlanything.algorithm.losses import LossInputs
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Sample

TRLStep: Any = load_part("learner_steps.trl_step").TRLStep

pytest.importorskip("trl", reason="pip install 'rlanything[bench]'")
pytestmark = pytest.mark.slow  # not for its time: `make test-slow` installs TRL


def role(**settings: float) -> TrainedRoleConfig:
    defaults = {"learning_rate": 1e-3, "max_grad_norm": 1e9, "kl_weight": 0.0}
    return TrainedRoleConfig.model_validate(defaults | settings)


def random_samples(model: LanguageModel, temperature: float, seed: int = 0) -> list[Sample]:
    """Prompts and responses of many lengths, with log-probs near the model's own."""
    rng = np.random.default_rng(seed)
    samples = []
    for number in range(7):
        prompt = rng.integers(5, 320, rng.integers(1, 20)).tolist()
        response = rng.integers(5, 320, rng.integers(1, 12)).tolist()
        advantage = float((-1) ** number * rng.uniform(0.2, 2))
        sample = sample_of(prompt, response, advantage)
        own = plain_logprobs(model, sample.completion, temperature).detach().numpy()
        sampled = tuple((own + rng.normal(0, 0.3, len(own))).tolist())
        samples.append(replace(sample, completion=replace(sample.completion, logprobs=sampled)))
    return samples


def in_rows(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    """Micro-batches of one, four and two."""
    return [samples[:1], samples[1:5], samples[5:]]


def plain_loss(
    model: LanguageModel, samples: Sequence[Sample], settings: TrainedRoleConfig
) -> tuple[Tensor, float]:
    """The objective one sequence at a time, and the share of tokens whose gradient is clipped."""
    losses, flat = [], []
    for sample in samples:
        new = plain_logprobs(model, sample.completion, settings.temperature)
        old = torch.tensor(sample.completion.logprobs)
        advantages = torch.full_like(new, sample.mean_advantage)
        one_sample = torch.zeros(len(new), dtype=torch.long)
        outputs = settings.loss.function(LossInputs(new, old, advantages, one_sample, 1))
        losses.append(outputs.loss.mean())
        flat.append(outputs.clipped)
    return torch.stack(losses).mean(), float(torch.cat(flat).float().mean())


def gradient(network: PreTrainedModel) -> Tensor:
    return torch.cat([w.grad.flatten() for w in network.parameters() if w.grad is not None])


def weights(network: PreTrainedModel) -> Tensor:
    return torch.cat([weight.detach().flatten().clone() for weight in network.parameters()])


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative to what is expected."""
    assert found.shape == expected.shape
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_its_gradient_is_that_of_our_objective_whatever_the_sizes_of_the_micro_batches(
    kind: str, temperature: float
) -> None:
    model = tiny_model(kind=kind)
    settings = role(temperature=temperature)
    samples = random_samples(model, temperature)
    expected, clip_share = plain_loss(model, samples, settings)
    expected.backward()
    assert 0.1 < clip_share < 0.9

    step = TRLStep(model, settings)
    loss = step.update(in_rows(samples))

    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert distance(gradient(step.network), gradient(model.network)) < 1e-4


def test_its_weights_are_those_of_adamw_on_clipped_gradients() -> None:
    model = tiny_model()
    settings = role(max_grad_norm=0.1)
    samples = random_samples(model, settings.temperature)
    before = weights(model.network)
    step = TRLStep(model, settings)

    optimizer = torch.optim.AdamW(
        model.network.parameters(), settings.learning_rate, weight_decay=0.0
    )
    for batch in (samples[:4], samples[3:]):
        step.update([batch[:3], batch[3:]])
        optimizer.zero_grad()
        plain_loss(model, batch, settings)[0].backward()
        norm = torch.nn.utils.clip_grad_norm_(model.network.parameters(), settings.max_grad_norm)
        assert norm > settings.max_grad_norm
        optimizer.step()

    assert distance(weights(step.network) - before, weights(model.network) - before) < 1e-3


def test_it_leaves_the_model_as_it_was() -> None:
    model = tiny_model()
    samples = random_samples(model, 1.0)
    before = copy.deepcopy((weights(model.network), model.network.config.to_dict()))
    TRLStep(model, role()).update(in_rows(samples))
    assert torch.equal(weights(model.network), before[0])
    assert model.network.config.to_dict() == before[1]
    assert "forward" not in vars(model.network)


def test_it_computes_in_the_models_type() -> None:
    model = tiny_model(scale=0.1)
    rows = in_rows(random_samples(model, 1.0))
    steps = [
        TRLStep(LanguageModel(model.network, model.tokenizer, autocast), role())
        for autocast in (None, torch.bfloat16)
    ]
    for step in steps:
        step.update(rows)
    exact, rounded = (gradient(step.network) for step in steps)
    assert rounded.dtype == torch.float32
    assert 1e-3 < distance(rounded, exact) < 0.1


def test_it_sends_nothing_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(**_: object) -> None:
        raise AssertionError("telemetry")

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", sent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    TRLStep(model, role()).update(in_rows(random_samples(model, 1.0)))
    assert list(tmp_path.iterdir()) == []


def test_without_trl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"^TRL is not installed: pip install .*\[bench\]'$"):
        TRLStep(tiny_model(), role())
