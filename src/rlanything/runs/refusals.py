"""Refuses recipes whose parts do not go together, before anything is loaded."""

from __future__ import annotations

from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.sections import FeedbackConfig
from rlanything.domains.base import Domain

OF_JUDGED_STEPS = ("judge_lambda", "judge_normalization", "judge_balance", "policy_comparison")
"""Settings of feedback that nothing reads where the judge writes tests: it scores no steps."""


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


def on_judged_steps(recipe: Recipe) -> list[str]:
    """Returns the settings of feedback on judged steps that a recipe with a model as its judge has
    changed."""
    changed = [
        key
        for key in OF_JUDGED_STEPS
        if getattr(recipe.feedback, key) != FeedbackConfig.model_fields[key].default
    ]
    return changed if recipe.judge.name == "llm" else []


def check_feedback(recipe: Recipe, domain: Domain) -> None:
    """Raises `RecipeError` for feedback on judged steps, where the judge writes tests."""
    if domain.capabilities.judge == "tests" and (changed := on_judged_steps(recipe)):
        raise RecipeError(
            f"feedback.{changed[0]} changes nothing where the judge writes tests, as in "
            f"{recipe.domain.name}: leave it out"
        )
