"""Settings of the embedded engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


KEPT_ROWS, BATCH_ROWS, PREFILL_TOKENS = 256, 128, 16_384
"""The embedded engine's limits (engines/hf): cached conversations, prompts per batch, and tokens of
one prefill pass."""
CACHE_ROOM = 1.25
"""Average capacity of its cache over what is used; it grows by half at a time."""
DRAW_BYTES = 28
"""Bytes per logit while sampling: three copies in float32, two in float64."""


class EmbeddedEngineConfig(EngineConfig):
    """transformers in this process."""

    name: str = "embedded"
    """In this process, with transformers."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns an engine with prefix sharing, if the model allows it."""
        from rlanything.engines.deadline import TimedEngine
        from rlanything.engines.hf.engine import embedded_engine

        return TimedEngine(embedded_engine(model), setting.timeout_seconds, setting.role)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns the memory of its cache and passes. It computes with the weights of its role's
        model, and frees nothing between phases."""
        rows, columns = min(workload.conversations, KEPT_ROWS), workload.longest_tokens
        cache = rows * columns * CACHE_ROOM * workload.cache_bytes_per_token
        prefilled = min(workload.new_prompt_tokens, PREFILL_TOKENS)
        answers = min(workload.conversations, BATCH_ROWS) * workload.answers_per_prompt
        working = prefilled * workload.pass_bytes_per_token
        working += answers * workload.vocabulary * DRAW_BYTES
        return EngineMemory(
            (
                MemoryPart(
                    "KV cache",
                    cache,
                    f"{rows} rows x {columns:,} tokens (the longest) x {CACHE_ROOM:g} (room to "
                    f"grow) x {workload.cache_bytes_per_token:,} B",
                    "a lower max_tokens or max_steps (whole conversations are cached), or engine: "
                    "{name: vllm}",
                ),
                MemoryPart(
                    "generating",
                    working,
                    f"at most {prefilled:,} prefilled tokens x {workload.pass_bytes_per_token:,} B "
                    f"+ {answers} answers x {workload.vocabulary:,} logits x {DRAW_BYTES} B",
                    "a lower max_tokens or max_steps",
                ),
            )
        )
