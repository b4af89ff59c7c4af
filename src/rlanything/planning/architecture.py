"""The size and shape of a decoder, from its config.json alone: it is built without any weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from rlanything.config.roles import LoraSettings, RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.hf.gguf import find_gguf
from rlanything.engines.hf.lora import attach
from rlanything.engines.hf.model import ModelError
from rlanything.planning.quantities import PlanError

FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True, slots=True)
class LoRASize:
    """The weights that LoRA adds; where it does, they alone train."""

    rank: int
    layers: int
    """Linear layers that have one."""
    parameters: int
    tensors: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder of Llama's kind: RMS norms, rotary positions, a gated MLP of three matrices."""

    kind: str
    """`model_type` of config.json."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    """Rows of the embedding, which may be more than the tokenizer has tokens."""
    tied: bool
    """The output layer is the embedding."""
    head_norms: bool
    """Each head's queries and keys are normalised, as in Qwen3."""
    parameters: int
    """Without adapters."""
    tensors: int
    layer_matrices: int
    """Weights that every token is multiplied with, in all layers; not the output layer's."""
    adapters: LoRASize | None

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.key_value_heads * self.head_dim

    @property
    def head_matrix(self) -> int:
        """Weights of the output layer, which only sees tokens whose logits are wanted."""
        return self.hidden * self.vocabulary

    @property
    def adapter_parameters(self) -> int:
        return self.adapters.parameters if self.adapters else 0

    @property
    def trained_parameters(self) -> int:
        """The parameters with a gradient, where the role learns."""
        return self.adapters.parameters if self.adapters else self.parameters

    @property
    def trained_tensors(self) -> int:
        return self.adapters.tensors if self.adapters else self.tensors

    def forward_flops(self, tokens: float, keys: float, logits: float) -> float:
        """Returns the operations for `tokens` tokens that see `keys` tokens each on average, and
        for `logits` rows of logits.

        Two a weight and token, and four a query, key and dimension (scores and their use)."""
        attention = 4 * self.layers * self.query_width * keys
        weights = self.layer_matrices + self.adapter_parameters
        return tokens * (2 * weights + attention) + 2 * logits * self.head_matrix

    def training_flops(self, tokens: float, keys: float, logits: float) -> float:
        """Returns the operations forward and backward, with the arguments of `forward_flops`."""
        attention = 12 * self.layers * self.query_width * keys
        # Forward, the gradient of what came in, and that of the weight unless it is frozen.
        weight = 4 if self.adapters else 6
        per_token = weight * self.layer_matrices + 6 * self.adapter_parameters + attention
        return tokens * per_token + weight * logits * self.head_matrix


def _facts(kind: str, numbers: tuple[int, ...], tied: bool) -> dict[str, Any]:
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    names += ("num_key_value_heads", "head_dim", "vocab_size")
    return {
        "model_type": kind,
        **dict(zip(names, numbers, strict=True)),
        "tie_word_embeddings": tied,
    }


KNOWN: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _facts("qwen2", (24, 896, 4864, 14, 2, 64, 151_936), True),
    "Qwen/Qwen2.5-7B-Instruct": _facts("qwen2", (28, 3584, 18_944, 28, 4, 128, 152_064), False),
    "Qwen/Qwen2.5-14B-Instruct": _facts("qwen2", (48, 5120, 13_824, 40, 8, 128, 152_064), False),
    "Qwen/Qwen3-4B": _facts("qwen3", (36, 2560, 9728, 32, 8, 128, 151_936), True),
}
"""The parts of config.json that count here, of the paper's text models and of a small one, so that
their plan needs no hub."""


