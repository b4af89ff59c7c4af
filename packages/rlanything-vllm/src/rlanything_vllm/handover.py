"""Hand-over of a model's weights from the training process to a sampling process.

They are in anonymous memory shared by the two processes, which is freed when both have ended, even
after a crash.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's place in the shared memory."""

    offset: int
    """Offset in bytes."""
    shape: tuple[int, ...]
    dtype: torch.dtype


def put_weights(descriptor: int, weights: Mapping[str, Tensor]) -> dict[str, Place]:
    """Copies weights into the memory, tied ones once; returns their places by name."""
    places: dict[str, Place] = {}
    first: dict[tuple[int, torch.Size], Place] = {}
    end = 0
    for name, tensor in weights.items():
        key = (tensor.data_ptr(), tensor.shape)
        if key not in first:
            first[key] = Place(end, tuple(tensor.shape), tensor.dtype)
            end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        places[name] = first[key]
    os.ftruncate(descriptor, end)
    with mmap.mmap(descriptor, end) as memory:
        for name, place in places.items():
            if first.pop((weights[name].data_ptr(), weights[name].shape), None) is not None:
                _view(memory, place).copy_(weights[name].detach())
    return places


def take_weights(descriptor: int, places: Mapping[str, Place]) -> Iterator[tuple[str, Tensor]]:
    """Yields copies of the weights by name, one at a time."""
    with mmap.mmap(descriptor, 0) as memory:
        for name, place in places.items():
            yield name, _view(memory, place).clone()


def free(descriptor: int) -> None:
    """Frees the memory after the weights have been read."""
    os.ftruncate(descriptor, 0)


def _view(memory: mmap.mmap, place: Place) -> Tensor:
    count = torch.Size(place.shape).numel()
    flat = torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.offset)
    return flat.view(place.shape)
