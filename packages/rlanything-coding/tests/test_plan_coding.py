"""Plans of coding recipes, without data and without a sandbox."""

from __future__ import annotations

import pytest

from helpers.plans import value
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import SHORT_FORM
from rlanything_coding.domain import Coding
from rlanything_coding.sandbox.base import SandboxUnavailable
from rlanything_coding.sandbox.local import LocalExecutor
from rlanything_planning.assumptions import (
    assume,
    measure,
    play,
    prompt_lengths,
    tokenizer_of,
)
from rlanything_planning.plan import make_plan
from rlanything_planning.report import PlanError

CODING = "domain.name=rlanything_coding.domain:Coding"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("coding-nano", [CODING])


def test_the_judges_whole_prompt_is_its_opening(monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    domain, (tokenize, _) = Coding(), tokenizer_of("no/such/model")
    task = domain.stand_ins(1)[0]
    episode, fault = play(domain, task, 1, [])
    assert fault is not None
    assert fault.endswith("there is no sandbox: bwrap is missing: install bubblewrap")
    found = measure(domain, [episode], dict.fromkeys(SHORT_FORM, tokenize), SHORT_FORM)
    whole = len(tokenize(domain.judge_prompt(task, ())))
    assert found["judge_opening_tokens"] == whole
    assert found["judge_turn_tokens"] == found["judge_question_tokens"] == 0
    assert found["policy_turn_tokens"] == 0


def no_sandbox(*_: object, **__: object) -> None:
    raise SandboxUnavailable("bwrap is missing: install bubblewrap")


def test_nothing_needs_a_sandbox(recipe, monkeypatch):
    played = prompt_lengths(recipe, Coding())
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    found = prompt_lengths(recipe, Coding())
    assert "environment_seconds" not in found
    for name in ("policy_opening_tokens", "judge_opening_tokens"):
        value, source = found[name]
        assert "cannot be played here (task " in source
        assert "there is no sandbox: bwrap is missing: install bubblewrap)" in source
        assert value == played[name][0]
    assert assume(recipe, []).environment_seconds == 0.0004


def test_data_that_are_elsewhere_have_stand_ins(monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    assumed = assume(load_recipe("coding-qwen2.5-7b", [CODING]), [])
    assert (
        "stand-ins, a rough guide: the recipe's data are not here"
        in (assumed.sources["policy_opening_tokens"])
    )
    assert 50 < assumed.roles["policy"].opening_tokens < 1000
    assert assumed.roles["policy"].answer_tokens == 2048


def test_data_that_cannot_be_used_are_an_error_all_the_same(tmp_path):
    file = tmp_path / "train.json"
    file.write_text("[{}]")
    options = f"domain.options={{data: {{train: {file}}}}}"
    broken = load_recipe("coding-nano", [CODING, options])
    with pytest.raises(PlanError, match=r"domain: .*train.json, item 0: there is no 'question'"):
        assume(broken, [])


def test_the_papers_coding_recipe_fits_as_its_head_says(monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    loaded = load_recipe("coding-qwen2.5-7b", [CODING])
    assert not make_plan(loaded, "h200", 1).fits
    plan = make_plan(loaded, "h200")
    assert plan.fits
    assert plan.count == loaded.cluster.seats == 8
    assert value(plan, "judge: answers") == 67 * 32


def test_the_papers_coding_recipe_has_the_papers_settings():
    recipe = load_recipe("coding-qwen2.5-7b", [CODING])
    for role in (recipe.policy, recipe.judges["judge"]):
        assert (role.kl_weight, role.learning_rate) == (0.01, 1e-6)
        assert (role.loss.name, role.loss.options) == ("clipped", {"clip_range": 0.2})
    assert (recipe.policy.temperature, recipe.judges["judge"].temperature) == (1.0, 0.8)
    assert recipe.judges["judge"].samples_per_step == recipe.loop.rollouts_per_task == 32
    assert (recipe.loop.tasks_per_iteration, recipe.loop.iterations) == (64, 300)
    assert recipe.evaluation.rollouts_per_task == 16
    assert recipe.feedback.policy_window == (0, 1)
    assert recipe.domain.options["programs_agree"] is False
    assert recipe.domain.options["style"] == "paper"


def test_where_the_paper_is_silent_its_coding_recipe_has_what_was_published():
    recipe = load_recipe("coding-qwen2.5-7b", [CODING])
    for role in (recipe.policy, recipe.judges["judge"]):
        assert (role.max_tokens, role.minibatches) == (2048, 2)
    adapter = recipe.adapter
    assert (adapter.temperature, adapter.tries, adapter.max_tokens) == (0.8, 3, 8096)
    assert (recipe.evaluation.temperature, recipe.evaluation.every) == (0.0, 10)
    assert recipe.domain.options["tests"] == 8
    # Every split that is evaluated has its data.
    assert {"train", *recipe.evaluation.splits} == set(recipe.domain.options["data"])


def test_the_lengths_of_the_papers_prompts_are_planned(monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    recipe = load_recipe("coding-qwen2.5-7b", [CODING])
    nano = load_recipe(recipe, ["domain.options.style=nano"])
    planned, short = assume(recipe, []).values, assume(nano, []).values
    assert planned["adapter_prompt_tokens"] > 1.5 * short["adapter_prompt_tokens"]
    assert planned["judge_opening_tokens"] > short["judge_opening_tokens"]
    assert planned["adapter_answer_tokens"] == 8096
