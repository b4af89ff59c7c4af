"""A role that is held to what it was at first."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from helpers.guess import FEW, GUESS
from helpers.tiny import model_here, plain_logprobs, sample_of, tiny_model
from rlanything.algorithm.losses import LossConfig, LossInputs
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.domains.registry import load_domain
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.records import Sample
from rlanything.runs.build import build_components
from rlanything.runs.checkpoint import begin_checkpoint

PROMPT, RESPONSE = [20, 30, 40], [50, 60, 70]


def samples(model: LanguageModel, advantage: float = 1.0) -> list[tuple[str, Sample]]:
    plain = sample_of(PROMPT, RESPONSE)
    logprobs = plain_logprobs(model, plain.completion).tolist()
    return [("task", sample_of(PROMPT, RESPONSE, advantage, logprobs))]


def learner(model: LanguageModel, reference: ReferenceModel | None, weight: float) -> Learner:
    settings = TrainedRoleConfig(learning_rate=0.01, kl_weight=0.0, reference_kl_weight=weight)
    return Learner(model, settings, reference)


def k3(new: float, first: float) -> float:
    return math.exp(first - new) - 1 - (first - new)


def test_the_reference_model_adds_k3_of_its_own_log_probs_to_the_loss():
    new = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    first = torch.tensor([-1.5, -0.5], dtype=torch.float64)
    advantages = torch.ones(2, dtype=torch.float64)
    tokens = new, old, advantages, torch.tensor([0, 0]), 1
    clipped = LossConfig().function
    held = clipped(LossInputs(*tokens, reference_kl_weight=0.3, reference_logprobs=first))
    free = clipped(LossInputs(*tokens))
    expected = [k3(-1.0, -1.5), k3(-2.0, -0.5)]
    assert held.reference_kl is not None
    assert held.reference_kl.tolist() == pytest.approx(expected)
    assert (held.loss - free.loss).tolist() == pytest.approx([0.3 * each for each in expected])
    (held.loss - free.loss).sum().backward()
    assert new.grad is not None
    # d k3 / d new = 1 - exp(first - new): toward the reference.
    assert new.grad.tolist() == pytest.approx([0.3 * (1 - math.exp(d)) for d in (-0.5, 1.5)])
    assert free.reference_kl is None


def test_a_model_held_to_another_moves_toward_it():
    moved, other = tiny_model(0), tiny_model(1)
    given = samples(moved, advantage=1e-9)  # nothing to learn from the sample itself
    completion = given[0][1].completion
    goal = plain_logprobs(other, completion).detach()
    start = (plain_logprobs(moved, completion).detach() - goal).abs().mean()
    trained = learner(moved, ReferenceModel(other), 1.0)
    first, *_, last = [trained.update(given, seed) for seed in range(20)]
    distance = (plain_logprobs(moved, completion).detach() - goal).abs().mean()
    assert distance < 0.5 * start
    assert 0 < (last["reference_kl"] or 0) < (first["reference_kl"] or 0)


def test_the_measured_divergence_is_that_from_the_reference_model():
    model, other = tiny_model(0), tiny_model(1)
    given = samples(model)
    new = plain_logprobs(model, given[0][1].completion).tolist()
    old = plain_logprobs(other, given[0][1].completion).tolist()
    found = learner(model, ReferenceModel(other), 1.0).update(given, 0)
    assert found["reference_kl"] == pytest.approx(
        sum(k3(n, o) for n, o in zip(new, old, strict=True)) / len(new), rel=1e-3
    )


def test_without_weight_nothing_is_read_twice_and_nothing_is_reported():
    model = tiny_model(0)
    found = learner(model, ReferenceModel(tiny_model(1)), 0.0).update(samples(model), 0)
    assert "reference_kl" not in found


def test_a_reference_model_that_is_asked_for_must_be_there():
    with pytest.raises(ValueError, match="needs a reference model"):
        learner(tiny_model(0), None, 0.1)


def test_adapters_are_held_to_their_model_without_them_and_go_on_training():
    model = tiny_model(0)
    given = samples(model)
    before = plain_logprobs(model, given[0][1].completion).tolist()
    add_adapters(model, LoraSettings(rank=4), seed=1)
    trained = learner(model, ReferenceModel(model, adapters_off=True), 0.1)
    first = trained.update(given, 0)
    assert first["reference_kl"] == pytest.approx(0, abs=1e-10), "adapters begin as nothing"
    trained.update(given, 1)
    new = plain_logprobs(model, given[0][1].completion).tolist()
    third = trained.update(given, 2)
    assert third["reference_kl"] == pytest.approx(
        sum(k3(n, o) for n, o in zip(new, before, strict=True)) / len(new), rel=1e-3
    )
    assert (third["reference_kl"] or 0) > 0
    trains = [name for name, w in model.network.named_parameters() if w.requires_grad]
    assert trains
    assert all(".lora_" in name for name in trains)


@pytest.mark.parametrize("lora", [False, True])
def test_a_resumed_role_is_held_to_the_recipes_model_and_not_to_the_checkpoints(
    tmp_path: Path, lora: bool
) -> None:
    changes = ["judge.reference_kl_weight=0.1", "judge.temperature=1", "adapter.model=judge"]
    recipe = load_recipe(GUESS, [*FEW, *changes, *(["judge.lora={rank: 2}"] if lora else [])])
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    cast = build_components(recipe, domain)
    judge = model_here(cast.trained_models["judge"])
    given = samples(judge)
    settings = recipe.trained_roles["judge"].model_copy(update={"learning_rate": 1e-3})
    reference = ReferenceModel(judge, adapters_off=lora)
    Learner(judge, settings, reference).update(given, 0)

    class Pool:
        def to_json(self) -> str:
            return "{}"

    begin_checkpoint(tmp_path, 1, cast.trained_models, Pool())()  # pyright: ignore[reportArgumentType]
    resumed = build_components(recipe, domain, tmp_path / "iter-00001")
    completion = given[0][1].completion
    moved = plain_logprobs(model_here(resumed.trained_models["judge"]), completion).tolist()
    assert moved == pytest.approx(plain_logprobs(judge, completion).tolist(), rel=1e-5)
    fresh = build_components(recipe, domain).trained_models["judge"]
    first = plain_logprobs(model_here(fresh), completion).tolist()
    found = resumed.trained_models["judge"].learner.update(given, 0)
    expected = sum(k3(n, o) for n, o in zip(moved, first, strict=True)) / len(moved)
    assert found["reference_kl"] == pytest.approx(expected, rel=1e-2)
    assert expected > 0


@pytest.mark.parametrize("still", ["judge.train=false", "judge.name=oracle"])
def test_a_judge_that_does_not_learn_has_nothing_to_be_held(still: str) -> None:
    with pytest.raises(RecipeError, match="holds a role that learns, and this one does not"):
        load_recipe(GUESS, [*FEW, still, "judge.reference_kl_weight=0.1"])
