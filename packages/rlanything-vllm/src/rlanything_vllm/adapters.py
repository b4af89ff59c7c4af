"""Adapters (LoRA) as vLLM takes them: apart from their base model, in peft's format."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor
from transformers import PreTrainedModel

from rlanything.engines.hf.lora import own_config
from rlanything.engines.hf.model import has_adapters


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
    config = own_config(network)
    return max(config.r, *config.rank_pattern.values(), 0)


def adapters_of(network: PreTrainedModel) -> Adapters:
    """Returns a network's adapters, in peft's format."""
    [active] = network.active_adapters()
    tensors = {
        # Readers of peft's format expect this prefix.
        f"base_model.model.{name}": tensor.contiguous()
        for name, tensor in network.get_adapter_state_dict(active).items()
    }
    # Layer names are a set, which JSON lacks.
    config = own_config(network).to_dict()
    return Adapters(json.dumps(config, default=sorted), safetensors.torch.save(tensors))
