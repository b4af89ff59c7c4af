"""Settings of the embedded engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlanything.config.engines import EngineConfig, EngineSetting

if TYPE_CHECKING:
    from rlanything.engines.base import Engine
    from rlanything.engines.hf.model import LanguageModel


class EmbeddedEngineConfig(EngineConfig):
    """transformers in this process."""

    name: str = "embedded"
    """In this process, with transformers."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns the engine that shares what prompts have in common, where the model allows it."""
        from rlanything.engines.deadline import TimedEngine
        from rlanything.engines.hf.embedded import embedded_engine

        return TimedEngine(embedded_engine(model), setting.timeout_seconds, setting.role)
