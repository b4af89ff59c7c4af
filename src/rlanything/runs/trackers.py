"""A run's metrics in TensorBoard and Weights & Biases, under the names in the store.

The store is authoritative: trackers receive its metrics after each commit."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from rlanything.config.recipe import Recipe
from rlanything.config.sections import TrackerConfig, WandbConfig
from rlanything.runs.store.store import Store
from rlanything.terminal import one_line

Metrics: TypeAlias = Mapping[str, float | None]
Track: TypeAlias = Callable[[int, Metrics], None]
"""Takes an iteration and its metrics; None values are left out."""


class TrackerError(ValueError):
    """A tracker cannot be used; the message is one line with the remedy."""


def check_trackers(config: TrackerConfig) -> None:
    """Raises `TrackerError` for a tracker that is not installed."""
    if config.wandb is not None and importlib.util.find_spec("wandb") is None:
        raise TrackerError(
            "tracker.wandb: wandb is not installed; pip install 'rlanything[wandb]', or leave "
            "tracker.wandb out"
        )


@contextmanager
def tracking(
    recipe: Recipe, directory: Path, store: Store, warn: Callable[[str], None]
) -> Iterator[Track]:
    """Opens the recipe's trackers and yields a function that sends them metrics. A tracker that
    fails is dropped with one `warn`; the store has everything.

    `store`: rolled back to where the run continues, if it was stopped. Raises `TrackerError` if a
    tracker cannot start."""
    with ExitStack() as stack:
        tracks: dict[str, Track] = {}
        if recipe.tracker.tensorboard:
            try:
                opened = _tensorboard(directory / "tensorboard", store)
                tracks["tensorboard"] = stack.enter_context(opened)
            except OSError as fault:
                warn(_failed("tensorboard", fault))
        if recipe.tracker.wandb is not None:
            opened = _wandb(recipe.tracker.wandb, recipe, directory, store)
            tracks["wandb"] = stack.enter_context(opened)

        sent: set[tuple[int, str]] = set()

        def track(iteration: int, metrics: Metrics) -> None:
            # After a lost seat iterations are repeated.
            metrics = {name: v for name, v in metrics.items() if (iteration, name) not in sent}
            sent.update((iteration, name) for name in metrics)
            for name, tell in list(tracks.items()):
                try:
                    tell(iteration, metrics)
                except Exception as fault:  # a disk error, or anything the tracker's client raises
                    del tracks[name]
                    warn(_failed(name, fault))

        yield track


def _failed(name: str, fault: Exception) -> str:
    return (
        f"tracker.{name}: {one_line(str(fault)) or type(fault).__name__}; it gets no more metrics "
        "until the run is resumed (the run's own store and report have everything)"
    )


@contextmanager
def _tensorboard(folder: Path, store: Store) -> Iterator[Track]:
    """Opens TensorBoard's log, rewritten from the store when a run is resumed, so that every point
    appears once, even after a kill."""
    # Not torch's SummaryWriter: it writes in a thread, whose queue is never emptied once the disk
    # is full.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import (
        Event,  # pyright: ignore[reportAttributeAccessIssue]
        SessionLog,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from tensorboardX.summary import scalar

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventsWriter(str(folder / "events"))

    def write(iteration: int, at: float | None = None, **what: Any) -> None:
        writer.write_event(Event(step=iteration, wall_time=at or time.time(), **what))

    def track(iteration: int, metrics: Metrics, at: float | None = None) -> None:
        for name, value in sorted(metrics.items()):
            if value is not None:
                write(iteration, at, summary=scalar(name, value))
        writer.flush()

    finished = dict(store.query("SELECT iteration, finished FROM iterations"))
    try:
        # An open TensorBoard forgets what it read before.
        write(0, session_log=SessionLog(status=SessionLog.START))
        for iteration, metrics in store.history().items():
            said = finished.get(iteration)
            track(iteration, metrics, datetime.fromisoformat(said).timestamp() if said else None)
        yield track
    finally:
        with suppress(OSError):  # the disk is still full
            writer.close()


@contextmanager
def _wandb(config: WandbConfig, recipe: Recipe, directory: Path, store: Store) -> Iterator[Track]:
    """Opens a run at Weights & Biases; a resumed run keeps its id, and nothing is sent twice."""
    import wandb  # pyright: ignore[reportMissingImports]

    kept = store.fact("wandb")
    # Random, because two runs of one recipe may begin at the same time.
    identity = secrets.token_hex(8) if kept is None else kept
    store.describe({"wandb": identity})
    try:
        run: Any = wandb.init(
            project=config.project,
            name=recipe.name,
            id=identity,
            resume="allow",
            mode=config.mode,
            dir=str(directory),
            config=recipe.model_dump(mode="json"),
        )
    except Exception as fault:  # of any type that its client raises
        reason = one_line(str(fault)) or type(fault).__name__
        raise TrackerError(
            f"tracker.wandb: {reason}; fix it, or set tracker.wandb.mode=offline"
        ) from fault
    # Their own step counter never goes back, and an iteration has up to two sets of metrics.
    run.define_metric("iteration")
    run.define_metric("*", step_metric="iteration")

    def track(iteration: int, metrics: Metrics) -> None:
        run.log({"iteration": iteration, **{k: v for k, v in metrics.items() if v is not None}})

    try:
        yield track
    finally:
        run.finish()
