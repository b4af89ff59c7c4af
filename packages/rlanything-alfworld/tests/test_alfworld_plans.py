"""Plans of AlfWorld's recipes: lengths of their prompts, and what the paper's needs."""

from __future__ import annotations

import pytest

from helpers.plans import values
from rlanything.config.recipe import Recipe, load_recipe
from rlanything_alfworld.domain import AlfWorld
from rlanything_planning.assumptions import assume, prompt_lengths
from rlanything_planning.plan import make_plan
from rlanything_planning.workload import workloads

HOST = ["environment_seconds=0"]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("quickstart")


@pytest.fixture(scope="module")
def paper() -> Recipe:
    return load_recipe("alfworld-qwen2.5-7b")


def test_prompts_are_measured_in_the_tokens_of_the_recipes_own_models(recipe):
    lengths = prompt_lengths(recipe, AlfWorld())
    # As runs of the quickstart had them (benchmarks/plan.md).
    ran = {"policy_opening_tokens": 68, "policy_turn_tokens": 41, "judge_opening_tokens": 84}
    ran |= {"judge_turn_tokens": 40, "judge_question_tokens": 7}
    assert {name: lengths[name][0] for name in ran} == pytest.approx(ran, rel=0.1)


def test_a_recipe_whose_data_are_elsewhere_is_planned_with_whole_rooms(paper, monkeypatch):
    monkeypatch.delenv("RLANYTHING_ALFWORLD_DATA", raising=False)
    nano = {"style": "nano", "commands": "none", "first_of_kind": False}
    changes = {f"domain.options.{name}": value for name, value in nano.items()}
    assumed = assume(load_recipe(paper, changes), ["policy_turn_tokens=50"])
    assert assumed.roles["policy"].turn_tokens == 50
    assert "data are not here" in assumed.sources["policy_opening_tokens"]
    # As in Qwen's own tokens (benchmarks/plan.md), which a plan counts roughly.
    ran = {"policy_opening_tokens": 219, "judge_opening_tokens": 253, "judge_turn_tokens": 85}
    planned = {name: assumed.values[name] for name in ran}
    assert planned == pytest.approx(ran, rel=0.15)


def test_responses_are_counted_in_the_prompts_that_repeat_them_and_in_no_others(recipe, paper):
    chat, screens = assume(recipe, []), assume(paper, [])
    assert [chat.roles[role].quoted for role in ("policy", "judge")] == [1, 1]
    acting, scoring = (screens.roles[role] for role in ("policy", "judge"))
    assert (acting.quoted, scoring.quoted) == (0, 0)
    policy, judge, _ = workloads(paper, screens)
    last = acting.opening_tokens + acting.question_tokens + 31 * acting.turn_tokens
    assert policy.task[0] == (pytest.approx(last), pytest.approx(last + 2000), 0)
    # A judge's prompt holds the response that it judges, which the next one leaves out.
    last = scoring.opening_tokens + scoring.question_tokens + 2000 + 32 * scoring.turn_tokens
    prompt, whole, _ = judge.task[0]
    assert (prompt, whole) == (pytest.approx(last), pytest.approx(last + 4000))
    shorter, _, shared = judge.task[3]
    assert shared == pytest.approx(shorter - scoring.question_tokens - 2000)


def test_the_papers_recipe_has_the_papers_settings(paper):
    for role in (paper.policy, paper.judges["judge"]):
        assert (role.kl_weight, role.learning_rate) == (0.01, 1e-6)
        assert (role.loss.name, role.loss.options) == ("clipped", {"clip_range": 0.2})
        assert role.temperature == 0.8
    assert paper.judges["judge"].samples_per_step == 3
    assert (paper.loop.tasks_per_iteration, paper.loop.rollouts_per_task) == (16, 8)
    assert (paper.loop.max_steps, paper.evaluation.max_steps) == (40, 60)
    assert paper.loop.iterations == 200
    assert (paper.curriculum.alpha_low, paper.curriculum.alpha_high) == (0.2, 0.8)
    assert (paper.feedback.policy_lambda, paper.feedback.judge_lambda) == (1, 1)


def test_the_papers_recipe_fits_eight_gpus_with_every_weight_trained():
    recipe = load_recipe("alfworld-qwen2.5-7b")
    assert recipe.policy.lora is None
    assert recipe.judges["judge"].lora is None
    plan = make_plan(recipe, "h200")
    assert plan.count == recipe.cluster.seats == 8
    assert plan.fits
    # packages/rlanything-planning/README.md has these.
    needs = {n: values(make_plan(recipe, "h200", n), "Memory: each")["h200 0"] for n in (1, 64)}
    needs[8] = values(plan, "Memory: each")["h200 0"]
    assert {n: round(need / 1e9) for n, need in needs.items()} == {1: 422, 8: 124, 64: 108}
    assert recipe.cluster.offload
    assert "h200 0: at rest" not in values(plan, "Memory: each")
    staying = recipe.cluster.model_copy(update={"offload": False})
    stayed = make_plan(recipe.model_copy(update={"cluster": staying}), "h200")
    assert not stayed.fits
    whole = values(stayed, "Memory: each")
    assert whole["h200 0: at rest"] == needs[8]
    assert round(whole["h200 0"] / 1e9) == 153


def test_the_papers_recipe_does_not_fit_eight_smaller_gpus_and_is_told_nothing_that_is_so():
    plan = make_plan(load_recipe("alfworld-qwen2.5-7b"), "h100")
    assert not plan.fits
    lines = {line.name: line.how for part in plan.sections for line in part.quantities}
    assert lines["h100 0: largest known"].startswith("h200, of 141 GB: fits, ")
    remedy = lines["h100 0: remedy"]
    for present in ("bfloat16", "gradient_checkpointing", "offload", "sleep"):
        assert present not in remedy


def test_the_quickstart_fits_one_gpu(recipe: Recipe) -> None:
    assert make_plan(recipe, "h200", 1, HOST).fits
