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
from typing import Any

from rich.table import Table

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.shipped import SUFFIXES, near_recipes, shipped_files
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.evaluation.selection import Selection, best_of_n
from rlanything.evaluation.success import Evaluation, evaluate, success_interval
from rlanything.progress import Progress
from rlanything.roles.baselines import ExpertAgent, RandomAgent
from rlanything.roles.judges.base import Judge
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_chat_model, build_judge, build_policy
from rlanything.runs.directory import day_begun
from rlanything.runs.inside import RECIPE, check_plain
from rlanything.runs.recovery import last_position
from rlanything.runs.summary import percent, points
from rlanything.seeds import derive


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
    workers: int
    overrides: Sequence[str] = ()
    """`section.key=value` of the recipe, a bare model's too."""
    best_of: int | None = None
    """Attempts at each task, of which the judge chooses one; None: one attempt, and no choice."""
    allow_code: bool = False
    """Whether code that a recipe or a run names may be imported."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Success of the target, and of best-of-N if that was asked for."""

    request: EvalRequest
    evaluation: Evaluation
    selection: Selection | None = None

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
        if self.selection is not None:
            chosen, n = self.selection, request.best_of
            table.add_section()
            table.add_row(f"chosen by the judge, best of {n}", "", percent(chosen.chosen))
            table.add_row("gain over one attempt", "", points(chosen.gain))
            table.add_row(f"won by any of {n}", "", f"{chosen.possible:.1%}")
        return table


def best_of(select: str) -> int:
    """Returns N of `best-of-N`. Raises `RecipeError`."""
    match = re.fullmatch(r"best-of-([1-9]\d{0,3})", select)
    if match is None:
        raise RecipeError(f"--select {select!r}: write best-of-8, or another number")
    return int(match[1])


def run_eval(request: EvalRequest, progress: Progress) -> EvalResult:
    """Plays the held-out tasks with the target.

    Raises `RecipeError`, `ModelError` or `DomainError` for a target that cannot play them."""
    recipe = _recipe(request)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    tasks = domain.tasks(request.split, request.episodes, request.seed)
    checkpoint = _checkpoint(request, progress)
    agent = _agent(request, recipe, domain, checkpoint)
    judge = _judge(request, recipe, domain, checkpoint) if request.best_of else None
    with (
        progress.live(),
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
            lockstep=recipe.environment.lockstep,
            seed=request.seed,
            progress=progress,
            rollouts=request.best_of or 1,
        )
        if judge is None:
            return EvalResult(request, result)
        steps = sum(len(each.steps) for each in result.trajectories)
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            judged = judge.judge(result.trajectories, derive(request.seed, "selection"), advance)
    unplayable = [task.id for task in result.unplayable]
    return EvalResult(request, result, best_of_n(judged, unplayable))


def _recipe(request: EvalRequest) -> Recipe:
    """Returns the target's own recipe if it is a recipe or a run, else one that any model can
    play."""
    target = Path(request.target)
    if _is_recipe(request.target):
        recipe = load_recipe(request.target, request.overrides, allow_code=request.allow_code)
    elif _is_run(request.target):
        check_plain(target)
        recipe = load_recipe(target / RECIPE, request.overrides, allow_code=request.allow_code)
    else:
        _refuse_mistyped(request.target)
        # The environment's own list of actions, where it has one, is what any model can play with.
        policy = {"model": request.target, "decoding": "choices", "max_tokens": 64}
        data = {"name": "eval", "domain": {"name": "alfworld"}, "policy": policy}
        own = [f"domain.name={json.dumps(request.domain)}"] if request.domain else []
        overrides = [*own, *request.overrides]
        return load_recipe(data, overrides, allow_code=request.allow_code, place=request.target)
    if request.domain not in (None, recipe.domain.name):
        raise RecipeError(
            f"{request.target} plays {recipe.domain.name}: leave --domain out, or evaluate "
            "the model in its checkpoints folder"
        )
    return recipe


def _is_run(target: str) -> bool:
    return (Path(target) / RECIPE).is_file()


def _is_recipe(target: str) -> bool:
    if Path(target).suffix in SUFFIXES:
        return Path(target).is_file()
    return target in shipped_files() and not Path(target).exists()


def _refuse_mistyped(target: str) -> None:
    """Raises `RecipeError` for a target that is meant to be on this machine and is not: it would be
    looked for on a model hub."""
    path, first = Path(target), target.partition("/")[0]
    if target in ("nano", "expert", "random") or path.exists() or ":" in target:
        return
    local = (
        target.startswith((".", "/", "~"))
        or path.suffix in (*SUFFIXES, ".gguf")
        or len(path.parts) > 2
        or (len(path.parts) == 2 and Path(first).is_dir())
    )
    runs = [str(file.parent) for at in ("*", "*/*") for file in Path().glob(f"{at}/{RECIPE}")]
    near = [*near_recipes(target), *get_close_matches(target, runs, cutoff=0.8)]
    if local or near or get_close_matches(first, ["runs"], cutoff=0.75):
        hint = f"did you mean {' or '.join(near[:3])}?" if near else "check the path"
        raise RecipeError(f"{target}: there is no such run, recipe or folder; {hint}")


def _agent(request: EvalRequest, recipe: Recipe, domain: Domain, checkpoint: Path | None) -> Agent:
    if request.target == "expert":
        return ExpertAgent(domain)
    if request.target == "random":
        return RandomAgent(domain)
    policy = recipe.policy
    if checkpoint is not None:
        policy = policy.model_copy(update={"model": str(checkpoint / "policy")})
    chosen = recipe.evaluation.temperature if request.temperature is None else request.temperature
    chat_model = build_chat_model(policy, "policy", Here(recipe.threads), _day(request))
    return build_policy(chat_model, domain, policy, chosen)


def _judge(request: EvalRequest, recipe: Recipe, domain: Domain, checkpoint: Path | None) -> Judge:
    if not _is_recipe(request.target) and not _is_run(request.target):
        raise RecipeError(
            f"{request.target} has no judge to choose with: evaluate a run or a recipe"
        )
    judge = recipe.judge
    if judge.trains and checkpoint is not None:
        judge = judge.model_copy(update={"model": str(checkpoint / "judge")})
    models, day = Here(recipe.threads), _day(request)
    return build_judge(judge, domain, lambda: build_chat_model(judge, "judge", models, day))


def _day(request: EvalRequest) -> datetime | None:
    """Returns the day on which the target began; None where it is no run."""
    return day_begun(Path(request.target)) if _is_run(request.target) else None


def _checkpoint(request: EvalRequest, progress: Progress) -> Path | None:
    """Returns where a run's latest intact weights are; None where the target is no run."""
    if not _is_run(request.target):
        return None
    checkpoint = last_position(Path(request.target), progress.log).checkpoint
    if checkpoint is None:
        raise RecipeError(
            f"{request.target} has no intact checkpoint: let it finish an iteration, or see what "
            f"`rlanything doctor {request.target}` says"
        )
    return checkpoint
