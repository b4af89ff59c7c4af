"""Whose model answers for a role."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from helpers.guess import FEW, GUESS
from helpers.tiny import model_here
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines.base import ModelError
from rlanything.roles.adapter import RewriteRequest
from rlanything.runs.build import build_components, build_judge, new_pool
from rlanything.runs.refusals import check_feedback


def cast_of(*overrides: str):
    recipe = load_recipe(GUESS, [*FEW, *overrides])
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    return build_components(recipe, domain), domain


@pytest.mark.parametrize("role", ["policy", "judge"])
def test_an_adapter_may_be_another_roles_model_as_it_learns(role: str) -> None:
    cast, domain = cast_of(f"adapter.model={role}", "adapter.tries=1", "adapter.temperature=0.01")
    assert len(cast.engines) == 2
    [task] = domain.tasks("train", 1, 0)
    asks = [RewriteRequest("slot", task, task, "easier", ())]

    def said() -> str:
        [proposal] = cast.adapter.propose(asks, 1, 0)
        return proposal.refused[0].text if proposal.refused else str(proposal.task)

    before = said()
    assert said() == before
    for weights in model_here(cast.trained_models[role]).network.parameters():
        weights.data.mul_(-1.0)
    assert said() != before


def test_an_adapter_of_its_own_has_an_engine_of_its_own() -> None:
    cast, _ = cast_of()
    assert len(cast.engines) == 3


def test_no_adapter_is_loaded_where_tasks_stay_as_they_are() -> None:
    cast, _ = cast_of("curriculum.adapt_tasks=false")
    assert (len(cast.engines), list(cast.chat_models)) == (2, ["policy", "judge"])


def test_a_frozen_judge_is_a_model_without_a_learner_that_others_may_still_share() -> None:
    cast, _ = cast_of("judge.train=false", "adapter.model=judge")
    assert list(cast.trained_models) == ["policy"]
    assert len(cast.engines) == 2


@pytest.mark.parametrize("role", ["policy", "judge", "adapter"])
def test_variables_that_a_roles_chat_template_does_not_read_are_refused(role: str) -> None:
    with pytest.raises(ModelError, match="its chat template does not read 'enable_thinking'"):
        cast_of(f"{role}.chat_template_kwargs={{enable_thinking: false}}")


def test_a_judges_model_is_made_once() -> None:
    recipe, made = load_recipe(GUESS, FEW), list[Any]()

    def make() -> Any:
        made.append(object())
        return made[-1]

    domain = load_domain(recipe.domain.name, recipe.domain.options)
    build_judge(recipe.judges["judge"], domain, make)
    assert len(made) == 1


def test_no_judges_model_to_share_is_one_line_with_the_remedy() -> None:
    with pytest.raises(
        RecipeError, match=r"adapter\.model: no judge's model .*adapter.model=policy"
    ):
        cast_of("adapter.model=judge", "judge.name=oracle")


def test_fewer_tasks_than_an_iteration_plays_are_refused_before_anything_is_played() -> None:
    recipe = load_recipe(GUESS, FEW)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    few = [*domain.tasks("train", recipe.loop.tasks_per_iteration - 1, 0)]
    scarce = SimpleNamespace(tasks=lambda split, count, seed: few[:count])
    with pytest.raises(RecipeError, match=r"loop\.tasks_per_iteration: \d+, but guess:Guess has"):
        new_pool(recipe, cast(Domain, scarce))


def test_a_score_first_is_refused_where_the_judge_writes_tests() -> None:
    recipe = load_recipe(GUESS, ["judge.score_first=true"])
    domain = load_domain("helpers.at_least:AtLeast", {})
    with pytest.raises(RecipeError, match=r"judge\.score_first: here judges write tests"):
        build_judge(recipe.judges["judge"], domain, Mock())


def test_feedback_on_judged_steps_is_refused_where_the_judge_writes_tests() -> None:
    def check(*overrides: str) -> None:
        tests = "domain={name: 'helpers.at_least:AtLeast'}"
        recipe = load_recipe(GUESS, [tests, *overrides])
        check_feedback(recipe, load_domain(recipe.domain.name, recipe.domain.options))

    check()
    check("judge.name=own:judge", "feedback.judge_reward.options.balance=none")
    with pytest.raises(RecipeError, match=r"feedback.judge_reward changes nothing .* leave it out"):
        check("feedback.judge_reward.options.balance=none")
