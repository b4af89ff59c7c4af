"""A run's directory: the names of its files, and its creation."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from rlanything.config.recipe import Overrides, Recipe, RecipeError
from rlanything.config.yaml import typed, visible
from rlanything.engines.base import DivergedError
from rlanything.files import new_folder, replace_file
from rlanything.runs.inside import RECIPE, STORE, check_plain, lost
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.version import __version__

MAY_CHANGE = ("environment", "cluster", "checkpoints", "store", "tracker", "loop.iterations")
"""Overrides of a resumed run: they change no result but by rounding, or how many there are."""
MAY_MOVE = re.compile(
    r"((roles\.)?\w+|evaluation\.labeller)\.engine\.(url|key_variable|concurrency|retries|timeout_seconds)="
)
"""The way to the endpoint of a frozen role, which changes none either."""


def check_run(directory: Path) -> None:
    """Raises `RecipeError` for a directory that is no run's, `RunDirectoryError` for one with links
    in it."""
    missing = [name for name in (RECIPE, STORE) if not (directory / name).is_file()]
    if missing:
        gone = " and no ".join(missing)
        raise RecipeError(f"{directory} is not a run directory: it has no {gone}")
    check_plain(directory)


def existing(directory: Path) -> RecipeError:
    """Returns the error of a run that should begin where something is already."""
    again = f"rlanything resume {typed(directory)}"
    remedy = f"continue it with `{again}`, or choose another with run_dir=PATH"
    with suppress(StoreError):
        if (directory / STORE).is_file() and served_from(directory) is not None:
            again = f"rlanything serve --judge {typed(directory)} --learn"
            remedy = f"go on with `{again}`, or choose another"
    return RecipeError(f"run directory {directory} exists already; {remedy}")


def create_run(directory: Path, recipe: Recipe, begun: str) -> None:
    """Makes the directory with its recipe and an empty store: both appear at once, or neither.
    `begun`: when the run began, as `now` has it.

    Raises `RecipeError` where it cannot be made, or another process was faster."""
    settings = recipe.model_dump(mode="json")
    header = (
        f"# rlanything {__version__}, python {platform.python_version()}, "
        f"torch {version('torch')}, transformers {version('transformers')}\n"
    )
    try:
        with new_folder(directory) as partial:
            path = partial / RECIPE
            path.write_text(header + yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
            store = Store.create(partial / STORE)
            store.describe({"recipe": json.dumps(settings), "version": __version__, "begun": begun})
            store.close()
            sync(path)
            sync(partial)
        sync(directory.parent)
    except FileExistsError:
        raise existing(directory) from None
    except OSError as error:
        raise RecipeError(
            f"run directory {directory} cannot be made ({error.strerror}); choose another with "
            "run_dir=PATH"
        ) from None


def change_recipe(
    directory: Path, store: Store, recipe: Recipe, changes: Sequence[str], iteration: int
) -> None:
    """Writes down the recipe that a run goes on with after an iteration, with the changes that were
    asked for, so that a run resumed without them goes on just so; and that it is not finished, if
    it is not. Raises `RecipeError` or `StoreError` where that cannot be written."""
    total = recipe.loop.iterations
    if total < iteration and any(change.startswith("loop.iterations=") for change in changes):
        raise RecipeError(
            f"loop.iterations={total}: {iteration} iterations of {directory} are done; give how "
            f"many there are to be in all ({iteration}: it ends as it is), or leave it out"
        )
    settings = recipe.model_dump(mode="json")
    if changes:
        _rewrite_recipe(directory / RECIPE, settings, changes, iteration)
    goes_on = iteration < total
    ended = {"finished": None, "closing": None} if goes_on else {}
    store.describe({"recipe": json.dumps(settings), **ended})


def _rewrite_recipe(
    path: Path, settings: dict[str, Any], changes: Sequence[str], iteration: int
) -> None:
    """Puts settings into a run's recipe, and a comment that says since when and what was asked; no
    comment where they are in it already."""
    body = yaml.safe_dump(settings, sort_keys=False)
    before = path.read_text(encoding="utf-8")
    header = "".join(takewhile(lambda line: line.startswith("#"), before.splitlines(keepends=True)))
    if before == header + body:
        return
    header += f"# after iteration {iteration}: {' '.join(map(visible, changes))}\n"
    try:
        replace_file(path, (header + body).encode("utf-8"), synced=True)
    except OSError as error:
        raise RecipeError(
            f"{path}: cannot be written ({error.strerror}); free space there, then resume"
        ) from None


def day_begun(directory: Path) -> datetime:
    """Returns when a run began: the date that chat templates show as long as it lasts. Raises
    `StoreError` where its store cannot be read."""
    with closing(Store(directory / STORE)) as store, store.understanding():
        [(begun,)] = store.query("SELECT value FROM run WHERE key = 'begun'")
        return datetime.fromisoformat(begun)


def served_from(directory: Path) -> str | None:
    """Returns what judge a directory began with in which `rlanything serve` keeps one that goes on
    learning; None for a training run's. Raises `StoreError`."""
    with closing(Store(directory / STORE)) as store:
        values = store.query("SELECT value FROM run WHERE key = 'served_from'")
    return values[0][0] if values else None


def check_resumable(directory: Path) -> None:
    """Raises what `check_run` raises, `RecipeError` for the directory of a served judge, and
    `StoreError` for a run of an older version."""
    check_run(directory)
    if served_from(directory) is not None:
        raise RecipeError(
            f"{directory} has a judge that was served, and no run: it goes on with "
            f"`rlanything serve --judge {typed(directory)} --learn`"
        )
    with closing(Store(directory / STORE)) as store:
        store.check_writable()


def explain(error: BaseException, directory: Path, recipe: Recipe) -> None:
    """Adds to the error that ended a run how to continue it, unless that would end as before.
    Raises `RunDirectoryError` where the directory went away meanwhile."""
    if gone := lost(directory):
        raise gone from error
    if not isinstance(error, DivergedError):
        error.add_note(f"continue with `rlanything resume {typed(directory)}{recipe.allowance}`")


def sync(path: Path) -> None:
    """Returns when a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def now() -> str:
    """Returns the time as the store keeps it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def allowed_changes(overrides: Overrides) -> list[str]:
    """Returns overrides of a resumed run as lines. Raises `RecipeError` for those that would make
    it another run."""
    mapped = isinstance(overrides, Mapping)
    changes = [f"{key}={overrides[key]}" for key in overrides] if mapped else list(overrides)
    for line in changes:
        key = line.partition("=")[0].strip()
        within = any(key == each or key.startswith(f"{each}.") for each in MAY_CHANGE)
        if not within and not MAY_MOVE.match(line):
            raise RecipeError(
                f"override {line!r}: a resumed run stays the run it was; only "
                f"{', '.join(MAY_CHANGE)} and the way to an endpoint may change. Train another run "
                "for anything else"
            )
    return changes
