"""Weights of which this process holds a shard, in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def whole(tensor: Tensor) -> Tensor:
    """Returns a tensor in full. Of one that several processes hold together (a `DTensor`) they
    gather it, so all of them ask for the same ones in the same order."""
    sharded: Any = tensor
    return sharded.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def whole_weights(network: nn.Module) -> Iterator[tuple[list[str], Tensor]]:
    """Yields each tensor of a network's state dict in full, with its names: tied ones have several.

    One at a time: whoever drops what it does not need never holds all."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    state: dict[str, Tensor] = network.state_dict()
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(parameters.get(name, tensor)), []).append(name)
    for alike in names.values():
        yield alike, whole(state[alike[0]])
