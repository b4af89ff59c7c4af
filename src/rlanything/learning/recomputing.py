"""Gradient checkpointing: recomputes the activations of layers in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from rlanything.engines.base import ModelError
from rlanything.engines.hf.model import LanguageModel


def recomputable_layers(model: LanguageModel) -> Sequence[nn.Module]:
    """Returns the decoder's layers that transformers declares safe to recompute.

    Raises `ModelError` if it has none."""
    layers = [
        layer for layer in model.decoder.modules() if isinstance(layer, GradientCheckpointingLayer)
    ]
    if not layers:
        raise ModelError(
            f"model {model.name!r} has no layers that can be computed again. Leave "
            "gradient_checkpointing out of its section of the recipe, or train "
            "a model whose layers transformers marks for it (Qwen, Llama and most others)."
        )
    return layers


@contextmanager
def recomputed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Makes forward passes inside the context keep only the inputs of each layer.

    transformers' own switch works only in training mode, where dropout would add noise; this one
    works in any mode. It restores the layers afterwards, because the sampler uses them too."""
    own = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        # Recomputing is deterministic: dropout is off.
        again: Any = partial(
            checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
        )
        layer.forward = again
    try:
        yield
    finally:
        for layer, before in zip(layers, own, strict=True):
            if before is None:
                del layer.forward
            else:
                layer.forward = before
