"""Low-rank adapters (LoRA, arXiv 2106.09685): a few trained weights next to frozen ones."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from rlanything.config.roles import LoraSettings
from rlanything.engines.base import ModelError
from rlanything.engines.hf.model import LanguageModel, has_adapters
from rlanything.engines.hf.vision_tower import tower_weights


def add_adapters(model: LanguageModel, settings: LoraSettings, seed: int) -> None:
    """Adds adapters: from then on only they train, and `save` only writes them and the name of
    their base model. New adapters do not change the model's output.

    A model from a checkpoint keeps its adapters. Raises `ModelError` if these have another size, if
    peft is missing, or if no layer has a name in `targets`."""
    if has_adapters(model.network):
        own = own_config(model.network)
        if (own.r, own.lora_alpha) != (settings.rank, settings.alpha):
            raise ModelError(
                f"model {model.name!r} has adapters of rank {own.r} and alpha {own.lora_alpha}, "
                f"but lora asks for {settings.rank} and {settings.alpha}: use its values, or leave "
                "lora out"
            )
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attach(model.network, settings, model.name)


def attach(network: Any, settings: LoraSettings, name: str) -> None:
    """Adds adapters to a network that has none. Raises the errors of `add_adapters`."""
    _need_peft()
    from peft import LoraConfig

    source = Path(name)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.targets,
        exclude_modules=_outside_text(network),
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(source.resolve()) if source.is_dir() else name,
    )
    _put_on(network, config, name)


def attach_as_in(folder: Path, network: Any, name: str) -> None:
    """Adds adapters with a folder's configuration to a network, without their weights. Raises the
    errors of `add_adapters`."""
    _need_peft()
    from peft import PeftConfig

    own = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    _put_on(network, PeftConfig.from_peft_type(**own), name)


def _need_peft() -> None:
    if importlib.util.find_spec("peft") is None:
        raise ModelError("LoRA needs the package peft: pip install 'rlanything[lora]'")


def _put_on(network: Any, config: Any, name: str) -> None:
    try:
        network.add_adapter(config)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0]
        if "version of PEFT" in reason:  # transformers and peft must match
            raise ModelError(f"{reason}; pip install 'rlanything[lora]' fits the two") from error
        raise ModelError(
            f"model {name!r}: {reason}; set lora.targets to all-linear or to names of its linear "
            "layers"
        ) from error


def _outside_text(network: Any) -> str | None:
    """Returns a pattern for the names of layers that process no text; None: there are none. Names
    such as q_proj also occur in vision towers."""
    if not tower_weights(network):
        return None
    decoder = network.get_decoder()
    [name] = [name for name, module in network.named_modules() if module is decoder]
    return rf"(?!{re.escape(name)}\.).*"


def own_config(network: PreTrainedModel) -> Any:
    """Returns peft's configuration of a network's adapters."""
    [active] = network.active_adapters()
    configs: Any = network.peft_config
    return configs[active]
