"""Chooses the engine that generates with a model in this process."""

from __future__ import annotations

from rlanything.engines.base import Engine
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.plain import PlainEngine


def embedded_engine(model: LanguageModel) -> Engine:
    """Returns the batched engine; the plain one for models that it cannot compute."""
    return HFEngine(model) if model.sharing_problem is None else PlainEngine(model)
