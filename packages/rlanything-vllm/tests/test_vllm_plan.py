"""Planned memory of the vLLM engine; needs no vLLM."""

from __future__ import annotations

import pytest

from helpers.guess import GUESS
from rlanything.config.engines import EngineWorkload
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import LoraSettings, PolicyConfig
from rlanything_planning.architecture import architecture_of
from rlanything_planning.plan import make_plan
from rlanything_vllm.config import VLLMEngineConfig

RECIPE = load_recipe(GUESS, ["loop.max_steps=16"])
ENGINE = VLLMEngineConfig(name="vllm", memory_gib=2)
POLICY = RECIPE.policy.model_copy(update={"engine": ENGINE, "dtype": "bfloat16"})


def memory(policy: PolicyConfig, seats: int = 1) -> dict[str, float]:
    """Bytes of the policy's memory on each GPU, by part."""
    sections = make_plan(RECIPE.with_role("policy", policy), "l4", seats).sections
    [section] = [each for each in sections if each.title == "Memory: policy"]
    return {part.name: part.value or 0.0 for part in section.quantities}


def test_vllm_holds_a_copy_of_the_weights_and_a_cache_of_the_set_size() -> None:
    found = memory(POLICY)
    assert found["vLLM's weights"] == 2 * architecture_of(POLICY, "policy")[0].parameters
    assert found["vLLM's cache"] == 2 * 2**30
    assert "KV cache" not in found


def test_an_engine_that_sleeps_leaves_its_memory_to_learning() -> None:
    asleep = POLICY.model_copy(update={"engine": ENGINE.model_copy(update={"sleep": True})})
    awake, slept = memory(POLICY), memory(asleep)
    saved = awake["total"] - slept["total"]
    assert saved == pytest.approx(slept["activations"] + slept["logits"])


def test_a_seat_has_a_copy_of_its_shards_that_stays_while_vllm_sleeps() -> None:
    asleep = POLICY.model_copy(update={"engine": ENGINE.model_copy(update={"sleep": True})})
    alone, shared = memory(asleep), memory(asleep, seats=2)
    assert "engine's copy" not in alone
    assert shared["engine's copy"] == shared["vLLM's weights"]
    bound = ("weights", "gradients", "optimizer", "engine's copy")
    passing = shared["activations"] + shared["logits"] + shared["shards made whole"]
    speaking = shared["vLLM's weights"] + shared["vLLM's cache"]
    assert shared["total"] == pytest.approx(
        sum(shared[part] for part in bound) + max(passing, speaking)
    )


@pytest.mark.parametrize("sleep", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_no_remedy_advises_what_is_so_already(sleep: bool, size: int) -> None:
    engine = ENGINE.model_copy(update={"sleep": sleep})
    weights, cache = engine.memory(EngineWorkload(10, size, 1, 1, 1, 1, 1, 1, 1)).parts
    assert ("bfloat16" in weights.remedy) == (size == 4)
    assert ("engine.sleep" in weights.remedy) == ("engine.sleep" in cache.remedy) == (not sleep)


def test_the_copy_of_the_weights_has_the_adapters() -> None:
    adapted = POLICY.model_copy(update={"lora": LoraSettings(rank=4)})
    model = architecture_of(adapted, "policy")[0]
    weights = architecture_of(POLICY, "policy")[0].parameters + model.adapters
    assert memory(adapted)["vLLM's weights"] == 2 * weights
