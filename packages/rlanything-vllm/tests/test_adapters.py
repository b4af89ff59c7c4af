"""Adapters apart from their base model are the model together."""

from __future__ import annotations

import torch

from helpers.tiny import plain_logits, sample_of, tiny_model
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.hf.lora import add_adapters
from rlanything.learning.learner import Learner
from rlanything_vllm.adapters import adapter_rank, adapters_of, frozen_weights

IDS = [20, 30, 40, 50, 60]


def test_weights_and_adapters_apart_are_the_model_together() -> None:
    model = tiny_model(1)
    names = set(model.network.state_dict())
    add_adapters(model, LoraSettings(rank=4), seed=1)
    samples = [("t", sample_of(IDS[:2], IDS[2:], 1.0, [-1.0] * 3))]
    Learner(model, TrainedRoleConfig(learning_rate=0.05)).update(samples, seed=0)
    frozen, adapters = frozen_weights(model.network), adapters_of(model.network)
    assert set(frozen) == names
    assert adapter_rank(model.network) == 4
    plain = tiny_model(1)
    plain.network.load_state_dict(frozen)
    assert not torch.allclose(plain_logits(plain, IDS), plain_logits(model, IDS), atol=1e-3)
    with adapters.folder() as folder:
        plain.network.load_adapter(str(folder))
    torch.testing.assert_close(plain_logits(plain, IDS), plain_logits(model, IDS), rtol=0, atol=0)


def test_weights_of_a_model_without_adapters_are_the_weights_themselves() -> None:
    model = tiny_model(1)
    assert adapter_rank(model.network) is None
    for name, tensor in frozen_weights(model.network).items():
        assert tensor.data_ptr() == model.network.state_dict()[name].data_ptr()
