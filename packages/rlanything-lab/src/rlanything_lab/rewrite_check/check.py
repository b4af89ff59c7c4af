"""Measures how far adapters move tasks: parents and candidates play again, with a frozen policy.

The rollouts that choose a task for a rewrite also bound its accuracy, so they overstate it
(regression to the mean). Fresh rollouts of the parent and of the candidate do not. The null arm,
the same task under a new id, shows what chance alone moves and how often it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rlanything.algorithm.curriculum import accepts, direction
from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe
from rlanything.config.roles import AdapterConfig
from rlanything.domains.base import Domain, RewriteRequest
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.evaluation.intervals import Interval, paired_difference, wilson
from rlanything.evaluation.success import evaluate, won_shares
from rlanything.progress import Progress
from rlanything.records import Direction, JudgedTrajectory, Task, Trajectory
from rlanything.roles.adapter import Adapter, propose
from rlanything.roles.judges.base import Judge
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_adapter, build_chat_model, build_judge, build_policy
from rlanything.seeds import derive
from rlanything_lab.ablation.table import markdown
from rlanything_lab.rewrite_check.adapters import has_rewrites

ARMS: Mapping[str, Mapping[str, Any]] = {
    "null": {"name": "null-rewrite"},
    "random": {"name": "rule-rewrite", "options": {"by": "any"}},
    "rule": {"name": "rule-rewrite", "options": {"by": "accuracy"}},
    "adapter": {"critics_per_task": 0},
    "adapter_critics": {},
}
"""Keys of the recipe's adapter that each arm replaces."""
DRAWN = 64
"""Number of tasks that are played at once to find tasks to rewrite."""
MOST = 64
"""Number of draws after which a seed does with fewer tasks."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One candidate of an arm, by accuracies of the frozen policy."""

    seed: int
    slot: str
    makes: Direction
    chosen: float
    """Accuracy of the parent in the rollouts that chose it."""
    parent: float
    """Accuracy of the parent in fresh rollouts."""
    candidate: float
    first: float
    """Accuracy of the candidate in as many fresh rollouts as the loop plays."""

    @property
    def pair(self) -> tuple[float, float]:
        """Two accuracies whose difference is the movement in the wanted direction."""
        easier = self.makes == "easier"
        return (self.parent, self.candidate) if easier else (self.candidate, self.parent)


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The size of a check."""

    candidates: int
    """Number of tasks to rewrite, for each seed and arm."""
    rollouts: int
    """Number of fresh rollouts of each parent and candidate."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The candidates of an arm over all seeds."""

    arm: str
    asked: int
    moved: Sequence[Moved]
    bounds: tuple[float, float]
    """alpha_low and alpha_high."""

    @property
    def points(self) -> Interval | None:
        """Movement in the wanted direction, in accuracy."""
        return self.against(None)

    def against(self, other: ArmResult | None) -> Interval | None:
        """Returns the movement beyond that of another arm, over the tasks that both rewrote; None
        for `other`: beyond 0. None without tasks."""
        own = {(one.seed, one.slot): one for one in self.moved}
        if other is None:
            return _difference([one.pair for one in own.values()])
        others = {(one.seed, one.slot): one for one in other.moved}
        both = [
            (others[key], one) if one.makes == "easier" else (one, others[key])
            for key, one in own.items()
            if key in others
        ]
        return _difference([(before.candidate, after.candidate) for before, after in both])

    @property
    def accepted(self) -> Interval | None:
        """Share that the loop's rule would accept, by as many rollouts as the loop plays."""
        low, high = self.bounds
        count = sum(accepts(m.makes, m.chosen, m.first, low, high) for m in self.moved)
        return wilson(count, len(self.moved))

    def to_json(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "asked": self.asked,
            "moved": [asdict(one) for one in self.moved],
            "points": None if (points := self.points) is None else asdict(points),
            "accepted": None if (accepted := self.accepted) is None else asdict(accepted),
        }


