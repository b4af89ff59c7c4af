"""Evaluation of the target of `rlanything eval`: a run, recipe, model, expert or random player."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.shipped import SUFFIXES, near_recipes, see_shipped, shipped_files
from rlanything.config.yaml import typed
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.engines.shipped import NAMES, is_path
from rlanything.evaluation.choosing import (
    METHODS,
    Cost,
    PairBench,
    chosen_programs,
    judgements_of,
    play_chosen,
)
from rlanything.evaluation.selection import Selection, best_of_n, selection_of
from rlanything.evaluation.success import Evaluation, evaluate, success_interval
from rlanything.plugins import plugin_names
from rlanything.progress import Progress
from rlanything.roles.baselines import ExpertAgent, RandomAgent
from rlanything.roles.judges.base import Judge
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_chat_model, build_judge, build_policy
from rlanything.runs.directory import day_begun
from rlanything.runs.inside import RECIPE, check_plain
from rlanything.runs.recovery import last_position
from rlanything.runs.summary import percent, points
from rlanything.seeds import derive

BEST_OF = "best-of"
_NOT_FOLLOWED = {
    "evaluation.episodes": "say --episodes",
    "evaluation.seed": "say --seed",
    "evaluation.splits": "say --split",
    "evaluation.rollouts_per_task": "each task is played once, or as often as --select says",
    "policy.temperature": "say --temperature",
    "cluster": "models run in this process; leave it out",
    **dict.fromkeys(
        ("curriculum", "tracker", "store", "checkpoints"),
        "an evaluation does not read it; leave it out",
    ),
}
"""Keys and sections of which an evaluation takes nothing from a recipe, and what to do instead."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """A method that chooses among attempts, and how many it has at each task."""

    method: str
    """`BEST_OF`, or one of `METHODS`."""
    attempts: int


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """A target and how to evaluate it. None: as the run's recipe says, or a default."""

    target: str
    split: str
    episodes: int
    domain: str | None
    max_steps: int | None
    temperature: float | None
    seed: int
    workers: int | None
    overrides: Sequence[str] = ()
    """`section.key=value` of the recipe, a bare model's too."""
    select: SelectionRule | None = None
    """How one of several attempts at each task is chosen; None: one attempt, and no choice."""
    allow_code: bool = False
    """Whether code that a recipe or a run names may be imported."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Success of the target, and of what was chosen if that was asked for."""

    request: EvalRequest
    evaluation: Evaluation
    selection: Selection | None = None
    cost: Cost | None = None
    """What the choice took; None: nothing was to be chosen."""

    def by_kind(self) -> dict[str, list[tuple[str, int]]]:
        """Returns task and outcome of the episodes of each kind of task; 0: it could not be
        played."""
        kinds: dict[str, list[tuple[str, int]]] = defaultdict(list)
        ended = [(each.task, each.outcome) for each in self.evaluation.trajectories]
        for task, outcome in (*ended, *((task, 0) for task in self.evaluation.unplayable)):
            kinds[task.kind or "all"].append((task.id, outcome))
        return dict(sorted(kinds.items()))

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
            "unplayable": len(self.evaluation.unplayable),
            "bounds": self.evaluation.bounds,
            "kinds": {
                kind: {
                    "successes": sum(outcome == 1 for _, outcome in episodes),
                    "episodes": sum(outcome != 0 for _, outcome in episodes),
                }
                for kind, episodes in self.by_kind().items()
            },
            **({"selection": asdict(self.selection)} if self.selection else {}),
            **({"cost": asdict(self.cost)} if self.cost else {}),
        }

    def table(self) -> Table:
        request, result = self.request, self.evaluation
        table = Table(title=f"{request.target} on {request.split} ({result.seconds:.0f} s)")
        table.add_column("task type")
        table.add_column("episodes", justify="right")
        table.add_column("success [95% interval]", justify="right")
        kinds = self.by_kind()
        for kind, episodes in kinds.items():
            outcomes = [outcome for _, outcome in episodes]
            success = success_interval([task for task, _ in episodes], outcomes)
            table.add_row(kind, str(sum(map(abs, outcomes))), percent(success))
        if len(kinds) > 1:
            table.add_section()
            table.add_row("all", str(len(result.trajectories)), percent(result.success))
        if result.bounds is not None:
            lost, won = result.bounds
            table.caption = (
                f"{len(result.unplayable)} more could not be played: success over all is "
                f"{lost:.1%} if they had been lost, {won:.1%} if won; the intervals hold both"
            )
        if self.selection is not None and request.select is not None and self.cost is not None:
            chosen, n, cost = self.selection, request.select.attempts, self.cost
            name = "chosen by the judge, best"
            name = name if request.select.method == BEST_OF else request.select.method
            table.add_section()
            table.add_row(f"{name} of {n}", "", percent(chosen.chosen))
            table.add_row("gain over one attempt", "", points(chosen.gain))
            table.add_row(f"won by any of {n}", "", f"{chosen.possible:.1%}")
            asked = (
                f"{cost.attempts} attempts, {cost.judgements} judgements, {cost.repairs} repairs"
            )
            table.add_row("answers asked for", "", asked)
        return table


