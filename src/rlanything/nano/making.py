"""What every nano model is made of, and how it is taught and saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import SeedOssConfig, SeedOssForCausalLM

from rlanything.engines.model import LanguageModel
from rlanything.nano.pretrain import Lesson, Renaming, lessons_of, pretrain
from rlanything.records import Sample
from rlanything.view import View


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a decoder."""

    hidden: int
    layers: int
    heads: int


def new_model(shape: Shape, tokenizer: Any, seed: int) -> LanguageModel:
    """A model that knows nothing yet."""
    torch.manual_seed(seed)
    # Llama's layers with biases on queries, keys and values. Of the architectures like it, this
    # is one for which AutoTokenizer opens the tokenizer that lies beside the weights.
    config = SeedOssConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads // 2,
        head_dim=shape.hidden // shape.heads,
        attention_bias=True,
        attention_out_bias=False,
        attention_dropout=0.0,
        residual_dropout=0.0,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return LanguageModel(SeedOssForCausalLM(config), tokenizer)


def teach(
    model: LanguageModel,
    examples: Sequence[Sequence[Sample]],
    role: str,
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    renaming: Renaming,
    view: View,
) -> None:
    """Supervised learning on groups of examples; says how it went."""
    lessons: list[Lesson] = list(lessons_of(examples))
    with view.phase(f"teach {role}", len(lessons) * epochs, "lessons") as progress:
        loss = pretrain(model, lessons, epochs, learning_rate, seed, renaming, progress)
    tokens = sum(len(lesson.ids) for lesson in lessons) * epochs
    view.say(f"{role}: taught on {tokens / 1e6:.1f}M tokens, final loss {loss:.3f}")


def save_in_bfloat16(model: LanguageModel, folder: Path) -> None:
    """Half the size. The model keeps the rounded weights: what is measured is what ships."""
    weights = {name: value.to(torch.bfloat16) for name, value in model.network.state_dict().items()}
    model.network.save_pretrained(folder, state_dict=dict(weights))
    model.tokenizer.save_pretrained(folder)
    model.network.load_state_dict(weights)