def check(
    recipe: Recipe,
    arms: Sequence[str] | None,
    seeds: Sequence[int],
    plan: CheckPlan,
    progress: Progress,
) -> list[ArmResult]:
    """Returns the result of each arm. All arms of a seed rewrite the same tasks.

    `arms`: names of `ARMS`; None: all that the domain allows. Raises `PluginError` for an arm that
    needs the domain's `rewrites` where there are none."""
    models = InProcessModels(recipe.threads or 1)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    if arms is None:
        rules = has_rewrites(domain)
        arms = [arm for arm, keys in ARMS.items() if rules or keys.get("name") != "rule-rewrite"]
    chat_model = partial(build_chat_model, models=models)
    acting = chat_model(recipe.policy, recipe.acting)
    policy = build_policy(acting, domain, recipe.policy, recipe.policy.temperature)
    name, config = next(iter(recipe.judges.items()))
    judge = build_judge(config, domain, partial(chat_model, config, name), name, policy)
    adapters: dict[str, Adapter] = {}
    for arm in arms:
        own = AdapterConfig.model_validate({**recipe.adapter.model_dump(), **ARMS[arm]})
        adapters[arm] = build_adapter(own, domain, partial(chat_model, own, recipe.rewriting))
    bounds = (recipe.curriculum.alpha_low, recipe.curriculum.alpha_high)
    moved: dict[str, list[Moved]] = {arm: [] for arm in arms}
    asked = 0
    settings = recipe.environment
    with EnvironmentPool(domain, {}, settings.workers, settings.timeout_seconds) as environments:
        for seed in seeds:
            play = _Player(policy, environments, recipe, seed, progress)
            chosen = _chosen(play, domain, judge, plan.candidates)
            requests = [request for request, _ in chosen]
            asked += len(requests)
            parents = play.accuracies([r.root for r in requests], "parents", plan.rollouts)
            for arm, adapter in adapters.items():
                proposals = propose(adapter, requests, 1, derive(seed, "proposals"))
                tasks = [p.task for p in proposals if p.task is not None]
                after = play.accuracies(tasks, arm, plan.rollouts)
                for (request, won), proposal in zip(chosen, proposals, strict=True):
                    played = request.root.id in parents
                    if proposal.task is not None and played and proposal.task.id in after:
                        accuracies = (won, parents[request.root.id][0], *after[proposal.task.id])
                        one = Moved(seed, request.slot, request.direction, *accuracies)
                        moved[arm].append(one)
    return [ArmResult(arm, asked, moved[arm], bounds) for arm in arms]


def _chosen(
    play: _Player, domain: Domain, judge: Judge, candidates: int
) -> list[tuple[RewriteRequest, float]]:
    """Returns tasks that the loop would rewrite, with the accuracy that chose each."""
    recipe, chosen = play.recipe, list[tuple[RewriteRequest, float]]()
    bounds = (recipe.curriculum.alpha_low, recipe.curriculum.alpha_high)
    for draw in range(MOST):
        if len(chosen) >= candidates:
            break
        tasks = checked_tasks(domain, "train", DRAWN, derive(play.seed, "check", draw))
        tasks = [replace(task, id=f"{draw}/{task.id}") for task in tasks]
        for task, won, episodes in play.rollouts(tasks, "chosen"):
            makes = direction(won, *bounds)
            if makes is not None and len(chosen) < candidates:
                seed = derive(play.seed, task.id)
                members = _judged(judge, episodes, recipe.adapter.most_critics, seed)
                chosen.append((RewriteRequest(task.id, task, task, makes, tuple(members)), won))
    return chosen


