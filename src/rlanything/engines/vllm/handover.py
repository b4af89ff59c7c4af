"""A model's weights, handed from the process that trains them to one that samples from them.

They lie in memory that has no name in any file system and belongs to the two processes alone: when
they are gone, however they went, so is it.
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
    """Where a tensor lies."""

    offset: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: torch.dtype


def put_weights(descriptor: int, weights: Mapping[str, Tensor]) -> dict[str, Place]:
    """Copies weights into the memory; those that are one tensor under two names once."""
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
    """Copies them out again, one at a time, by name."""
    with mmap.mmap(descriptor, 0) as memory:
        for name, place in places.items():
            yield name, _view(memory, place).clone()


def free(descriptor: int) -> None:
    """Gives the memory back, once they are taken."""
    os.ftruncate(descriptor, 0)


def _view(memory: mmap.mmap, place: Place) -> Tensor:
    count = torch.Size(place.shape).numel()
    flat = torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.offset)
    return flat.view(place.shape)