def selection_rule(select: str) -> SelectionRule:
    """Returns what `METHOD-N` names, such as `best-of-8`. Raises `RecipeError`."""
    methods = (BEST_OF, *METHODS)
    match = re.fullmatch(rf"({'|'.join(methods)})-([1-9]\d{{0,3}})", select)
    if match is None:
        shown = " or ".join(f"{method}-8" for method in methods)
        raise RecipeError(f"--select {select!r}: write {shown}, or another number")
    return SelectionRule(match[1], int(match[2]))


def run_eval(request: EvalRequest, progress: Progress) -> EvalResult:
    """Plays the held-out tasks with the target.

    Raises `RecipeError`, `ModelError` or `DomainError` for a target that cannot play them."""
    # Screenshots that models are shown; nothing of them is kept.
    with TemporaryDirectory() as folder:
        return _run_eval(request, progress, Path(folder))


def _run_eval(request: EvalRequest, progress: Progress, images: Path) -> EvalResult:
    recipe = _recipe(request)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    tasks = checked_tasks(domain, request.split, request.episodes, request.seed)
    checkpoint = checkpoint_of(request.target, progress) if is_run(request.target) else None
    if checkpoint is not None and not (checkpoint / "policy").is_dir():
        raise RecipeError(
            f"{request.target} has a judge that was served, and no policy: `rlanything judge-eval "
            f"{typed(request.target)} --trajectories RUN` evaluates it"
        )
    agent = _agent(request, recipe, domain, checkpoint, images)
    judge = _judge(request, recipe, domain, checkpoint, images) if request.select else None
    bench = _bench(request, domain, agent, judge)
    with (
        progress.live(),
        EnvironmentPool(
            recipe.domain.name,
            recipe.domain.options,
            recipe.environment.workers if request.workers is None else request.workers,
            recipe.environment.timeout_seconds,
            images if domain.capabilities.shows_images else None,
        ) as environments,
    ):
        result = evaluate(
            agent,
            environments,
            tasks,
            request.split,
            max_steps=request.max_steps or recipe.evaluation.max_steps or recipe.loop.max_steps,
            parallel_episodes=recipe.environment.parallel_episodes,
            lockstep=recipe.environment.lockstep,
            seed=request.seed,
            progress=progress,
            rollouts=request.select.attempts if request.select else 1,
        )
        if judge is None or request.select is None:
            return EvalResult(request, result)
        steps = sum(len(each.steps) for each in result.trajectories)
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            judged = judge.judge(result.trajectories, derive(request.seed, "selection"), advance)
        unplayable = [task.id for task in result.unplayable]
        cost = Cost(len(result.trajectories), judgements_of(judged))
        if bench is None:
            return EvalResult(request, result, best_of_n(judged, unplayable), cost)
        with progress.phase(request.select.method, len(tasks), "tasks") as advance:
            chosen = chosen_programs(METHODS[request.select.method], judged, bench)
            advance(len(chosen))
        outcomes, failed = play_chosen(
            chosen, result.trajectories, environments, recipe.environment.parallel_episodes
        )
    selection = selection_of(result.trajectories, outcomes, [*unplayable, *failed])
    extra = bench.cost
    cost = Cost(cost.attempts, cost.judgements + extra.judgements, extra.repairs)
    return EvalResult(request, result, selection, cost)


