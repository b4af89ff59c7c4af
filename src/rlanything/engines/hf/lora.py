"""Low-rank adapters (LoRA, arXiv 2106.09685): a few trained weights next to frozen ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlanything.config.roles import LoraSettings
from rlanything.engines.base import ModelError
from rlanything.engines.hf.model import LanguageModel, has_adapters
from rlanything.engines.hf.vision_tower import tower_weights


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters without their base model, in peft's format."""

    config: str
    """Rank, scale and layers, as JSON."""
    tensors: bytes
    """A safetensors file."""

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yields a folder in peft's format. The tensors are in anonymous memory, not on disk."""
        memory = os.memfd_create("adapters")
        with tempfile.TemporaryDirectory() as name, open(memory, "wb") as file:
            file.write(self.tensors)
            file.flush()
            folder = Path(name)
            (folder / "adapter_config.json").write_text(self.config, encoding="utf-8")
            place = Path(f"/proc/{os.getpid()}/fd/{memory}")
            (folder / "adapter_model.safetensors").symlink_to(place)
            yield folder


def add_adapters(model: LanguageModel, settings: LoraSettings, seed: int) -> None:
    """Adds adapters: from then on only they train, and `save` only writes them and the name of
    their base model. New adapters do not change the model's output.

    A model from a checkpoint keeps its adapters. Raises `ModelError` if these have another size, if
    peft is missing, or if no layer has a name in `targets`."""
    if has_adapters(model.network):
        own = _own_config(model.network)
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


def frozen_weights(network: PreTrainedModel) -> dict[str, Tensor]:
    """Returns all weights but adapters, with the names of a network without adapters."""
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in network.state_dict().items()
        if ".lora_" not in name
    }


def adapter_rank(network: PreTrainedModel) -> int | None:
    """Returns the rank of a network's largest adapter; None: it has none."""
    if not has_adapters(network):
        return None
    config = _own_config(network)
    return max(config.r, *config.rank_pattern.values(), 0)


def _own_config(network: PreTrainedModel) -> Any:
    """Returns peft's configuration of a network's adapters."""
    [active] = network.active_adapters()
    configs: Any = network.peft_config
    return configs[active]


def adapters_of(network: PreTrainedModel) -> Adapters:
    """Returns a network's adapters, in peft's format."""
    [active] = network.active_adapters()
    tensors = {
        # Readers of peft's format expect this prefix.
        f"base_model.model.{name}": tensor.contiguous()
        for name, tensor in network.get_adapter_state_dict(active).items()
    }
    # Layer names are a set, which JSON lacks.
    config = _own_config(network).to_dict()
    return Adapters(json.dumps(config, default=sorted), safetensors.torch.save(tensors))
