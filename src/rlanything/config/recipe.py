"""The recipe's schema. Unknown keys are errors; every field has a docstring."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rlanything.algorithm.rewards import ReplayOptions
from rlanything.config.cluster import ClusterConfig
from rlanything.config.engines import ConfigSection
from rlanything.config.problems import (
    RecipeError,
    TrustError,
    first_key,
    first_problem,
    refused_trust,
)
from rlanything.config.roles import (
    SHORT_FORM,
    AdapterConfig,
    AnyRoleConfig,
    JudgeConfig,
    PolicyConfig,
    RoleConfig,
    TrainedRoleConfig,
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
    Trust,
    is_code,
    limit_to,
    names_in,
    texts,
    trust_of,
)
from rlanything.config.worlds import (
    SEVERAL,
    DomainConfig,
    as_one_domain,
    options_model,
)
from rlanything.config.yaml import YamlError, dotted, read_yaml, visible
from rlanything.files import read_plain

MOST_BYTES = 1 << 20
"""Largest file of a recipe."""
ROLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
METRICS_OF_NO_ROLE = "evaluation", "labeller", "memory", "replays", "rollouts", "seconds", "tasks"
"""First parts of metric names that belong to no role; a role's metrics begin with its name."""


class Recipe(ConfigSection):
    """A run, described completely."""

    short_keys: ClassVar[tuple[str, ...]] = (*SHORT_FORM, "domains")

    name: str
    """Name of the run; its directory is `runs/<name>` unless `run_dir` is given."""
    run_dir: File | None = None
    """The run's directory. It must not exist yet."""
    seed: int = 0
    """Seed of every random choice."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads of the language models; 0: one per core."""
    cluster: ClusterConfig = ClusterConfig()
    domain: DomainConfig
    roles: dict[str, AnyRoleConfig] = Field(default_factory=dict)
    """Roles by name. `policy`, `judge` and `adapter` may be written at the top level."""
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
    def _roles_by_name(cls, data: Any) -> Any:
        """Moves the short form under `roles` and adds the paper's roles that are missing."""
        if not isinstance(data, dict):
            return data  # pydantic refuses it
        rest = {key: value for key, value in data.items() if key not in SHORT_FORM}
        roles = data.get("roles", {})
        if not isinstance(roles, dict):
            return rest
        if both := [name for name in SHORT_FORM if name in data and name in roles]:
            raise ValueError(f"{both[0]} and roles.{both[0]} are the same role: keep one of them")
        short = {name: data[name] for name in SHORT_FORM if name in data}
        roles = {name: _doing(name, section) for name, section in {**short, **roles}.items()}
        done = [_does(section) for section in roles.values()]
        for name, does in SHORT_FORM.items():
            if does not in done:
                roles.setdefault(name, {"does": does})
        order = ("acts", "scores", "rewrites")
        names = sorted(
            roles, key=lambda name: [*order, _does(roles[name])].index(_does(roles[name]))
        )
        return {**rest, "roles": {name: roles[name] for name in names}}

    @model_validator(mode="before")
    @classmethod
    def _imports_limited(cls, data: Any, info: ValidationInfo) -> Any:
        """Limits imports before any section is read: reading an engine's settings imports its
        class."""
        limit_to(trust_of(info), data)
        return data

    @model_validator(mode="after")
    def _roles_fit(self) -> Recipe:
        for name in self.roles:
            if not ROLE_NAME.fullmatch(name) or name in METRICS_OF_NO_ROLE:
                raise ValueError(
                    f"roles.{visible(name)}: write a role's name in small letters, digits and _, "
                    f"other than {', '.join(METRICS_OF_NO_ROLE)}, which metrics begin with"
                )
        does = {name: role.does for name, role in self.roles.items()}
        names = [name for name in does if does[name] == "rewrites"]
        if len(names) > 1:
            raise ValueError(
                f"{' and '.join(f'roles.{name}' for name in names)}: one role rewrites; leave the "
                "others out"
            )
        adapter = self.adapter
        if self.shared_role is not None and (given := adapter.unshared):
            message = "with model: {model} what holds is the {model}'s own {keys}: leave this out"
            words = {"key": self.rewriting, "model": adapter.model, "keys": ", ".join(given)}
            raise PydanticCustomError("shared_role", message, words)
        return self

    @model_validator(mode="after")
    def _machines_of_ray(self) -> Recipe:
        on_ray = self.cluster.launcher == "ray"
        if self.environment.per_machine is not None and not on_ray:
            raise ValueError(
                "environment.per_machine belongs to cluster.launcher: ray; use environment.workers"
            )
        if on_ray and self.cluster.seats == 1 and self.environment.per_machine is None:
            raise ValueError(
                "cluster.launcher: ray has nothing to place; raise cluster.seats, or set "
                "environment.per_machine"
            )
        return self

    @model_validator(mode="after")
    def _waits_for_none(self) -> Recipe:
        if self.loop.max_staleness and self.environment.lockstep:
            raise ValueError("loop.max_staleness above 0 needs environment.lockstep: false")
        return self

    @property
    def acting(self) -> str:
        """Name of the first role that acts."""
        [first, *_] = self.players
        return first

    @property
    def policy(self) -> PolicyConfig:
        """The first role that acts: tasks, evaluations and the report go by its outcomes."""
        return self.players[self.acting]

    @property
    def players(self) -> dict[str, PolicyConfig]:
        """The roles that act, by name."""
        return {name: r for name, r in self.roles.items() if isinstance(r, PolicyConfig)}

    @property
    def judges(self) -> dict[str, JudgeConfig]:
        """The roles that score, by name."""
        return {name: r for name, r in self.roles.items() if isinstance(r, JudgeConfig)}

    def one_judge(self, wanted: str | None) -> str:
        """Returns the name of the wanted judge; None: the recipe's only one. Raises `RecipeError`
        if there is no such judge, or several and none is named."""
        names = ", ".join(self.judges)
        if wanted is None and len(self.judges) > 1:
            raise RecipeError(f"{self.name} has several judges: choose with --role one of {names}")
        if wanted is not None and wanted not in self.judges:
            raise RecipeError(f"--role {wanted}: no judge of {self.name}; choose one of {names}")
        return wanted or next(iter(self.judges))

    @property
    def rewriting(self) -> str:
        """Name of the role that rewrites."""
        [name] = [name for name, role in self.roles.items() if role.does == "rewrites"]
        return name

    @property
    def adapter(self) -> AdapterConfig:
        """The role that rewrites."""
        [adapter] = [role for role in self.roles.values() if isinstance(role, AdapterConfig)]
        return adapter

    @property
    def shared_role(self) -> str | None:
        """Name of the role whose model also rewrites tasks; None if the adapter has its own
        model."""
        model = self.adapter.model
        return model if model in self.roles and model != self.rewriting else None

    @property
    def splits(self) -> tuple[str, ...]:
        """The held-out splits; with several worlds those of each world, as `world/split`."""
        worlds, full = self.domain.worlds, list[str]()
        for split in self.evaluation.splits:
            whole = not worlds or split.partition("/")[0] in worlds
            full += [split] if whole else [f"{world}/{split}" for world in worlds]
        return tuple(dict.fromkeys(full))

    @property
    def trained_roles(self) -> dict[str, TrainedRoleConfig]:
        """The roles that learn, by name."""
        trained = {n: r for n, r in self.roles.items() if isinstance(r, TrainedRoleConfig)}
        return {name: role for name, role in trained.items() if role.trains}

    def with_role(self, name: str, role: RoleConfig) -> Self:
        """Returns the recipe with another role of this name."""
        return self.model_copy(update={"roles": {**self.roles, name: role}})

    @property
    def reads_scores(self) -> bool:
        """Whether training depends on any judge's scores; if not, judges are only evaluated."""
        return (
            any(judge.trains for judge in self.judges.values())
            or self.feedback.policy_reward != "outcome"
            or "values" in self.feedback.advantage.needs
            or self.curriculum.adapt_tasks
        )

    @property
    def replays(self) -> ReplayOptions | None:
        """How the gains of steps are measured; None if no judge that learns needs them."""
        reward = self.feedback.judge_reward
        if "gains" not in reward.needs or not any(each.trains for each in self.judges.values()):
            return None
        options = getattr(reward.function, "keywords", {}).get("options")
        return options if isinstance(options, ReplayOptions) else ReplayOptions()

    @property
    def model_sections(self) -> list[RoleConfig]:
        """The sections that name a model and its engine: the roles', and the labeller's."""
        labeller = self.evaluation.labeller
        return [*self.roles.values(), *([labeller] if labeller else [])]

    @property
    def code(self) -> list[str]:
        """Every `module:name` and command that it names."""
        roles = self.roles.values()
        names = [role.name for role in roles if isinstance(role, JudgeConfig | AdapterConfig)]
        trained = [role for role in roles if isinstance(role, TrainedRoleConfig)]
        names += [role.loss.name for role in trained]
        names += [role.learner.name for role in trained if role.learner is not None]
        names += [self.feedback.advantage.name, self.feedback.judge_reward.name]
        names += [section.engine.name for section in self.model_sections]
        return [*self.domain.code, *(name for name in names if is_code(name))]

    @property
    def foreign_code(self) -> set[str]:
        """Code that does not ship with the library and needs `allow_code`."""
        return set(self.code) - set(ships_module(self.domain.model_dump(), None))

    @property
    def allowance(self) -> str:
        """The option that commands which reread the recipe need for its code; or nothing."""
        return " --allow-code" if self.foreign_code else ""

    @property
    def directory(self) -> Path:
        return self.run_dir or Path("runs") / self.name


