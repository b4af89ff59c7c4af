"""Checkpoints: models in Hugging Face format, optimizers and the pool; written atomically.

A snapshot in host memory is written to a temporary folder, synced to disk, and renamed; its
manifest has the SHA-256 of every file. Random numbers derive from the run's seed and the iteration:
there is no other state."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from rlanything.algorithm.curriculum import Pool
from rlanything.config.yaml import visible
from rlanything.runs.directory import sync
from rlanything.runs.paths import path_fault

if TYPE_CHECKING:  # which imports torch
    from rlanything.cluster.open import Trained

MANIFEST = "manifest.json"
POOL = "pool.json"

MANIFEST_BYTES = 1 << 24
"""Largest manifest that is read."""
_NAME, _PARTIAL = re.compile(r"iter-([0-9]{5,9})"), re.compile(r"\.iter-[0-9]{5,9}\.partial")


class CheckpointError(ValueError):
    """A checkpoint cannot be written or used; the message is one line with the remedy."""


def checkpoint_name(iteration: int) -> str:
    return f"iter-{iteration:05d}"


def begin_checkpoint(
    folder: Path, iteration: int, roles: Mapping[str, Trained], pool: Pool | None
) -> Callable[[], str]:
    """Takes a snapshot, and returns a function that writes it as `folder/iter-NNNNN` and returns
    that name; another thread may call it. `pool`: None without tasks. An existing checkpoint is
    replaced: it is from an interrupted run left. Both raise `CheckpointError`."""
    name = checkpoint_name(iteration)
    partial, place = folder / f".{name}.partial", folder / name
    writes: list[Callable[[], None]] = []
    with _failing(partial, place):
        folder.mkdir(exist_ok=True)
        _delete(partial)
        partial.mkdir()
        for role, trained in roles.items():
            (partial / role).mkdir()
            writes.append(trained.snapshot(partial / role))
        if pool is not None:
            (partial / POOL).write_text(pool.to_json(), encoding="utf-8")

    def write() -> str:
        with _failing(partial, place):
            while writes:
                writes.pop(0)()  # frees its part of the snapshot
            files = sorted(name for name, _ in _contents(partial))
            with ThreadPoolExecutor() as threads:
                digests = threads.map(_digest, [partial / file for file in files])
                named = {"iteration": iteration, "sha256": dict(zip(files, digests, strict=True))}
                (partial / MANIFEST).write_text(json.dumps(named, indent=1), encoding="utf-8")
                list(threads.map(sync, [partial / file for file in [*files, MANIFEST]]))
            for part in {partial, *((partial / file).parent for file in files)}:
                sync(part)
            _delete(place)
            os.replace(partial, place)
            sync(folder)
        return name

    return write


@contextmanager
def _failing(partial: Path, place: Path) -> Iterator[None]:
    """Deletes an unfinished checkpoint after an error. Raises the system's as `CheckpointError`."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # torch and safetensors wrap the system's error in their own.
        if isinstance(error, OSError | RuntimeError | SafetensorError):
            raise CheckpointError(
                f"{place}: cannot be written ({_reason(error)}); free space there, then resume"
            ) from error
        raise


def problems(checkpoint: Path) -> list[str]:
    """Returns the faults of a checkpoint in words; empty if every byte is as it was written and
    there are only plain files and folders."""
    if fault := path_fault(checkpoint):
        return [f"{checkpoint.name} {fault}"]
    contents = dict(_contents(checkpoint))
    if odd := [f"{checkpoint.name}: {file} {fault}" for file, fault in contents.items() if fault]:
        return odd
    try:
        with (checkpoint / MANIFEST).open("rb") as opened:
            manifest = json.loads(opened.read(MANIFEST_BYTES))
        digests: dict[str, str] = dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [f"{checkpoint.name}: no readable {MANIFEST}"]
    damage: list[str] = []

    def digest_of(file: str) -> str | None:
        # Never looked up elsewhere, whatever the manifest says.
        with suppress(OSError):
            return _digest(checkpoint / file) if file in contents else None

    with ThreadPoolExecutor() as threads:
        contained = list(threads.map(digest_of, digests))
    for (file, digest), own in zip(digests.items(), contained, strict=True):
        if own is None:
            damage.append(f"{checkpoint.name}: {visible(file):.80} is missing")
        elif own != digest:
            damage.append(f"{checkpoint.name}: {file} is not as it was written")
    return damage


def load_pool(checkpoint: Path) -> Pool:
    return Pool.from_json((checkpoint / POOL).read_text(encoding="utf-8"))


def saved_iterations(folder: Path) -> list[int]:
    """Returns the iterations of the checkpoints in a run's folder, oldest first; ignores copies
    with other names."""
    names = [match for path in _entries(folder) if (match := _NAME.fullmatch(path.name))]
    return sorted(int(name[1]) for name in names if name[0] == checkpoint_name(int(name[1])))


def prune(folder: Path, keep: int, every: int) -> None:
    """Deletes all but the newest `keep` checkpoints and every `every`-th iteration's (0: no
    others)."""
    for iteration in saved_iterations(folder)[:-keep]:
        if not every or iteration % every:
            with suppress(OSError):  # it only takes space: no reason to end a run
                _delete(folder / checkpoint_name(iteration))


def forget(folder: Path, iterations: Iterable[int]) -> None:
    """Deletes checkpoints that no longer belong to the run, and unfinished ones."""
    for iteration in iterations:
        _delete(folder / checkpoint_name(iteration))
    for path in _entries(folder):
        if _PARTIAL.fullmatch(path.name):
            _delete(path)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _delete(path: Path) -> None:
    """Deletes a folder with its contents; for a link, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _contents(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yields the relative name of everything below a folder except folders, and its fault; None for
    a plain file."""
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            fault = path_fault(path)
            if fault or name in files:
                yield path.relative_to(folder).as_posix(), fault


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
