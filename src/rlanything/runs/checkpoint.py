"""Checkpoints: models in Hugging Face format, optimizers and the pool; complete, or not there.

A checkpoint is written beside its place, synced to disk, and renamed; its manifest has the SHA-256
of every file. Random numbers derive from the run's seed and the iteration: there is no other state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError

from rlanything.algorithm.curriculum import Pool
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.runs.directory import sync

MANIFEST = "manifest.json"
POOL = "pool.json"
OPTIMIZER = "optimizer.pt"


class CheckpointError(ValueError):
    """A checkpoint cannot be written or used; the message is one line with the remedy."""


class CheckpointedModel(Protocol):
    """A model that learns, with the learner whose state is saved beside it."""

    @property
    def model(self) -> LanguageModel: ...

    @property
    def learner(self) -> Learner: ...


def checkpoint_name(iteration: int) -> str:
    return f"iter-{iteration:05d}"


def save_checkpoint(
    folder: Path,
    iteration: int,
    roles: Mapping[str, CheckpointedModel],
    pool: Pool,
) -> str:
    """Writes `folder/iter-NNNNN` and returns its name. One of that name is replaced: it is what an
    interrupted run left. Raises `CheckpointError` where the disk does not take it."""
    name = checkpoint_name(iteration)
    partial, place = folder / f".{name}.partial", folder / name
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for role, trained in roles.items():
            trained.model.save(partial / role)
            torch.save(trained.learner.state(), partial / role / OPTIMIZER)
        (partial / POOL).write_text(pool.to_json(), encoding="utf-8")
        files = _files(partial)
        manifest = {"iteration": iteration, "sha256": {f: _digest(partial / f) for f in files}}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for file in [*files, MANIFEST]:
            sync(partial / file)
        for part in [partial, *(partial / role for role in roles)]:
            sync(part)
        shutil.rmtree(place, ignore_errors=True)
        os.replace(partial, place)
        sync(folder)
    # torch and safetensors wrap the system's error in their own.
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"{place}: cannot be written ({_reason(error)}); free space there, then resume"
        ) from error
    return name


def problems(checkpoint: Path) -> list[str]:
    """Returns the faults of a checkpoint, in words; empty: every byte is as it was written."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        digests: dict[str, str] = dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return [f"{checkpoint.name}: no readable {MANIFEST}"]
    damage: list[str] = []
    for file, digest in digests.items():
        try:
            intact = _digest(checkpoint / file) == digest
        except OSError:
            damage.append(f"{checkpoint.name}: {file} is missing")
        else:
            if not intact:
                damage.append(f"{checkpoint.name}: {file} is not as it was written")
    return damage


def load_pool(checkpoint: Path) -> Pool:
    return Pool.from_json((checkpoint / POOL).read_text(encoding="utf-8"))


def saved_iterations(folder: Path) -> list[int]:
    """Returns the iterations of the checkpoints in a run's folder, oldest first."""
    return sorted(int(path.name.removeprefix("iter-")) for path in folder.glob("iter-*"))


def latest_checkpoint(folder: Path) -> Path | None:
    """Returns the newest complete checkpoint of a run; None where there is none."""
    saved = saved_iterations(folder)
    return folder / checkpoint_name(saved[-1]) if saved else None


def prune(folder: Path, keep: int, every: int) -> None:
    """Deletes all but the newest `keep` checkpoints and those of every `every`-th iteration (0: no
    others)."""
    for iteration in saved_iterations(folder)[:-keep]:
        if not every or iteration % every:
            shutil.rmtree(folder / checkpoint_name(iteration), ignore_errors=True)


def forget(folder: Path, iterations: Iterable[int]) -> None:
    """Deletes checkpoints that no longer belong to the run, and what was never finished."""
    for iteration in iterations:
        shutil.rmtree(folder / checkpoint_name(iteration))
    for partial in folder.glob(".iter-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    """Returns the relative names of the files below a folder, sorted."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
