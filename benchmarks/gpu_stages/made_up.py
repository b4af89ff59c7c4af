"""Models of real shapes with random weights, and episodes of random tokens for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from gpu_stages.checks import Bench
from rlanything.engines import shipped
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Sample
from rlanything_planning.architecture import Architecture, read_config

SHAPES = {
    "0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
    "1.5B": "Qwen/Qwen2.5-1.5B-Instruct",
    "7B": "Qwen/Qwen2.5-7B-Instruct",
}
DRY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512}
DRY |= {"num_attention_heads": 4, "num_key_value_heads": 2}
JUDGEMENTS = 3

Tagged = list[tuple[str, Sample]]


def config_of(bench: Bench, shape: str, layers: int | None = None) -> Any:
    """Returns the config of a shape, with so many layers (None: all of them)."""
    config = read_config(SHAPES[shape]).to_dict()
    kind = config.pop("model_type")
    config.pop("layer_types", None)  # one for each layer: made again
    config |= DRY if bench.dry else {"num_hidden_layers": layers or config["num_hidden_layers"]}
    return AutoConfig.for_model(kind, **config)


def random_model(
    bench: Bench, shape: str, dtype: torch.dtype | None, layers: int | None = None
) -> LanguageModel:
    """Returns a model with float32 weights, computed in `dtype` by autocast."""
    torch.manual_seed(0)
    with torch.device(bench.device):
        network: Any = AutoModelForCausalLM.from_config(config_of(bench, shape, layers))
    tokenizer: Any = AutoTokenizer.from_pretrained(shipped.resolve("nano", "policy"))
    return LanguageModel(network.float(), tokenizer, dtype)


def architecture(bench: Bench, shape: str, layers: int | None = None) -> Architecture:
    """Returns what a plan sees of it."""
    with torch.device("meta"):
        return Architecture(AutoModelForCausalLM.from_config(config_of(bench, shape, layers)))


def one_pack(bench: Bench, tokens: int, judge: bool, seed: int = 0) -> Tagged:
    """Returns the samples of one long episode, of not more than so many distinct tokens: each step
    an answer of the policy that the next prompt goes on from, or judgements that none does."""
    rng = np.random.default_rng(seed)
    opening, answer, seen = (20, 8, 4) if bench.dry else (400, 256, 100)
    vocabulary = DRY["vocab_size"] if bench.dry else 150_000

    def some(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, vocabulary, count).tolist())

    prompt, samples = some(opening), Tagged()
    answers, used = JUDGEMENTS if judge else 1, opening
    # The judged step itself is in the prompt too.
    step = answers * answer + seen + (answer if judge else 0)
    while used + step <= tokens:
        drawn = [some(answer) for _ in range(answers)]
        samples += [("task", _sample(prompt, each, vocabulary, rng.normal())) for each in drawn]
        prompt += (some(answer) if judge else drawn[0]) + some(seen)
        used += step
    return samples


def _sample(
    prompt: tuple[int, ...], answer: tuple[int, ...], vocabulary: int, advantage: float
) -> Sample:
    drawn = (-math.log(vocabulary),) * len(answer), ((),) * len(answer)
    return Sample("episode", Completion(prompt, answer, *drawn, "length", ""), advantage)
