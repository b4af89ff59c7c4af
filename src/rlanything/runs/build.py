"""Builds the components of a run from its recipe: models, engines, roles, learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from rlanything.algorithm.curriculum import Pool, WorldSettings
from rlanything.cluster.models import RoleSource
from rlanything.cluster.open import Models, Trained, open_models
from rlanything.config.engines import OnStage, unseen
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    PolicyConfig,
    RoleConfig,
    TrainedRoleConfig,
    role_key,
)
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks
from rlanything.domains.several import Several
from rlanything.engines.base import Engine, Sampling
from rlanything.evaluation.labels import Labeller
from rlanything.plugins import PluginError, load_plugin, make_plugin
from rlanything.roles.adapter import Adapter, LLMAdapter, NullAdapter
from rlanything.roles.chat_model import ChatModel, LocalChatModel
from rlanything.roles.judges.base import FunctionJudge, Judge, JudgeError, ScoreFunction
from rlanything.roles.judges.llm import LLMJudge, ValueJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.roles.policy import LanguagePolicy, Players
from rlanything.rollout.episodes import Agent
from rlanything.runs.parts import NO_PARTS, Parts
from rlanything.runs.refusals import check_feedback, check_models, check_players
from rlanything.seeds import derive

LABELLER = "evaluation.labeller"
"""Key of the model that labels the judge's held-out steps; a model, but no role."""


@dataclass(frozen=True, slots=True)
class RunComponents:
    """The models and roles of a run."""

    trained_models: Mapping[str, Trained]
    """Models that learn, by role."""
    train_policy: LanguagePolicy | Players
    """The roles that act, with their sampling settings in training."""
    eval_policy: LanguagePolicy | Players
    """The same with their sampling settings in evaluation."""
    judges: JudgePanel
    adapter: Adapter
    engines: tuple[Engine, ...]
    """All engines of models in this process, including frozen ones."""
    chat_models: Mapping[str, ChatModel]
    """The model that answers for each role, by role."""
    models: Models
    """The holder of all models."""
    images: tuple[Path, ...] = ()
    """Folders in which models look up screenshots."""
    passing: TemporaryDirectory[str] | None = None
    """Temporary folder for screenshots that no run keeps; None if the domain has none."""

    @property
    def passing_images(self) -> Path | None:
        """Folder of the screenshots that no run keeps; None without one."""
        return None if self.passing is None else Path(self.passing.name)

    def labeller(self, recipe: Recipe, domain: Domain, day: datetime) -> Labeller | None:
        """Builds `build_labeller`'s labeller with these models."""
        return build_labeller(recipe, domain, day, self.models, self.images)

    def pop_usage(self) -> dict[str, int]:
        """Returns the requests and tokens of models since the last call, as `role/quantity`."""
        return {
            f"{role}/{quantity}": count
            for role, chat_model in self.chat_models.items()
            for quantity, count in chat_model.pop_usage().items()
        }


def new_pool(recipe: Recipe, domain: Domain) -> Pool:
    """Returns the initial tasks of a run. Raises `RecipeError` if the domain has fewer than the
    iterations under way need."""
    loop = recipe.loop
    roots = checked_tasks(domain, "train", loop.tasks, derive(recipe.seed, "roots"))
    if len(roots) < (needed := (1 + loop.max_staleness) * loop.tasks_per_iteration):
        more = f", with loop.max_staleness {needed} under way" if loop.max_staleness else ""
        raise RecipeError(
            f"loop.tasks_per_iteration: {loop.tasks_per_iteration}{more}, but "
            f"{' and '.join(recipe.domain.names)} has {len(roots)} tasks to train on: ask for no "
            "more"
        )
    curriculum = recipe.curriculum
    return Pool(roots, curriculum.alpha_low, curriculum.alpha_high, pool_worlds(recipe, domain))