def _judged(
    judge: Judge, episodes: Sequence[Trajectory], critics: int | None, seed: int
) -> list[JudgedTrajectory]:
    """Returns the episodes; only the lost ones that critics read (None: all) are judged."""
    lost = [one for one in episodes if one.outcome == -1][:critics]
    read = {one.id for one in lost}
    others = [one for one in episodes if one.id not in read]
    unjudged = [JudgedTrajectory(one, ((),) * len(one.steps)) for one in others]
    return [*(judge.judge(lost, seed) if lost else ()), *unjudged]


@dataclass(frozen=True, slots=True)
class _Player:
    policy: Agent
    environments: EnvironmentPool
    recipe: Recipe
    seed: int
    progress: Progress

    def rollouts(
        self, tasks: Sequence[Task], name: str, count: int | None = None
    ) -> list[tuple[Task, float, list[Trajectory]]]:
        """Returns each task that could be played, with its accuracy and episodes."""
        result = evaluate(
            self.policy,
            self.environments,
            tasks,
            name,
            max_steps=self.recipe.loop.max_steps,
            parallel_episodes=self.recipe.environment.parallel_episodes,
            seed=derive(self.seed, "check", name),
            progress=self.progress,
            rollouts=count or self.recipe.loop.rollouts_per_task,
        )
        played = result.trajectories
        shares = won_shares([one.task.id for one in played], [one.outcome for one in played])
        episodes: dict[str, list[Trajectory]] = {}
        for one in played:
            episodes.setdefault(one.task.id, []).append(one)
        return [(t, shares[t.id], episodes[t.id]) for t in tasks if t.id in shares]

    def accuracies(
        self, tasks: Sequence[Task], name: str, count: int
    ) -> dict[str, tuple[float, float]]:
        """Returns each task's accuracy in `count` rollouts, and in as many as the loop plays."""
        few = self.recipe.loop.rollouts_per_task
        return {
            task.id: (won, fmean(one.outcome == 1 for one in episodes[:few]))
            for task, won, episodes in self.rollouts(tasks, name, max(count, few))
        }


def table(results: Sequence[ArmResult]) -> list[str]:
    """Returns the results as a Markdown table."""
    null = next((r for r in results if r.arm == "null"), None)
    head = ["arm", "candidates", "moved, points", "beyond null, points"]
    rows = [[*head, "beyond the arm before, points", "right way", "accepted by the loop's rule"]]
    for r, before in zip(results, [None, *results], strict=False):
        right = sum(one.pair[1] > one.pair[0] for one in r.moved)
        beyond = [
            None if other is None or other is r else r.against(other) for other in (null, before)
        ]
        cells = [f"`{r.arm}`", f"{len(r.moved)} of {r.asked}", _points(r.points)]
        rows.append(
            [
                *cells,
                *map(_points, beyond),
                f"{right / max(len(r.moved), 1):.0%}",
                _share(r.accepted),
            ]
        )
    lines = markdown(rows)
    pairs = [one for one in results[0].moved if one.makes == "harder"]
    if pairs:
        chosen = sum(one.chosen for one in pairs) / len(pairs)
        fresh = sum(one.parent for one in pairs) / len(pairs)
        lines += [
            "",
            f"Tasks to make harder won {chosen:.1%} of the rollouts that chose them and "
            f"{fresh:.1%} of fresh ones.",
        ]
    return lines


def write_page(page: Path, lines: Sequence[str], command: str) -> None:
    """Writes the results into a page, after what it says before `## Results`."""
    before = page.read_text(encoding="utf-8").partition("## Results")[0] if page.exists() else ""
    text = "\n".join([f"{before}## Results", "", f"`{command}`", "", *lines, ""])
    page.write_text(text, encoding="utf-8")


def _difference(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    return paired_difference([one for one, _ in pairs], [other for _, other in pairs])


def _points(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = interval.low * 100, interval.high * 100
    return f"{interval.estimate * 100:+.1f} [{low:+.1f}, {high:+.1f}]"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f"{interval.estimate:.0%} [{interval.low * 100:.0f}, {interval.high * 100:.0f}]"
