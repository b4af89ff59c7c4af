"""The contents of a run directory: plain files and folders, never a link.

A run directory may come from somebody else. A link in it would lead what is read, written or
deleted to another place. The directory itself may be reached by one: runs are kept on other disks.
"""

from __future__ import annotations

import stat
from pathlib import Path

from rlanything.config.yaml import typed

RECIPE, STORE, LOCK = "recipe.yaml", "run.sqlite", "lock"
CHECKPOINTS, IMAGES = "checkpoints", "images"

NAMES = (RECIPE, STORE, f"{STORE}-wal", f"{STORE}-shm", LOCK, CHECKPOINTS, IMAGES)
NAMES += ("tensorboard", "wandb")
"""All that is read, or written in place. A report is made anew each time."""


class RunDirectoryError(ValueError):
    """A run directory is gone, or has something in it that no run leaves there; the message is one
    line with the remedy."""


def inside(directory: Path, *names: str) -> Path:
    """Returns the path of something in a run directory, be it there yet or not.

    Raises `RunDirectoryError` where it, or a folder on the way to it, is a link or a device."""
    path = directory
    for name in names:
        path = path / name
        if fault := oddity(path):
            raise RunDirectoryError(f"{path} {fault}")
    return path


def check_plain(directory: Path) -> None:
    """Raises `RunDirectoryError` for a run directory with a link or a device in it."""
    for name in NAMES:
        inside(directory, name)


def check_single(path: Path) -> None:
    """Raises `RunDirectoryError` for a file that has another name too: what is written in place
    would be written there."""
    try:
        names = path.lstat().st_nlink
    except OSError:
        return
    if names > 1:
        raise RunDirectoryError(
            f"{path} has another name elsewhere (a hard link), whose file would be written too: "
            f"put a copy in its place, `cp {typed(path)} X && mv X {typed(path)}`"
        )


def oddity(path: Path) -> str | None:
    """Returns what a path is where it is neither a plain file nor a folder, with the remedy; None
    where it is, or nothing is there."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "is a link, and could lead anywhere: put what is meant in its place, or delete it"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "is neither a file nor a folder: delete it"
    return None


def lost(directory: Path) -> RunDirectoryError | None:
    """Returns the error to raise where a run directory went away while it was worked in."""
    if (directory / STORE).is_file():
        return None
    return RunDirectoryError(
        f"{directory} was deleted or moved while the run was at work in it: nothing more can be "
        "saved; move it back and resume, or train anew"
    )
