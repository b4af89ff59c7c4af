"""The reference model: what a role was when the run began, to which its updates may be held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlanything.engines.hf.model import LanguageModel


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """The model that a run began with: a copy, or the model that learns without its adapters."""

    model: LanguageModel
    """A model of its own that never trains or, with `adapters_off`, the one that learns."""
    adapters_off: bool = False
    """Whether the reference is the learning model with its adapters switched off. That needs no
    copy, and is right where only adapters train and began as zero."""

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Makes `model` what the run began with, inside the context. Enter it before the forward
        pass whose gradient is wanted, never between that and its backward pass."""
        if not self.adapters_off:
            yield
            return
        network: Any = self.model.network
        network.disable_adapters()
        try:
            yield
        finally:
            network.enable_adapters()
