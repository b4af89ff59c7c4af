"""What is installed here, and whether a run's files are whole: findings in plain words."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlanything import __version__, nano
from rlanything.config import RecipeError, load_recipe
from rlanything.runs.checkpoint import checkpoint_name, problems, saved_iterations
from rlanything.runs.lock import killed_holder
from rlanything.runs.store import Store, StoreError

LITTLE_SPACE = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    well: bool
    """False: something that was asked for will not work."""
    text: str
    """What was found, and what to do about it where something is wrong."""

    def line(self) -> str:
        return f"{'ok  ' if self.well else 'BAD '} {self.name}: {self.text}"


def check_installation() -> list[Finding]:
    """Versions, devices, and the parts that may be missing."""
    return [
        Finding("rlanything", True, f"{__version__}, Python {platform.python_version()}"),
        _accelerator(),
        Finding("cores", True, f"{len(os.sched_getaffinity(0))} for this process"),
        *(_package(name) for name in ("torch", "transformers")),
        _optional("alfworld", "fast_downward", "the text game"),
        _optional("peft", "peft", "LoRA"),
        _nano(),
        _space(Path.cwd()),
    ]


def check_run(directory: Path) -> list[Finding]:
    """Recipe, store and checkpoints of a run."""
    return [
        _recipe(directory / "recipe.yaml"),
        *_store(directory),
        *_checkpoints(directory / "checkpoints"),
        _space(directory),
    ]


def _accelerator() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("accelerator", True, "none; models compute on the CPU")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("accelerator", True, ", ".join(names))


def _package(name: str) -> Finding:
    return Finding(name, True, version(name))


def _optional(extra: str, module: str, what: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(extra, True, f"not installed: {what}; pip install 'rlanything[{extra}]'")
    try:
        return Finding(extra, True, f"{version(extra)}: {what}")
    except PackageNotFoundError:
        return Finding(extra, True, what)


def _nano() -> Finding:
    missing = [
        role
        for role in ("policy", "judge", "adapter")
        if not (nano.MODELS / role / "model.safetensors").is_file()
    ]
    if missing:
        text = f"{', '.join(missing)} missing in {nano.MODELS}; reinstall the package"
        return Finding("nano models", False, text)
    return Finding("nano models", True, "all three are there")


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place if place.exists() else Path.cwd()).free
    text = f"{free / 2**30:.1f} GiB free at {place}"
    if free < LITTLE_SPACE:
        return Finding("disk", False, f"{text}; free some, or choose another run_dir")
    return Finding("disk", True, text)


def _recipe(path: Path) -> Finding:
    try:
        recipe = load_recipe(path)
    except RecipeError as error:
        return Finding("recipe", False, str(error))
    return Finding("recipe", True, f"{recipe.name}, {recipe.loop.iterations} iterations")


def _store(directory: Path) -> list[Finding]:
    path = directory / "run.sqlite"
    try:
        store = Store(path)
    except StoreError as error:
        return [Finding("store", False, str(error))]
    try:
        found = store.check()
        last = store.last_iteration()
    except sqlite3.DatabaseError as error:
        found, last = [f"{path}: {error}; restore a copy"], None
    finally:
        store.close()
    holder = killed_holder(directory)
    findings = [Finding("store", False, problem) for problem in found]
    if not findings:
        findings.append(Finding("store", True, f"whole, {last[0] if last else 0} iterations"))
    if holder is not None:
        text = f"process {holder} ended without a word; `rlanything resume {directory}` goes on"
        findings.append(Finding("lock", True, text))
    if last is not None and not (directory / "checkpoints" / last[1]).is_dir():
        text = f"the store's last one, {last[1]}, is missing; resume takes the one before it"
        findings.append(Finding("checkpoints", False, text))
    return findings


def _checkpoints(folder: Path) -> list[Finding]:
    findings: list[Finding] = []
    for iteration in saved_iterations(folder):
        place = folder / checkpoint_name(iteration)
        found = problems(place)
        if found:
            text = f"{'; '.join(found)}; resume goes back to the one before it"
            findings.append(Finding("checkpoint", False, text))
        else:
            findings.append(Finding("checkpoint", True, f"{place.name} is as it was written"))
    return findings
