"""Refuses recipes whose parts do not go together, before anything is loaded."""

from __future__ import annotations

from rlanything.algorithm.feedback import AdvantageConfig
from rlanything.algorithm.options import FunctionConfig
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.sections import FeedbackConfig, check_inputs
from rlanything.domains.base import Domain, UnitTestDomain

COMPARED_STEPS = ("trajectory", "state")
"""Advantages that are that of `step` where an episode has one step."""


def check_models(recipe: Recipe) -> None:
    """Raises `RecipeError` for a role that an endpoint serves and that should learn (it gives text,
    and learning needs the sampled tokens with their log-probs), and for sharing a judge's model
    where none is in this process."""
    why = "engine: an endpoint gives no tokens or log-probs to train on"
    if recipe.policy.remote:
        raise RecipeError(
            f"policy: {why}; train a model that is here (engine: {{name: embedded}}), or measure "
            "this one with `rlanything eval RECIPE`"
        )
    if recipe.judge.name == "llm" and recipe.judge.remote and recipe.judge.train:
        raise RecipeError(
            f"judge: {why}; leave this judge as it is with judge.train=false, or train one "
            "that is here (engine: {name: embedded})"
        )
    check_functions(recipe)
    numbered = [role.device for role in recipe.roles if ":" in role.device]
    if recipe.cluster.seats > 1 and numbered:
        raise RecipeError(
            f"device: {numbered[0]} is one GPU, and a role is on all {recipe.cluster.seats} seats; "
            "say `cuda`: each seat has its own"
        )
    towers = [
        name
        for name, role in (("policy", recipe.policy), ("judge", recipe.judge))
        if role.train_vision
    ]
    if recipe.cluster.seats > 1 and towers:
        raise RecipeError(
            f"{towers[0]}.train_vision: one seat alone can train what reads images; set "
            "cluster.seats=1, or leave it frozen"
        )
    if recipe.adapter.model == "judge" and not recipe.judge.here:
        raise RecipeError(
            "adapter.model: no judge's model is here to share; share the policy's "
            "(adapter.model=policy), or give the adapter a model of its own"
        )


def check_functions(recipe: Recipe) -> None:
    """Raises `RecipeError` for a loss, an advantage or a reward that cannot be found, that refuses
    its options, or that needs what no role gives."""
    functions: dict[str, FunctionConfig] = {
        "policy.loss": recipe.policy.loss,
        "feedback.advantage": recipe.feedback.advantage,
        "feedback.judge_reward": recipe.feedback.judge_reward,
    }
    if recipe.judge.trains:
        functions["judge.loss"] = recipe.judge.loss
    for key, function in functions.items():
        try:
            _ = function.function
            if isinstance(function, AdvantageConfig):
                check_inputs(function)
        except ValueError as error:
            raise RecipeError(f"{key}: {error}") from None


def on_judged_steps(recipe: Recipe) -> list[str]:
    """Returns the settings of feedback on judged steps that a recipe with a model as its judge has
    changed: nothing reads them where the judge writes tests and scores no steps."""
    feedback, default = recipe.feedback, FeedbackConfig()
    changed = {
        "judge_lambda": feedback.judge_lambda != default.judge_lambda,
        "judge_reward": not feedback.judge_reward.same_as(default.judge_reward),
        "advantage": feedback.advantage.name in COMPARED_STEPS,
    }
    return [key for key, is_so in changed.items() if is_so and recipe.judge.name == "llm"]


def check_feedback(recipe: Recipe, domain: Domain) -> None:
    """Raises `RecipeError` for feedback on judged steps, where the judge writes tests."""
    if isinstance(domain, UnitTestDomain) and (changed := on_judged_steps(recipe)):
        raise RecipeError(
            f"feedback.{changed[0]} changes nothing where the judge writes tests, as in "
            f"{recipe.domain.name}: leave it out"
        )
