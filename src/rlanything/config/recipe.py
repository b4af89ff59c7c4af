"""The recipe's schema. Unknown keys are errors; every field says what it is."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rlanything.config.cluster import ClusterConfig
from rlanything.config.engines import ConfigSection
from rlanything.config.problems import (
    RecipeError,
    TrustError,
    first_problem,
    refused_trust,
    unknown_key,
)
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    PolicyConfig,
    RoleConfig,
)
from rlanything.config.sections import (
    CheckpointsConfig,
    CurriculumConfig,
    EnvironmentConfig,
    EvaluationConfig,
    FeedbackConfig,
    File,
    LoopConfig,
    StoreConfig,
    TrackerConfig,
)
from rlanything.config.shipped import find_recipe, shipped_files, ships_module
from rlanything.config.trust import (
    CODE,
    SECRET,
    PluginName,
    Trust,
    check_key,
    is_code,
    limit_to,
    mappings_in,
    names_in,
    texts,
    trust_of,
)
from rlanything.config.yaml import YamlError, dotted, read_yaml, visible
from rlanything.files import read_plain
from rlanything.plugins import PluginError, load_plugin

MOST_BYTES = 1 << 20
"""Largest file of a recipe."""


class DomainConfig(ConfigSection):
    name: PluginName
    """A registered domain (`alfworld`) or `module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the domain, which checks them."""
    module_folder: File | None = None
    """Where the module of `module:Class` lies; filled in where that is beside the recipe's file.
    Looked into last, and only where whatever the recipe names may be imported."""

    @field_validator("options")
    @classmethod
    def _trusted(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuses code, commands and secrets that are not allowed, by the types of the domain's
        options. What else is wrong with them the domain says when it is made."""
        for place, endpoint in mappings_in(options):
            check_key(dotted([*place, "key_variable"]), endpoint, info)
        try:
            _validate_options(info.data.get("name"), options, trust_of(info))
        except ValidationError as error:
            if {CODE, SECRET} & {problem["type"] for problem in error.errors()}:
                raise
        return options

    @property
    def code(self) -> list[str]:
        """All that is named as `module:name`, and commands."""
        trust = Trust(code=True, secrets=True)
        with suppress(ValidationError):
            _validate_options(self.name, self.options, trust)
        own = [self.name] if is_code(self.name) else []
        return [*own, *dict.fromkeys(trust.asked)]


def options_model(domain: object) -> type[BaseModel] | None:
    """Returns the `Options` that the class of a named domain declares; None without any, and where
    the domain cannot be loaded, which is said when it is made."""
    try:
        model = getattr(load_plugin("domain", str(domain)), "Options", None)
    except PluginError:
        return None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _validate_options(domain: object, options: Mapping[str, Any], trust: Trust) -> None:
    """Has pydantic read those options that the domain declares: an unknown one would end its
    reading before the others are looked at. Raises `ValidationError`."""
    if options and (model := options_model(domain)):
        known = {key: value for key, value in options.items() if key in model.model_fields}
        model.model_validate(known, context=trust)


class Recipe(ConfigSection):
    """A run, described completely."""

    name: str
    """Names the run; its directory is `runs/<name>` unless `run_dir` says otherwise."""
    run_dir: File | None = None
    """Where the run lives. It must not exist yet."""
    seed: int = 0
    """Every random choice derives from it."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads of the language models; 0: as many as there are cores."""
    cluster: ClusterConfig = ClusterConfig()
    domain: DomainConfig
    policy: PolicyConfig = PolicyConfig()
    judge: JudgeConfig = JudgeConfig()
    adapter: AdapterConfig = AdapterConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    loop: LoopConfig = LoopConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    store: StoreConfig = StoreConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    tracker: TrackerConfig = TrackerConfig()

    @field_validator("name")
    @classmethod
    def _stays_in_runs(cls, name: str) -> str:
        parts = PurePath(name).parts
        control = any(ord(character) < 32 for character in name)
        if not parts or ".." in parts or PurePath(name).is_absolute() or control:
            raise ValueError("it names a folder inside runs/; put the run elsewhere with run_dir")
        return name

    @model_validator(mode="before")
    @classmethod
    def _imports_limited(cls, data: Any, info: ValidationInfo) -> Any:
        """Before any section: an engine's class is imported to read its own."""
        limit_to(trust_of(info), data)
        return data

    @model_validator(mode="after")
    def _machines_of_ray(self) -> Recipe:
        if self.environment.per_machine is not None and self.cluster.launcher != "ray":
            raise ValueError(
                "environment.per_machine belongs to cluster.launcher: ray; use environment.workers"
            )
        return self

    @property
    def reads_scores(self) -> bool:
        """Whether anything in training depends on what the judge says: otherwise it is not asked,
        only evaluated."""
        return (
            self.judge.trains
            or self.feedback.policy_reward != "outcome"
            or self.curriculum.adapt_tasks
        )

    @property
    def roles(self) -> list[RoleConfig]:
        """The sections that name a model and its engine."""
        labeller = self.evaluation.labeller
        return [self.policy, self.judge, self.adapter, *([labeller] if labeller else [])]

    @property
    def code(self) -> list[str]:
        """All that is named as `module:name`, and commands."""
        names = [self.judge.name, self.adapter.name, self.policy.loss, self.judge.loss]
        names += [role.engine.name for role in self.roles]
        return [*self.domain.code, *(name for name in names if is_code(name))]

    @property
    def foreign_code(self) -> set[str]:
        """The code that does not ship with the library: `allow_code` must be said for it."""
        return set(self.code) - set(ships_module(self.domain.model_dump(), None))

    @property
    def allowance(self) -> str:
        """The option that commands which read the recipe again need for its code; or nothing."""
        return " --allow-code" if self.foreign_code else ""

    @property
    def directory(self) -> Path:
        return self.run_dir or Path("runs") / self.name


Source: TypeAlias = "str | Path | Mapping[str, Any] | Recipe"
Overrides: TypeAlias = Sequence[str] | Mapping[str, Any]


def load_recipe(
    source: Source,
    overrides: Overrides = (),
    *,
    allow_code: bool = False,
    known: Recipe | None = None,
    place: str = "recipe",
) -> Recipe:
    """Returns the recipe of a YAML file, of a shipped recipe's name (`tiny`), or of data such as a
    file holds; a recipe that is one already with the overrides applied.

    Overrides are `section.key=value` with values in YAML, or a mapping `section.key` to value. For
    a recipe in a file, the domain's options of type `File` are looked for next to it first.

    What is named as `module:name` must be in the overrides too, or be allowed as a whole with
    `allow_code`; the domain's module may then lie beside the recipe. `known`: a recipe in use, what
    it names is allowed here too. `place`: the name of data in messages. Raises `RecipeError` with
    one line for anything that is wrong, `TrustError` for what is not allowed."""
    folder, limits = None, known is None
    if isinstance(source, Recipe):
        if not overrides:
            return source
        data, known, limits = source.model_dump(exclude_unset=True), source, False
    elif isinstance(source, Mapping):
        data = copy.deepcopy(dict(source))
    else:
        path = find_recipe(source)
        place, data, folder = visible(path), _read(path), path.parent.resolve()
        limits = limits and path not in shipped_files().values()
    data = _overridden(data, overrides)
    ships = frozenset(ships_module(data.get("domain"), folder))
    typed = _overridden({}, overrides)
    said = frozenset(texts(typed))
    if known is not None:
        said |= {*texts(known.model_dump())}
    trust = Trust(allow_code, said, ships.union(names_in(typed)), ships, limits=limits)
    if trust.all_code or ships:
        _see_module(data.get("domain"), folder)
    recipe = _make(data, place, trust, overrides)
    return recipe if folder is None else _with_neighbours(recipe, folder)


def _make(data: dict[str, Any], place: str, trust: Trust, overrides: Overrides) -> Recipe:
    try:
        return Recipe.model_validate(data, context=trust)
    except ValidationError as error:
        if (refused := refused_trust(error, data)) is not None:
            raise TrustError(f"{place}: {refused}") from None
        place = _override_of(unknown_key(error, data), overrides) or place
        raise RecipeError(f"{place}: {first_problem(error, data)}") from None


def _override_of(key: str | None, overrides: Overrides) -> str | None:
    """Returns the override that an unknown key came from, as messages name it (without its value,
    which may be secret); None: none."""
    for given in overrides if key else ():
        name = given if isinstance(overrides, Mapping) else given.partition("=")[0]
        if f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}."):
            return f"override {visible(name)}"
    return None


def first_difference(one: object, two: object, at: tuple[str, ...] = ()) -> str | None:
    """Returns the first key in which two recipes, or parts of them, differ; None where in none."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in [*one, *(key for key in two if key not in one)]:
            difference = first_difference(one.get(key), two.get(key), (*at, str(key)))
            if difference is not None:
                return difference
        return None
    return None if one == two else dotted(at)


def _read(path: Path) -> dict[str, Any]:
    place = visible(path)
    try:
        data = read_yaml(read_plain(path, MOST_BYTES).decode())
    except YamlError as error:
        where = f"line {error.line}: " if error.line is not None else ""
        raise RecipeError(f"{place}: {where}{error}; a recipe is a YAML mapping") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{place}: cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise RecipeError(f"{place}: a recipe is a YAML mapping with at least `name` and `domain`")
    return data


def _with_neighbours(recipe: Recipe, folder: Path) -> Recipe:
    """Returns the recipe with full paths in place of the domain's files that lie next to its own
    file."""
    domain, options = recipe.domain, dict(recipe.domain.options)
    model = options_model(domain.name) if options else None
    for key, field in model.model_fields.items() if model else ():
        path = options.get(key) if _holds_path(field.annotation) else None
        if isinstance(path, str) and path and (folder / path).exists():
            options[key] = str((folder / path).resolve())
    return recipe.model_copy(update={"domain": domain.model_copy(update={"options": options})})


def _holds_path(annotation: object) -> bool:
    """Returns whether a field's type has `Path` in it."""
    return annotation is Path or any(map(_holds_path, get_args(annotation)))


def _see_module(domain: object, folder: Path | None) -> None:
    """Has Python look for the modules that a domain and its options name next to the recipe's file,
    after everywhere else: a file there hides nothing that is installed. Notes the folder in the
    domain's section."""
    if not isinstance(domain, dict):
        return
    for name in [*names_in(domain)]:
        module = re.fullmatch(r"(\w+)[\w.]*:[\w.]+", name)
        file = folder / module[1] if folder and module else None
        if file and (file.is_dir() or file.with_suffix(".py").is_file()):
            domain["module_folder"] = str(folder)
    folder = domain.get("module_folder")
    if folder and str(folder) not in sys.path:
        sys.path.append(str(folder))


def _overridden(data: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Puts overrides into data, and returns it."""
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            _put(data, key, value, repr(key))
    else:
        for override in overrides:
            _override(data, override)
    return data


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    shown = f"{override!r:.80}"
    if not equals or not key or not key.isprintable():
        raise RecipeError(f"override {shown}: write section.key=value")
    try:
        value = read_yaml(text)
    except YamlError as error:
        raise RecipeError(
            f"override {shown}: the value is not valid YAML ({error}); quote it"
        ) from None
    _put(data, key, value, shown)


def _put(data: dict[str, Any], key: str, value: object, shown: str) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise RecipeError(f"override {shown}: {parent!r} is a value, not a section")
    data[last] = value
