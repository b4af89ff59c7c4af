"""A run's directory: the names of its files, and its creation."""

from __future__ import annotations

import json
import os
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import yaml

from rlanything.config.recipe import Recipe, RecipeError
from rlanything.runs.store.store import Store
from rlanything.version import __version__

RECIPE, STORE, CHECKPOINTS = "recipe.yaml", "run.sqlite", "checkpoints"
IMAGES = "images"


def check_run(directory: Path) -> None:
    """Raises `RecipeError` for a directory that is no run's."""
    missing = [name for name in (RECIPE, STORE) if not (directory / name).is_file()]
    if missing:
        gone = " and no ".join(missing)
        raise RecipeError(f"{directory} is not a run directory: it has no {gone}")


def create_run(directory: Path, recipe: Recipe) -> None:
    """Makes the directory with its recipe and an empty store: both appear at once, or neither."""
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    settings = recipe.model_dump(mode="json")
    header = (
        f"# rlanything {__version__}, python {platform.python_version()}, "
        f"torch {version('torch')}, transformers {version('transformers')}\n"
    )
    path = partial / RECIPE
    path.write_text(header + yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    store = Store.create(partial / STORE)
    store.describe({"recipe": json.dumps(settings), "version": __version__, "begun": now()})
    store.close()
    sync(path)
    sync(partial)
    partial.rename(directory)
    sync(directory.parent)


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
