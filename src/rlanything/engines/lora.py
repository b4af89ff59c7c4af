"""Low-rank adapters (LoRA, arXiv 2106.09685): few weights that train beside frozen ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlanything.engines.model import LanguageModel, ModelError, has_adapters
from rlanything.role_settings import LoraSettings


def add_adapters(model: LanguageModel, settings: LoraSettings, seed: int) -> None:
    """From here on only the adapters train, and `save` writes only them, with the name of what they
    belong to. They begin as nothing: the model computes what it did.

    A model that has adapters already, because it comes from a checkpoint, keeps those. Raises
    `ModelError` if peft is missing, or none of the model's layers has a name in `targets`."""
    if has_adapters(model.network):
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attach(model.network, settings, model.name)


def attach(network: Any, settings: LoraSettings, name: str) -> None:
    """Adapters on a network that has none; raises as `add_adapters` does."""
    if importlib.util.find_spec("peft") is None:
        raise ModelError("LoRA needs the package peft: pip install 'rlanything[lora]'")
    from peft import LoraConfig

    source = Path(name)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(source.resolve()) if source.is_dir() else name,
    )
    try:
        network.add_adapter(config)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"model {name!r}: {reason}; set lora.targets to all-linear or to names of its linear "
            "layers"
        ) from error


@torch.no_grad()
def whole_weights(network: PreTrainedModel) -> dict[str, Tensor]:
    """All weights under the names they have without adapters, what adapters add put into them."""
    weights: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        if ".lora_" in name:
            continue
        layer, adapted, kind = name.rpartition(".base_layer.")
        if adapted and kind == "weight":
            [adapter] = network.active_adapters()
            tensor = tensor + network.get_submodule(layer).get_delta_weight(adapter)  # pyright: ignore[reportCallIssue]
        weights[name.replace(".base_layer.", ".")] = tensor
    return weights
