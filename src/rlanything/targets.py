"""Whoever `rlanything eval` names: a run, a model, the expert, or a random player."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rlanything.assembly import load_role, make_policy, open_endpoint, prepare_torch
from rlanything.config import DomainConfig, Recipe, RecipeError, load_recipe
from rlanything.engine_settings import OpenAIEngineConfig
from rlanything.engines.embedded import embedded_engine
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
    run = _run_recipe(request.target)
    config = _domain_config(request, run)
    domain = load_domain(config.name, config.options)
    tasks = domain.tasks(request.split, request.episodes, request.seed)
    agent = _agent(request, run, domain)
    max_steps = request.max_steps or (
        (run.evaluation.max_steps or run.loop.max_steps) if run else 40
    )
    timeout = run.environment.timeout_seconds if run else 60.0
    with (
        view.live(),
        EnvironmentPool(config.name, config.options, request.workers, timeout) as environments,
    ):
        result = evaluate(
            agent,
            environments,
            tasks,
            request.split,
            max_steps=max_steps,
            parallel_episodes=128,
            seed=request.seed,
            view=view,
        )
    return EvalResult(request, result)


def _run_recipe(target: str) -> Recipe | None:
    path = Path(target) if _is_recipe(target) else Path(target) / "recipe.yaml"
    return load_recipe(path) if path.is_file() else None


def _is_recipe(target: str) -> bool:
    return Path(target).is_file() and Path(target).suffix in (".yaml", ".yml")


def _domain_config(request: EvalRequest, run: Recipe | None) -> DomainConfig:
    if run is None:
        return DomainConfig(name=request.domain or "alfworld")
    if request.domain not in (None, run.domain.name):
        raise RecipeError(
            f"{request.target} plays {run.domain.name}: leave --domain out, or evaluate "
            "the model in its checkpoints folder"
        )
    return run.domain


def _agent(request: EvalRequest, run: Recipe | None, domain: Domain) -> Agent:
    if request.target == "expert":
        return ExpertAgent(domain)
    if request.target == "random":
        return RandomAgent(domain)
    if run is None:
        # The environment's own list of actions, where it has one, is what any model can play with.
        policy = PolicyConfig(model=request.target, decoding="choices", max_tokens=64)
    else:
        policy = run.policy
    if run is not None and not _is_recipe(request.target):
        checkpoint = latest_checkpoint(Path(request.target) / "checkpoints")
        if checkpoint is None:
            raise RecipeError(f"{request.target} has no checkpoint yet: let it finish an iteration")
        policy = policy.model_copy(update={"model": str(checkpoint / "policy")})
    prepare_torch(run.threads if run else 0)
    temperature = run.evaluation.temperature if run else 1.0
    chosen = temperature if request.temperature is None else request.temperature
    return make_policy(_speaker(policy), domain, policy, chosen)


def _speaker(policy: PolicyConfig) -> Speaker:
    if isinstance(policy.engine, OpenAIEngineConfig):
        return RemoteSpeaker(open_endpoint(policy, policy.engine, "policy"))
    model = load_role(policy, "policy")
    return LocalSpeaker(model, embedded_engine(model))
