"""A judge that goes on learning where it is served: its model, and the directory that keeps it.

The directory is as a run's, with a recipe, a store and checkpoints, one for each update: whatever
reads the judge of a run reads this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlanything.cluster.open import Here, Trained
from rlanything.config.recipe import Recipe, RecipeError
from rlanything.config.roles import role_key
from rlanything.progress import Progress
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_judge, trained_source
from rlanything.runs.checkpoint import prune, save_checkpoint
from rlanything.runs.directory import (
    allowed_changes,
    create_run,
    day_begun,
    now,
    served_from,
)
from rlanything.runs.eval_target import checkpoint_of, is_run, refuse_models
from rlanything.runs.inside import CHECKPOINTS, STORE, inside
from rlanything.runs.judge_source import JudgeSource
from rlanything.runs.lock import RunLock
from rlanything.runs.recovery import Position, last_position
from rlanything.runs.store.store import Store


@dataclass(slots=True)
class LearningJudgeRun:
    """A judge with its learner, and where it is kept."""

    judge: Judge
    trained: Trained
    recipe: Recipe
    directory: Path
    role: str
    """Name of the judge's role in the recipe."""
    updates: int
    """Those that its weights have had since it was first served."""

    def keep(self) -> None:
        """Writes the checkpoint of one more update, and lets older ones go as the recipe says.
        Raises `CheckpointError`."""
        self.updates += 1
        self.save()
        kept = self.recipe.checkpoints
        prune(inside(self.directory, CHECKPOINTS), kept.keep, kept.every)

    def save(self) -> None:
        """Writes the checkpoint of the last update."""
        folder = inside(self.directory, CHECKPOINTS)
        save_checkpoint(folder, self.updates, {self.role: self.trained}, None)


@contextmanager
def open_learning_judge(
    source: JudgeSource, out: Path | None, progress: Progress
) -> Iterator[LearningJudgeRun]:
    """Yields a judge that learns, alone in its directory: in `out`, a new one, a run's, a recipe's
    or a model's; in its own, one that was served before.

    Raises `RecipeError` where it cannot learn or begin there, `LockedError` where another process
    serves it, and what `JudgeSource.open` raises."""
    source.refuse_unread()
    there = Path(source.name)
    again = is_run(source.name) and served_from(there) is not None
    if again and out is not None:
        raise RecipeError(f"--out: {there} goes on in its own directory; leave it out")
    if out is None and not again:
        raise RecipeError("--learn: name the new directory that is to keep the judge with --out")
    if again:
        allowed_changes(source.overrides)
    recipe = source.recipe()
    if is_run(source.name):
        refuse_models(source.name, recipe, source.overrides)
    name = recipe.one_judge(source.role)
    if name not in recipe.trained_roles:
        key = role_key(name)
        raise RecipeError(
            f"{key}: it does not learn ({key}.train=false, {key}.name or an endpoint says so); "
            f"serve it without --learn, or set {key}.train=true for a model that is here"
        )
    directory = there if out is None else out
    if again:
        with RunLock(directory):  # alone before it is read: another process may be about to write
            yield _open(source, recipe, directory, _kept(there, progress), begin=False)
    else:
        opened = _open(source, recipe, directory, _beginning(source, progress), begin=True)
        with RunLock(directory):
            yield opened


def _kept(directory: Path, progress: Progress) -> Position:
    """Returns where a judge stands that was served before. Raises `RecipeError` where nothing of it
    was kept, or it would begin anew with other weights."""
    position = last_position(directory, progress.log)
    if position.checkpoint is None:
        raise RecipeError(
            f"{directory} has no intact checkpoint of its judge: delete it, and serve "
            f"{served_from(directory)} with --out {directory} again"
        )
    return position


def _beginning(source: JudgeSource, progress: Progress) -> Position:
    """Returns where a judge stands that was never served: with a run's last weights, or none."""
    trained = is_run(source.name)
    return Position(0, checkpoint_of(source.name, progress) if trained else None)


def _open(
    source: JudgeSource, recipe: Recipe, directory: Path, position: Position, begin: bool
) -> LearningJudgeRun:
    domain, checkpoint = source.prompts(recipe), position.checkpoint
    name = recipe.one_judge(source.role)
    config = recipe.judges[name]
    trained = Here(recipe.threads).trained(trained_source(recipe, checkpoint, (), name, config))
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
