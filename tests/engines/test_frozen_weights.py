"""A role that never trains keeps its weights as narrow as it computes; one that may, does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.guess import FEW, GUESS
from helpers.tiny import model_here, plain_logprobs, tiny_model, tiny_recurrent_model
from rlanything.cluster.models import load_role
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import AdapterConfig, JudgeConfig, PolicyConfig, RoleConfig
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.engine import HFEngine, embedded_engine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.plain import PlainEngine
from rlanything.runs.build import build_components

REQUESTS = [Request(tuple(range(5, 8 + 7 * i)), (i, i + 10), conversation=str(i)) for i in range(4)]
SAMPLING = Sampling(1.0, 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    # Weights that are not bfloat16 numbers already.
    tiny_model(1, kind="llama", scale=0.2).save(place)
    return place


def dtypes(model: LanguageModel) -> set[torch.dtype]:
    return {weights.dtype for weights in model.network.parameters()}


def size(model: LanguageModel) -> int:
    return sum(weights.nbytes for weights in model.network.parameters())


@pytest.mark.parametrize("role", [PolicyConfig, JudgeConfig])
def test_roles_that_may_train_keep_float32_weights(folder: Path, role: type[RoleConfig]) -> None:
    model = load_role(role(model=str(folder), dtype="bfloat16"))
    assert dtypes(model) == {torch.float32}
    assert all(weights.requires_grad for weights in model.network.parameters())


def test_a_role_that_never_trains_takes_half_the_memory_in_bfloat16(folder: Path) -> None:
    narrow = load_role(AdapterConfig(model=str(folder), dtype="bfloat16"))
    wide = load_role(AdapterConfig(model=str(folder)))
    assert dtypes(narrow) == {torch.bfloat16}
    assert dtypes(wide) == {torch.float32}
    assert 2 * size(narrow) == size(wide)
    for model in (narrow, wide):
        assert not any(weights.requires_grad for weights in model.network.parameters())
        # What positions turn by is no weight: in bfloat16 far ones would be confused.
        assert {each.dtype for each in model.network.buffers()} == {torch.float32}


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    tiny_model(1).save(tmp_path)
    network: Any = load_role(AdapterConfig(model=str(tmp_path), dtype="bfloat16")).network
    assert network.lm_head.weight is network.model.embed_tokens.weight
    assert network.lm_head.weight.dtype == torch.bfloat16


def test_the_batched_engine_generates_with_narrow_weights(folder: Path) -> None:
    model = load_role(AdapterConfig(model=str(folder), dtype="bfloat16"))
    exact = load_role(AdapterConfig(model=str(folder)))
    autocast = load_role(PolicyConfig(model=str(folder), dtype="bfloat16"))
    engine = embedded_engine(model)
    assert isinstance(engine, HFEngine)
    hidden = model.hidden_states(torch.tensor([[5, 6, 7]]), torch.arange(3)[None], None)
    assert hidden.dtype == torch.bfloat16
    assert model.logits(hidden).dtype == torch.float32
    off: dict[str, list[float]] = {"narrow": [], "autocast": []}
    for name, each in (("narrow", engine), ("autocast", HFEngine(autocast))):
        for _ in range(2):  # the second time from the cache
            for group in each.generate(REQUESTS, SAMPLING):
                for completion in group:
                    with torch.no_grad():
                        expected = plain_logprobs(exact, completion)
                    off[name] += (torch.tensor(completion.logprobs) - expected).abs().tolist()
    layers = engine._cache._layers.values()
    assert {store.dtype for pair in layers for store in pair} == {torch.bfloat16}
    narrow, usual = (sum(each) / len(each) for each in off.values())
    # No further from float32 than autocast is, give or take; and not by accident the same.
    assert 0 < narrow < 3 * usual < 0.1


def test_the_plain_engine_generates_with_narrow_weights(tmp_path: Path) -> None:
    tiny_recurrent_model(1).save(tmp_path)
    model = load_role(AdapterConfig(model=str(tmp_path), dtype="bfloat16"))
    engine = embedded_engine(model)
    assert isinstance(engine, PlainEngine)
    found = engine.generate(REQUESTS[:2], SAMPLING)
    assert all(len(each.token_ids) > 0 for group in found for each in group)


def test_a_cast_narrows_its_adapter_only() -> None:
    changes = [f"{role}.dtype=bfloat16" for role in ("policy", "judge", "adapter")]
    recipe = load_recipe(GUESS, [*FEW, *changes])
    cast = build_components(recipe, load_domain(recipe.domain.name, recipe.domain.options))
    trained = cast.trained_models
    assert {name: dtypes(model_here(model)) for name, model in trained.items()} == {
        name: {torch.float32} for name in ("policy", "judge")
    }
    chat_model: Any = cast.chat_models["adapter"]
    assert dtypes(chat_model._model) == {torch.bfloat16}
