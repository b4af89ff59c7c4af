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
"""The embedded engine's own limits (engines/hf): conversations whose cache is kept, prompts that
are answered together, and tokens of one prefill pass."""
CACHE_ROOM = 1.25
"""Its cache grows by half at a time: a quarter more than is used, on average."""
DRAW_BYTES = 28
"""A logit while a token is drawn: three times in float32, twice in float64."""


class EmbeddedEngineConfig(EngineConfig):
    """transformers in this process."""

    name: str = "embedded"
    """In this process, with transformers."""

    def build(self, model: LanguageModel, setting: EngineSetting) -> Engine:
        """Returns the engine that shares what prompts have in common, where the model allows it."""
        from rlanything.engines.deadline import TimedEngine
        from rlanything.engines.hf.engine import embedded_engine

        return TimedEngine(embedded_engine(model), setting.timeout_seconds, setting.role)

    def memory(self, workload: EngineWorkload) -> EngineMemory:
        """Returns its cache and what passes need: weights are the learner's unless these are in
        shards, and nothing is given back between phases."""
        rows, columns = min(workload.conversations, KEPT_ROWS), workload.longest_tokens
        cache = rows * columns * CACHE_ROOM * workload.cache_bytes_per_token
        prefilled = min(workload.new_prompt_tokens, PREFILL_TOKENS)
        answers = min(workload.conversations, BATCH_ROWS) * workload.answers_per_prompt
        working = prefilled * workload.pass_bytes_per_token
        working += answers * workload.vocabulary * DRAW_BYTES
        parameters, size = workload.parameters, workload.parameter_bytes
        how = f"{parameters:,} parameters x {size} B: whole, as the learner's are in shards"
        remedy = "a smaller model, or bfloat16"
        copied = MemoryPart("weights to generate with", parameters * size, how, remedy)
        return EngineMemory(
            (
                *([copied] if workload.sharded else []),
                MemoryPart(
                    "KV cache",
                    cache,
                    f"{rows} rows x {columns:,} tokens (the longest) x {CACHE_ROOM:g} (room to "
                    f"grow) x {workload.cache_bytes_per_token:,} B",
                    "a lower max_tokens or max_steps: many conversations are kept whole; or "
                    "engine: {name: vllm}",
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
