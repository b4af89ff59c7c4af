"""A run's directory: its creation, the lock of the process that writes it, and its recipe."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

import yaml

from rlanything.config.recipe import Overrides, Recipe, RecipeError
from rlanything.config.yaml import typed, visible
from rlanything.engines.base import DivergedError
from rlanything.files import new_folder, replace_file
from rlanything.runs.paths import (
    LOCK,
    RECIPE,
    STORE,
    reject_links,
    reject_second_name,
    run_dir_missing,
    run_path,
)
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.version import __version__

MAY_CHANGE = ("environment", "cluster", "checkpoints", "store", "tracker", "loop.iterations")
"""Overrides that a resumed run may have: results stay the same up to rounding, or are extended."""
MAY_MOVE = re.compile(
    r"((roles\.)?\w+|evaluation\.labeller)\."
    r"(timeout_seconds|(engine|learner)\.(url|key_variable|concurrency|retries|timeout_seconds))="
)
"""A role's time limit, and settings of a frozen role's endpoint or a learner's service, which do
not change results either."""
PID_DIGITS = 20
"""Digits that are read from a lock file; no pid has more."""


class LockedError(ValueError):
    """Another process works in the run directory; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a run directory's lock, or ended without releasing it."""

    pid: int
    at_work: bool


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Holds the lock of a run directory, which one process at a time writes.

    The system releases the lock when the process ends, however it ends. The pid in the file only
    tells others which process to wait for; it stays there if the process was killed.

    Raises `LockedError` if another process holds the lock, `RunDirectoryError` if the lock or the
    store is a link or has a second name."""
    for name in (LOCK, STORE):  # both are written in place
        reject_second_name(run_path(directory, name))
    with _open_lock(directory, os.O_RDWR | os.O_CREAT) as file:
        if not _try_lock(file) and not _try_lock_again(file):
            holder = file.read(PID_DIGITS).strip()
            if holder == str(os.getpid()):
                raise LockedError(
                    f"{directory} is in use by this program: an iterator over its run is "
                    "still open; use it up, or close it (`.close()`)"
                )
            raise LockedError(
                f"{directory} is in use by process {holder}: wait until it ends, or stop it "
                f"with `kill {holder}`"
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def find_holder(directory: Path) -> Holder | None:
    """Returns the process named in a directory's lock; None if the lock is free and was released.
    Raises `RunDirectoryError` if the lock is a link."""
    try:
        with _open_lock(directory, os.O_RDONLY) as file:
            pid, at_work = file.read(PID_DIGITS).strip(), not _try_lock(file, fcntl.LOCK_SH)
    except OSError:
        return None
    return Holder(int(pid), at_work) if pid.isdecimal() else None


def _open_lock(directory: Path, flags: int) -> IO[str]:
    path, writes = run_path(directory, LOCK), bool(flags & os.O_RDWR)
    try:
        descriptor = os.open(path, os.O_NOFOLLOW | flags, 0o666)
    except OSError as error:
        if not writes:
            raise
        raise LockedError(
            f"{path} cannot be written ({error.strerror}): let this user write the run directory, "
            "or copy it to a place of your own"
        ) from None
    mode = "r+" if writes else "r"
    return open(descriptor, mode, encoding="utf-8", errors="replace")


def _try_lock_again(file: IO[str]) -> bool:
    """Returns `_try_lock` after a moment: `find_holder` of another process holds a free lock for an
    instant."""
    time.sleep(0.05)
    return _try_lock(file)


def _try_lock(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Returns whether the lock was free, and so is held until the file is closed."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_run(directory: Path) -> None:
    """Raises `RecipeError` for a directory that is not a run's, `RunDirectoryError` for one with
    links in it."""
    missing = [name for name in (RECIPE, STORE) if not (directory / name).is_file()]
    if missing:
        gone = " and no ".join(missing)
        raise RecipeError(f"{directory} is not a run directory: it has no {gone}")
    reject_links(directory)


def existing(directory: Path) -> RecipeError:
    """Returns the error of a new run whose directory exists already."""
    remedy = f"continue it with `rlanything resume {typed(directory)}`, or choose another with "
    remedy += "run_dir=PATH"
    with suppress(StoreError):
        if again := served_again(directory):
            remedy = f"go on with `{again}`, or choose another"
    return RecipeError(f"run directory {directory} exists already; {remedy}")


def create_run(directory: Path, recipe: Recipe, begun: str) -> None:
    """Creates the directory with its recipe and an empty store: both appear at once, or neither.
    `begun`: start time of the run, in the format of `now`.

    Raises `RecipeError` if it cannot be created, or another process was faster."""
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
    """Writes the recipe with which a run continues after an iteration, so that `changes` also hold
    when it is resumed without them; and clears the end of a run that gets more iterations. Raises
    `RecipeError` or `StoreError` if it cannot be written."""
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
    """Writes settings into a run's recipe, with a comment on what changed after which iteration;
    changes nothing if they are in it already."""
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
    """Returns the time at which a run began: chat templates show its date until the run ends.
    Raises `StoreError` if its store cannot be read."""
    with closing(Store(directory / STORE)) as store, store.understanding():
        [(begun,)] = store.query("SELECT value FROM run WHERE key = 'begun'")
        return datetime.fromisoformat(begun)


def served_again(directory: Path) -> str | None:
    """Returns the command with which a directory of a served model goes on; None for that of a
    training run. Raises `StoreError`."""
    with closing(Store(directory / STORE)) as store:
        for fact, by in (("served_from", "serve --judge"), ("policy_served_from", "serve-policy")):
            if store.fact(fact) is not None:
                return f"rlanything {by} {typed(directory)} --learn"


def check_resumable(directory: Path) -> None:
    """Raises what `check_run` raises, and `RecipeError` for the directory of a served model."""
    check_run(directory)
    if again := served_again(directory):
        raise RecipeError(f"{directory} holds a served model: go on with `{again}`")


def explain(error: BaseException, directory: Path, recipe: Recipe) -> None:
    """Adds to the error that ended a run how to continue it, unless it would end the same way.
    Raises `RunDirectoryError` if the directory was removed."""
    if missing := run_dir_missing(directory):
        raise missing from error
    if not isinstance(error, DivergedError):
        error.add_note(f"continue with `rlanything resume {typed(directory)}{recipe.allowance}`")


def sync(path: Path) -> None:
    """Syncs a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def now() -> str:
    """Returns the current time in the store's format: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def allowed_changes(overrides: Overrides) -> list[str]:
    """Returns the overrides of a resumed run as lines. Raises `RecipeError` for one that would make
    it another run."""
    mapped = isinstance(overrides, Mapping)
    changes = [f"{key}={overrides[key]}" for key in overrides] if mapped else list(overrides)
    for line in changes:
        key = line.partition("=")[0].strip()
        within = any(key == each or key.startswith(f"{each}.") for each in MAY_CHANGE)
        if not within and not MAY_MOVE.match(line):
            raise RecipeError(
                f"override {line!r}: a resumed run stays the run it was; only "
                f"{', '.join(MAY_CHANGE)}, a role's timeout_seconds and the way to an endpoint may "
                "change. Train another run for anything else"
            )
    return changes
