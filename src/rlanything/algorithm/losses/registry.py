"""Finds the loss that a recipe names."""

from __future__ import annotations

from typing import cast

from rlanything.algorithm.losses.base import Loss
from rlanything.plugins import PluginError, load_plugin


def load_loss(loss: str | Loss) -> Loss:
    """Returns the loss registered under a name (an entry point of `rlanything.losses`), the
    function that a `module:function` string names, or a function as it is.

    Raises `PluginError`, one line with the remedy, where there is none, where it cannot be
    imported, and where what is there is no function."""
    if not isinstance(loss, str):
        return loss
    function = load_plugin("loss", loss)
    if not callable(function):
        raise PluginError(f"loss {loss!r} is no function: name one that takes a LossInputs")
    return cast(Loss, function)