def _does(section: object) -> object:
    """Returns what a role does; None if its section does not say."""
    said = section.get("does") if isinstance(section, dict) else getattr(section, "does", None)
    return said


def _doing(name: str, section: object) -> object:
    """Returns a role's section with its `does` filled in, if the role's name implies it."""
    if not isinstance(section, dict) or name not in SHORT_FORM:
        return section
    return {"does": SHORT_FORM[name], **section}


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
    """Returns the recipe of a YAML file, of a shipped recipe's name (`tiny`), or of plain data; for
    a `Recipe`, returns it with the overrides applied.

    Overrides are `section.key=value` with values in YAML, or a mapping `section.key` to value. For
    a recipe in a file, the domain's options of type `File` are first looked up next to it.

    Each `module:name` must also be in the overrides, or all are allowed with `allow_code`; the
    domain's module may then be next to the recipe. `known`: a recipe in use, whose code is allowed
    here too. `place`: the name of data in messages. Raises `RecipeError` with one line for anything
    invalid, `TrustError` for anything not allowed."""
    folder, limits = None, known is None
    if isinstance(source, Recipe):
        if not overrides:
            return source
        data, known, limits = source.model_dump(exclude_unset=True), source, False
    elif isinstance(source, Mapping):
        data = copy.deepcopy(dict(source))
    else:
        shipped = shipped_files()
        path = find_recipe(source, shipped)
        place, data, folder = visible(path), _read(path), path.parent.resolve()
        limits = limits and path not in shipped.values()
    data = as_one_domain(_overridden(data, overrides), place)
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
        problem = first_problem(error, data)
        name = _override_of(*first_key(error, data), overrides)
        if name is None:
            raise RecipeError(f"{place}: {problem}") from None
        shown = "" if problem.startswith(f"{name}: ") else f"{name}: "
        raise RecipeError(f"override {shown}{problem}") from None


