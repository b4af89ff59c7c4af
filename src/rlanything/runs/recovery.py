"""Iterations that a run keeps: the last complete one, where it continues, and no more files than
the recipe asks for."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlanything.config.recipe import Recipe
from rlanything.engines.images import IMAGE_NAME
from rlanything.runs.checkpoint import (
    CheckpointError,
    checkpoint_name,
    forget,
    problems,
    prune,
    saved_iterations,
)
from rlanything.runs.paths import CHECKPOINTS, IMAGES, run_path
from rlanything.runs.store.store import Store


@dataclass(frozen=True, slots=True)
class Position:
    """The last iteration that is kept, and its checkpoint; 0 and None before the first."""

    iteration: int
    checkpoint: Path | None


def resuming_line(directory: Path, done: int, planned: int) -> str:
    """Returns the log line of a resumed run: where it continues, or how to extend a finished
    one."""
    if done < planned:
        return f"resuming after iteration {done}"
    more = f"rlanything resume {shlex.quote(str(directory))} loop.iterations={done + 10}"
    return f"this run is finished: it has all {planned} iterations; `{more}` gives it more"


def last_position(
    directory: Path, say: Callable[[str], None], at_most: int | None = None
) -> Position:
    """Returns the newest iteration, up to `at_most`, whose checkpoint is intact. Changes nothing;
    `say` gets a line for each damaged checkpoint that is skipped."""
    folder = run_path(directory, CHECKPOINTS)
    for iteration in reversed(saved_iterations(folder)):
        if at_most is not None and iteration > at_most:
            continue
        checkpoint = folder / checkpoint_name(iteration)
        damage = problems(checkpoint)
        if not damage:
            return Position(iteration, checkpoint)
        say(f"damaged: {'; '.join(damage)}. Going back to the checkpoint before it.")
    return Position(0, None)


def recover(directory: Path, store: Store, say: Callable[[str], None]) -> Position:
    """Finds the newest iteration whose checkpoint is intact, and deletes everything later.

    An iteration counts once the store has committed it: a newer checkpoint belongs to an iteration
    that was not finished. The store may be ahead of the checkpoints, and may not name the last one
    yet. Raises `CheckpointError` if checkpoints were written, but none is intact."""
    last = store.last_iteration()
    committed = last[0] if last else 0
    position = last_position(directory, say, committed)
    folder = run_path(directory, CHECKPOINTS)
    written = store.query("SELECT 1 FROM iterations WHERE checkpoint != '' LIMIT 1")
    there = any(number <= committed for number in saved_iterations(folder))
    if (written or there) and position.checkpoint is None:
        raise CheckpointError(
            f"{folder}: none of its checkpoints is intact, so the run cannot continue from "
            f"iteration {committed}; restore them from a copy, or train again in another directory"
        )
    store.forget_after(position.iteration)
    if position.checkpoint is not None:
        store.record_checkpoint(position.iteration, position.checkpoint.name)
    forget(folder, [number for number in saved_iterations(folder) if number > position.iteration])
    return position


def retain(directory: Path, store: Store, recipe: Recipe, iteration: int) -> None:
    """Deletes what the recipe no longer keeps after an iteration. A screenshot stays if a step with
    its texts shows it, or the judge is evaluated on it: evaluations create others. With
    `loop.max_staleness` all stay until the last iteration, because episodes under way may show
    some."""
    prune(directory / CHECKPOINTS, recipe.checkpoints.keep, recipe.checkpoints.every)
    if not recipe.store.keep_iterations:
        return
    store.forget_texts(iteration - recipe.store.keep_iterations + 1)
    images, loop = run_path(directory, IMAGES), recipe.loop
    if not images.is_dir() or (loop.max_staleness and iteration < loop.iterations):
        return
    wanted = store.images()
    for path in images.iterdir():
        if IMAGE_NAME.fullmatch(path.name) and path.name not in wanted:
            with suppress(OSError):  # it only takes space: no reason to end a run
                path.unlink()
