"""Which models can compute a trie: asked of their configuration and of themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)

from helpers.tiny import tiny_model, tiny_recurrent_model, tiny_sliding_model
from rlanything.engines.hf.attention import ATTENTION
from rlanything.engines.hf.cache import RaggedCache
from rlanything.engines.hf.decoder_cache import DecoderCache
from rlanything.engines.hf.probing import sharing_problem

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
STRETCHED: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
}

REFUSED = {
    "a window": (lambda: tiny_sliding_model().network, "window of 4 tokens"),
    "recurrent layers": (lambda: tiny_recurrent_model().network, "linear_attention"),
    "windows in some layers": (
        lambda: GptOssForCausalLM(GptOssConfig(**SMALL, num_local_experts=2, head_dim=8)),
        "sliding_attention",
    ),
    "a cap on attention": (
        lambda: Gemma2ForCausalLM(
            Gemma2Config(**SMALL, head_dim=8, layer_types=["full_attention"] * 2)
        ),
        "softcap",
    ),
    "positions that depend on length": (
        lambda: Phi3ForCausalLM(Phi3Config(**SMALL, rope_parameters=STRETCHED)),
        "longrope",
    ),
    "positions counted from the mask": (
        lambda: BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)),
        "cannot compute a trie",
    ),
    "no attention": (
        lambda: MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)),
        "linear_attention",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_would_compute_something_else_say_why_and_are_left_as_they_were(case):
    build, reason = REFUSED[case]
    torch.manual_seed(0)
    network = build()
    before = network.config._attn_implementation
    problem = sharing_problem(network)
    assert problem is not None
    assert reason in problem
    assert "\n" not in problem
    assert network.config._attn_implementation == before


def test_custom_code_is_not_trusted():
    class Own(LlamaForCausalLM):
        pass

    config: Any = tiny_model(kind="llama").network.config
    network = Own(config)
    assert sharing_problem(network) == "its code is not part of transformers"


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_plain_attention_can_share(kind):
    network = tiny_model(kind=kind).network
    assert sharing_problem(network) is None
    assert network.config._attn_implementation == ATTENTION
    assert network.training == tiny_model(kind=kind).network.training


@pytest.mark.parametrize("error", [NotImplementedError(), KeyError("layout"), AssertionError("")])
def test_a_decoder_that_fails_on_a_trie_is_refused_not_fatal(error, monkeypatch):
    network = tiny_model().network
    real = type(network.model).forward

    def forward(self, *args, layout=None, **more):
        if layout is not None:
            raise error
        return real(self, *args, **more)

    monkeypatch.setattr(type(network.model), "forward", forward)
    assert "cannot compute a trie" in (sharing_problem(network) or "")


def test_a_decoder_that_ignores_the_layout_is_found_out():
    network = tiny_model().network
    attention = network.model.layers[0].self_attn
    forward = attention.forward
    attention.forward = lambda *args, layout=None, **more: forward(*args, **more)
    assert "relative difference" in (sharing_problem(network) or "")


def test_a_decoder_that_fails_on_our_cache_is_refused_not_fatal(monkeypatch):
    network = tiny_model().network
    before = network.config._attn_implementation

    def update(*_):
        raise AttributeError("no such method\nof a cache")

    monkeypatch.setattr(RaggedCache, "update", update)
    assert sharing_problem(network) == "it cannot continue from a cache (no such method)"
    assert network.config._attn_implementation == before


def test_a_decoder_that_reads_our_cache_wrongly_is_found_out():
    network = tiny_model().network
    attention = network.model.layers[0].self_attn
    forward = attention.forward

    def forgetful(*args, attention_mask=None, **more):
        cached = any(isinstance(argument, DecoderCache) for argument in more.values())
        if cached and attention_mask is not None:
            attention_mask = torch.ones_like(attention_mask)
        return forward(*args, attention_mask=attention_mask, **more)

    attention.forward = forgetful
    assert "from a cache its states are different" in (sharing_problem(network) or "")
