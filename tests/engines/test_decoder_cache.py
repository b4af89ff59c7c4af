"""The cache adapter and the installed transformers agree on the interface of a cache."""

from __future__ import annotations

import inspect

import pytest
import torch
from transformers import AutoModelForCausalLM, Cache, LlamaConfig, Qwen2Config, SeedOssConfig

from rlanything.engines.hf.cache import RaggedCache
from rlanything.engines.hf.decoder_cache import DecoderCache, cache_arguments
from rlanything.engines.hf.probing import sharing_problem

OVERRIDDEN = sorted(name for name in vars(DecoderCache) if name[0] != "_")


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_an_overridden_method_takes_every_call_that_the_base_class_takes(name: str) -> None:
    base = inspect.signature(getattr(Cache, name)).parameters
    named = [p for p in base.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    own = inspect.signature(getattr(DecoderCache, name))
    own.bind(*named)
    own.bind(**{parameter.name: None for parameter in named})
    if any(p.kind is p.VAR_KEYWORD for p in base.values()):
        own.bind(*named, kwargs={}, anything=None)


@pytest.mark.parametrize("config", [LlamaConfig, Qwen2Config, SeedOssConfig])
def test_decoders_share_prefixes_without_a_warning(
    config: type, recwarn: pytest.WarningsRecorder
) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64}
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config(**sizes))
    assert sharing_problem(network) is None
    assert [str(w.message) for w in recwarn if "past_key_values" in str(w.message)] == []


def test_the_cache_is_handed_over_under_the_name_that_the_decoder_takes() -> None:
    class Decoder(torch.nn.Module):
        def forward(self, input_ids: object, past_key_values: object = None) -> None: ...

    class Newer(torch.nn.Module):
        def forward(self, input_ids: object, cache: object = None) -> None: ...

    assert set(cache_arguments(Decoder(), RaggedCache())) == {"past_key_values", "use_cache"}
    assert set(cache_arguments(Newer(), RaggedCache())) == {"cache", "use_cache"}
    assert cache_arguments(Newer(), None) == {"use_cache": False}
