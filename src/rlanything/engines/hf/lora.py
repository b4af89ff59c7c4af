"""Low-rank adapters (LoRA, arXiv 2106.09685): few weights that train beside frozen ones."""

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
    """Adapters apart from what they belong to, in peft's format."""

    config: str
    """Rank, scale and layers, as JSON."""
    tensors: bytes
    """A safetensors file."""

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Gives a folder in peft's format. The tensors lie in memory, as long as anyone maps them,
        and in no file system."""
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
    """Adds adapters: from here on only they train, and `save` writes only them, with the name of
    what they belong to. They begin as nothing: the model computes what it did.

    A model that has adapters already, because it comes from a checkpoint, keeps those. Raises
    `ModelError` if these are of another size, if peft is missing, or none of the model's layers has
    a name in `targets`."""
    if has_adapters(model.network):
        own = _own_config(model.network)
        if (own.r, own.lora_alpha) != (settings.rank, settings.alpha):
            raise ModelError(
                f"model {model.name!r} has adapters of rank {own.r} and alpha {own.lora_alpha}, "
                f"and lora asks for {settings.rank} and {settings.alpha}: give it theirs, or leave "
                "lora out"
            )
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attach(model.network, settings, model.name)


def attach(network: Any, settings: LoraSettings, name: str) -> None:
    """Puts adapters on a network that has none; raises as `add_adapters` does."""
    _need_peft()
    from peft import LoraConfig

    source = Path(name)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.targets,
        exclude_modules=_beside_text(network),
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(source.resolve()) if source.is_dir() else name,
    )
    _put_on(network, config, name)


def attach_as_in(folder: Path, network: Any, name: str) -> None:
    """Puts adapters on a network as a folder has them, but not their weights; raises as
    `add_adapters` does."""
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
        if "version of PEFT" in reason:  # not every transformers takes every peft
            raise ModelError(f"{reason}; pip install 'rlanything[lora]' fits the two") from error
        raise ModelError(
            f"model {name!r}: {reason}; set lora.targets to all-linear or to names of its linear "
            "layers"
        ) from error


def _beside_text(network: Any) -> str | None:
    """Returns a pattern of the names of all layers that text does not go through; None where it
    goes through all. Names such as q_proj are those of many a tower's layers too."""
    if not tower_weights(network):
        return None
    decoder = network.get_decoder()
    [name] = [name for name, module in network.named_modules() if module is decoder]
    return rf"(?!{re.escape(name)}\.).*"


def frozen_weights(network: PreTrainedModel) -> dict[str, Tensor]:
    """Returns all weights but adapters, under the names that they have without any."""
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in network.state_dict().items()
        if ".lora_" not in name
    }


def adapter_rank(network: PreTrainedModel) -> int | None:
    """Returns the rank of the largest of a network's adapters; None where it has none."""
    if not has_adapters(network):
        return None
    config = _own_config(network)
    return max(config.r, *config.rank_pattern.values(), 0)


def _own_config(network: PreTrainedModel) -> Any:
    """Returns peft's configuration of the adapters that a network has."""
    [active] = network.active_adapters()
    configs: Any = network.peft_config
    return configs[active]


def adapters_of(network: PreTrainedModel) -> Adapters:
    """Returns what trains in a network that has adapters."""
    [active] = network.active_adapters()
    tensors = {
        # Without this prefix readers of peft's format take none of them for an adapter's.
        f"base_model.model.{name}": tensor.contiguous()
        for name, tensor in network.get_adapter_state_dict(active).items()
    }
    # Names of layers are a set, which JSON does not know.
    config = _own_config(network).to_dict()
    return Adapters(json.dumps(config, default=sorted), safetensors.torch.save(tensors))
