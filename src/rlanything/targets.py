"""Whoever `rlanything eval` names: a run, a model, the expert, or a random player."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rlanything.assembly import (
    engine_of,
    load_role,
    make_policy,
    open_endpoint,
    prepare_torch,
)
from rlanything.config import Recipe, RecipeError, load_recipe, make_recipe
from rlanything.engine_settings import OpenAIEngineConfig
from rlanything.environments.base import Domain
from rlanything.environments.registry import load_domain
from rlanything.environments.workers import EnvironmentPool
from rlanything.evaluation.intervals import wilson
from rlanything.evaluation.success import Evaluation, evaluate
from rlanything.role_settings import PolicyConfig
from rlanything.roles.baselines import ExpertAgent, RandomAgent
from rlanything.roles.remote import RemoteSpeaker
from rlanything.roles.speaker import LocalSpeaker, Speaker
from rlanything.rollout import Agent
from rlanything.runs.checkpoint import latest_checkpoint
from rlanything.runs.summary import percent
from rlanything.training import RECIPE
from rlanything.view import View


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What to evaluate, on what. None: as the run's recipe says, or a default."""

    target: str
    split: str
    episodes: int
    domain: str | None
    max_steps: int | None
    temperature: float | None
    seed: int
    workers: int
    overrides: Sequence[str] = ()
    """`section.key=value` of the recipe, a bare model's too."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    request: EvalRequest
    evaluation: Evaluation

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """(successes, episodes) per kind of task."""
        counts: dict[str, list[int]] = defaultdict(list)
        for each in self.evaluation.trajectories:
            counts[each.task.kind or "all"].append(each.outcome == 1)
        return {kind: (sum(won), len(won)) for kind, won in sorted(counts.items())}

    def to_json(self) -> dict[str, Any]:
        success = self.evaluation.success
        return {
            "target": self.request.target,
            "split": self.request.split,
            "episodes": len(self.evaluation.trajectories),
            "success": success.estimate if success else None,
            "low": success.low if success else None,
            "high": success.high if success else None,
            "seconds": self.evaluation.seconds,
            "unplayable": self.evaluation.unplayable,
            "kinds": {
                kind: {"successes": won, "episodes": played}
                for kind, (won, played) in self.by_kind().items()
            },
        }

    def table(self) -> Table:
        request, result = self.request, self.evaluation
        table = Table(title=f"{request.target} on {request.split} ({result.seconds:.0f} s)")
        table.add_column("task type")
        table.add_column("episodes", justify="right")
        table.add_column("success [95% interval]", justify="right")
        kinds = self.by_kind()
        for kind, (won, played) in kinds.items():
            table.add_row(kind, str(played), percent(wilson(won, played)))
        if len(kinds) > 1:
            table.add_section()
            table.add_row("all", str(len(result.trajectories)), percent(result.success))
        return table


def run_eval(request: EvalRequest, view: View) -> EvalResult:
    """Raises `RecipeError`, `ModelError` or `DomainError` for a target that cannot be played."""
    recipe = _recipe(request)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    tasks = domain.tasks(request.split, request.episodes, request.seed)
    agent = _agent(request, recipe, domain)
    with (
        view.live(),
        EnvironmentPool(
            recipe.domain.name,
            recipe.domain.options,
            request.workers,
            recipe.environment.timeout_seconds,
        ) as environments,
    ):
        result = evaluate(
            agent,
            environments,
            tasks,
            request.split,
            max_steps=request.max_steps or recipe.evaluation.max_steps or recipe.loop.max_steps,
            parallel_episodes=recipe.environment.parallel_episodes,
            seed=request.seed,
            view=view,
        )
    return EvalResult(request, result)


def _recipe(request: EvalRequest) -> Recipe:
    """The target's own, if it is a recipe or a run; else what a bare model needs, or nobody."""
    target = Path(request.target)
    if _is_recipe(request.target):
        recipe = load_recipe(target, request.overrides)
    elif (target / RECIPE).is_file():
        recipe = load_recipe(target / RECIPE, request.overrides)
    else:
        # The environment's own list of actions, where it has one, is what any model can play with.
        policy = {"model": request.target, "decoding": "choices", "max_tokens": 64}
        domain = {"name": request.domain or "alfworld"}
        data = {"name": "eval", "domain": domain, "policy": policy}
        return make_recipe(data, request.overrides, request.target)
    if request.domain not in (None, recipe.domain.name):
        raise RecipeError(
            f"{request.target} plays {recipe.domain.name}: leave --domain out, or evaluate "
            "the model in its checkpoints folder"
        )
    return recipe


def _is_recipe(target: str) -> bool:
    return Path(target).is_file() and Path(target).suffix in (".yaml", ".yml")


def _agent(request: EvalRequest, recipe: Recipe, domain: Domain) -> Agent:
    if request.target == "expert":
        return ExpertAgent(domain)
    if request.target == "random":
        return RandomAgent(domain)
    policy = recipe.policy
    if (Path(request.target) / RECIPE).is_file():
        checkpoint = latest_checkpoint(Path(request.target) / "checkpoints")
        if checkpoint is None:
            raise RecipeError(f"{request.target} has no checkpoint yet: let it finish an iteration")
        policy = policy.model_copy(update={"model": str(checkpoint / "policy")})
    prepare_torch(recipe.threads)
    chosen = recipe.evaluation.temperature if request.temperature is None else request.temperature
    return make_policy(_speaker(policy, recipe.threads), domain, policy, chosen)


def _speaker(policy: PolicyConfig, threads: int) -> Speaker:
    if isinstance(policy.engine, OpenAIEngineConfig):
        return RemoteSpeaker(open_endpoint(policy, policy.engine, "policy"))
    model = load_role(policy, "policy")
    return LocalSpeaker(model, engine_of(model, policy, "policy", threads))
