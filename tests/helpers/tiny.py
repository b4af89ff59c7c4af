"""Models of a few thousand weights, for tests that need a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
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

TEXTS = (
    "You see a cup, a desk and 2 shelves. Look around > take the cup",
    "I need the cup > go to desk 1",
    "The step was right: \\boxed{1}. The step was wrong: \\boxed{-1}.",
)


CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_tokenizer(vocab_size: int = 320, spaces_apart: bool = False) -> PreTrainedTokenizerFast:
    """The 256 bytes, the special tokens and a few merges. `spaces_apart`: every space is a token of
    its own."""
    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Split(" ", "isolated")] if spaces_apart else []
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>"
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def tiny_model(
    seed: int = 0,
    kind: str = "qwen2",
    heads: int = 4,
    key_value_heads: int = 2,
    scale: float = 0.4,
    spaces_apart: bool = False,
) -> LanguageModel:
    """A random decoder of two layers and 32 dimensions.

    `scale` is the deviation of its weights: enough for the context to matter to what comes next."""
    tokenizer = tiny_tokenizer(spaces_apart=spaces_apart)
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
