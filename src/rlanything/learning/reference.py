"""The reference model: a role's model at the start of the run, for the reference KL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlanything.engines.hf.model import LanguageModel


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """The model at the start of the run: a copy, or the trained model with its adapters off."""

    model: LanguageModel
    """A separate model that never trains or, with `adapters_off`, the trained one."""
    adapters_off: bool = False
    """Whether the reference is the trained model with its adapters switched off. No copy is needed;
    correct if only adapters train and they began at zero."""

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Makes `model` the reference inside the context. Enter it before the forward pass that
        needs a gradient, never between that and its backward pass."""
        if not self.adapters_off:
            yield
            return
        network: Any = self.model.network
        network.disable_adapters()
        try:
            yield
        finally:
            network.enable_adapters()
