"""Compares the gradients of a run: of the terms of Eq. 1, of original and adapted tasks, and of
consecutive iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rlanything.cluster.models import TrainedModel
from rlanything.cluster.open import Trained
from rlanything.config.recipe import RecipeError
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.rollout.groups import RolloutGroup
from rlanything.runs.target import RunTarget
from rlanything.seeds import derive
from rlanything_lab.gradients.agreement import (
    Floats,
    Products,
    TaskGradients,
    agreement,
    bootstrap,
    products,
    total,
)
from rlanything_lab.gradients.play import PlayedIteration, kept_iterations, measured_recipe, play
from rlanything_lab.gradients.terms import TERMS, has_terms, of_term

TASKS = ("original", "adapted")
IN_TIME = ("iteration before", "iteration")
MOST_BYTES = 2**31
"""Largest matrix of gradients; up to four are in memory at once."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two gradients of a role."""

    iteration: int | None
    """None: all iterations together."""
    role: str
    which: tuple[str, str]
    tasks: tuple[int, int]
    """Number of tasks behind each."""
    products: Products | None
    """None if one of the two is not there."""

    def cells(self) -> list[str]:
        """Returns the row of a table."""
        when = "all" if self.iteration is None else str(self.iteration)
        one, other = self.tasks
        tasks = str(one) if one == other else f"{one}, {other}"
        cells = [when, self.role, ", ".join(self.which), tasks]
        if self.products is None:
            return [*cells, "none", "", "", ""]
        result = agreement(self.products)
        cells += [f"{result.plain:+.2f}", ", ".join(f"{part:.2f}" for part in result.reliability)]
        if result.cosine is None or result.ratio is None:
            return [*cells, "too noisy", ""]
        cosine = result.cosine
        bounds = f"{cosine.estimate:+.2f} [{cosine.low:+.2f}, {cosine.high:+.2f}]"
        return [*cells, bounds, f"{result.ratio:.2g} : 1"]

    def to_json(self) -> dict[str, Any]:
        given = None if self.products is None else asdict(agreement(self.products))
        names = {"iteration": self.iteration, "role": self.role, "compared": self.which}
        return {**names, "tasks": self.tasks, "agreement": given}


@dataclass(frozen=True, slots=True)
class RunGradients:
    """The comparisons of a run, by iteration."""

    run: str
    rollouts: Mapping[int, int]
    """Number of rollouts played, by iteration."""
    rows: Sequence[Compared]

    def to_json(self) -> dict[str, Any]:
        rows = [row.to_json() for row in [*self.rows, *together(self.rows)]]
        return {"run": self.run, "rollouts": self.rollouts, "rows": rows}


def measure(run: Path, rollouts: int, allow_code: bool, progress: Progress) -> RunGradients:
    """Compares gradients in every iteration whose first weights the run has kept.

    Raises `RecipeError` for a directory without a run, a damaged checkpoint, or a model that is too
    large or learns elsewhere."""
    recipe = measured_recipe(RunTarget(str(run)).recipe((), allow_code))
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    counts: dict[int, int] = {}
    rows: list[Compared] = []
    before: dict[str, TaskGradients] = {}
    with TemporaryDirectory() as folder, progress.live():
        for iteration in kept_iterations(run, progress):
            played = play(run, recipe, domain, iteration, rollouts, Path(folder), progress)
            if iteration - 1 not in counts:
                before = {}
            counts[iteration] = sum(len(group.judged) for group in played.groups)
            for role in recipe.trained_roles:
                new, before[role] = compare(played, role, before.get(role), progress)
                rows += new
                for row in new:
                    progress.log(" | ".join(row.cells()))
            played.components.models.close()
    return RunGradients(str(run), counts, rows)


def compare(
    played: PlayedIteration, role: str, before: TaskGradients | None, progress: Progress
) -> tuple[list[Compared], TaskGradients]:
    """Returns a role's comparisons in an iteration, and the gradients of its sampled tasks.
    `before`: those of the iteration before; None: not measured."""
    recipe, groups, n, original = played.recipe, played.groups, played.sampled, played.original
    numbers = {slot.id: i for i, slot in enumerate(played.pool.slots)}
    slots = np.array([numbers[group.scheduled.slot] for group in groups], dtype=np.intp)
    drawn = bootstrap(len(numbers), derive(recipe.seed, "gradients"))
    rows: list[Compared] = []

    def add(which: tuple[str, str], x: TaskGradients | None, y: TaskGradients | None) -> None:
        sizes = (0 if x is None else len(x.slots), 0 if y is None else len(y.slots))
        given = None if x is None or y is None else products(x, y, drawn)
        rows.append(Compared(played.iteration, role, which, sizes, given))

    def gradients(of: Sequence[RolloutGroup], name: str = "") -> Floats:
        trained = played.components.trained_models[role]
        with progress.phase(f"{role} gradients{name}", len(of), "tasks") as advance:
            return task_gradients(trained, role, recipe.acting, of, advance)

    if role != recipe.acting:
        whole = gradients(groups)
    elif not has_terms(recipe.feedback):
        whole = gradients(groups)
        add(TERMS, None, None)
    else:
        settings = played.pool.feedback_by_world(recipe.feedback)
        whole, judge = (
            gradients(
                [of_term(g, played.judges, settings(g.judged), term) for g in groups], f", {term}"
            )
            for term in TERMS
        )
        add(TERMS, TaskGradients(slots[:n], whole[:n]), TaskGradients(slots[:n], judge[:n]))
        whole += judge  # In place: these are the largest arrays.
    adapted = TaskGradients(slots[original:], whole[original:])
    add(TASKS, TaskGradients(slots[:original], whole[:original]), adapted)
    sampled = TaskGradients(slots[:n], whole[:n])
    add(IN_TIME, before, sampled)
    return rows, sampled


def task_gradients(
    trained: Trained,
    role: str,
    acting: str,
    groups: Sequence[RolloutGroup],
    advance: Callable[[int], None],
) -> Floats:
    """Returns the gradient of each task [tasks, weights]: the sum over its samples."""
    if not isinstance(trained, TrainedModel):
        raise RecipeError(f"{role} learns elsewhere: only models that learn here have gradients")
    weights = [one.numel() for one in trained.learning.network.parameters() if one.requires_grad]
    size = len(groups) * sum(weights) * 4
    if size > MOST_BYTES:
        raise RecipeError(
            f"{role}: gradients of {sum(weights) / 1e6:.0f}M weights for {len(groups)} tasks take "
            f"{size / 2**30:.0f} GiB, and {MOST_BYTES >> 30} are allowed: ask for fewer "
            "--rollouts, or measure a tiny model or adapters (lora)"
        )
    rows = np.zeros((len(groups), sum(weights)), np.float32)
    for row, group in zip(rows, groups, strict=True):
        if samples := list(group.samples(role, acting)):
            row[:] = trained.learner.gradient(samples).cpu().numpy() * len(samples)
        advance(1)
    return rows


def together(rows: Sequence[Compared]) -> list[Compared]:
    """Returns a row for each role and pair of gradients: all iterations together."""
    groups: dict[tuple[str, tuple[str, str]], list[Compared]] = {}
    for row in rows:
        groups.setdefault((row.role, row.which), []).append(row)
    return [
        Compared(
            None,
            *key,
            (sum(row.tasks[0] for row in group), sum(row.tasks[1] for row in group)),
            total([row.products for row in group]),
        )
        for key, group in groups.items()
    ]