def override_keys(overrides: Sequence[str]) -> list[str]:
    """Returns the keys of overrides `section.key=value`."""
    return [override.partition("=")[0] for override in overrides]


def _override_of(key: str, unknown: bool, overrides: Overrides) -> str | None:
    """Returns the key of the override that a wrong value, or an unknown key, came from, as messages
    show it (without its value, which may be secret); None if it came from none."""
    names = [*overrides] if isinstance(overrides, Mapping) else override_keys(overrides)
    for name in names:
        within = unknown and f"{name}.".startswith(f"{key}.")
        if within or f"{key}.".startswith(f"{name}."):
            return visible(name)
    return None


def first_difference(one: object, two: object, at: tuple[str, ...] = ()) -> str | None:
    """Returns the first key in which two recipes, or parts of them, differ; None if they are
    equal."""
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
    domain = recipe.domain
    if domain.worlds:
        worlds = [
            {**world, "options": _with_paths(world["name"], world.get("options", {}), folder)}
            for world in domain.options["worlds"]
        ]
        options: dict[str, Any] = {"worlds": worlds}
    else:
        options = _with_paths(domain.name, domain.options, folder)
    return recipe.model_copy(update={"domain": domain.model_copy(update={"options": options})})


def _with_paths(domain: str, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a domain's options with full paths of the files that lie in a folder."""
    options = dict(given)
    model = options_model(domain) if options else None
    for key, field in model.model_fields.items() if model else ():
        path = options.get(key) if _holds_path(field.annotation) else None
        if isinstance(path, str) and path and (folder / path).exists():
            options[key] = str((folder / path).resolve())
    return options


def _holds_path(annotation: object) -> bool:
    """Returns whether a field's type contains `Path`."""
    return annotation is Path or any(map(_holds_path, get_args(annotation)))


def _see_module(domain: object, folder: Path | None) -> None:
    """Adds the recipe's folder to the end of Python's path, for modules that a domain and its
    options name: files there hide nothing that is installed. Stores the folder in the domain's
    section."""
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
    """Applies overrides to data, and returns it."""
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
    *parents, last = _place(data, key.split("."))
    section: Any = data
    for parent in parents:
        if isinstance(section, list) and parent.isdecimal() and int(parent) < len(section):
            section = section[int(parent)]
        else:
            section = section.setdefault(parent, {}) if isinstance(section, dict) else None
        if not isinstance(section, dict | list):
            raise RecipeError(f"override {shown}: {parent!r} is a value, not a section")
    if isinstance(section, list):
        raise RecipeError(f"override {shown}: {parents[-1]!r} is a list: name one of its sections")
    section[last] = value


def _place(data: dict[str, Any], key: list[str]) -> list[str]:
    """Returns the path of a key in data, which may have a role in the short form or under
    `roles`, and `domains` as the options of one domain."""
    domain, roles = data.get("domain"), data.get("roles")
    if key[0] == "domains" and isinstance(domain, dict) and domain.get("name") == SEVERAL:
        return ["domain", "options", "worlds", *key[1:]]
    if key[0] in SHORT_FORM and isinstance(roles, dict) and key[0] in roles:
        return ["roles", *key]
    if key[0] == "roles" and key[1:2] and key[1] in SHORT_FORM and key[1] in data:
        return key[1:]
    return key
