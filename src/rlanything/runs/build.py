"""From a recipe to the cast of a run: models, engines, roles, learners."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.utils.deterministic
from transformers.utils.peft_utils import find_adapter_config_file

from rlanything.algorithm.losses.registry import load_loss
from rlanything.config.engines import OpenAIEngineConfig, VLLMEngineConfig
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import JudgeConfig, PolicyConfig, Role, TrainedRoleConfig
from rlanything.domains.base import Domain, UnitTestDomain
from rlanything.engines import shipped
from rlanything.engines.base import Engine, Sampling
from rlanything.engines.deadline import TimedEngine
from rlanything.engines.hf.embedded import embedded_engine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, ModelError, load_model
from rlanything.engines.vllm.engine import VLLMEngine
from rlanything.evaluation.labels import Labeller
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.plugins import PluginError
from rlanything.roles.adapter import Adapter
from rlanything.roles.chat_model import ChatModel, LocalChatModel
from rlanything.roles.judges.llm import Judge, LLMJudge
from rlanything.roles.judges.oracle import OracleJudge
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.roles.openai_chat_model import OpenAIChatModel
from rlanything.roles.policy import LanguagePolicy
from rlanything.seeds import derive

if TYPE_CHECKING:
    from rlanything.engines.openai import Endpoint


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model that learns, with the engine that samples from it and the learner that moves it."""

    model: LanguageModel
    engine: Engine
    learner: Learner


@dataclass(frozen=True, slots=True)
class RunComponents:
    """Everybody who takes part in a run."""

    policy: TrainedModel
    judge: TrainedModel | None
    """None where the oracle, an endpoint or a frozen model judges."""
    train_policy: LanguagePolicy
    """The policy as it acts in training."""
    eval_policy: LanguagePolicy
    """The same policy as it acts in evaluation."""
    critic: Judge
    adapter: Adapter
    engines: tuple[Engine, ...]
    """All that are in this process, the adapter's too."""
    chat_models: Mapping[str, ChatModel]
    """Who answers for a role, by role."""

    @property
    def trained_models(self) -> dict[str, TrainedModel]:
        """Those who learn, by role."""
        judge = {} if self.judge is None else {"judge": self.judge}
        return {"policy": self.policy, **judge}

    def pop_usage(self) -> dict[str, int]:
        """What was asked of models since the last call, as `role/quantity`."""
        return {
            f"{role}/{quantity}": count
            for role, chat_model in self.chat_models.items()
            for quantity, count in chat_model.pop_usage().items()
        }


