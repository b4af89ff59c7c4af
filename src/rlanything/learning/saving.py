"""Optimizers on disk: safetensors by torch's distributed checkpoints, one shard per seat. A
different number of seats can load them.

Not torch's own file format, which is unpickled: a run directory may come from a stranger."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from rlanything.learning.sharding import SeatGroup

STEP, MOMENTS = "step", ("exp_avg", "exp_avg_sq")
SKIPPED = "skipped_in_a_row"


def save_optimizer(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    skipped: int,
    group: SeatGroup,
) -> None:
    """Writes AdamW's state of named weights, and the number of consecutive skipped updates."""
    tensors = {SKIPPED: torch.tensor([skipped])}
    for name, weight in weights.items():
        if memory := optimizer.state.get(weight):
            tensors[f"{name}.{STEP}"] = memory[STEP].reshape(1)
            tensors |= {f"{name}.{moment}": memory[moment] for moment in MOMENTS}
    folder.mkdir(exist_ok=True)
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _failing_plainly():
        save(tensors, storage_writer=writer, **_among(group))


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
    with _failing_plainly():
        load(tensors, storage_reader=reader, **_among(group))
    optimizer.state.clear()
    for name in remembered:
        memory = {moment: tensors[f"{name}.{moment}"] for moment in MOMENTS}
        # A fused kernel counts steps on the device.
        device = weights[name].device if optimizer.defaults["fused"] else "cpu"
        step = tensors[f"{name}.{STEP}"][0].clone().to(device)
        optimizer.state[weights[name]] = {STEP: step} | memory
    return int(tensors[SKIPPED])


def _among(group: SeatGroup) -> dict[str, Any]:
    if group.mesh is None:
        return {"no_dist": True}
    return {"process_group": group.mesh.get_group()}


@contextmanager
def _failing_plainly() -> Iterator[None]:
    """Raises the underlying error of one seat instead of a list of all, and hides the warning about
    a single seat, which is intended."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            yield
        except CheckpointException as error:
            [(first, _), *_] = error.failures.values()
            raise first from None
