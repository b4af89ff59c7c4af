"""Engines and models for tests on the real vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from rlanything.config.engines import EngineSetting, OnStage, unseen
from rlanything.engines import shipped
from rlanything.engines.base import ModelError
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything_vllm.config import VLLMEngineConfig
from rlanything_vllm.engine import VLLMEngine


def engine_of(
    model: LanguageModel,
    seconds: float = 60.0,
    device: str = "cpu",
    on_stage: OnStage = unseen,
    **settings: Any,
) -> VLLMEngine:
    config = VLLMEngineConfig.model_validate({"name": "vllm", "memory_gib": 0.25} | settings)
    setting = EngineSetting("policy", "", "float32", device, 1, seconds, on_stage=on_stage)
    try:
        return VLLMEngine(model, config, setting)
    except ModelError as error:
        if "takes no new weights below adapters" in str(error):
            pytest.skip("adapters need vLLM 0.28")
        raise


def nano_policy() -> LanguageModel:
    return load_model(shipped.resolve("nano", "policy"), "float32")