def _bench(
    request: EvalRequest, domain: Domain, agent: Agent, judge: Judge | None
) -> PairBench | None:
    """Returns what a method that reads and repairs programs works with; None where none is asked
    for. Raises `RecipeError` for a domain without unit tests, or a judge that writes none."""
    if request.select is None or request.select.method == BEST_OF:
        return None
    method, n = request.select.method, request.select.attempts
    if not domain.capabilities.repairs_programs or not isinstance(judge, UnitTestJudge):
        raise RecipeError(
            f"--select {method}-{n}: {request.target} has no judge that writes unit tests of "
            f"programs, by which this method chooses; use best-of-{n}"
        )
    assert isinstance(agent, LanguagePolicy)  # only a run or a recipe has a judge
    return PairBench(domain, agent, judge, derive(request.seed, method))


def _recipe(request: EvalRequest) -> Recipe:
    """Returns the target's own recipe if it is a recipe or a run, else one that any model can
    play. Raises `RecipeError` for overrides that nothing here follows."""
    for key in (override.partition("=")[0] for override in request.overrides):
        section = key.partition(".")[0]
        remedy = _NOT_FOLLOWED.get(key) or _NOT_FOLLOWED.get(section)
        if request.target in ("expert", "random") and section in ("policy", "judge", "adapter"):
            remedy = f"{request.target} asks no model; leave it out"
        if key == "evaluation":
            remedy = "name what is meant, as in evaluation.temperature=0.5"
        if remedy:
            raise RecipeError(f"{key}: {remedy}")
    target = Path(request.target)
    if is_recipe(request.target):
        recipe = load_recipe(request.target, request.overrides, allow_code=request.allow_code)
    elif is_run(request.target):
        check_plain(target)
        recipe = load_recipe(target / RECIPE, request.overrides, allow_code=request.allow_code)
        refuse_models(request.target, recipe, request.overrides)
    else:
        refuse_mistyped(request.target)
        made, own = made_for(request.target), f"{request.domain}-nano"
        if made not in (None, request.domain) and own in shipped_files():
            raise RecipeError(
                f"{request.target}: made for {made}; for models of {request.domain} use {own}"
            )
        domain = {"name": made} if made else {}
        if not (made or request.domain or _names_domain(request.overrides)):
            known = ", ".join(name for name in plugin_names("domain") if name != "text")
            raise RecipeError(f"{request.target}: say what it plays with --domain, one of {known}")
        # The environment's own list of actions, where it has one, is what any model can play with.
        policy = {"model": request.target, "decoding": "choices", "max_tokens": 64}
        data = {"name": "eval", "domain": domain, "policy": policy}
        overrides = [*typed_domain(request.domain), *request.overrides]
        return load_recipe(data, overrides, allow_code=request.allow_code, place=request.target)
    if request.domain not in (None, recipe.domain.name):
        raise RecipeError(
            f"{request.target} plays {recipe.domain.name}: leave --domain out, or evaluate "
            "the model in its checkpoints folder"
        )
    return recipe


def _names_domain(overrides: Sequence[str]) -> bool:
    keys = [override.partition("=")[0] for override in overrides]
    return "domain" in keys or "domain.name" in keys


def made_for(model: str) -> str | None:
    """Returns the domain for which a shipped model was made; None for other models."""
    if model not in NAMES:
        return None
    card = json.loads((NAMES[model] / "card.json").read_text(encoding="utf-8"))
    return card["plan"]["domain"]


