"""Gradient checkpointing: the same update from less memory, and nothing else notices."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from helpers.tiny import sample_of, tiny_model, tiny_recurrent_model, tiny_sliding_model
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.base import ModelError, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.records import Sample


def samples(count: int = 6, length: int = 60) -> list[tuple[str, Sample]]:
    """Long enough for two tiles of a trie, and with a beginning in common."""
    rng = np.random.default_rng(0)
    stem = rng.integers(5, 320, 20).tolist()
    return [
        (
            f"task {i % 3}",
            sample_of(stem, rng.integers(5, 320, length).tolist(), (-1.0) ** i, [-5.0] * length),
        )
        for i in range(count)
    ]


def updated(model: LanguageModel, checkpointing: bool, **settings: Any) -> dict[str, Tensor]:
    """What trains, and its gradient, after updates with and without checkpointing."""
    chosen = {"learning_rate": 1e-3, "minibatches": 2, **settings}
    role = TrainedRoleConfig.model_validate({**chosen, "gradient_checkpointing": checkpointing})
    learner = Learner(model, role)
    for seed in range(2):
        learner.update(samples(), seed)
    found: dict[str, Tensor] = {}
    for name, weights in model.network.named_parameters():
        if weights.requires_grad:
            assert weights.grad is not None, name
            found |= {name: weights.detach(), f"{name} gradient": weights.grad}
    return found


def with_adapters(model: LanguageModel) -> LanguageModel:
    add_adapters(model, LoraSettings(rank=4), seed=1)
    return model


def computing_in_bfloat16(model: LanguageModel) -> LanguageModel:
    model.autocast = torch.bfloat16
    return model


CASES: dict[str, tuple[LanguageModel, dict[str, Any]]] = {
    "shared": (tiny_model(), {}),
    "padded": (tiny_model(), {"packing": "padded"}),
    "padded, llama": (tiny_model(kind="llama"), {"packing": "padded", "max_pack_tokens": 200}),
    "shared, adapters": (with_adapters(tiny_model()), {}),
    "padded, adapters": (with_adapters(tiny_model()), {"packing": "padded"}),
    "shared, bfloat16": (computing_in_bfloat16(tiny_model()), {}),
    "recomputed log-probs": (tiny_model(), {"old_logprobs": "recomputed"}),
    "sliding window": (tiny_sliding_model(), {"packing": "padded"}),
    "recurrent": (tiny_recurrent_model(), {"packing": "padded"}),
}


def copied(model: LanguageModel) -> LanguageModel:
    return LanguageModel(copy.deepcopy(model.network), model.tokenizer, model.autocast)


@pytest.mark.parametrize("name", CASES)
def test_updates_are_the_same(name: str) -> None:
    model, settings = CASES[name]
    plain = updated(copied(model), False, **settings)
    found = updated(copied(model), True, **settings)
    assert found.keys() == plain.keys()
    for each, expected in plain.items():
        torch.testing.assert_close(found[each], expected, rtol=0, atol=0, msg=each)


def kept_for_backward(model: LanguageModel, **settings: Any) -> int:
    """Elements of the tensors that an update's forward passes keep, each storage once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    learner = Learner(model, TrainedRoleConfig.model_validate(settings))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.update(samples(), 0)
    weights = {each.untyped_storage().data_ptr() for each in model.network.parameters()}
    return sum(size for place, size in kept.items() if place not in weights)


@pytest.mark.parametrize("name", ["shared", "padded", "shared, adapters"])
def test_much_less_is_kept_for_the_backward_pass(name: str) -> None:
    model, settings = CASES[name]
    plain = kept_for_backward(copied(model), **settings)
    found = kept_for_backward(copied(model), gradient_checkpointing=True, **settings)
    assert found < 0.5 * plain


def test_layers_are_left_as_they_were_and_generation_does_not_notice() -> None:
    requests = [Request(tuple(range(5, 25 + i)), (1, 2)) for i in range(4)]
    sampling = Sampling(1.0, 12)
    outputs: list[list[Any]] = []
    for checkpointing in (False, True):
        model = tiny_model()
        engine = HFEngine(model)
        engine.generate(requests, sampling)
        updated(model, checkpointing)
        engine.sync_weights()
        outputs.append(engine.generate(requests, sampling))
        assert not any(module.training for module in model.network.modules())
        assert not any("forward" in vars(module) for module in model.network.modules())
    assert outputs[0] == outputs[1]


def test_layers_are_left_as_they_were_after_a_failure_and_keep_a_forward_of_their_own() -> None:
    model = tiny_model()
    layers = [m for m in model.network.modules() if isinstance(m, GradientCheckpointingLayer)]
    own: Any = layers[0].forward
    layers[0].forward = own
    calls: list[bool] = []

    def fails(*_: Any, **__: Any) -> None:
        calls.append(True)
        raise RuntimeError("no memory")

    learner = Learner(model, TrainedRoleConfig(gradient_checkpointing=True))
    mlp: Any = layers[1].mlp
    mlp.forward = fails
    with pytest.raises(RuntimeError, match="no memory"):
        learner.update(samples(), 0)
    assert calls
    assert vars(layers[0])["forward"] is own
    assert "forward" not in vars(layers[1])


def test_dropout_stays_off() -> None:
    def without_and_with_dropout(rate: float) -> dict[str, Tensor]:
        model = tiny_model()
        for layer in model.network.modules():
            if hasattr(layer, "attention_dropout"):
                layer.attention_dropout = rate  # pyright: ignore[reportArgumentType]
        return updated(model, True, packing="padded")

    plain, found = without_and_with_dropout(0.0), without_and_with_dropout(0.5)
    for name, expected in plain.items():
        torch.testing.assert_close(found[name], expected, rtol=0, atol=0)


def test_a_model_without_such_layers_is_refused_with_the_remedy() -> None:
    model = tiny_model()
    model.decoder = nn.Linear(2, 2)
    Learner(model, TrainedRoleConfig())
    with pytest.raises(ModelError, match="gradient_checkpointing out of its section") as error:
        Learner(model, TrainedRoleConfig(gradient_checkpointing=True))
    assert "\n" not in str(error.value)