def architecture_of(role: RoleConfig, name: str) -> tuple[Architecture, str]:
    """Returns a role's model with its adapters, and where its numbers are from.

    Raises `PlanError` for a model whose config.json cannot be found, or that is no such decoder."""
    model = shipped.resolve(role.model, name)
    if role.model in shipped.NAMES and not Path(model).is_dir():
        raise PlanError(
            f"{name}.model: {role.model} does not come with this installation, there is no "
            f"{model}: build it with `rlanything nano build`, or give another model"
        )
    config, source = read_config(model, name)
    lora = role.lora if isinstance(role, TrainedRoleConfig) else None
    shown = f"config.json of the shipped {name}" if role.model == "nano" else source
    return describe(build(config, lora, "meta", name)), shown


@cache
def read_config(model: str, role: str) -> tuple[Any, str]:
    """Returns the transformers config of a folder, GGUF file or Hugging Face model, and its source.

    Raises `PlanError` where there is none."""
    try:
        packed = find_gguf(model)
        if packed is not None:
            config = AutoConfig.from_pretrained(str(packed.parent), gguf_file=packed.name)
            return config, f"the header of {packed.name}"
        if model in KNOWN and not Path(model).is_dir():
            return AutoConfig.for_model(**KNOWN[model]), "its config.json, in this library's table"
        return AutoConfig.from_pretrained(model), f"config.json of {model}"
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PlanError(
            f"{role}.model: no configuration of {model!r} ({reason}): give a folder with "
            f"config.json, a Hugging Face id, a GGUF file, `nano`, or one of {', '.join(KNOWN)}"
        ) from error


def build(config: Any, lora: LoraSettings | None, device: str, role: str) -> Any:
    """Builds a network with adapters; on `meta` it has no weights. Raises `PlanError`."""
    try:
        with torch.device(device):
            network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            if lora is not None:
                network.requires_grad_(False)
                attach(network, lora, f"{role}.model")
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0]
        kind = getattr(config, "model_type", "?")
        remedy = "" if isinstance(error, ModelError) else "; use a Qwen- or Llama-type model"
        raise PlanError(f"{role}.model: no {kind} can be made of it: {reason}{remedy}") from error
    return network


def random_layer(model: Architecture) -> Any:
    """Builds a decoder of one layer of the model's shape, with random weights on the CPU."""
    config = AutoConfig.for_model(
        model.kind,
        num_hidden_layers=1,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_attention_heads=model.heads,
        num_key_value_heads=model.key_value_heads,
        head_dim=model.head_dim,
        vocab_size=512,
    )
    return build(config, None, "cpu", "measurement").get_decoder().eval()


def describe(network: Any) -> Architecture:
    """Returns a network's sizes. Raises `PlanError` where it has other matrices than linear layers
    and an embedding."""
    config = network.config.get_text_config()
    base = {k: v for k, v in network.named_parameters() if ".lora_" not in k}
    added = [v for k, v in network.named_parameters() if ".lora_" in k]
    head = network.get_output_embeddings()
    linear = sum(layer.weight.numel() for layer in _linear(network) if layer is not head)
    embedding = network.get_input_embeddings().weight
    tied = head.weight is embedding
    matrices = sum(v.numel() for v in base.values() if v.dim() > 1)
    if matrices != linear + embedding.numel() + (0 if tied else head.weight.numel()):
        raise PlanError(
            f"a model of type {config.model_type!r} is more than an embedding and linear layers, "
            "and its operations cannot be counted here: use a dense Qwen- or Llama-type model"
        )
    heads = config.num_attention_heads
    return Architecture(
        kind=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocabulary=embedding.shape[0],
        tied=tied,
        head_norms=any(".q_norm." in name for name in base),
        parameters=sum(v.numel() for v in base.values()),
        tensors=len(base),
        layer_matrices=linear,
        adapters=LoRASize(
            rank=added[0].shape[0],
            layers=len(added) // 2,
            parameters=sum(v.numel() for v in added),
            tensors=len(added),
        )
        if added
        else None,
    )


def _linear(network: Any) -> Iterator[nn.Linear]:
    """Yields the model's own linear layers, not those of its adapters."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and ".lora_" not in name:
            yield module
