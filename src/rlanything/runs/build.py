"""Builds the components of a run from its recipe: models, engines, roles, learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from rlanything.algorithm.curriculum import Pool
from rlanything.algorithm.losses.base import Loss
from rlanything.algorithm.losses.registry import load_loss
from rlanything.cluster.models import RoleSource
from rlanything.cluster.open import Models, Trained, open_models
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    PolicyConfig,
    RoleConfig,
    TrainedRoleConfig,
)
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks
from rlanything.engines.base import Engine, Sampling
from rlanything.evaluation.labels import Labeller
from rlanything.plugins import PluginError, load_plugin, make_plugin
from rlanything.roles.adapter import Adapter, LLMAdapter, NullAdapter
from rlanything.roles.chat_model import ChatModel, LocalChatModel
from rlanything.roles.judges.base import FunctionJudge, Judge, JudgeError, ScoreFunction
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.roles.openai_chat_model import OpenAIChatModel
from rlanything.roles.policy import LanguagePolicy
from rlanything.runs.parts import NO_PARTS, Parts
from rlanything.runs.refusals import check_feedback, check_models
from rlanything.seeds import derive


@dataclass(frozen=True, slots=True)
class RunComponents:
    """The models and roles of a run."""

    policy: Trained
    judge: Trained | None
    """None where the judge does not learn: an object, an oracle, an endpoint, a frozen model."""
    train_policy: LanguagePolicy
    """The policy as it samples in training."""
    eval_policy: LanguagePolicy
    """The same policy as it samples in evaluation."""
    scorer: Judge
    adapter: Adapter
    engines: tuple[Engine, ...]
    """All engines of models in this process, the frozen ones too."""
    chat_models: Mapping[str, ChatModel]
    """By role, the model that answers for it."""
    models: Models
    """What holds all of them."""
    images: tuple[Path, ...] = ()
    """Folders in which models look for screenshots."""
    passing: TemporaryDirectory[str] | None = None
    """A folder for screenshots that no run keeps, as long as this lives; None: the domain shows
    none."""

    @property
    def passing_images(self) -> Path | None:
        """Where screenshots go that no run keeps; None: nowhere."""
        return None if self.passing is None else Path(self.passing.name)

    @property
    def trained_models(self) -> dict[str, Trained]:
        """Returns the models that learn, by role."""
        judge = {} if self.judge is None else {"judge": self.judge}
        return {"policy": self.policy, **judge}

    def labeller(self, recipe: Recipe, domain: Domain, day: datetime) -> Labeller | None:
        """Builds the labeller that `build_labeller` builds, beside these models."""
        return build_labeller(recipe, domain, day, self.models, self.images)

    def pop_usage(self) -> dict[str, int]:
        """Returns what was asked of models since the last call, as `role/quantity`."""
        return {
            f"{role}/{quantity}": count
            for role, chat_model in self.chat_models.items()
            for quantity, count in chat_model.pop_usage().items()
        }


def new_pool(recipe: Recipe, domain: Domain) -> Pool:
    """Returns the tasks that a run begins with. Raises `RecipeError` where the domain has fewer
    than an iteration plays."""
    roots = checked_tasks(domain, "train", recipe.loop.tasks, derive(recipe.seed, "roots"))
    if len(roots) < recipe.loop.tasks_per_iteration:
        raise RecipeError(
            f"loop.tasks_per_iteration: {recipe.loop.tasks_per_iteration}, but {recipe.domain.name}"
            f" has {len(roots)} tasks to train on: ask for no more"
        )
    return Pool(roots, recipe.curriculum.alpha_low, recipe.curriculum.alpha_high)


def build_components(
    recipe: Recipe,
    domain: Domain,
    checkpoint: Path | None = None,
    parts: Parts = NO_PARTS,
    day: datetime | None = None,
    images: Path | None = None,
) -> RunComponents:
    """Builds everything that acts in a run; models that learn have the weights of `checkpoint`,
    where one is given, but are held to the recipe's own. `parts` win over what the recipe names.
    Chat templates with a date show `day`; None: today. `images`: where the run's screenshots lie.

    Raises `RecipeError` for a role that cannot train, or that is to be shown images and sees none,
    `ModelError`, `EndpointError` or `JudgeError` for a model or a judge that cannot be used."""
    check_models(recipe)
    if checkpoint is None:  # a run that has begun goes on as it is
        check_feedback(recipe, domain)
    models = open_models(recipe.cluster, [role.device for role in recipe.roles], recipe.threads)
    try:
        return _components(recipe, domain, checkpoint, parts, day, models, images)
    except BaseException:
        models.close()
        raise


def _components(
    recipe: Recipe,
    domain: Domain,
    checkpoint: Path | None,
    parts: Parts,
    day: datetime | None,
    models: Models,
    images: Path | None,
) -> RunComponents:
    passing = TemporaryDirectory() if domain.capabilities.shows_images else None
    seen = (*([images] if images else []), *([Path(passing.name)] if passing else []))
    source = partial(trained_source, recipe, checkpoint, seen)
    policy = models.trained(source("policy", recipe.policy, parts.loss))
    judge = models.trained(source("judge", recipe.judge)) if recipe.judge.trains else None
    engines = [policy.engine, *([judge.engine] if judge else [])]

    def trained_chat(model: Trained, role: RoleConfig) -> LocalChatModel:
        return LocalChatModel(model.model, model.engine, day, role.chat_template_kwargs)

    chat_models: dict[str, ChatModel] = {"policy": trained_chat(policy, recipe.policy)}

    def frozen(role: RoleConfig, name: str) -> ChatModel:
        chat_model = build_chat_model(role, name, models, day, seen)
        if isinstance(chat_model, LocalChatModel):
            engines.append(chat_model.engine)
        return chat_model

    @cache
    def judge_model() -> ChatModel:
        chat_models["judge"] = (
            trained_chat(judge, recipe.judge) if judge else frozen(recipe.judge, "judge")
        )
        return chat_models["judge"]

    @cache
    def adapter_model() -> ChatModel:
        if recipe.adapter.shares:
            shared = judge_model() if recipe.adapter.model == "judge" else chat_models["policy"]
            assert isinstance(shared, LocalChatModel)  # check_models saw to it
            chat_models["adapter"] = shared.counted_separately()
        else:
            chat_models["adapter"] = frozen(recipe.adapter, "adapter")
        return chat_models["adapter"]

    def acting(temperature: float) -> LanguagePolicy:
        return build_policy(chat_models["policy"], domain, recipe.policy, temperature)

    # In this order: chat models are made when first asked for, and listed as they are made.
    adapter = parts.adapter or build_adapter(recipe.adapter, domain, adapter_model)
    scorer = parts.judge or build_judge(recipe.judge, domain, judge_model)
    return RunComponents(
        policy=policy,
        judge=judge,
        train_policy=acting(recipe.policy.temperature),
        eval_policy=acting(recipe.evaluation.temperature),
        scorer=scorer,
        adapter=adapter,
        engines=tuple(engines),
        chat_models=chat_models,
        models=models,
        images=seen,
        passing=passing,
    )


def trained_source(
    recipe: Recipe,
    checkpoint: Path | None,
    images: tuple[Path, ...],
    name: str,
    role: TrainedRoleConfig,
    loss: Loss | None = None,
) -> RoleSource:
    """Returns where a model that learns comes from: the recipe's, or, where one is given, that of a
    checkpoint. Raises `RecipeError` for a loss that cannot be loaded."""
    try:
        if loss is None:
            load_loss(role.loss)
    except PluginError as error:
        raise RecipeError(f"{name}.loss: {error}") from None
    return RoleSource(
        name,
        role,
        checkpoint and checkpoint / name,
        derive(recipe.seed, "adapters", name),
        loss,
        images,
    )


def build_chat_model(
    role: RoleConfig,
    name: str,
    models: Models,
    day: datetime | None = None,
    images: tuple[Path, ...] = (),
) -> ChatModel:
    """Builds a role's model, where `models` are or at an endpoint; a chat template with a date
    shows `day` (None: today), and images are looked for in these folders. Raises `ModelError` or
    `EndpointError`."""
    if role.remote:
        setting = role.engine_setting(name, threads=0, images=images)
        return OpenAIChatModel(role.engine.build(None, setting))
    served = models.served(RoleSource(name, role, images=images))
    return LocalChatModel(served.model, served.engine, day, role.chat_template_kwargs)


def build_policy(
    chat_model: ChatModel, domain: Domain, config: PolicyConfig, temperature: float
) -> LanguagePolicy:
    """Builds the policy's role over a chat model, sampling at `temperature`. Raises `RecipeError`
    for a model that is to be shown images and sees none."""
    _check_sight("policy", chat_model, domain)
    return LanguagePolicy(
        chat_model,
        domain,
        Sampling(temperature, config.max_tokens),
        config.decoding,
        config.thought_tokens,
        config.screenshots if domain.capabilities.shows_images else 0,
    )


def build_labeller(
    recipe: Recipe, domain: Domain, day: datetime, models: Models, images: tuple[Path, ...] = ()
) -> Labeller | None:
    """Builds the labeller of the judge's held-out steps; None where the recipe has none. Images are
    looked for in these folders.

    Raises `RecipeError` where none is needed, and what `build_chat_model` raises."""
    config = recipe.evaluation.labeller
    if config is None or recipe.evaluation.baseline is not None:  # which has its labels
        return None
    if domain.capabilities.judge == "tests":
        raise RecipeError(
            "evaluation.labeller: this domain's judge writes tests, which programs label; leave it "
            "out"
        )
    chat_model = build_chat_model(config, "evaluation.labeller", models, day, images)
    _check_sight("evaluation.labeller", chat_model, domain)
    sampling = Sampling(config.temperature, config.max_tokens)
    samples = config.samples_per_step
    judge = LLMJudge(chat_model, domain, sampling, samples, domain.capabilities.shows_images)
    return Labeller(chat_model, judge)


def build_judge(config: JudgeConfig, domain: Domain, chat_model: Callable[[], ChatModel]) -> Judge:
    """Builds the judge that a recipe names; `chat_model` is called only where one is needed.

    Raises `JudgeError` where there is none of this name, or where it refuses its options, and
    `RecipeError` for a model that is to be shown images and sees none."""
    samples = config.samples_per_step
    sampling = Sampling(config.temperature, config.max_tokens)
    if config.name == "llm":
        if domain.capabilities.judge == "tests":
            return UnitTestJudge(chat_model(), domain, sampling, samples)
        model = chat_model()
        _check_sight("judge", model, domain)
        shown = domain.capabilities.shows_images
        return LLMJudge(model, domain, sampling, samples, shown, config.score_first)
    provided = _provided(domain, sampling, chat_model) | {"samples": lambda: samples}
    try:
        plugin = load_plugin("judge", config.name)
        if isinstance(plugin, type):
            plugin = make_plugin("judge", config.name, config.options, Judge, provided)
        elif config.options:
            raise JudgeError(f"judge.options: {config.name} is no class, and takes none: drop them")
    except PluginError as error:
        raise JudgeError(f"judge.name: {error}") from error
    if isinstance(plugin, Judge):
        return plugin
    if not callable(plugin):
        raise JudgeError(
            f"judge.name: {config.name} is no judge: name a function (trajectory, i) that returns "
            "a score, or a class with the methods of rlanything.roles.judges.base.Judge"
        )
    return FunctionJudge(cast(ScoreFunction, plugin))


def build_adapter(
    config: AdapterConfig, domain: Domain, chat_model: Callable[[], ChatModel]
) -> Adapter:
    """Builds the adapter that a recipe names; `chat_model` is called only where one is needed: a
    language model is of no use where the domain cannot rewrite its tasks.

    Raises `RecipeError` where there is none of this name, or where it refuses its options."""
    sampling = Sampling(config.temperature, config.max_tokens)
    if config.name == "llm":
        critics, stages = config.most_critics, config.critic_stages
        if stages == 2 and not domain.capabilities.staged_critics:
            raise RecipeError(
                "adapter.critic_stages: this domain's critics have one stage: leave it at 1"
            )
        if not domain.capabilities.rewrites_tasks:
            return NullAdapter()
        asked = (config.tries, critics, config.rejected_by, stages)
        return LLMAdapter(chat_model(), domain, sampling, *asked)
    provided = _provided(domain, sampling, chat_model)
    try:
        return make_plugin("adapter", config.name, config.options, Adapter, provided)
    except PluginError as error:
        raise RecipeError(f"adapter.name: {error}") from error


def _provided(
    domain: Domain, sampling: Sampling, chat_model: Callable[[], ChatModel]
) -> dict[str, Callable[[], Any]]:
    """Returns what a judge or adapter class gets, where its constructor has such parameters."""
    return {"domain": lambda: domain, "sampling": lambda: sampling, "chat_model": chat_model}


def _check_sight(role: str, chat_model: ChatModel, domain: Domain) -> None:
    """Raises `RecipeError` before anything is played where images would be shown to the blind. What
    an endpoint's model sees is its own affair."""
    if not (isinstance(chat_model, LocalChatModel) and domain.capabilities.shows_images):
        return
    if chat_model.blind:
        raise RecipeError(
            f"{role}.model: {chat_model.name!r} cannot be shown images, which this domain has: "
            f"{chat_model.blind}; choose a model that sees, such as a Qwen3-VL, or have the domain "
            "show text (domain.options.observe=text)"
        )
