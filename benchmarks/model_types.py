"""Which of transformers' model types can play a role, and train, and how.

    python benchmarks/model_types.py > docs/model-types.md

Of each type a random model of a few thousand weights is saved and loaded as a user's would be. What
it generates is compared with a plain forward pass of transformers' own eager attention, sequence by
sequence, and the gradient of an update with that of the same loss over those passes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from rlanything.algorithm.losses import ClipOptions, LossInputs, clipped
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import Choices, ModelError, Request, Sampling
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.engine import HFEngine, embedded_engine
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.learning.learner import Learner
from rlanything.records import Completion, Sample
from rlanything_nano.tokenizer import train_tokenizer

SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 32),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 512),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "v_head_dim", "index_head_dim"), 16),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "head_dim"), 8),
    # So short that the sequences below are longer.
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "index_topk"), 8),
    **dict.fromkeys(("keep_window_size", "mamba_chunk_size", "mamba_d_state"), 8),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("mamba_expand", "num_experts_per_tok", "num_key_value_heads"), 2),
    "vocab_size": 320,
    "initializer_range": 0.2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
    "index_n_heads": 32,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
}
"""Settings of every type that knows them."""

COMMON = """
apertus arcee bloom cohere cohere2 diffllama ernie4_5 ernie4_5_moe exaone4 falcon flex_olmo gemma
gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox gpt_oss granitemoe helium
hunyuan_v1_dense hunyuan_v1_moe internlm3 llama mamba minimax ministral3 mistral mixtral mpt
nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe
seed_oss smollm3 stablelm starcoder2 vaultgemma
"""
"""Types that `SMALL` makes small."""

MORE = """
afmoe aria_text beam bert biogpt bitnet cohere2_moe deepseek_v4 doge exaone_moe falcon_h1
falcon_mamba flint gpt_neox_japanese granite_swa granitemoe_swa granitemoeshared hrm_text hy_v3
hy_v4 hyperclovax iquestcoder jais2 kolibri1 laguna mellum mimo_v2_flash minimax_m2 ministral
nanochat olmo_hybrid openai-gpt roformer rwkv solar_open xglm
"""
"""The same of rarer types."""

_LATENT = {"num_key_value_heads": 4}
_LAYERS = {"layer_types": ["linear_attention", "full_attention"]}
_CONVOLUTIONS = {"layer_types": ["conv", "full_attention"]}
_LINEAR = {
    **_LAYERS,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_SHARED = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "hybrid"] * 2,
}
_SOME_HEADS = {"rotary_dim": 4}
_PLE = {
    "num_kv_shared_layers": 0,
    "vocab_size_per_layer_input": 320,
    "hidden_size_per_layer_input": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}

COMMON_CHANGED: dict[str, dict[str, Any]] = {
    "codegen": _SOME_HEADS,
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "gemma4_text": _PLE,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "gptj": _SOME_HEADS,
    "granite": {"logits_scaling": 4.0},
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "lfm2": _CONVOLUTIONS,
    "llama4_text": {"intermediate_size_mlp": 48},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2, "chunk_size": 8},
    "nemotron_h": {
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "chunk_size": 8,
        "n_groups": 2,
        "moe_shared_expert_intermediate_size": 16,
    },
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _LINEAR,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 8},
    "xlstm": {"hidden_size": 128, "num_heads": 4},
    "zamba2": {
        **_SHARED,
        "hybrid_layer_ids": [1, 3],
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "num_mem_blocks": 1,
        "chunk_size": 8,
    },
}
"""Types that need more to be small, or to be themselves."""

MORE_CHANGED: dict[str, dict[str, Any]] = {
    "axk1": _LATENT,
    "axk2": _LATENT,
    "bailing_hybrid": {**_LAYERS, **_LATENT},
    "bamba": {"attn_layer_indices": [1]},
    "cpmant": {},
    "cwm": {"bos_token_id": 2},
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": _LATENT,
    "gemma3n_text": {**_PLE, "activation_sparsity_pattern": [0.0, 0.0]},
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jetmoe": {"kv_channels": 8},
    "kimi_linear": {**_LAYERS, **_LATENT, "linear_num_heads": 2, "linear_head_dim": 8},
    "lfm2_moe": _CONVOLUTIONS,
    "longcat_flash": {
        **_LATENT,
        "expert_ffn_hidden_size": 16,
        "ffn_hidden_size": 48,
        "zero_expert_num": 2,
        "moe_topk": 2,
    },
    "minicpm3": _LATENT,
    "modernbert-decoder": {"bos_token_id": 2},
    "qwen3_5_moe_text": _LINEAR,
    "youtu": _LATENT,
    "zamba": {**_SHARED, "mamba_dt_rank": 4},
    "zaya": {"num_experts_per_tok": 1},
}
"""The same of rarer types."""

_LONG_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon, ALiBi": ("falcon", {"alibi": True}),
    "gemma2, no caps": (
        "gemma2",
        {"final_logit_softcapping": None, "attn_logit_softcapping": None},
    ),
    "gpt_oss, no window": ("gpt_oss", {"layer_types": ["full_attention"] * 2}),
    "llama, dynamic RoPE": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "phi3, LongRoPE": (
        "phi3",
        {
            "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **_LONG_FACTORS},
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen2, window": ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}),
}
"""Settings that decide how a type can be used."""

FAST = {
    **{name: (name, {}) for name in COMMON.split()},
    **{name: (name, settings) for name, settings in COMMON_CHANGED.items()},
    **VARIANTS,
}
CASES = FAST | {
    **{name: (name, {}) for name in MORE.split()},
    **{name: (name, settings) for name, settings in MORE_CHANGED.items()},
}
"""Every line of the page: the type and its settings."""

ATTENTION = {"falcon, ALiBi": "sdpa"}
"""Reference attention, for types whose attentions in transformers differ from one another."""
TOLERANCE = 1e-4
"""How far log-probs may be from those of plain passes, and a gradient from theirs (relatively)."""


@dataclass(frozen=True, slots=True)
class Use:
    """Abilities of models of one type."""

    generates: str
    trains: str
    reason: str
    """Reason why an ability is missing; empty if none is."""
    largest_difference: float
    """Largest difference of log-probs (absolute) and gradients (relative) from plain passes."""

    def line(self, name: str) -> str:
        return f"| {name} | {self.generates} | {self.trains} | {self.reason} |"


def measure(name: str) -> Use:
    """Returns what the embedded engine and the learner make of the type."""
    with tempfile.TemporaryDirectory() as folder:
        _random_network(*CASES[name]).save_pretrained(folder)
        train_tokenizer((), SMALL["vocab_size"]).save_pretrained(folder)
        plain: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=ATTENTION.get(name, "eager")
        )
        try:
            model = load_model(folder, "float32")
            engine = embedded_engine(model)
        except ModelError as error:
            return Use("no", "no", _in_short(str(error)), 0.0)
    completions = _generated(engine)
    differences = [_difference(plain, completion) for completion in completions]
    samples = _samples(completions)
    expected = _plain_gradient(plain, samples)
    ways: list[str] = []
    reasons: list[str] = []
    for packing in ("shared", "padded"):
        try:
            gradient = _gradient(model, samples, packing)
        except ModelError as error:
            reasons.append(_in_short(str(error)))
        else:
            ways.append(packing)
            differences.append(float((gradient - expected).norm() / expected.norm()))
    generates = "batched" if isinstance(engine, HFEngine) else "one at a time"
    if not model.own_cache_works:
        generates += ", no cache"
    reason = reasons[0] if reasons else ""
    return Use(generates, " or ".join(ways) or "no", reason, max(differences))


def _random_network(kind: str, settings: dict[str, Any]) -> Any:
    config_class: Any = CONFIG_MAPPING[kind]
    known = {field.name for field in fields(config_class)}
    small = {name: value for name, value in SMALL.items() if name in known}
    torch.manual_seed(0)
    network = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind])(
        config_class(**small | settings)
    )
    # Some weights begin as zero or one, and what they do would not show.
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.1 * torch.randn_like(weights)
    return network


def _generated(engine: Any) -> list[Completion]:
    """Returns responses: several to a prompt, restricted ones, and such of a second turn."""
    beginning = tuple(range(50, 62))
    choices = Choices(30, ((40, 41, 1), (40, 42, 43, 1)), 2)
    sampling = Sampling(1.0, 6)
    first = [
        Request((*beginning, 70, 71), (1, 2, 3), None, "free"),
        Request((*beginning, 80), (4, 5), choices, "restricted"),
    ]
    groups = engine.generate(first, sampling)
    second = (*first[1].prompt_ids, *groups[1][0].token_ids, 90, 91)
    groups += engine.generate([Request(second, (6,), choices, "restricted")], sampling)
    return [completion for group in groups for completion in group]


def _logprobs(network: Any, completion: Completion) -> Tensor:
    """Returns the log-probs [response] of a plain forward pass of one sequence."""
    ids = torch.tensor([completion.tokens])
    logits = network(input_ids=ids, use_cache=False).logits[0, len(completion.prompt_ids) - 1 : -1]
    logprobs = restricted_logprobs(logits, completion.allowed, 1.0)
    return logprobs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]


@torch.no_grad()
def _difference(network: Any, completion: Completion) -> float:
    logprobs = _logprobs(network, completion)
    return float((logprobs - torch.tensor(completion.logprobs)).abs().max())


def _samples(completions: Sequence[Completion]) -> list[Sample]:
    """Returns samples whose ratios lie on both sides of the clip range."""
    noise = 0.3 * torch.randn(len(completions), 8, generator=torch.Generator().manual_seed(0))
    samples: list[Sample] = []
    for number, (completion, shifts) in enumerate(zip(completions, noise.tolist(), strict=True)):
        logprobs = tuple(
            own if len(allowed) == 1 else own + shift
            for own, allowed, shift in zip(
                completion.logprobs, completion.allowed, shifts, strict=False
            )
        )
        advantage = (-1) ** number * (0.5 + number / 4)
        samples.append(Sample(f"{number}/0", replace(completion, logprobs=logprobs), advantage))
    return samples


def _plain_gradient(network: Any, samples: Sequence[Sample]) -> Tensor:
    for sample in samples:
        completion = sample.completion
        chosen = [i for i, allowed in enumerate(completion.allowed) if len(allowed) != 1]
        new = _logprobs(network, completion)[chosen]
        old = torch.tensor([completion.logprobs[i] for i in chosen])
        one_sample, advantages = torch.zeros(len(chosen)).long(), torch.full_like(new, 1.0)
        inputs = LossInputs(new, old, advantages * sample.mean_advantage, one_sample, 1, 0.01)
        (clipped(inputs, ClipOptions()).loss.mean() / len(samples)).backward()
    return _flat_gradient(network)


def _gradient(model: LanguageModel, samples: Sequence[Sample], packing: str) -> Tensor:
    """Returns that of the learner. Raises `ModelError` where it refuses the model."""
    settings = {"packing": packing, "learning_rate": 0.0, "max_grad_norm": 1e9, "temperature": 1.0}
    learner = Learner(model, TrainedRoleConfig.model_validate(settings))
    learner.update([("task", sample) for sample in samples], 0)
    return _flat_gradient(model.network)


def _flat_gradient(network: Any) -> Tensor:
    gradients = [
        torch.zeros_like(weights) if weights.grad is None else weights.grad
        for weights in network.parameters()
    ]
    return torch.cat([gradient.flatten() for gradient in gradients])


def _in_short(refusal: str) -> str:
    """Returns the reason alone: no model's name, no remedy, no number that rounding could move."""
    reason = refusal.split("' ", 1)[1].partition(": ")[2] or refusal.split("' ", 1)[1]
    for end in (". Set ", "; choose", ", which is not", ". Choose", " (relative", " of a sequence"):
        reason = reason.partition(end)[0]
    if reason.startswith("it cannot"):  # what transformers says about it is long
        reason = reason.partition(" (")[0]
    return reason.rstrip(",.")


HEAD = """# Model types

What the embedded engine and the learner make of transformers' model types, measured on a random
model of each (`python benchmarks/model_types.py > docs/model-types.md`; the tests hold every line).
Generated log-probs, and gradients of an update, are within 1e-4 of plain forward passes.

- **batched** is the fast way: prompts share what they begin with. **one at a time** is exact for
  any architecture and slow; with **no cache** every token computes its prompt again, because with
  the cache of that architecture transformers computes something else.
- Where only **padded** trains, set `packing: padded` in the role's section of the recipe.
- **no**: refused in one line when the model is loaded. A model of a type that is not here is
  measured in the same way when it is loaded.

| type | generates | trains | why |
|---|---|---|---|
"""


def write_page(uses: dict[str, Use]) -> str:
    """Returns the page, types in alphabetical order."""
    return HEAD + "".join(f"{uses[name].line(name)}\n" for name in sorted(uses, key=str.lower))


def main() -> None:
    logging.set_verbosity_error()
    uses: dict[str, Use] = {}
    for name in CASES:
        print(name, file=sys.stderr)
        uses[name] = measure(name)
    sys.stdout.write(write_page(uses))


if __name__ == "__main__":
    main()
