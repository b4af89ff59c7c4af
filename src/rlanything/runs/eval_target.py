"""Evaluation of a target on held-out tasks, as `rlanything eval` asks for it."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe, RecipeError, load_recipe, override_keys
from rlanything.config.roles import SHORT_FORM, role_key
from rlanything.config.sections import EvaluationConfig, LoopConfig
from rlanything.config.shipped import domain_section, shipped_files
from rlanything.config.yaml import typed
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.engines.shipped import domain_of
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.selection import (
    Cost,
    Selection,
    Selector,
    best_of_n,
    judgements_of,
    selection_of,
)
from rlanything.evaluation.success import Evaluation, evaluate, success_interval
from rlanything.plugins import load_plugin, plugin_names
from rlanything.progress import Progress
from rlanything.records import Task
from rlanything.roles.chat_model import ChatModel
from rlanything.roles.judges.base import Judge
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_chat_model, build_judge, build_players
from rlanything.runs.lineage import accepted_tasks
from rlanything.runs.paths import STORE
from rlanything.runs.store.store import Store
from rlanything.runs.summary import percent, points
from rlanything.runs.target import (
    PLAYERS,
    PlayerTarget,
    RecipeTarget,
    RunTarget,
    Target,
    find_target,
    is_run,
    typed_domain,
    with_weights,
)
from rlanything.seeds import derive

BEST_OF = "best-of"
SPLIT = "in_domain"
"""Split that is played if none is given."""
EPISODES = 240
"""Number of episodes if none is given, except for splits that a domain wants played whole."""
_NOT_FOLLOWED = {
    **dict.fromkeys(
        (
            *("run_dir", "feedback", "curriculum", "tracker", "store", "checkpoints"),
            *(f"evaluation.{key}" for key in EvaluationConfig.model_fields),
            *(f"loop.{key}" for key in LoopConfig.model_fields),
        ),
        "an evaluation does not read it; leave it out",
    ),
    **dict.fromkeys(("evaluation.max_steps", "evaluation.temperature", "loop.max_steps"), ""),
    "evaluation.episodes": "say --episodes",
    "evaluation.seed": "say --seed",
    "seed": "say --seed",
    "evaluation.splits": "say --split",
    "evaluation.rollouts_per_task": "say --rollouts, or --select",
    "cluster": "models run in this process; leave it out",
}
"""Keys and sections of a recipe that an evaluation does not read, and what to do instead; empty for
keys that it reads."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """A method that chooses among attempts, and the number of attempts per task."""

    method: str
    """`BEST_OF`, or a `Selector` that an installed package registers."""
    attempts: int


@dataclass(frozen=True, slots=True)
class EvalArgs:
    """A target and how to evaluate it. None: the value of the target's recipe, or a default."""

    target: str
    split: str | None
    """None: `SPLIT`, or the tasks of `accepted_of`."""
    episodes: int | None
    domain: str | None
    max_steps: int | None
    temperature: float | None
    seed: int
    workers: int | None
    overrides: Sequence[str] = ()
    """`section.key=value` of the recipe, also for a bare model."""
    select: SelectionRule | None = None
    """Rule that chooses among several attempts at each task; None: one attempt, and no choice."""
    allow_code: bool = False
    """Whether code that a recipe or a run names may be imported."""
    role: str | None = None
    """Name of the judge that chooses, in a recipe with several; None: the only one."""
    accepted_of: str | None = None
    """A run whose accepted rewritten tasks are played in place of a split's; None: the split's."""
    rollouts: int = 1
    """Number of attempts at each task, without a choice among them."""

    @property
    def played(self) -> str:
        """The split, or what is played in its place."""
        return self.split or (f"{self.accepted_of}, accepted" if self.accepted_of else SPLIT)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Success of the target, and of the chosen attempts."""

    args: EvalArgs
    evaluation: Evaluation
    selection: Selection | None = None
    cost: Cost | None = None
    """Cost of the choice; None without one."""

    @property
    def solved_once(self) -> Interval | None:
        """Share of tasks that an attempt of several solved; None with one attempt for each."""
        if self.args.rollouts == 1:
            return None
        best: dict[str, int] = {}
        for task, outcome in zip(self.evaluation.tasks, self.evaluation.outcomes, strict=True):
            # Won, else not played, which may have been won, else lost.
            best[task] = max(best.get(task, -1), outcome)
        return success_interval([*best], [*best.values()])

    def by_kind(self) -> dict[str, list[tuple[str, int]]]:
        """Returns task id and outcome of the episodes of each kind of task; outcome 0: it could not
        be played."""
        kinds: dict[str, list[tuple[str, int]]] = defaultdict(list)
        ended = [(each.task, each.outcome) for each in self.evaluation.trajectories]
        for task, outcome in (*ended, *((task, 0) for task in self.evaluation.unplayable)):
            kinds[task.kind or "all"].append((task.id, outcome))
        return dict(sorted(kinds.items()))

    def to_json(self) -> dict[str, Any]:
        success = self.evaluation.success
        return {
            "target": self.args.target,
            "split": self.args.played,
            "episodes": len(self.evaluation.trajectories),
            "success": success.estimate if success else None,
            "low": success.low if success else None,
            "high": success.high if success else None,
            "seconds": self.evaluation.seconds,
            "unplayable": len(self.evaluation.unplayable),
            "bounds": self.evaluation.bounds,
            "reasons": self.evaluation.reasons,
            "mean_reward": self.evaluation.mean_reward,
            "kinds": {
                kind: {
                    "successes": sum(outcome == 1 for _, outcome in episodes),
                    "episodes": sum(outcome != 0 for _, outcome in episodes),
                }
                for kind, episodes in self.by_kind().items()
            },
            **({"solved_once": asdict(once)} if (once := self.solved_once) else {}),
            **({"selection": asdict(self.selection)} if self.selection else {}),
            **({"cost": asdict(self.cost)} if self.cost else {}),
        }

    def table(self) -> Table:
        args, result = self.args, self.evaluation
        table = Table(title=f"{args.target} on {args.played} ({result.seconds:.0f} s)")
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
                f"{lost:.1%} if they had been lost, {won:.1%} if won; the intervals include both"
            )
        if result.mean_reward is not None:
            played, missing = len(result.trajectories), len(result.unplayable)
            table.add_section()
            table.add_row("mean reward", str(played), f"{result.mean_reward[0]:.3f}")
            if missing:
                over_all = f"{result.mean_reward[1]:.3f}"
                table.add_row("mean reward, unplayed as 0", str(played + missing), over_all)
        if (once := self.solved_once) is not None:
            table.add_section()
            table.add_row(f"tasks won in any of {args.rollouts} attempts", "", percent(once))
        if self.selection is not None and args.select is not None and self.cost is not None:
            chosen, n, cost = self.selection, args.select.attempts, self.cost
            name = "chosen by the judge, best"
            name = name if args.select.method == BEST_OF else args.select.method
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
    """Returns the rule that `METHOD-N`, such as `best-of-8`, stands for. Raises `RecipeError`."""
    methods = (BEST_OF, *plugin_names("selection"))
    match = re.fullmatch(rf"({'|'.join(methods)})-([1-9]\d{{0,3}})", select)
    if match is None:
        shown = " or ".join(f"{method}-8" for method in methods)
        raise RecipeError(f"--select {select!r}: write {shown}, or another number")
    return SelectionRule(match[1], int(match[2]))


def run_eval(args: EvalArgs, progress: Progress) -> EvalResult:
    """Plays the held-out tasks with the target.

    Raises `RecipeError`, `ModelError` or `DomainError` for a target that cannot play them."""
    # Screenshots that models are shown; none of them is kept.
    with TemporaryDirectory() as folder:
        return _run_eval(args, progress, Path(folder))


def _run_eval(args: EvalArgs, progress: Progress, images: Path) -> EvalResult:
    target = find_target(args.target)
    if args.accepted_of and args.split:
        raise RecipeError("--split: --accepted-of says which tasks are played; leave one out")
    if args.role and not args.select:
        raise RecipeError("--role: only --select asks a judge; leave it out")
    if args.select and args.rollouts > 1:
        raise RecipeError("--rollouts: --select says how many attempts there are; leave it out")
    recipe = _recipe(args, target)
    for key in override_keys(args.overrides):
        if key.removeprefix("roles.") == f"{recipe.acting}.temperature":
            raise RecipeError(f"{key}: say --temperature")
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    whole = args.played in domain.capabilities.whole_splits
    episodes = args.episodes or (sys.maxsize if whole else EPISODES)
    if args.accepted_of is None:
        tasks = checked_tasks(domain, args.played, episodes, args.seed)
    else:
        tasks = _accepted(args.accepted_of)[: args.episodes]
    day = None
    if isinstance(target, RunTarget):
        checkpoint = target.checkpoint(progress)
        if not (checkpoint / recipe.acting).is_dir():
            raise RecipeError(
                f"{target.name} has a judge that was served, and no policy: `rlanything judge-eval "
                f"{typed(target.name)} --trajectories RUN` evaluates it"
            )
        recipe, day = with_weights(recipe, checkpoint), target.day
    models = InProcessModels(recipe.threads)
    chat_model = partial(build_chat_model, models=models, day=day, images=(images,))
    agent = _agent(args, target, recipe, domain, chat_model)
    judge = _judge(args, target, recipe, domain, chat_model) if args.select else None
    selector = _selector(args, domain, judge)
    with (
        progress.live(),
        EnvironmentPool(
            recipe.domain.name,
            recipe.domain.options,
            recipe.environment.workers if args.workers is None else args.workers,
            recipe.environment.timeout_seconds,
            images if domain.capabilities.shows_images else None,
        ) as environments,
    ):
        result = evaluate(
            agent,
            environments,
            tasks,
            args.played,
            max_steps=args.max_steps or recipe.evaluation.max_steps or recipe.loop.max_steps,
            parallel_episodes=recipe.environment.parallel_episodes,
            lockstep=recipe.environment.lockstep,
            seed=args.seed,
            progress=progress,
            rollouts=args.select.attempts if args.select else args.rollouts,
        )
        if judge is None or args.select is None:
            return EvalResult(args, result)
        steps = sum(len(each.steps) for each in result.trajectories)
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            seen = [trajectory.first_view for trajectory in result.trajectories]
            judged = judge.judge(seen, derive(args.seed, "selection"), advance)
        unplayable = [task.id for task in result.unplayable]
        cost = Cost(len(result.trajectories), judgements_of(judged))
        if selector is None:
            return EvalResult(args, result, best_of_n(judged, unplayable), cost)
        with progress.phase(args.select.method, len(tasks), "tasks") as advance:
            choice = selector.choose(
                judged,
                domain,
                agent,
                judge,
                environments,
                recipe.environment.parallel_episodes,
                args.seed,
            )
            advance(len(tasks))
    selection = selection_of(
        result.trajectories, choice.outcomes, [*unplayable, *choice.unplayable]
    )
    cost = Cost(cost.attempts, cost.judgements + choice.judgements, choice.repairs)
    return EvalResult(args, result, selection, cost)


def _accepted(run: str) -> list[Task]:
    """Returns the rewritten tasks that a run accepted. Raises `RecipeError` if there are none."""
    with closing(Store(Path(run) / STORE)) as store:
        tasks = accepted_tasks(store)
    if not tasks:
        raise RecipeError(
            f"--accepted-of {run}: it has accepted no rewritten task so far; train longer, or name "
            "another run"
        )
    return tasks


def _selector(args: EvalArgs, domain: Domain, judge: Judge | None) -> Selector | None:
    """Returns the method that chooses; None for best-of-N, and where nothing is chosen. Raises
    `RecipeError` for a method that this target cannot use."""
    if judge is None or args.select is None or args.select.method == BEST_OF:
        return None
    method, n = args.select.method, args.select.attempts
    selector: Selector = load_plugin("selection", method)
    if lacks := selector.objection(domain, judge):
        raise RecipeError(f"--select {method}-{n}: {args.target} has {lacks}; use best-of-{n}")
    return selector


def _recipe(args: EvalArgs, target: Target) -> Recipe:
    """Returns the recipe of a run or recipe, or one with which any model can play. Raises
    `RecipeError` for overrides that an evaluation does not read."""
    for key in override_keys(args.overrides):
        section, *_ = parts = key.split(".")
        remedy = _NOT_FOLLOWED.get(".".join(parts[:2])) or _NOT_FOLLOWED.get(section)
        if isinstance(target, PlayerTarget) and section in ("roles", *SHORT_FORM):
            remedy = f"{target.name} asks no model; leave it out"
        if key in ("evaluation", "loop"):
            remedy = f"name what is meant, as in {key}.max_steps=8"
        if remedy:
            raise RecipeError(f"{key}: {remedy}")
    rewriting = _rewriting(args)
    if isinstance(target, RunTarget | RecipeTarget):
        recipe = target.recipe(args.overrides, args.allow_code)
        if rewriting and rewriting.domain.name != recipe.domain.name:
            raise RecipeError(
                f"--accepted-of {args.accepted_of}: its tasks are of {rewriting.domain.name}, and "
                f"{target.name} plays {recipe.domain.name}"
            )
        if args.domain not in (None, recipe.domain.name):
            raise RecipeError(
                f"{target.name} plays {recipe.domain.name}: leave --domain out, or evaluate "
                "the model in its checkpoints folder"
            )
        return recipe
    made_for, own = domain_of(target.name), f"{args.domain}-nano"
    if made_for not in (None, args.domain) and own in shipped_files():
        raise RecipeError(
            f"{target.name}: models of {made_for}; for those of {args.domain} use {own}"
        )
    named = {"domain", "domain.name"} & {*override_keys(args.overrides)}
    if not (made_for or args.domain or named or rewriting):
        known = ", ".join(
            name for name in plugin_names("domain") if name not in ("several", "text")
        )
        raise RecipeError(f"{target.name}: say what it plays with --domain, one of {known}")
    # Any model can choose from the environment's own list of actions, if there is one.
    policy = {"model": target.name, "decoding": "choices", "max_tokens": 64}
    if rewriting and not args.domain:
        plays, loop = rewriting.domain.model_dump(), {"max_steps": rewriting.loop.max_steps}
    else:
        plays, loop = domain_section(made_for) if made_for and args.domain is None else {}, {}
    data = {"name": "eval", "domain": plays, "policy": policy, "loop": loop}
    overrides = [*typed_domain(args.domain), *args.overrides]
    return load_recipe(data, overrides, allow_code=args.allow_code, place=target.name)


def _rewriting(args: EvalArgs) -> Recipe | None:
    """Returns the recipe of the run whose accepted tasks are played; None if a split is."""
    if args.accepted_of is None:
        return None
    if not is_run(args.accepted_of):
        raise RecipeError(f"--accepted-of {args.accepted_of}: there is no such run; check the path")
    return RunTarget(args.accepted_of).recipe((), args.allow_code)


def _agent(
    args: EvalArgs,
    target: Target,
    recipe: Recipe,
    domain: Domain,
    chat_model: Callable[..., ChatModel],
) -> Agent:
    if isinstance(target, PlayerTarget):
        if args.temperature is not None:
            raise RecipeError(f"--temperature: {target.name} samples from no model; leave it out")
        return PLAYERS[target.name](domain)
    chosen = recipe.evaluation.temperature if args.temperature is None else args.temperature
    models = {name: chat_model(role, name) for name, role in recipe.players.items()}
    return build_players(recipe, domain, models, chosen)


def _judge(
    args: EvalArgs,
    target: Target,
    recipe: Recipe,
    domain: Domain,
    chat_model: Callable[..., ChatModel],
) -> Judge:
    if not isinstance(target, RunTarget | RecipeTarget):
        raise RecipeError(f"{target.name} has no judge to choose with: evaluate a run or a recipe")
    name = recipe.one_judge(args.role)
    judge = recipe.judges[name]
    return build_judge(judge, domain, partial(chat_model, judge, name), role_key(name))
