"""The place where a stopped run continues: its last iteration that is complete, in store and on
disk."""

from __future__ import annotations

import shlex
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
from rlanything.runs.paths import CHECKPOINTS, inside
from rlanything.runs.store.store import Store


@dataclass(frozen=True, slots=True)
class Position:
    """The last iteration that is kept, and its checkpoint; 0 and None before the first."""

    iteration: int
    checkpoint: Path | None


def resuming_line(directory: Path, done: int, planned: int) -> str:
    """Says where a resumed run goes on; of one that is finished, how to give it more."""
    if done < planned:
        return f"resuming after iteration {done}"
    more = f"rlanything resume {shlex.quote(str(directory))} loop.iterations={done + 10}"
    return f"this run is finished: it has all {planned} iterations; `{more}` gives it more"


def last_position(
    directory: Path, say: Callable[[str], None], at_most: int | None = None
) -> Position:
    """Returns the newest iteration, up to `at_most`, whose checkpoint is intact. Changes nothing;
    says of each damaged one that it is passed over."""
    folder = inside(directory, CHECKPOINTS)
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
    """Finds the newest iteration whose checkpoint is intact, and forgets everything later.

    An iteration counts once the store has committed it: a newer checkpoint is of an iteration that
    was not finished. Raises `CheckpointError` if the store has iterations and no checkpoint of
    theirs is intact."""
    last = store.last_iteration()
    committed = last[0] if last else 0
    position = last_position(directory, say, committed)
    folder = inside(directory, CHECKPOINTS)
    if committed and position.checkpoint is None:
        raise CheckpointError(
            f"{folder}: none of its checkpoints is intact, so the run cannot continue from "
            f"iteration {committed}; restore them from a copy, or train anew in another directory"
        )
    store.forget_after(position.iteration)
    forget(folder, [number for number in saved_iterations(folder) if number > position.iteration])
    return position