def prepare_torch(threads: int) -> None:
    """CPU threads of the language models (0: as many as there are cores), and one result per seed.

    Without the second, threads add the gradients of shared tokens in whatever order they arrive."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory first would cost time and guard against nothing here.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def build_components(
    recipe: Recipe, domain: Domain, checkpoint: Path | None = None
) -> RunComponents:
    """Loads the models that are here and finds the way to those that are not. Those that learn are
    as a checkpoint has them, if one is given; what they are held to is the recipe's all the same.

    Raises `RecipeError` for a role that cannot train, `ModelError` or `EndpointError` for a model
    that cannot be used."""
    check_models(recipe)
    prepare_torch(recipe.threads)
    policy = _trainee(recipe.policy, "policy", recipe, checkpoint)
    judge = _trainee(recipe.judge, "judge", recipe, checkpoint) if recipe.judge.trains else None
    engines = [policy.engine, *([judge.engine] if judge else [])]
    chat_models: dict[str, ChatModel] = {"policy": LocalChatModel(policy.model, policy.engine)}

    def frozen(role: Role, name: str) -> ChatModel:
        chat_model = build_chat_model(role, name, recipe.threads)
        if isinstance(chat_model, LocalChatModel):
            engines.append(chat_model.engine)
        return chat_model

    @cache
    def judging() -> ChatModel:
        found = (
            LocalChatModel(judge.model, judge.engine) if judge else frozen(recipe.judge, "judge")
        )
        chat_models["judge"] = found
        return found

    def adapting() -> ChatModel:
        if not recipe.adapter.shares:
            return frozen(recipe.adapter, "adapter")
        shared = judging() if recipe.adapter.model == "judge" else chat_models["policy"]
        assert isinstance(shared, LocalChatModel)  # check_models saw to it
        return shared.counted_separately()

    def acting(temperature: float) -> LanguagePolicy:
        return build_policy(chat_models["policy"], domain, recipe.policy, temperature)

    chat_models["adapter"] = adapting()
    adapter = Adapter(
        chat_models["adapter"],
        domain,
        Sampling(recipe.adapter.temperature, recipe.adapter.max_tokens),
        recipe.adapter.tries,
        recipe.adapter.critics_per_task,
    )
    critic = build_judge(recipe.judge, domain, judging)
    return RunComponents(
        policy=policy,
        judge=judge,
        train_policy=acting(recipe.policy.temperature),
        eval_policy=acting(recipe.evaluation.temperature),
        critic=critic,
        adapter=adapter,
        engines=tuple(engines),
        chat_models=chat_models,
    )


def check_models(recipe: Recipe) -> None:
    """An endpoint gives text, and learning needs the sampled tokens and their log-probs; and only a
    model that is here can be shared. Raises `RecipeError`."""
    why = "engine: openai gives no tokens or log-probs to train on"
    if recipe.policy.remote:
        raise RecipeError(
            f"policy: {why}; train a model that is here (engine: {{name: embedded}}), or measure "
            "this one with `rlanything eval RECIPE`"
        )
    if recipe.judge.oracle_noise is None and recipe.judge.remote and recipe.judge.train:
        raise RecipeError(
            f"judge: {why}; leave this judge as it is with judge.train=false, or train one "
            "that is here (engine: {name: embedded})"
        )
    if recipe.adapter.model == "judge" and not recipe.judge.here:
        raise RecipeError(
            "adapter.model: no judge's model is here to share; share the policy's "
            "(adapter.model=policy), or give the adapter a model of its own"
        )


def _trainee(
    role: TrainedRoleConfig, name: str, recipe: Recipe, checkpoint: Path | None
) -> TrainedModel:
    try:
        loss = load_loss(role.loss)
    except PluginError as error:
        raise RecipeError(f"{name}.loss: {error}") from None
    source = role.model if checkpoint is None else str(checkpoint / name)
    model = load_role(role.model_copy(update={"model": source}), name)
    if role.lora is not None:
        add_adapters(model, role.lora, derive(recipe.seed, "adapters", name))
    # It may refuse the model, which is sooner said than a start.
    learner = Learner(model, role, _reference(role, name, model), loss)
    return TrainedModel(model, build_engine(model, role, name, recipe.threads), learner)


def _reference(role: TrainedRoleConfig, name: str, model: LanguageModel) -> ReferenceModel | None:
    """What the recipe's own model of a role was, for one that is held to it. A copy, unless all
    that learns are adapters which began as nothing."""
    if not role.reference_kl_weight:
        return None
    source = shipped.resolve(role.model, name)
    if role.lora is not None and find_adapter_config_file(source) is None:
        return ReferenceModel(model, adapters_off=True)
    return ReferenceModel(load_model(source, role.dtype, role.device, trains=False))


def build_engine(model: LanguageModel, role: Role, name: str, threads: int) -> Engine:
    if isinstance(role.engine, VLLMEngineConfig):
        return VLLMEngine(
            model,
            role.engine,
            name=name,
            device=role.device,
            dtype=role.dtype,
            threads=threads,
            seconds=role.timeout_seconds,
        )
    return TimedEngine(embedded_engine(model), role.timeout_seconds, name)


def build_chat_model(role: Role, name: str, threads: int) -> ChatModel:
    """A role's model, here or at an endpoint. Raises `ModelError` or `EndpointError`."""
    if isinstance(role.engine, OpenAIEngineConfig):
        return OpenAIChatModel(open_endpoint(role, role.engine, name))
    model = load_role(role, name)
    return LocalChatModel(model, build_engine(model, role, name, threads))


def load_role(role: Role, name: str) -> LanguageModel:
    """Raises `ModelError`. A role that could learn has the weights it would learn with, also where
    it does not (in `eval`, or with a learning rate of 0): it acts as it does in training."""
    trains = isinstance(role, TrainedRoleConfig)
    return load_model(shipped.resolve(role.model, name), role.dtype, role.device, trains)


def open_endpoint(role: Role, config: OpenAIEngineConfig, name: str) -> Endpoint:
    """Raises `ModelError` without the official client, `EndpointError` without a key."""
    if importlib.util.find_spec("openai") is None:
        raise ModelError(
            f"{name}.engine: openai needs the official client: pip install 'rlanything[openai]'"
        )
    from rlanything.engines.openai import Endpoint

    return Endpoint(name, role.model, config, role.timeout_seconds)


def build_policy(
    chat_model: ChatModel, domain: Domain, config: PolicyConfig, temperature: float
) -> LanguagePolicy:
    return LanguagePolicy(
        chat_model,
        domain,
        Sampling(temperature, config.max_tokens),
        config.decoding,
        config.thought_tokens,
    )


def build_labeller(recipe: Recipe, domain: Domain) -> Labeller | None:
    """Who says in the recipe which steps of the judge's exam are good; None: nobody is asked.
    Raises `RecipeError` where nobody needs to, and as `build_chat_model` does."""
    config = recipe.evaluation.labeller
    if config is None or recipe.evaluation.baseline is not None:  # which has its labels
        return None
    if isinstance(domain, UnitTestDomain):
        raise RecipeError(
            "evaluation.labeller: this domain's judge writes tests, which programs label; leave it "
            "out"
        )
    chat_model = build_chat_model(config, "evaluation.labeller", recipe.threads)
    sampling = Sampling(config.temperature, config.max_tokens)
    return Labeller(chat_model, LLMJudge(chat_model, domain, sampling, config.samples_per_step))


def build_judge(config: JudgeConfig, domain: Domain, chat_model: Callable[[], ChatModel]) -> Judge:
    """Whoever scores: the oracle, or a model that is only asked for where one is needed."""
    samples = config.samples_per_step
    if config.oracle_noise is not None:
        return OracleJudge(domain, config.oracle_noise, samples)
    sampling = Sampling(config.temperature, config.max_tokens)
    if isinstance(domain, UnitTestDomain):
        return UnitTestJudge(chat_model(), domain, sampling, samples)
    return LLMJudge(chat_model(), domain, sampling, samples)
