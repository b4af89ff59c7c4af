"""Size and shape of a decoder from its config.json alone, without loading weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)

from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.hf.damage import reason_of
from rlanything.engines.hf.gguf import find_gguf
from rlanything.engines.hf.loading import DEFAULT_ATTENTION, base_of, check_hub, is_adapters
from rlanything.engines.hf.lora import attach, attach_as_in
from rlanything.engines.hf.model import ModelError
from rlanything.engines.hf.vision_tower import tower_weights
from rlanything_planning.report import PlanError

_SHAPE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
_SHAPE += ("num_key_value_heads", "head_dim", "vocab_size", "tie_word_embeddings")
KNOWN = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", 24, 896, 4864, 14, 2, 64, 151_936, True),
    "Qwen/Qwen2.5-1.5B-Instruct": ("qwen2", 28, 1536, 8960, 12, 2, 128, 151_936, True),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", 28, 3584, 18_944, 28, 4, 128, 152_064, False),
    "Qwen/Qwen2.5-14B-Instruct": ("qwen2", 48, 5120, 13_824, 40, 8, 128, 152_064, False),
    "Qwen/Qwen3-VL-8B-Thinking": ("qwen3_vl", 36, 4096, 12_288, 32, 8, 128, 151_936, False),
    "Qwen/Qwen3-4B": ("qwen3", 36, 2560, 9728, 32, 8, 128, 151_936, True),
}
"""config.json (its type, then as in `_SHAPE`) of the paper's models and of two small ones: their
plans need no hub."""
_TOWERS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-VL-8B-Thinking": {
        **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16},
        **{"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2},
        **{"out_hidden_size": 4096, "num_position_embeddings": 2304},
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
"""Vision towers of the vision models among them."""


_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")


class Architecture:
    """A decoder of Llama's kind (RMS norms, rotary positions, a gated MLP of three matrices), and
    its adapters; if it has any, only they train. A vision tower is counted separately.

    Raises `PlanError` for a network with matrices other than linear layers and an embedding, or
    without its sizes in its config."""

    def __init__(self, network: Any) -> None:
        config = network.config.get_text_config()
        tower = tower_weights(network)
        base = {
            name: weights
            for name, weights in network.named_parameters()
            if ".lora_" not in name and name not in tower
        }
        linear = {
            module.weight
            for name, module in network.named_modules()
            if isinstance(module, nn.Linear) and f"{name}.weight" in base
        }
        embedding = network.get_input_embeddings().weight
        said = [(name, getattr(config, name, None)) for name in _SIZES]
        unsaid = [name for name, size in said if not isinstance(size, int) or size < 1]
        reason = f"without {unsaid[0]} in its config" if unsaid else ""
        if {w for w in base.values() if w.dim() > 1} != linear | {embedding}:
            reason = "more than an embedding and linear layers"
        if reason:
            remedy = "cannot be planned here: use a dense Qwen- or Llama-type model"
            raise PlanError(f"a model of type {config.model_type!r} is {reason}, and {remedy}")
        self.kind: str = config.model_type
        self.layers: int = config.num_hidden_layers
        self.hidden: int = config.hidden_size
        self.intermediate: int = config.intermediate_size
        self.heads: int = config.num_attention_heads
        self.key_value_heads: int = getattr(config, "num_key_value_heads", None) or self.heads
        self.head_dim: int = getattr(config, "head_dim", None) or self.hidden // self.heads
        sizes = (self.hidden, self.intermediate, self.heads, self.key_value_heads, self.head_dim)
        self.shape = (self.kind, *sizes)
        self.query_width = self.heads * self.head_dim
        self.key_width = self.key_value_heads * self.head_dim
        # It may be larger than the tokenizer's vocabulary.
        self.vocabulary: int = embedding.shape[0]
        # Whether queries and keys are normalised per head, as in Qwen3.
        self.head_norms = any(".q_norm." in name for name in base)
        self.parameters = sum(w.numel() for w in base.values())
        """Number of parameters, without adapters and tower."""
        self.tower = sum(w.numel() for w in tower.values())
        self.adapters = sum(w.numel() for w in network.parameters()) - self.parameters - self.tower
        self.vision = TowerShape(network, tower) if tower else None
        head = network.get_output_embeddings().weight
        self.layer_matrices = sum(w.numel() for w in linear - {head})
        """Weights that every token is multiplied with, in all layers, without the output layer."""

    def flops(self, tokens: float, keys: float, logits: float, learns: bool = False) -> float:
        """Returns the FLOPs of a forward pass (and backward if it `learns`) for tokens that attend
        to `keys` tokens each on average, and for `logits` rows of logits.

        Forward: two per weight and token, and four per query, key and dimension. Backward: the same
        for inputs, and again for weights unless frozen."""
        scale = 3 if learns else 1
        weight = 4 if learns and self.adapters else 2 * scale
        per_token = weight * self.layer_matrices + 2 * scale * self.adapters
        per_token += 4 * scale * self.layers * self.query_width * keys
        return tokens * per_token + weight * logits * self.hidden * self.vocabulary


class TowerShape:
    """The matrices of a vision tower: those applied to every patch, and those that merge patches
    into tokens."""

    def __init__(self, network: Any, tower: dict[str, nn.Parameter]) -> None:
        config, vision = network.config, network.config.vision_config
        layers = (nn.Linear, nn.Conv2d, nn.Conv3d)
        matrices = {
            name: module.weight.numel()
            for name, module in network.named_modules()
            if isinstance(module, layers) and f"{name}.weight" in tower
        }
        self.joining = sum(size for name, size in matrices.items() if _JOINS.search(name))
        self.patch_matrices = sum(matrices.values()) - self.joining
        self.patches_a_token: float = _merged(config)
        self.layers: int = getattr(vision, "depth", None) or vision.num_hidden_layers
        self.width: int = getattr(vision, "embed_dim", None) or vision.hidden_size
        # Processors with a tile size cut larger images into tiles.
        side: Any = getattr(vision, "image_size", None) or 0
        patch: Any = vision.patch_size
        if not isinstance(patch, int):
            side, patch = side[0], patch[0]
        self.tile: float = (side // patch) ** 2 or float("inf")

    def flops(self, tokens: float) -> float:
        """Returns the forward FLOPs for an image of this many tokens: two per weight and patch (or
        token), and four per query, key and dimension, as if every layer attended to the whole
        image."""
        patches = tokens * self.patches_a_token
        seen = 4 * self.layers * self.width * min(patches, self.tile)
        return patches * (2 * self.patch_matrices + seen) + tokens * 2 * self.joining


_JOINS = re.compile("merger|projector|connector")


def _merged(config: Any) -> float:
    """Returns the number of patches per token."""
    if (side := getattr(config.vision_config, "spatial_merge_size", None)) is not None:
        return side**2
    if (ratio := getattr(config, "downsample_ratio", None)) is not None:
        return ratio**-2
    return getattr(config, "scale_factor", 1) ** 2


def architecture_of(role: RoleConfig, name: str) -> tuple[Architecture, str]:
    """Returns a role's model with its adapters, and the line of a plan about it.

    Raises `PlanError` if config.json cannot be found, or the model is not such a decoder."""
    model = shipped.resolve(role.model, role.shipped_role)
    if role.model in shipped.NAMES and not Path(model).is_dir():
        raise PlanError(
            f"{name}.model: {role.model} does not come with this installation, there is no "
            f"{model}: build it with `rlanything nano build`, or give another model"
        )
    kind, remedy = None, "; use a Qwen- or Llama-type model"
    try:
        adapted = Path(model).is_dir() and is_adapters(model)
        config = read_config(base_of(model) if adapted else model)
        kind = getattr(config, "model_type", "?")
        with torch.device("meta"):
            sees = getattr(config, "vision_config", None) is not None
            made_of: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
            network: Any = made_of.from_config(config, trust_remote_code=False, **DEFAULT_ATTENTION)
            if adapted:
                attach_as_in(Path(model), network, f"{name}.model")
            elif isinstance(role, TrainedRoleConfig) and role.lora is not None:
                attach(network, role.lora, f"{name}.model")
    except Exception as error:  # libraries may raise anything for foreign files
        reason = reason_of(error)
        if kind is not None:
            reason += "" if isinstance(error, ModelError) else remedy
            raise PlanError(f"{name}.model: no {kind} can be made of it: {reason}") from error
        raise PlanError(
            f"{name}.model: no configuration of {model!r} ({reason}): give a folder with "
            "config.json (`rlanything nano build` makes those in models/), a Hugging Face id, a "
            f"GGUF file, `nano`, or one of {', '.join(KNOWN)}"
        ) from error
    made = Architecture(network)
    how = f"{kind} of {made.layers} layers of {made.hidden:,}, {made.vocabulary:,} words; by the "
    how += f"config of {model}" + (", in this library's table" if model in KNOWN else "")
    how += f"; {made.adapters:,} more in adapters, which alone train" if made.adapters else ""
    how += f"; {made.tower:,} more in the tower that reads images" if made.tower else ""
    return made, how


def read_config(model: str) -> Any:
    """Returns the transformers config of a folder, GGUF file or Hugging Face model, from the table
    above if it is listed."""
    if (packed := find_gguf(model)) is not None:
        return AutoConfig.from_pretrained(
            str(packed.parent), gguf_file=packed.name, trust_remote_code=False
        )
    if model in KNOWN and not Path(model).is_dir():
        kind, *sizes = KNOWN[model]
        shape = dict(zip(_SHAPE, sizes, strict=True))
        if model in _TOWERS:
            tied = shape.pop("tie_word_embeddings")
            parts = {"text_config": shape, "vision_config": _TOWERS[model]}
            return AutoConfig.for_model(kind, **parts, tie_word_embeddings=tied)
        return AutoConfig.for_model(kind, **shape)
    check_hub(model)
    return AutoConfig.from_pretrained(model, trust_remote_code=False)


def random_layer(kind: str, *sizes: int) -> Any:
    """Builds a decoder of one layer of a model's shape, with random weights on the CPU."""
    config = AutoConfig.for_model(kind, **dict(zip(_SHAPE, (1, *sizes, 512, True), strict=True)))
    return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False).eval()