def is_run(target: str) -> bool:
    return (Path(target) / RECIPE).is_file()


def is_recipe(target: str) -> bool:
    if Path(target).suffix in SUFFIXES:
        return Path(target).is_file()
    return target in shipped_files() and not Path(target).exists()


def typed_domain(name: str | None) -> list[str]:
    """Returns the override that says of a domain that its user typed it, found where the examples
    lie too; none without a name."""
    if not name:
        return []
    see_shipped(name)
    return [f"domain.name={json.dumps(name)}"]


def refuse_mistyped(target: str) -> None:
    """Raises `RecipeError` for a target that is meant to be on this machine and is not: it would be
    looked for on a model hub."""
    path, first = Path(target), target.partition("/")[0]
    if target in ("nano", "expert", "random") or path.exists() or ":" in target:
        return
    inside = len(path.parts) == 2 and Path(first).is_dir()
    local = inside or path.suffix in SUFFIXES or is_path(target)
    runs = [str(file.parent) for at in ("*", "*/*") for file in Path().glob(f"{at}/{RECIPE}")]
    near = [*near_recipes(target), *get_close_matches(target, runs, cutoff=0.8)]
    if local or near or get_close_matches(first, ["runs"], cutoff=0.75):
        hint = f"did you mean {' or '.join(near[:3])}?" if near else "check the path"
        raise RecipeError(f"{target}: there is no such run, recipe or folder; {hint}")


def _agent(
    request: EvalRequest, recipe: Recipe, domain: Domain, checkpoint: Path | None, images: Path
) -> Agent:
    if request.target in ("expert", "random") and request.temperature is not None:
        raise RecipeError(f"--temperature: {request.target} samples from no model; leave it out")
    if request.target == "expert":
        return ExpertAgent(domain)
    if request.target == "random":
        return RandomAgent(domain)
    policy = recipe.policy
    if checkpoint is not None:
        policy = policy.model_copy(update={"model": str(checkpoint / "policy")})
    chosen = recipe.evaluation.temperature if request.temperature is None else request.temperature
    models, day = Here(recipe.threads), _day(request)
    chat_model = build_chat_model(policy, "policy", models, day, (images,))
    return build_policy(chat_model, domain, policy, chosen)


def _judge(
    request: EvalRequest, recipe: Recipe, domain: Domain, checkpoint: Path | None, images: Path
) -> Judge:
    if not is_recipe(request.target) and not is_run(request.target):
        raise RecipeError(
            f"{request.target} has no judge to choose with: evaluate a run or a recipe"
        )
    judge = recipe.judge
    if judge.trains and checkpoint is not None:
        judge = judge.model_copy(update={"model": str(checkpoint / "judge")})
    models, day = Here(recipe.threads), _day(request)
    return build_judge(
        judge, domain, lambda: build_chat_model(judge, "judge", models, day, (images,))
    )


def _day(request: EvalRequest) -> datetime | None:
    """Returns the day on which the target began; None where it is no run."""
    return day_begun(Path(request.target)) if is_run(request.target) else None


def refuse_models(run: str, recipe: Recipe, overrides: Sequence[str]) -> None:
    """Raises `RecipeError` for overrides that name another model than a run's own."""
    own = {"policy", "policy.model"}
    if recipe.judge.trains:
        own |= {"judge", "judge.model"}
    for key in own.intersection(override.partition("=")[0] for override in overrides):
        raise RecipeError(
            f"{key}: {run} is asked with the model that it trained: leave this out, "
            "or name single keys"
        )


def checkpoint_of(run: str, progress: Progress) -> Path:
    """Returns where a run's latest intact weights are. Raises `RecipeError` where it has none."""
    checkpoint = last_position(Path(run), progress.log).checkpoint
    if checkpoint is None:
        raise RecipeError(
            f"{run} has no intact checkpoint: let it finish an iteration, or see what "
            f"`rlanything doctor {typed(run)}` says"
        )
    return checkpoint
