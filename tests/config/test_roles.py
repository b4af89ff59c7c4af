"""Roles of a recipe: the short form, and roles of any name."""

from __future__ import annotations

from typing import Any

import pytest

from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.roles.judges.base import FunctionJudge
from rlanything.runs.parts import Parts
from rlanything.runs.refusals import check_models

MINE: dict[str, Any] = {"name": "mine", "domain": {"name": "text"}}
VALUE = {"name": "value", "model": "models/value"}
PROPER = {"judge_reward": "proper", "judge_window": [0, 1]}
CRITIC = {"does": "scores", "name": "oracle", "weight": 0.5}


def test_the_short_form_is_that_of_roles() -> None:
    short = load_recipe({**MINE, "judge": {"temperature": 0.5}})
    long = load_recipe({**MINE, "roles": {"judge": {"temperature": 0.5}}})
    assert short == long
    assert list(short.roles) == ["policy", "judge", "adapter"]
    assert load_recipe(short.model_dump()) == short


def test_overrides_reach_a_role_in_either_form() -> None:
    for written in ({"judge": {}}, {"roles": {"judge": {}}}):
        for key in ("judge.temperature", "roles.judge.temperature"):
            recipe = load_recipe({**MINE, **written}, {key: 0.5})
            assert recipe.judges["judge"].temperature == 0.5


@pytest.mark.parametrize(
    ("data", "key"),
    [({"roles": 3}, "policy.temperature"), ({"domain": "text"}, "domains.0.weight")],
)
def test_an_override_of_what_is_no_section_is_one_line(data: dict[str, Any], key: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe({**MINE, **data}, {key: 1})
    assert "\n" not in str(refused.value)


def test_an_engine_names_the_key_of_its_role() -> None:
    recipe = load_recipe({**MINE, "roles": {"critic": CRITIC}})
    named = [role.engine_setting(name, 1).role for name, role in recipe.roles.items()]
    assert named == ["policy", "roles.critic", "adapter"]
    assert recipe.roles["critic"].engine_setting("evaluation.labeller", 1).role == (
        "evaluation.labeller"
    )


def test_a_role_of_any_name_says_what_it_does() -> None:
    recipe = load_recipe({**MINE, "roles": {"critic": CRITIC, "player": {"does": "acts"}}})
    assert list(recipe.roles) == ["player", "critic", "adapter"]
    assert (recipe.acting, list(recipe.judges), recipe.rewriting) == (
        *("player", ["critic"], "adapter"),
    )
    assert list(recipe.trained_roles) == ["player"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"policy": {}, "roles": {"policy": {}}}, "policy and roles.policy are the same role"),
        ({"adapter": {}, "roles": {"b": {"does": "rewrites"}}}, "one role rewrites"),
        ({"roles": {"b": {"does": "flies"}}}, "roles.b: say what the role does with does: acts"),
        ({"roles": {"b": {}}}, "roles.b: say what the role does"),
        ({"roles": {"tasks": CRITIC}}, "roles.tasks: write a role's name in small letters"),
        ({"roles": {"memory": CRITIC}}, "other than evaluation, labeller, memory, replays,"),
        ({"policy": {"does": ["acts"]}}, "does"),
        ({"roles": {"B/..": CRITIC}}, "small letters, digits and _"),
        ({"roles": 3}, "roles: write it in braces"),
        ({"judge": {"name": "value"}}, "judge: model: name one; none ships that values states"),
        ({"evaluation": {"labeller": {}}}, "labeller: model: name one that is stronger than"),
        ({"evaluation": {"labeller": {"model": "nano-guess"}}}, "stronger than the judge; none"),
    ],
)
def test_roles_that_do_not_fit_are_one_line(more: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe({**MINE, **more})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"judge": VALUE}, "judge_reward: consistency reads no grades; train judge with `proper`"),
        ({"feedback": PROPER}, "judge_reward: proper needs grades: only a judge of value gives"),
        ({"feedback": {"advantage": "gae"}}, "advantage: gae needs values: only a judge of value"),
        (
            {"feedback": {"advantage": "graph", "policy_reward": "judge"}},
            "advantage: graph reads no scores: set policy_reward: outcome",
        ),
        (
            {"feedback": {"advantage": "graph", "policy_lambda_control": "adaptive"}},
            "advantage: graph reads no scores",
        ),
        (
            {"judge": {"train": False}, "feedback": {"judge_reward": "replays"}},
            "judge_reward: replays needs a judge that learns: leave it out",
        ),
        (
            {"judge": VALUE, "feedback": {"judge_reward": "proper"}},
            r"judge_window: proper learns from every task: set \[0, 1\]",
        ),
        (
            {"judge": VALUE, "feedback": PROPER, "roles": {"critic": CRITIC}},
            "judge.name: leave out judges that score steps next to it",
        ),
        (
            {"judge": {**VALUE, "weight": 2.0}, "feedback": PROPER},
            "judge.weight: a single judge is weighed against no other",
        ),
        ({"judge": {"weight": 2.0}}, "judge.weight: a single judge is weighed against no other"),
    ],
)
def test_what_nothing_reads_is_refused(more: dict[str, Any], said: str) -> None:
    recipe = load_recipe({**MINE, **more})
    with pytest.raises(RecipeError, match=said):
        check_models(recipe)


@pytest.mark.parametrize("judge", [VALUE, {**VALUE, "train": False}])
@pytest.mark.parametrize("advantage", ["gae", "step"])
def test_a_judge_of_value_is_allowed(judge: dict[str, Any], advantage: str) -> None:
    feedback = {**PROPER, "advantage": advantage, "policy_reward": "outcome"}
    more = {"curriculum": {"adapt_tasks": False}}
    recipe = load_recipe({**MINE, "judge": judge, "feedback": feedback, **more})
    check_models(recipe)
    assert recipe.reads_scores == (advantage == "gae" or "train" not in judge)


def test_one_of_several_judges_is_chosen_by_name() -> None:
    recipe = load_recipe({**MINE, "judge": {}, "roles": {"critic": CRITIC}})
    assert recipe.one_judge("critic") == "critic"
    with pytest.raises(RecipeError, match="choose with --role one of judge, critic"):
        recipe.one_judge(None)
    with pytest.raises(RecipeError, match="--role referee: no judge"):
        recipe.one_judge("referee")


def test_objects_judge_in_the_roles_that_are_named() -> None:
    recipe = load_recipe({**MINE, "judge": {}, "roles": {"critic": CRITIC}})
    judge = FunctionJudge(lambda trajectory, i: 1)
    named = Parts(judge={"critic": judge}).named_in(recipe)
    assert named.judges["critic"].name.startswith("object(")
    assert named.judges["judge"].name == "llm"
    with pytest.raises(RecipeError, match=r"several \(judge, critic\): hand over judge="):
        Parts(judge=judge).named_in(recipe)
    with pytest.raises(RecipeError, match="no role 'referee' scores"):
        Parts(judge={"referee": judge}).named_in(recipe)
