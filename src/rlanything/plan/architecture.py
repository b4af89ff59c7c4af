"""A decoder's tensors, from its config.json: names, shapes, and what follows from them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlanything import nano
from rlanything.plan.figures import PlanError

FLOAT32, BFLOAT16 = 4, 2

# Which linear layers have a bias where config.json does not say: query/key/value, output, MLP.
_BIASES = {
    "llama": (False, False, False),
    "mistral": (False, False, False),
    "qwen2": (True, False, False),
    "qwen3": (False, False, False),
    "seed_oss": (True, False, False),
}


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
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool

    @property
    def head_norms(self) -> bool:
        """Qwen3 normalises each head's queries and keys."""
        return self.kind == "qwen3"

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.key_value_heads * self.head_dim

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's shape, by the name that transformers gives it."""
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden)
        }
        for layer in range(self.layers):
            shapes |= {f"model.layers.{layer}.{k}": v for k, v in self._layer().items()}
        shapes["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocabulary, self.hidden)
        return shapes

    def _layer(self) -> dict[str, tuple[int, ...]]:
        h, i, q, k = self.hidden, self.intermediate, self.query_width, self.key_width
        linear = {
            "self_attn.q_proj": (q, h, self.attention_bias),
            "self_attn.k_proj": (k, h, self.attention_bias),
            "self_attn.v_proj": (k, h, self.attention_bias),
            "self_attn.o_proj": (h, q, self.output_bias),
            "mlp.gate_proj": (i, h, self.mlp_bias),
            "mlp.up_proj": (i, h, self.mlp_bias),
            "mlp.down_proj": (h, i, self.mlp_bias),
        }
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (rows, columns, bias) in linear.items():
            shapes[f"{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{name}.bias"] = (rows,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{name}.weight"] = (h,)
        if self.head_norms:
            for name in ("self_attn.q_norm", "self_attn.k_norm"):
                shapes[f"{name}.weight"] = (self.head_dim,)
        return shapes

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors().values())

    @property
    def layer_matrices(self) -> int:
        """Weights that every token is multiplied with, in all layers; not the output layer's."""
        h, q, k = self.hidden, self.query_width, self.key_width
        return self.layers * (2 * h * q + 2 * h * k + 3 * h * self.intermediate)

    @property
    def head_matrix(self) -> int:
        """Weights of the output layer, which only sees tokens whose logits are wanted."""
        return self.hidden * self.vocabulary

    def forward_flops(self, tokens: float, keys: float, logits: float) -> float:
        """Of `tokens` tokens that see `keys` tokens each on average, and `logits` rows of logits.

        Two a weight and token, and four a query, key and dimension (scores and their use)."""
        attention = 4 * self.layers * self.query_width * keys
        return tokens * (2 * self.layer_matrices + attention) + 2 * logits * self.head_matrix


KNOWN: Mapping[str, Architecture] = {
    name: Architecture(kind, *numbers, tied, *_BIASES[kind])
    for name, kind, numbers, tied in (
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2", (24, 896, 4864, 14, 2, 64, 151_936), True),
        ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", (28, 1536, 8960, 12, 2, 128, 151_936), True),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2", (28, 3584, 18_944, 28, 4, 128, 152_064), False),
        ("Qwen/Qwen2.5-14B-Instruct", "qwen2", (48, 5120, 13_824, 40, 8, 128, 152_064), False),
        ("Qwen/Qwen3-4B", "qwen3", (36, 2560, 9728, 32, 8, 128, 151_936), True),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "llama", (30, 576, 1536, 9, 3, 64, 49_152), True),
    )
}
"""Facts about models that a plan can be made of without their config.json."""


def architecture_of(model: str, role: str) -> tuple[Architecture, str]:
    """A recipe's model, and where its numbers are from.

    Raises `PlanError` for a model that is neither a folder nor known, and for other kinds."""
    folder = Path(nano.resolve(model, role))
    path = folder / "config.json"
    if path.is_file():
        shown = f"the shipped {role}'s config.json" if model == "nano" else str(path)
        return read_config(path), shown
    if model in KNOWN:
        return KNOWN[model], "the published config.json, from the table of this library"
    if folder.is_dir():
        raise PlanError(f"{role}.model: {folder} has no config.json; give a model's own folder")
    raise PlanError(
        f"{role}.model: nothing is known of {model!r} without its config.json: give a folder that "
        f"has it, `nano`, or one of {', '.join(KNOWN)}"
    )


def read_config(path: Path) -> Architecture:
    """Raises `PlanError` for what is not the config.json of a decoder of a known kind."""
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        return _from_config(config)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        if isinstance(error, PlanError):
            raise PlanError(f"{path}: {error}") from None
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
        raise PlanError(
            f"{path}: {reason}; a plan needs the config.json that transformers writes"
        ) from None


def _from_config(config: Mapping[str, Any]) -> Architecture:
    kind = config["model_type"]
    if kind not in _BIASES:
        raise PlanError(
            f"model_type {kind!r} is not one whose parameters are known here: use a model of type "
            f"{', '.join(_BIASES)}"
        )
    heads = config["num_attention_heads"]
    qkv, output, mlp = _BIASES[kind]
    if kind != "qwen2":
        qkv = bool(config.get("attention_bias", qkv))
        # In Llama and Qwen3 one switch is for all four projections; Seed-OSS has a second one.
        output = bool(config.get("attention_out_bias", output)) if kind == "seed_oss" else qkv
        # Qwen3 and Mistral have no such switch.
        mlp = bool(config.get("mlp_bias", mlp)) if kind in ("llama", "seed_oss") else mlp
    if kind == "mistral":
        qkv = output = False
    hidden = config["hidden_size"]
    # Qwen3's and Seed-OSS's own default, whatever their width.
    dim = 128 if kind in ("qwen3", "seed_oss") else hidden // heads
    return Architecture(
        kind=kind,
        layers=config["num_hidden_layers"],
        hidden=hidden,
        intermediate=config["intermediate_size"],
        heads=heads,
        key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or dim,
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", False)),
        attention_bias=qkv,
        output_bias=output,
        mlp_bias=mlp,
    )