def pool_worlds(recipe: Recipe, domain: Domain) -> dict[str, WorldSettings]:
    """Returns the settings of each world, by label; empty if there are not several. A world that
    cannot rewrite tasks has bounds that no accuracy crosses.

    Raises `RecipeError` for bounds that are out of order, or change nothing."""
    settings: dict[str, WorldSettings] = {}
    for i, (label, world) in enumerate(recipe.domain.worlds.items()):
        given = [key for key in ("alpha_low", "alpha_high") if getattr(world, key) is not None]
        rewrites = not isinstance(domain, Several) or (
            domain.worlds[label].capabilities.rewrites_tasks or recipe.adapter.name != "llm"
        )
        if given and not (rewrites and recipe.curriculum.adapt_tasks):
            why = "curriculum.adapt_tasks is false" if rewrites else "this world cannot do that"
            raise RecipeError(
                f"domains.{i}.{given[0]}: tasks of {label} are not rewritten ({why}): leave it out"
            )
        low, high = (
            getattr(recipe.curriculum if getattr(world, key) is None else world, key)
            for key in ("alpha_low", "alpha_high")
        )
        if low >= high:
            raise RecipeError(
                f"domains.{i}: alpha_low ({low}) must be below alpha_high ({high}) in {label}"
            )
        window = world.policy_window or recipe.feedback.policy_window
        low, high = (low, high) if rewrites else (0.0, 1.0)
        settings[label] = WorldSettings(world.weight, low, high, window)
    return settings


def build_components(
    recipe: Recipe,
    domain: Domain,
    checkpoint: Path | None = None,
    parts: Parts = NO_PARTS,
    day: datetime | None = None,
    images: Path | None = None,
    on_stage: OnStage = unseen,
) -> RunComponents:
    """Builds the models and roles of a run; trained models load the weights of `checkpoint` if
    given, and keep the recipe's model as their reference. `parts` take precedence over the recipe.
    Chat templates with a date show `day`; None: today. `images`: folder of the run's screenshots.

    Raises `RecipeError` for a role that cannot train, or whose model cannot read required images,
    `ModelError`, `JudgeError` or an engine's own one-line ValueError for an unusable model or
    judge."""
    check_models(recipe)
    if checkpoint is None:  # a run that has begun keeps its settings
        check_feedback(recipe, domain)
    devices = [section.device for section in recipe.model_sections]
    models = open_models(recipe.cluster, devices, recipe.threads, on_stage)
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
    trained: dict[str, Trained] = {
        name: models.trained(trained_source(recipe, checkpoint, seen, name, role))
        for name, role in recipe.trained_roles.items()
    }
    chat_models = _ChatModels(recipe, models, trained, day, seen)
    # Roles that act first, then judges, then the adapter, which may share a model with either.
    acting = {name: chat_models.build(name) for name in recipe.players}
    train_policy = build_players(recipe, domain, acting)
    judges: dict[str, Judge] = {}
    for name, role in recipe.judges.items():
        build = partial(chat_models.build, name)
        judges[name] = parts.judge_of(name) or build_judge(
            role, domain, build, role_key(name), train_policy
        )
    build = partial(chat_models.build, recipe.rewriting)
    if (adapter := parts.adapter) is None and recipe.curriculum.adapt_tasks:
        adapter = build_adapter(recipe.adapter, domain, build, role_key(recipe.rewriting))
    # Tests of a task are written once, for all of its episodes.
    steps = domain.capabilities.judge == "steps"
    elsewhere = bool(judges) and all(
        steps and role.by_model and role.remote and parts.judge_of(name) is None
        for name, role in recipe.judges.items()
    )
    weights = {name: role.weight for name, role in recipe.judges.items()}
    return RunComponents(
        trained_models=trained,
        train_policy=train_policy,
        eval_policy=build_players(recipe, domain, acting, recipe.evaluation.temperature),
        judges=JudgePanel(judges, weights, elsewhere),
        adapter=adapter or NullAdapter(),
        engines=tuple(chat_models.engines),
        chat_models=chat_models.by_role,
        models=models,
        images=seen,
        passing=passing,
    )


@dataclass(slots=True)
class _ChatModels:
    """The chat models of a run, built in the order in which roles request them."""

    recipe: Recipe
    models: Models
    trained: Mapping[str, Trained]
    day: datetime | None
    images: tuple[Path, ...]
    by_role: dict[str, ChatModel] = field(default_factory=dict)
    engines: list[Engine] = field(default_factory=list)
    """Engines of the models in this process."""

    def __post_init__(self) -> None:
        self.engines += [trained.engine for trained in self.trained.values()]

    def build(self, name: str) -> ChatModel:
        """Builds the model that answers for a role. Raises as `build_chat_model` does."""
        self.by_role[name] = chat_model = self._built(name)
        return chat_model

    def _built(self, name: str) -> ChatModel:
        role, shared = self.recipe.roles[name], self.recipe.shared_role
        if name == self.recipe.rewriting and shared is not None:
            answering = self.by_role[shared]
            assert isinstance(answering, LocalChatModel)  # check_models ensures this
            return answering.counted_separately()
        if trained := self.trained.get(name):
            model, engine = trained.model, trained.engine
            return LocalChatModel(model, engine, self.day, role.chat_template_kwargs)
        chat_model = build_chat_model(role, name, self.models, self.day, self.images)
        if isinstance(chat_model, LocalChatModel):
            self.engines.append(chat_model.engine)
        return chat_model


