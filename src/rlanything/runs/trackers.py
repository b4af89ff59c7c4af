"""A run's metrics in TensorBoard and Weights & Biases, under the names that the store has.

The store is what counts: a tracker only repeats it, and is told after the store has committed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from rlanything.config.recipe import Recipe
from rlanything.config.sections import TrackerConfig, WandbConfig
from rlanything.runs.store.store import Store

Metrics: TypeAlias = Mapping[str, float | None]
Track: TypeAlias = Callable[[int, Metrics], None]
"""Takes an iteration and metrics of it; None is left out."""


class TrackerError(ValueError):
    """A tracker cannot be used; the message is one line with the remedy."""


def check_trackers(config: TrackerConfig) -> None:
    """Raises `TrackerError` for one that is not installed."""
    if config.wandb is not None and importlib.util.find_spec("wandb") is None:
        raise TrackerError(
            "tracker.wandb: wandb is not installed; pip install 'rlanything[wandb]', or leave "
            "tracker.wandb out"
        )


@contextmanager
def tracking(recipe: Recipe, directory: Path, store: Store) -> Iterator[Track]:
    """Tells all trackers that the recipe names; yields what to call with each set of metrics.

    `store`: rolled back to where the run continues, if it was stopped."""
    with ExitStack() as stack:
        tracks: list[Track] = []
        if recipe.tracker.tensorboard:
            tracks.append(stack.enter_context(_tensorboard(directory / "tensorboard", store)))
        if recipe.tracker.wandb is not None:
            opened = _wandb(recipe.tracker.wandb, recipe, directory, store)
            tracks.append(stack.enter_context(opened))

        def track(iteration: int, metrics: Metrics) -> None:
            for tell in tracks:
                tell(iteration, metrics)

        yield track


@contextmanager
def _tensorboard(folder: Path, store: Store) -> Iterator[Track]:
    """Written anew from the store when a run is resumed, so that it has every point once, even if
    the process before was killed."""
    from tensorboardX import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    # A TensorBoard that is open forgets what it read before.
    writer = SummaryWriter(str(folder), purge_step=0)

    def track(iteration: int, metrics: Metrics, at: float | None = None) -> None:
        for name, value in sorted(metrics.items()):
            if value is not None:
                writer.add_scalar(name, value, iteration, walltime=at or time.time())
        writer.flush()

    finished = dict(store.query("SELECT iteration, finished FROM iterations"))
    try:
        for iteration, metrics in store.history().items():
            said = finished.get(iteration)
            track(iteration, metrics, datetime.fromisoformat(said).timestamp() if said else None)
        yield track
    finally:
        writer.close()


@contextmanager
def _wandb(config: WandbConfig, recipe: Recipe, directory: Path, store: Store) -> Iterator[Track]:
    """A resumed run keeps its id; what was sent before is not sent again."""
    import wandb  # pyright: ignore[reportMissingImports]

    [(begun,)] = store.query("SELECT value FROM run WHERE key = 'begun'")
    identity = hashlib.blake2b(f"{recipe.name} {begun}".encode(), digest_size=8).hexdigest()
    run: Any = wandb.init(
        project=config.project,
        name=recipe.name,
        id=identity,
        resume="allow",
        mode=config.mode,
        dir=str(directory),
        config=recipe.model_dump(mode="json"),
    )
    # Their own counter of steps never goes back, and an iteration has up to two sets of metrics.
    run.define_metric("iteration")
    run.define_metric("*", step_metric="iteration")

    def track(iteration: int, metrics: Metrics) -> None:
        run.log({"iteration": iteration, **{k: v for k, v in metrics.items() if v is not None}})

    try:
        yield track
    finally:
        run.finish()
