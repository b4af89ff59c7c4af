"""Refuses recipes with incompatible parts, before anything is loaded."""

from __future__ import annotations

from rlanything.algorithm.options import FunctionConfig
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import JudgeConfig, PolicyConfig, TrainedRoleConfig, role_key
from rlanything.config.sections import FeedbackConfig
from rlanything.domains.base import Domain

ONLY = "only a judge of value gives them (judge.name=value)"
SCORING = {"llm", "oracle"}
"""Judges that give no values; one of your own may."""
COMPARED_STEPS = ("trajectory", "state")
"""Advantages equal to `step` if an episode has one step."""


def check_models(recipe: Recipe) -> None:
    """Raises `RecipeError` for a trained role at an endpoint (it returns text, but learning needs
    sampled tokens with log-probs), for sharing the model of a role without one in this process, and
    for an unused role."""
    why = "engine: an endpoint gives no tokens or log-probs to train on"
    if recipe.policy.remote:
        raise RecipeError(
            f"{role_key(recipe.acting)}: {why}; train a model that is here (engine: "
            "{name: embedded}), or measure this one with `rlanything eval RECIPE`"
        )
    if not recipe.policy.train:
        raise RecipeError(f"{role_key(recipe.acting)}.train: the first role that acts learns")
    for name, role in (recipe.players | recipe.judges).items():
        key = role_key(name)
        by_model = isinstance(role, PolicyConfig) or role.by_model
        if by_model and role.remote and role.train:
            raise RecipeError(
                f"{key}: {why}; leave this role as it is with {key}.train=false, or train one "
                "that is here (engine: {name: embedded})"
            )
        single = isinstance(role, JudgeConfig) and (len(recipe.judges) == 1 or role.values)
        if isinstance(role, JudgeConfig) and single and role.weight != 1:
            raise RecipeError(
                f"{key}.weight: a single judge is weighed against no other: leave it out"
            )
    check_functions(recipe)
    check_values(recipe)
    numbered = [section.device for section in recipe.model_sections if ":" in section.device]
    if recipe.cluster.seats > 1 and numbered:
        raise RecipeError(
            f"device: {numbered[0]} is one GPU, and a role is on all {recipe.cluster.seats} seats; "
            "say `cuda`: each seat has its own"
        )
    roles = recipe.roles.items()
    learning = [(n, role) for n, role in roles if isinstance(role, TrainedRoleConfig)]
    towers = [name for name, role in learning if role.train_vision]
    elsewhere = [name for name, role in learning if role.learner is not None]
    if recipe.cluster.seats > 1 and elsewhere:
        raise RecipeError(
            f"{role_key(elsewhere[0])}.learner: it trains elsewhere, so there is nothing to put on "
            "seats; set cluster.seats=1"
        )
    if recipe.cluster.seats > 1 and towers:
        raise RecipeError(
            f"{role_key(towers[0])}.train_vision: one seat alone can train what reads images; set "
            "cluster.seats=1, or leave it frozen"
        )
    shared, key = recipe.shared_role, role_key(recipe.rewriting)
    if shared in recipe.judges and not recipe.judges[shared].here:
        raise RecipeError(
            f"{key}.model: no judge's model is here to share; share the policy's "
            f"({key}.model={recipe.acting}), or give it a model of its own"
        )


def check_players(recipe: Recipe, domain: Domain) -> None:
    """Raises `RecipeError` unless the domain asks exactly the roles that act besides the first."""
    acting, asked = [*recipe.players][1:], domain.capabilities.players
    for name in sorted({*acting} ^ {*asked}):
        remedy = "add it with does: acts, after the first" if name in asked else "leave it out"
        raise RecipeError(
            f"roles.{name}: {' and '.join(recipe.domain.names)} has {', '.join(asked) or 'no role'}"
            f" act besides the first role that acts: {remedy}"
        )


def check_functions(recipe: Recipe) -> None:
    """Raises `RecipeError` for a loss, an advantage or a reward that is unknown or has
    invalid options."""
    functions: dict[str, FunctionConfig] = {
        f"{role_key(name)}.loss": role.loss for name, role in recipe.trained_roles.items()
    }
    functions["feedback.advantage"] = recipe.feedback.advantage
    functions["feedback.judge_reward"] = recipe.feedback.judge_reward
    for key, function in functions.items():
        try:
            _ = function.function
        except ValueError as error:
            raise RecipeError(f"{key}: {error}") from None


def check_values(recipe: Recipe) -> None:
    """Raises `RecipeError` for judges of value that do not fit the others or their reward, and for
    functions that need values or grades which no judge gives."""
    feedback, judges = recipe.feedback, recipe.judges
    values = [name for name, judge in judges.items() if judge.values]
    reward, graded = feedback.judge_reward.name, "grades" in feedback.judge_reward.needs
    fault = ""
    if values and len(values) < len(judges):
        fault = f"{role_key(values[0])}.name: leave out judges that score steps next to it"
    elif values and feedback.policy_lambda_control == "adaptive":
        fault = "feedback.policy_lambda_control: adaptive weighs scores of steps: leave it out"
    elif len(recipe.players) > 1 and feedback.policy_lambda_control == "adaptive":
        fault = "feedback.policy_lambda_control: adaptive needs a single role that acts"
    elif any(judges[name].trains for name in values) and not graded:
        fault = f"feedback.judge_reward: {reward} reads no grades; train {values[0]} with `proper`"
    elif graded and not values:
        fault = f"feedback.judge_reward: {reward} needs grades: {ONLY}"
    elif graded and feedback.judge_window != (0, 1):
        fault = f"feedback.judge_window: {reward} learns from every task: set [0, 1]"
    elif "gains" in feedback.judge_reward.needs and not recipe.replays:
        fault = f"feedback.judge_reward: {reward} needs a judge that learns: leave it out"
    elif recipe.replays and recipe.loop.max_staleness:
        fault = f"loop.max_staleness: {reward} plays episodes again between rollouts: set 0"
    elif recipe.replays and len(recipe.players) > 1:
        fault = f"feedback.judge_reward: {reward} needs a single role that acts"
    elif feedback.advantage.name == "graph" and (
        feedback.policy_reward == "judge" or feedback.policy_lambda_control == "adaptive"
    ):
        fault = "feedback.advantage: graph reads no scores: set policy_reward: outcome"
    elif "values" in feedback.advantage.needs and {j.name for j in judges.values()} <= SCORING:
        fault = f"feedback.advantage: {feedback.advantage.name} needs values: {ONLY}"
    if fault:
        raise RecipeError(fault)


def on_judged_steps(recipe: Recipe) -> list[str]:
    """Returns the changed settings of feedback on judged steps in a recipe whose judge is a model:
    they have no effect if the judge writes tests instead of scoring steps."""
    feedback, default = recipe.feedback, FeedbackConfig()
    changed = {
        "judge_lambda": feedback.judge_lambda != default.judge_lambda,
        "judge_reward": not feedback.judge_reward.same_as(default.judge_reward),
        "advantage": feedback.advantage.name in COMPARED_STEPS,
    }
    by_model = any(judge.name == "llm" for judge in recipe.judges.values())
    return [key for key, is_so in changed.items() if is_so and by_model]


def check_feedback(recipe: Recipe, domain: Domain) -> None:
    """Raises `RecipeError` for feedback on judged steps if the judge writes tests."""
    if domain.capabilities.judge == "tests" and (changed := on_judged_steps(recipe)):
        raise RecipeError(
            f"feedback.{changed[0]} changes nothing where the judge writes tests, as in "
            f"{' and '.join(recipe.domain.names)}: leave it out"
        )