def trained_source(
    recipe: Recipe,
    checkpoint: Path | None,
    images: tuple[Path, ...],
    name: str,
    role: TrainedRoleConfig,
) -> RoleSource:
    """Returns the source of a trained model: the recipe's, or the checkpoint's if given."""
    return RoleSource(
        name,
        role,
        checkpoint and checkpoint / name,
        derive(recipe.seed, "adapters", name),
        images,
    )


def build_chat_model(
    role: RoleConfig,
    name: str,
    models: Models,
    day: datetime | None = None,
    images: tuple[Path, ...] = (),
) -> ChatModel:
    """Builds a role's model, with `models` or at an endpoint; a chat template with a date shows
    `day` (None: today), and images are looked up in these folders. Raises `ModelError`, or another
    one-line ValueError of the role's engine."""
    if role.remote:
        return role.engine.build(None, role.engine_setting(name, threads=0, images=images))
    served = models.served(RoleSource(name, role, images=images))
    return LocalChatModel(served.model, served.engine, day, role.chat_template_kwargs)


def build_policy(
    chat_model: ChatModel,
    domain: Domain,
    config: PolicyConfig,
    temperature: float,
    key: str = "policy",
) -> LanguagePolicy:
    """Builds the policy over a chat model, sampling at `temperature`; `key`: the role's in the
    recipe, for messages. Raises `RecipeError` if the model cannot read required images, or writes
    function calls that cannot be read."""
    _check_sight(key, chat_model, domain)
    local = isinstance(chat_model, LocalChatModel)
    if local and domain.capabilities.offers_tools and chat_model.unknown_calls:
        raise RecipeError(
            f"{key}.model: {chat_model.name!r} writes function calls in an unknown format; take "
            "functions out of its chat_template.jinja, which has them described in words, or "
            "choose another model"
        )
    return LanguagePolicy(
        chat_model,
        domain,
        Sampling(temperature, config.max_tokens),
        config.decoding,
        config.thought_tokens,
        config.screenshots if domain.capabilities.shows_images else 0,
    )


def build_players(
    recipe: Recipe,
    domain: Domain,
    chat_models: Mapping[str, ChatModel],
    temperature: float | None = None,
) -> LanguagePolicy | Players:
    """Builds what acts, over the chat model of each role; `temperature`: None: each role's own.
    Raises as `build_policy` does, and for roles that the domain does not ask."""
    check_players(recipe, domain)
    policies: dict[str, LanguagePolicy] = {}
    for name, role in recipe.players.items():
        player = "" if name == recipe.acting else name
        own = role.temperature if temperature is None else temperature
        policies[player] = build_policy(chat_models[name], domain, role, own, role_key(name))
    return Players(policies) if len(policies) > 1 else policies[""]


def build_labeller(
    recipe: Recipe, domain: Domain, day: datetime, models: Models, images: tuple[Path, ...] = ()
) -> Labeller | None:
    """Builds the labeller of the judge's held-out steps; None if the recipe has none. Images are
    looked up in these folders.

    Raises `RecipeError` if no labeller is needed, and what `build_chat_model` raises."""
    config = recipe.evaluation.labeller
    if config is None or recipe.evaluation.baseline is not None:  # which already has labels
        return None
    if domain.capabilities.judge == "tests":
        raise RecipeError(
            "evaluation.labeller: this domain's judge writes tests, which programs label; leave it "
            "out"
        )
    chat_model = build_chat_model(config, LABELLER, models, day, images)
    _check_sight(LABELLER, chat_model, domain)
    sampling = Sampling(config.temperature, config.max_tokens)
    samples = config.samples_per_step
    at_once, shown = config.continuous_batching, domain.capabilities.shows_images
    judge = LLMJudge(chat_model, domain, sampling, samples, shown, at_once=at_once)
    return Labeller(chat_model, judge)


