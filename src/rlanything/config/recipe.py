"""The recipe's schema. Unknown keys are errors; every field says what it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.config.engines import ConfigSection
from rlanything.config.roles import (
    AdapterConfig,
    Count,
    JudgeConfig,
    LabellerConfig,
    PolicyConfig,
    Share,
)
from rlanything.config.yaml import YamlError, dotted, read_yaml, visible


class RecipeError(ValueError):
    """A recipe cannot be used; the message names the file, the key and the remedy in one line."""


class DomainConfig(ConfigSection):
    name: str
    """A registered domain (`alfworld`) or `module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the domain, which checks them."""


class FeedbackConfig(ConfigSection):
    policy_lambda: Annotated[float, Field(ge=0)] = 1.0
    """lambda of the policy's integrated feedback (Eq. 1)."""
    judge_lambda: Annotated[float, Field(ge=0)] = 1.0
    """lambda inside the judge's consistency feedback (Eq. 2)."""
    policy_reward: Literal["integrated", "outcome", "judge"] = "integrated"
    """What the policy's advantage compares: `integrated` feedback (Eq. 1); what the episode itself
    earned: its `outcome`, or what the environment measures beyond it (for coding the share of
    ground-truth tests passed); or what the `judge` said of each step and nothing else."""
    policy_comparison: Literal["step", "trajectory", "state"] = "step"
    """What the policy's advantage compares a step with: those at the same index of the task's other
    rollouts (`step`, the paper), all steps of all of them (`trajectory`), or those at which the
    same was observed (`state`)."""
    policy_window: tuple[Share, Share] = (1 / 8, 7 / 8)
    """The policy trains on tasks whose accuracy lies here."""
    judge_window: tuple[Share, Share] = (0.2, 0.8)
    """The judge trains on tasks whose accuracy lies here."""
    judge_normalization: Literal["step", "task"] = "step"
    """What the judge's advantage is compared over."""
    judge_balance: Literal["none", "outcome"] = "outcome"
    """`outcome` gives the steps of won and of lost episodes of a task equal total weight in what
    the judge learns, and so teaches nothing on a task that was always won or always lost; it keeps
    a weak policy's judge from learning to say -1 (measured in benchmarks/remedies.md). `none`
    counts every step alike, as the paper does."""

    @model_validator(mode="after")
    def _meaningful(self) -> FeedbackConfig:
        self.settings()
        return self

    def settings(self) -> FeedbackSettings:
        return FeedbackSettings(**self.model_dump())


class CurriculumConfig(ConfigSection):
    adapt_tasks: bool = True
    """Whether tasks outside the window are rewritten."""
    alpha_low: Share = 0.2
    """Tasks of at most this accuracy are made easier."""
    alpha_high: Share = 0.8
    """Tasks of at least this accuracy are made harder."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> CurriculumConfig:
        if self.alpha_low >= self.alpha_high:
            raise ValueError(
                f"alpha_low ({self.alpha_low}) must be below alpha_high ({self.alpha_high})"
            )
        return self


class LoopConfig(ConfigSection):
    iterations: Annotated[int, Field(ge=0)] = 20
    """Turns of the loop."""
    tasks: Count = 64
    """Original tasks in the pool: one slot each."""
    tasks_per_iteration: Count = 16
    """Active tasks sampled in each iteration; pending candidates come on top."""
    rollouts_per_task: Count = 8
    """G, the size of a rollout group."""
    max_steps: Count = 40
    """An episode that is not won by then has failed."""
    shuffle_advantages: bool = False
    """A control: advantages are dealt out at random among an iteration's samples, so that nothing
    can be learned and nothing should improve."""

    @model_validator(mode="after")
    def _enough_tasks(self) -> LoopConfig:
        if self.tasks_per_iteration > self.tasks:
            raise ValueError(
                f"tasks_per_iteration ({self.tasks_per_iteration}) exceeds tasks ({self.tasks})"
            )
        return self


class EnvironmentConfig(ConfigSection):
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that hold environments, many each; 0 keeps them in this process."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A worker that is silent for so long is replaced and its episodes replayed."""
    parallel_episodes: Count = 128
    """Episodes played at the same time."""


class CheckpointsConfig(ConfigSection):
    """Which checkpoints stay; one is written every iteration."""

    keep: Count = 2
    """The newest so many."""
    every: Annotated[int, Field(ge=0)] = 0
    """Those of every so many iterations as well; 0: no others."""


class StoreConfig(ConfigSection):
    """What a run's `run.sqlite` keeps. Outcomes, actions, scores, labels, advantages and metrics it
    always keeps."""

    keep_iterations: Annotated[int, Field(ge=0)] = 0
    """Texts, tokens and log-probs of so many latest iterations are kept; 0: of all."""


class WandbConfig(ConfigSection):
    """A run's metrics at Weights & Biases; needs `pip install 'rlanything[wandb]'`."""

    project: str = "rlanything"
    """Which of your projects there."""
    mode: Literal["online", "offline"] = "online"
    """`offline` leaves them in the run directory, for `wandb sync` to bring up."""


class TrackerConfig(ConfigSection):
    """Where metrics go beside the store, under the same names (docs/metrics.md)."""

    tensorboard: bool = True
    """Keeps `RUN/tensorboard`, for `tensorboard --logdir RUN`."""
    wandb: WandbConfig | None = None
    """`wandb: {}` sends them; left out, nothing leaves this machine."""


class EvaluationConfig(ConfigSection):
    episodes: Annotated[int, Field(ge=0)] = 240
    """Held-out episodes per split, the same ones each time; 0 turns evaluation off."""
    rollouts_per_task: Count = 1
    """How often each is played. More than once, `episodes` counts tasks; the judge's exam needs
    several programs of a task where judgements are tests."""
    seed: int = 0
    """Chooses the held-out tasks: runs that share it are compared on the same ones."""
    every: Annotated[int, Field(ge=0)] = 0
    """Evaluate after every so many iterations; 0: only before the first and after the last."""
    splits: tuple[str, ...] = ("in_domain", "ood")
    """Which splits."""
    max_steps: Count | None = None
    """Step limit of evaluation; as in training if left out."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Of the policy in evaluation; 0 takes the most likely token."""
    judged_episodes: Annotated[int, Field(ge=0)] = 64
    """How many of those episodes the judge scores, to measure its Process Acc and Outcome Acc."""
    labeller: LabellerConfig | None = None
    """Whose majority says which steps of those episodes are good, once, before training: for
    domains without an oracle, or in its place. None: the oracle, where there is one."""
    baseline: Path | None = None
    """A run that began alike: its evaluation before training is taken over, not made again."""

    @model_validator(mode="after")
    def _something_to_label(self) -> EvaluationConfig:
        if self.labeller is not None and not (self.episodes and self.judged_episodes):
            raise ValueError(
                "labeller: nothing is judged that it could label; set episodes and judged_episodes"
            )
        return self


class Recipe(ConfigSection):
    """A run, described completely."""

    name: str
    """Names the run; its directory is `runs/<name>` unless `run_dir` says otherwise."""
    run_dir: Path | None = None
    """Where the run lives. It must not exist yet."""
    seed: int = 0
    """Every random choice derives from it."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads of the language models; 0: as many as there are cores."""
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

    @property
    def reads_scores(self) -> bool:
        """Whether anything in training depends on what the judge says: otherwise nobody asks it,
        and it is only examined."""
        return (
            self.judge.trains
            or self.feedback.policy_reward != "outcome"
            or self.curriculum.adapt_tasks
        )

    @property
    def directory(self) -> Path:
        return self.run_dir or Path("runs") / self.name


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a YAML recipe; overrides are `section.key=value` with values in YAML.

    Raises `RecipeError` with one line for anything that is wrong."""
    place = visible(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{place}: no such recipe; see recipes/ for the shipped ones") from None
    except (OSError, ValueError) as error:  # not UTF-8, or a path that no file can have
        raise RecipeError(f"{place}: cannot be read ({error})") from None
    try:
        data = read_yaml(text)
    except YamlError as error:
        where = f"line {error.line}: " if error.line is not None else ""
        raise RecipeError(f"{place}: {where}{error}; a recipe is a YAML mapping") from None
    if not isinstance(data, dict):
        raise RecipeError(f"{place}: a recipe is a YAML mapping with at least `name` and `domain`")
    return make_recipe(data, overrides, place)


def make_recipe(data: dict[str, Any], overrides: Sequence[str], place: str) -> Recipe:
    """A recipe from what a YAML file could hold; errors name `place`. As `load_recipe` else."""
    for override in overrides:
        _override(data, override)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{place}: {_first_problem(error)}") from None
    for problem in _misread(data, recipe.model_dump(), ()):
        raise RecipeError(f"{place}: {problem}")
    return recipe


def first_difference(one: object, two: object, at: tuple[str, ...] = ()) -> str | None:
    """The first key in which two recipes, or parts of them, differ as data; None: in none."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in [*one, *(key for key in two if key not in one)]:
            found = first_difference(one.get(key), two.get(key), (*at, str(key)))
            if found is not None:
                return found
        return None
    return None if one == two else dotted(at)


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    shown = f"{override!r:.80}"
    *parents, last = parts = key.split(".")
    if not equals or not key or not key.isprintable():
        raise RecipeError(f"override {shown}: write section.key=value")
    try:
        value = read_yaml(text, tuple(parts))
    except YamlError as error:
        raise RecipeError(
            f"override {shown}: the value is not valid YAML ({error}); quote it"
        ) from None
    target = data
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            raise RecipeError(f"override {shown}: {parent!r} is a value, not a section")
    target[last] = value


def _misread(given: Any, read: Any, key: tuple[Any, ...]) -> Iterator[str]:
    """What the schema lets pass and nobody means: numbers without end, `yes` for a number."""
    if isinstance(read, dict):
        for name, value in read.items():
            known = given.get(name) if isinstance(given, dict) else None
            yield from _misread(known, value, (*key, name))
    elif isinstance(read, list | tuple):
        known = given if isinstance(given, list) else [None] * len(read)
        for i, (one, value) in enumerate(zip(known, read, strict=False)):
            yield from _misread(one, value, (*key, i))
    elif isinstance(read, float) and not math.isfinite(read):
        yield f"{dotted(key)}: give a finite number (got {given!r})"
    elif isinstance(given, bool) and not isinstance(read, bool):
        yield f"{dotted(key)}: give a number, not yes or no (got {given!r})"


def _first_problem(error: ValidationError) -> str:
    """The first of pydantic's complaints as `key: what is wrong`."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    path, section = _place(problem["loc"])
    message = " ".join(problem["msg"].removeprefix("Value error, ").split())
    if problem["type"] == "extra_forbidden":
        known = ", ".join(sorted(section.model_fields)) if section else ""
        message = f"unknown key; known here: {known}"
    elif problem["type"] == "missing":
        message = "missing; add it"
    elif problem["type"] == "union_tag_not_found":
        message = "missing its name; say which one it is, such as {name: embedded}"
    else:
        message = f"{message[0].lower()}{message[1:]}"
        if path[-1:] not in (["url"], ["key_variable"]):  # where somebody may have written a key
            message += f" (got {problem['input']!r:.80})"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{dotted(path) or 'recipe'}: {message}{more}"


def _place(location: Sequence[int | str]) -> tuple[list[int | str], type[BaseModel] | None]:
    """The key that pydantic means, and the section of the schema it lies in.

    In a union pydantic names the chosen member after the key; a recipe knows no such level."""
    path: list[int | str] = []
    section: type[BaseModel] | None = None
    kind: Any = Recipe
    for part in location:
        if (members := get_args(kind)) and any(_tag(each) == part for each in members):
            kind = next(each for each in members if _tag(each) == part)
            continue
        section = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        field = section.model_fields.get(str(part)) if section else None
        kind = field.annotation if field else None
        path.append(part)
    return path, section


def _tag(kind: Any) -> str | None:
    """The name that tells a section from the others of its union."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    names = get_args(kind.model_fields["name"].annotation) if "name" in kind.model_fields else ()
    return names[0] if names else None
