"""A judge that keeps learning while it is served: its model, and the directory that keeps it.

The directory is like a run's, with a recipe, a store and a checkpoint for each update, so every
command that reads the judge of a run also reads this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlanything.cluster.open import InProcessModels, Trained
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import role_key
from rlanything.progress import Progress
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_judge, trained_source
from rlanything.runs.checkpoint import begin_checkpoint, prune
from rlanything.runs.directory import (
    allowed_changes,
    create_run,
    day_begun,
    now,
    run_lock,
)
from rlanything.runs.paths import CHECKPOINTS, STORE, run_path
from rlanything.runs.recovery import Position, last_position
from rlanything.runs.store.store import Store
from rlanything.runs.target import RunTarget
from rlanything_judge.source import JudgeSource


@dataclass(slots=True)
class LearningJudgeRun:
    """A judge with its learner, and the directory that keeps it."""

    judge: Judge
    trained: Trained
    recipe: Recipe
    directory: Path
    role: str
    """Name of the judge's role in the recipe."""
    updates: int
    """Number of updates since it was first served."""

    def keep(self) -> None:
        """Writes the checkpoint of one more update, and deletes older ones as the recipe says.
        Raises `CheckpointError`."""
        self.updates += 1
        self.save()
        kept = self.recipe.checkpoints
        prune(run_path(self.directory, CHECKPOINTS), kept.keep, kept.every)

    def save(self) -> None:
        """Writes the checkpoint of the last update."""
        folder = run_path(self.directory, CHECKPOINTS)
        begin_checkpoint(folder, self.updates, {self.role: self.trained}, None)()


@contextmanager
def open_learning_judge(
    source: JudgeSource, out: Path | None, progress: Progress
) -> Iterator[LearningJudgeRun]:
    """Yields a judge that learns, with its directory locked: a new directory `out` for the judge of
    a run, a recipe or a model; its own directory for one that was served before.

    Raises `RecipeError` if it cannot learn or begin there, `LockedError` if another process serves
    it, and what `JudgeSource.open` raises."""
    source.refuse_unread()
    target, there = source.target, Path(source.name)
    again = isinstance(target, RunTarget) and _served_from(there) is not None
    if again and out is not None:
        raise RecipeError(f"--out: {there} goes on in its own directory; leave it out")
    if out is None and not again:
        raise RecipeError("--learn: name the new directory that is to keep the judge with --out")
    if again:
        allowed_changes(source.overrides)
    recipe = source.recipe()
    name = recipe.one_judge(source.role)
    if name not in recipe.trained_roles:
        key = role_key(name)
        raise RecipeError(
            f"{key}: it does not learn ({key}.train=false, {key}.name or an endpoint says so); "
            f"serve it without --learn, or set {key}.train=true for a model that is here"
        )
    if out is None:
        with run_lock(there):  # before it is read: another process may be about to write
            yield _open(source, recipe, there, _kept(there, progress), begin=False)
    else:
        weights = target.checkpoint(progress) if isinstance(target, RunTarget) else None
        opened = _open(source, recipe, out, Position(0, weights), begin=True)
        with run_lock(out):
            yield opened


def _served_from(directory: Path) -> str | None:
    """Returns the judge with which a directory of a learning judge began; None for that of a
    training run. Raises `StoreError`."""
    with closing(Store(directory / STORE)) as store:
        return store.fact("served_from")


def _kept(directory: Path, progress: Progress) -> Position:
    """Returns the last update of a judge that was served before. Raises `RecipeError` if there is
    none: it would begin again with other weights."""
    position = last_position(directory, progress.log)
    if position.checkpoint is None:
        raise RecipeError(
            f"{directory} has no intact checkpoint of its judge: delete it, and serve "
            f"{_served_from(directory)} with --out {directory} again"
        )
    return position


def _open(
    source: JudgeSource, recipe: Recipe, directory: Path, position: Position, begin: bool
) -> LearningJudgeRun:
    domain, checkpoint = source.prompts(recipe), position.checkpoint
    name = recipe.one_judge(source.role)
    config = recipe.judges[name]
    models = InProcessModels(recipe.threads)
    trained = models.trained(trained_source(recipe, checkpoint, (), name, config))
    if checkpoint is not None:
        trained.load_state(checkpoint / name)
    if begin:
        create_run(directory, recipe.model_copy(update={"run_dir": directory}), now())
        with closing(Store(directory / STORE)) as store:
            store.describe({"served_from": source.name})
    chat_model = LocalChatModel(
        trained.model, trained.engine, day_begun(directory), config.chat_template_kwargs
    )
    judge = build_judge(config, domain, lambda: chat_model, role_key(name))
    opened = LearningJudgeRun(judge, trained, recipe, directory, name, position.iteration)
    if begin:
        opened.save()
    return opened
