"""Paths in a run directory: plain files and folders, never a link.

A run directory may come from a stranger. A link in it could redirect what is read, written or
deleted. The directory itself may be a link: runs are often kept on other disks.
"""

from __future__ import annotations

import stat
from pathlib import Path

from rlanything.config.yaml import typed

RECIPE, STORE, LOCK = "recipe.yaml", "run.sqlite", "lock"
CHECKPOINTS, IMAGES = "checkpoints", "images"

NAMES = (RECIPE, STORE, f"{STORE}-wal", f"{STORE}-shm", LOCK, CHECKPOINTS, IMAGES)
NAMES += ("tensorboard", "wandb")
"""Everything that is read, or written in place. A report is a new file each time."""


class RunDirectoryError(ValueError):
    """A run directory is gone, or contains something that no run writes; the message is one line
    with the remedy."""


def run_path(directory: Path, *names: str) -> Path:
    """Returns the path of something in a run directory, whether it exists or not.

    Raises `RunDirectoryError` if it, or a folder on the way to it, is a link or a device."""
    path = directory
    for name in names:
        path = path / name
        if fault := path_fault(path):
            raise RunDirectoryError(f"{path} {fault}")
    return path


def reject_links(directory: Path) -> None:
    """Raises `RunDirectoryError` for a run directory with a link or a device in it."""
    for name in NAMES:
        run_path(directory, name)


def reject_second_name(path: Path) -> None:
    """Raises `RunDirectoryError` for a file with a second hard link: writing in place would change
    the other file too."""
    try:
        names = path.lstat().st_nlink
    except OSError:
        return
    if names > 1:
        raise RunDirectoryError(
            f"{path} has another name elsewhere (a hard link), whose file would be written too: "
            f"put a copy in its place, `cp {typed(path)} X && mv X {typed(path)}`"
        )


def path_fault(path: Path) -> str | None:
    """Returns what a path is if it is neither a plain file nor a folder, with the remedy; None if
    it is one of them, or does not exist."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "is a link, and could lead anywhere: put what is meant in its place, or delete it"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "is neither a file nor a folder: delete it"
    return None


def run_dir_missing(directory: Path) -> RunDirectoryError | None:
    """Returns the error to raise if a run directory was removed while a process worked in it; None
    if it is there."""
    if (directory / STORE).is_file():
        return None
    return RunDirectoryError(
        f"{directory} was deleted or moved while the run was at work in it: nothing more can be "
        "saved; move it back and resume, or train again"
    )
