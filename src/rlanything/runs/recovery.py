"""The place where a stopped run continues: its last iteration that is complete, in store and on
disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlanything.runs.checkpoint import (
    CheckpointError,
    checkpoint_name,
    forget,
    problems,
    saved_iterations,
)
from rlanything.runs.store.store import Store


@dataclass(frozen=True, slots=True)
class Position:
    """The last iteration that is kept, and its checkpoint; 0 and None before the first."""

    iteration: int
    checkpoint: Path | None


def last_position(directory: Path) -> Position:
    """Returns the newest iteration whose checkpoint is intact, without changing anything."""
    folder = directory / "checkpoints"
    for iteration in reversed(saved_iterations(folder)):
        checkpoint = folder / checkpoint_name(iteration)
        if not problems(checkpoint):
            return Position(iteration, checkpoint)
    return Position(0, None)


def recover(directory: Path, store: Store, say: Callable[[str], None]) -> Position:
    """Finds the newest iteration whose checkpoint is intact, and forgets everything later.

    An iteration counts once the store has committed it: a newer checkpoint is of an iteration that
    was not finished. A damaged checkpoint is reported and the one before it taken. Raises
    `CheckpointError` if the store has iterations and no checkpoint of theirs is intact."""
    folder = directory / "checkpoints"
    last = store.last_iteration()
    committed = last[0] if last else 0
    saved = saved_iterations(folder)
    chosen = 0
    for iteration in reversed([number for number in saved if number <= committed]):
        damage = problems(folder / checkpoint_name(iteration))
        if not damage:
            chosen = iteration
            break
        say(f"damaged: {'; '.join(damage)}. Going back to the checkpoint before it.")
    if committed and not chosen:
        raise CheckpointError(
            f"{folder}: none of its checkpoints is intact, so the run cannot continue from "
            f"iteration {committed}; restore them from a copy, or train anew in another directory"
        )
    store.forget_after(chosen)
    forget(folder, [number for number in saved if number > chosen])
    return Position(chosen, folder / checkpoint_name(chosen) if chosen else None)
