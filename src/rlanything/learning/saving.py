"""Optimizers on disk: safetensors as of torch's distributed checkpoints, one shard per seat. A
different number of seats can load them.

Not torch's own file format, which is unpickled: a run directory may come from a stranger."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor

from rlanything.learning.sharding import SeatGroup

STEP, MOMENTS = "step", ("exp_avg", "exp_avg_sq")
SKIPPED = "skipped_in_a_row"


def snapshot_optimizer(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    skipped: int,
    group: SeatGroup,
    device: torch.device,
) -> Callable[[], None]:
    """Returns a function that writes AdamW's state of named weights, and the number of consecutive
    skipped updates, as they are now. `device`: where the optimizer steps."""
    # Not by torch's own `save`, which blocks other threads and waits for other seats.
    tensors = {SKIPPED: torch.tensor([skipped])}
    for name, weight in weights.items():
        if memory := optimizer.state.get(weight):
            tensors[f"{name}.{STEP}"] = memory[STEP].reshape(1)
            tensors |= {f"{name}.{moment}": memory[moment] for moment in MOMENTS}
    own: dict[str, Tensor] = {}
    offsets: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        sharded: Any = tensor if isinstance(tensor, DTensor) else None
        shard = tensor if sharded is None else sharded.to_local()
        if shard.numel() and (sharded is not None or group.rank == 0):
            # An offloaded state is never changed in place: it steps elsewhere.
            own[name] = shard.detach().to("cpu", copy=shard.device.type == device.type)
            chunk = [0] if sharded is None else sharded.__create_chunk_list__()[0].offsets
            offsets[name] = {"saved_offsets": [*chunk, *[0] * (tensor.dim() - len(chunk))]}
    about = {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}

    def write() -> None:
        folder.mkdir(exist_ok=True)
        if own:
            file = folder / f"shard-{group.rank + 1:05d}-model-00001-of-00001.safetensors"
            save_file(own, file, about)

    return write


def load_optimizer(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    group: SeatGroup,
) -> int:
    """Loads AdamW's saved state, with any number of seats, and returns the number of consecutive
    skipped updates. Damaged files raise whatever torch and safetensors raise."""
    reader = HuggingFaceStorageReader(str(folder))
    known = reader.read_metadata().state_dict_metadata
    tensors = {SKIPPED: torch.zeros(1, dtype=torch.long)}
    remembered = [name for name in weights if f"{name}.{STEP}" in known]
    for name in remembered:
        tensors[f"{name}.{STEP}"] = torch.zeros(1)
        tensors |= {f"{name}.{moment}": torch.zeros_like(weights[name]) for moment in MOMENTS}
    if strange := sorted(known.keys() - tensors.keys()):
        raise ValueError(f"it remembers {strange[0]!r}, which this model does not train")
    among = None if group.mesh is None else group.mesh.get_group()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as with one seat
        try:
            load(tensors, storage_reader=reader, process_group=among, no_dist=among is None)
        except CheckpointException as error:
            [(first, _), *_] = error.failures.values()
            raise first from None
    optimizer.state.clear()
    for name in remembered:
        memory = {moment: tensors[f"{name}.{moment}"] for moment in MOMENTS}
        # A fused kernel counts steps on the device.
        device = weights[name].device if optimizer.defaults["fused"] else "cpu"
        step = tensors[f"{name}.{STEP}"][0].clone().to(device)
        optimizer.state[weights[name]] = {STEP: step} | memory
    return int(tensors[SKIPPED])