def build_judge(
    config: JudgeConfig,
    domain: Domain,
    chat_model: Callable[[], ChatModel],
    key: str = "judge",
    policy: Agent | None = None,
) -> Judge:
    """Builds the judge that a recipe names; `chat_model` is called only if needed; `key` is the
    role's in the recipe, for messages; `policy`: the agent that is judged, None where none plays.

    Raises `JudgeError` for an unknown judge or invalid options, and `RecipeError` if the model
    cannot read required images."""
    samples = config.samples_per_step
    sampling = Sampling(config.temperature, config.max_tokens)
    if config.by_model:
        if domain.capabilities.judge == "tests":
            if config.values or config.score_first:
                option = "name" if config.values else "score_first"
                raise RecipeError(f"{key}.{option}: here judges write tests: leave it out")
            return UnitTestJudge(chat_model(), domain, sampling, samples)
        model = chat_model()
        _check_sight(key, model, domain)
        shown = domain.capabilities.shows_images
        kind = ValueJudge if config.values else LLMJudge
        at_once = config.continuous_batching
        return kind(model, domain, sampling, samples, shown, config.score_first, at_once)
    provided = _provided(domain, sampling, chat_model) | {"samples": lambda: samples}
    if policy is not None:
        provided["policy"] = lambda: policy
    try:
        plugin = load_plugin("judge", config.name)
        if isinstance(plugin, type):
            plugin = make_plugin("judge", config.name, config.options, Judge, provided)
        elif config.options:
            raise JudgeError(f"{key}.options: {config.name} is no class, and takes none: drop them")
    except PluginError as error:
        raise JudgeError(f"{key}.name: {error}") from error
    if isinstance(plugin, Judge):
        return plugin
    if not callable(plugin):
        raise JudgeError(
            f"{key}.name: {config.name} is no judge: name a function (trajectory, i) that returns "
            "a score, or a class with the methods of rlanything.roles.judges.base.Judge"
        )
    return FunctionJudge(cast(ScoreFunction, plugin))


def build_adapter(
    config: AdapterConfig,
    domain: Domain,
    chat_model: Callable[[], ChatModel],
    key: str = "adapter",
) -> Adapter:
    """Builds the adapter that a recipe names; `chat_model` is called only if needed: it is useless
    if the domain cannot rewrite tasks. `key` is the role's in the recipe, for messages.

    Raises `RecipeError` for an unknown adapter or invalid options."""
    sampling = Sampling(config.temperature, config.max_tokens)
    if config.name == "llm":
        critics, stages = config.most_critics, config.critic_stages
        if stages == 2 and not domain.capabilities.staged_critics:
            raise RecipeError(
                f"{key}.critic_stages: this domain's critics have one stage: leave it at 1"
            )
        if not domain.capabilities.rewrites_tasks:
            return NullAdapter()
        asked = (config.tries, critics, config.rejected_by, stages, config.memory)
        return LLMAdapter(chat_model(), domain, sampling, *asked)
    provided = _provided(domain, sampling, chat_model)
    try:
        return make_plugin("adapter", config.name, config.options, Adapter, provided)
    except PluginError as error:
        raise RecipeError(f"{key}.name: {error}") from error


def _provided(
    domain: Domain, sampling: Sampling, chat_model: Callable[[], ChatModel]
) -> dict[str, Callable[[], Any]]:
    """Returns factories for constructor parameters of a judge or adapter class, by name."""
    return {"domain": lambda: domain, "sampling": lambda: sampling, "chat_model": chat_model}


def _check_sight(role: str, chat_model: ChatModel, domain: Domain) -> None:
    """Raises `RecipeError` early if a role would receive images that its model cannot read. Models
    at endpoints are not checked."""
    if not (isinstance(chat_model, LocalChatModel) and domain.capabilities.shows_images):
        return
    if chat_model.no_vision_reason:
        raise RecipeError(
            f"{role}.model: {chat_model.name!r} cannot be shown images, which this domain has: "
            f"{chat_model.no_vision_reason}; choose a vision model, such as a Qwen3-VL, or have "
            "the domain show text (domain.options.observe=text)"
        )
