"""`rlanything eval`: how often a run, a recipe, a model, the expert or a random player succeeds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rlanything.progress import Progress

if TYPE_CHECKING:
    from rlanything.config.recipe import Recipe
    from rlanything.domains.base import Domain
    from rlanything.evaluation.selection import Selection
    from rlanything.evaluation.success import Evaluation
    from rlanything.records import Trajectory
    from rlanything.roles.judges.llm import Judge
    from rlanything.rollout.episodes import Agent


def evaluate_target(
    target: Annotated[
        str,
        typer.Argument(
            help="A run directory, a recipe (its policy before training), a model "
            "(folder, id or nano), expert or random."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.engine.name=vllm policy.device=cuda"),
    ] = None,
    split: Annotated[str, typer.Option(help="Which held-out tasks.")] = "in_domain",
    episodes: Annotated[int, typer.Option(min=1, help="One per task.")] = 240,
    domain: Annotated[
        str | None, typer.Option(help="alfworld or module:Class; a run has its own.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Step limit; a run's own, else 40.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Temperature; a run's own, else 1.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the tasks and the random numbers.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Environment processes.")] = 2,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="best-of-N", help="N attempts a task; the judge of a run or recipe chooses one."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure success on held-out tasks, with its 95% interval."""
    request = EvalRequest(
        target,
        split,
        episodes,
        domain,
        max_steps,
        temperature,
        seed,
        workers,
        overrides or [],
        best_of(select) if select else None,
    )
    progress = Progress(Console(stderr=True))
    result = run_eval(request, progress)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        Console().print(result.table())


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What to evaluate, and on which tasks. None: as the target's recipe says, or a default."""

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
    """Attempts at each task, of which the judge chooses one; None: one attempt and no choice."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """What was measured; `selection` is None where the judge did not choose among attempts."""

    request: EvalRequest
    evaluation: Evaluation
    selection: Selection | None = None

    def by_kind(self) -> dict[str, list[Trajectory]]:
        """Returns the episodes of each kind of task."""
        kinds: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in self.evaluation.trajectories:
            kinds[trajectory.task.kind or "all"].append(trajectory)
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
            "unplayable": self.evaluation.unplayable,
            "kinds": {
                kind: {"successes": sum(e.outcome == 1 for e in played), "episodes": len(played)}
                for kind, played in self.by_kind().items()
            },
            **({"selection": asdict(self.selection)} if self.selection else {}),
        }

    def table(self) -> Table:
        from rlanything.evaluation.success import success_interval
        from rlanything.runs.summary import percent, points

        request, result = self.request, self.evaluation
        table = Table(title=f"{request.target} on {request.split} ({result.seconds:.0f} s)")
        table.add_column("task type")
        table.add_column("episodes", justify="right")
        table.add_column("success [95% interval]", justify="right")
        kinds = self.by_kind()
        for kind, played in kinds.items():
            success = success_interval([e.task.id for e in played], [e.outcome for e in played])
            table.add_row(kind, str(len(played)), percent(success))
        if len(kinds) > 1:
            table.add_section()
            table.add_row("all", str(len(result.trajectories)), percent(result.success))
        if self.selection is not None:
            chosen, n = self.selection, request.best_of
            table.add_section()
            table.add_row(f"chosen by the judge, best of {n}", "", percent(chosen.chosen))
            table.add_row("gain over one attempt", "", points(chosen.gain))
            table.add_row(f"won by any of {n}", "", f"{chosen.possible:.1%}")
        return table


def best_of(select: str) -> int:
    """Returns the N of `best-of-N`. Raises `RecipeError` for anything else."""
    from rlanything.config.recipe import RecipeError

    match = re.fullmatch(r"best-of-([1-9]\d{0,3})", select)
    if match is None:
        raise RecipeError(f"--select {select!r}: write best-of-8, or another number")
    return int(match[1])


def run_eval(request: EvalRequest, progress: Progress) -> EvalResult:
    """Plays the target's episodes and, with `best_of`, has the judge choose among them.

    Raises `RecipeError`, `ModelError` or `DomainError` for a target that cannot be played."""
    from rlanything.domains.registry import load_domain
    from rlanything.evaluation.selection import best_of_n
    from rlanything.evaluation.success import evaluate
    from rlanything.rollout.workers import EnvironmentPool
    from rlanything.seeds import derive

    recipe = _recipe(request)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    tasks = domain.tasks(request.split, request.episodes, request.seed)
    agent = _agent(request, recipe, domain)
    judge = _judge(request, recipe, domain) if request.best_of else None
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
            seed=request.seed,
            progress=progress,
            rollouts=request.best_of or 1,
        )
        if judge is None:
            return EvalResult(request, result)
        steps = sum(len(trajectory.steps) for trajectory in result.trajectories)
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            judged = judge.judge(result.trajectories, derive(request.seed, "selection"), advance)
    return EvalResult(request, result, best_of_n(judged))


def _recipe(request: EvalRequest) -> Recipe:
    """Returns the recipe of the target, or one made for a bare model, the expert or random."""
    from rlanything.config.recipe import RecipeError, load_recipe, make_recipe
    from rlanything.runs.trainer import RECIPE

    target = Path(request.target)
    if _is_recipe(request.target):
        recipe = load_recipe(target, request.overrides)
    elif _is_run(request.target):
        recipe = load_recipe(target / RECIPE, request.overrides)
    else:
        # The environment's own list of actions, where it has one, is what any model can play with.
        policy = {"model": request.target, "decoding": "choices", "max_tokens": 64}
        domain = {"name": request.domain or "alfworld"}
        data = {"name": "eval", "domain": domain, "policy": policy}
        return make_recipe(data, request.overrides, request.target)
    if request.domain not in (None, recipe.domain.name):
        raise RecipeError(
            f"{request.target} plays {recipe.domain.name}: leave --domain out, or evaluate "
            "the model in its checkpoints folder"
        )
    return recipe


def _is_run(target: str) -> bool:
    from rlanything.runs.trainer import RECIPE

    return (Path(target) / RECIPE).is_file()


def _is_recipe(target: str) -> bool:
    return Path(target).is_file() and Path(target).suffix in (".yaml", ".yml")


def _agent(request: EvalRequest, recipe: Recipe, domain: Domain) -> Agent:
    from rlanything.roles.baselines import ExpertAgent, RandomAgent
    from rlanything.runs.build import build_chat_model, build_policy, prepare_torch

    if request.target == "expert":
        return ExpertAgent(domain)
    if request.target == "random":
        return RandomAgent(domain)
    policy = recipe.policy.model_copy(update=_trained(request, "policy"))
    prepare_torch(recipe.threads)
    chosen = recipe.evaluation.temperature if request.temperature is None else request.temperature
    return build_policy(build_chat_model(policy, "policy", recipe.threads), domain, policy, chosen)


def _judge(request: EvalRequest, recipe: Recipe, domain: Domain) -> Judge:
    from rlanything.config.recipe import RecipeError
    from rlanything.runs.build import build_chat_model, build_judge

    if not _is_recipe(request.target) and not _is_run(request.target):
        raise RecipeError(
            f"{request.target} has no judge to choose with: evaluate a run or a recipe"
        )
    judge = recipe.judge
    if judge.trains:
        judge = judge.model_copy(update=_trained(request, "judge"))
    return build_judge(judge, domain, lambda: build_chat_model(judge, "judge", recipe.threads))


def _trained(request: EvalRequest, role: str) -> dict[str, str]:
    """Returns the change of settings that names a run's latest weights of a role; empty for a
    target that is no run."""
    from rlanything.config.recipe import RecipeError
    from rlanything.runs.checkpoint import latest_checkpoint

    if not _is_run(request.target):
        return {}
    checkpoint = latest_checkpoint(Path(request.target) / "checkpoints")
    if checkpoint is None:
        raise RecipeError(f"{request.target} has no checkpoint yet: let it finish an iteration")
    return {"model": str(checkpoint / role)}
