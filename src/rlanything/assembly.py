"""From a recipe to the cast of a run: models, engines, roles, learners."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.utils.deterministic

from rlanything import nano
from rlanything.config import JudgeConfig, PolicyConfig, Recipe, Role, TrainedRole
from rlanything.engines.base import Engine, Sampling
from rlanything.engines.deadline import TimedEngine
from rlanything.engines.embedded import embedded_engine
from rlanything.engines.lora import add_adapters
from rlanything.engines.model import LanguageModel, load_model
from rlanything.environments.base import Domain
from rlanything.learning.learner import Learner
from rlanything.roles.adapter import Adapter
from rlanything.roles.judge import Critic, Judge
from rlanything.roles.oracle import OracleJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything.seeds import derive


@dataclass(frozen=True, slots=True)
class Trainee:
    """A model that learns, with the engine that samples from it and the learner that moves it."""

    model: LanguageModel
    engine: Engine
    learner: Learner


@dataclass(frozen=True, slots=True)
class Cast:
    """Everybody who takes part in a run."""

    policy: Trainee
    judge: Trainee | None
    """None where the oracle judges."""
    actor: LanguagePolicy
    """The policy as it acts in training."""
    examinee: LanguagePolicy
    """The same policy as it acts in evaluation."""
    critic: Critic
    adapter: Adapter
    engines: tuple[Engine, ...]
    """All of them, the adapter's too."""

    @property
    def trainees(self) -> dict[str, Trainee]:
        """Those who learn, by role."""
        judge = {} if self.judge is None else {"judge": self.judge}
        return {"policy": self.policy, **judge}


def prepare_torch(threads: int) -> None:
    """CPU threads of the language models (0: as many as there are cores), and one result per seed.

    Without the second, threads add the gradients of shared tokens in whatever order they arrive."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory first would cost time and guard against nothing here.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def assemble(recipe: Recipe, domain: Domain) -> Cast:
    """Loads the three models. Raises `ModelError` for one that cannot be used."""
    prepare_torch(recipe.threads)
    policy = _trainee(recipe.policy, "policy", recipe.seed)
    adapter_model = load_role(recipe.adapter, "adapter")
    judge = None
    if recipe.judge.oracle_noise is None:
        judge = _trainee(recipe.judge, "judge", recipe.seed)
    adapter_engine = _engine(adapter_model, recipe.adapter, "adapter")
    return Cast(
        policy=policy,
        judge=judge,
        actor=make_policy(
            policy.model, policy.engine, domain, recipe.policy, recipe.policy.temperature
        ),
        examinee=make_policy(
            policy.model, policy.engine, domain, recipe.policy, recipe.evaluation.temperature
        ),
        critic=_critic(recipe.judge, judge, domain),
        adapter=Adapter(
            adapter_model,
            adapter_engine,
            domain,
            Sampling(recipe.adapter.temperature, recipe.adapter.max_tokens),
            recipe.adapter.tries,
            recipe.adapter.critics_per_task,
        ),
        engines=(policy.engine, *([judge.engine] if judge else []), adapter_engine),
    )


def _trainee(role: TrainedRole, name: str, seed: int) -> Trainee:
    model = load_role(role, name)
    if role.lora is not None:
        add_adapters(model, role.lora, derive(seed, "adapters", name))
    return Trainee(model, _engine(model, role, name), Learner(model, role))


def _engine(model: LanguageModel, role: Role, name: str) -> Engine:
    return TimedEngine(embedded_engine(model), role.timeout_seconds, name)


def _critic(config: JudgeConfig, judge: Trainee | None, domain: Domain) -> Critic:
    if judge is None:
        return OracleJudge(domain, config.oracle_noise or 0.0, config.samples_per_step)
    return Judge(
        judge.model,
        judge.engine,
        domain,
        Sampling(config.temperature, config.max_tokens),
        config.samples_per_step,
    )


def load_role(role: Role, name: str) -> LanguageModel:
    return load_model(nano.resolve(role.model, name), role.dtype, role.device)


def make_policy(
    model: LanguageModel, engine: Engine, domain: Domain, config: PolicyConfig, temperature: float
) -> LanguagePolicy:
    return LanguagePolicy(
        model,
        engine,
        domain,
        Sampling(temperature, config.max_tokens),
        config.decoding,
        config.thought_tokens,
    )
