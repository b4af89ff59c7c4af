"""Models of a few thousand weights, for tests that need a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from rlanything.cluster.open import Trained
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Sample
from rlanything_nano.tokenizer import train_tokenizer

TEXTS = (
    "You see a cup, a desk and 2 shelves. Look around > take the cup",
    "I need the cup > go to desk 1",
    "The step was right: \\boxed{1}. The step was wrong: \\boxed{-1}.",
)


def tiny_tokenizer(vocab_size: int = 320) -> PreTrainedTokenizerFast:
    """The 256 bytes, the special tokens and a few merges."""
    return train_tokenizer(TEXTS * 3, vocab_size)


def tiny_model(
    seed: int = 0,
    kind: str = "qwen2",
    heads: int = 4,
    key_value_heads: int = 2,
    scale: float = 0.4,
) -> LanguageModel:
    """A random decoder of two layers and 32 dimensions.

    `scale` is the deviation of its weights: enough for the context to matter to what comes next."""
    tokenizer = tiny_tokenizer()
    config_class, network_class = {
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[kind]
    torch.manual_seed(seed)
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=512,
        tie_word_embeddings=kind == "qwen2",
        initializer_range=scale,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    network: Any = network_class(config)
    return LanguageModel(network, tokenizer)


def plain_logits(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """[tokens, vocab] of one sequence as transformers computes it: no packs, no cache."""
    network: Any = model.network
    return network(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def plain_logprobs(
    model: LanguageModel, completion: Completion, temperature: float = 1.0
) -> Tensor:
    """[response], the log-probs of a completion's tokens by a plain forward of it alone."""
    ids = (*completion.prompt_ids, *completion.token_ids)
    logits = plain_logits(model, ids)[len(completion.prompt_ids) - 1 : -1]
    logprobs = restricted_logprobs(logits, completion.allowed, temperature)
    return logprobs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]


def completion_of(
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    logprobs: Sequence[float] | None = None,
    allowed: Sequence[tuple[int, ...]] | None = None,
    text: str = "",
) -> Completion:
    """A completion as if it had been sampled."""
    return Completion(
        prompt_ids=tuple(prompt_ids),
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs) if logprobs is not None else (-1.0,) * len(token_ids),
        allowed=tuple(allowed) if allowed is not None else ((),) * len(token_ids),
        stop_reason="stop",
        text=text,
    )


def sample_of(
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    advantage: float = 1.0,
    logprobs: Sequence[float] | None = None,
    allowed: Sequence[tuple[int, ...]] | None = None,
    source: str = "trajectory/0",
) -> Sample:
    return Sample(source, completion_of(prompt_ids, token_ids, logprobs, allowed), advantage)


def tiny_sliding_model(seed: int = 0) -> LanguageModel:
    """A random Mistral whose tokens see only themselves and the three before them."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    network: Any = MistralForCausalLM(MistralConfig(**_small(tokenizer), sliding_window=4))
    return LanguageModel(network, tokenizer)


def tiny_recurrent_model(seed: int = 0) -> LanguageModel:
    """A random Qwen3-Next: a layer of linear attention, then one of full attention, no experts."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3NextConfig(
        **_small(tokenizer),
        layer_types=["linear_attention", "full_attention"],
        mlp_only_layers=[0, 1],
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    )
    network: Any = Qwen3NextForCausalLM(config)
    return LanguageModel(network, tokenizer)


def _small(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """A configuration of two layers and 32 dimensions.

    The weights are smaller than `tiny_model`'s: a recurrence computed token by token rounds
    differently from one computed at once, the more so the larger they are."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }


def model_here(trained: Trained | None) -> LanguageModel:
    """The model of a role, which is in this process."""
    assert trained is not None
    assert isinstance(trained.model, LanguageModel)
    return trained.model
