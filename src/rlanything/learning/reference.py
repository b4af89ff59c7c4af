"""The model that a run began with, which the one that learns may be held to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlanything.engines.hf.model import LanguageModel


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """What a role was at first."""

    model: LanguageModel
    """A model of its own, which nothing moves; or, `bare`, the one that learns."""
    bare: bool = False
    """Whether it is only adapters that learn, and began as nothing: without them the model is still
    what it was, and no copy is needed."""

    @contextmanager
    def reference(self) -> Iterator[LanguageModel]:
        """The model as it was, inside the context. Not while gradients are on their way."""
        if not self.bare:
            yield self.model
            return
        network: Any = self.model.network
        network.disable_adapters()
        try:
            yield self.model
        finally:
            network.enable_adapters()
