"""Which code ran, on which machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import entry_points, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rlanything.config.recipe import Recipe
from rlanything.version import __version__
from rlanything_lab.speedrun.challenge import SpeedrunError, digest, tree_digest


class Code(BaseModel):
    """The code of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rlanything: str
    """Version of the package."""
    commit: str | None
    """Commit of the checkout that it was installed from, with `+` if files differ from it; None
    without a checkout."""
    python: str
    torch: str
    transformers: str
    sha256: dict[str, str]
    """Digest of the Python files of each installed package that registers anything with
    rlanything, and of each module that the recipe names."""


class Hardware(BaseModel):
    """The machine of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cpu: str
    """Model name of the processor."""
    cores: int
    """Number of cores that the run could use."""
    system: str


def code_of(recipe: Recipe) -> Code:
    """Returns the code with which this process runs a recipe. Raises `SpeedrunError` for a module
    that the recipe names and that cannot be found."""
    registered = {
        entry.module.partition(".")[0]
        for group in entry_points().groups
        if group.startswith("rlanything.")
        for entry in entry_points(group=group)
    }
    named = {name.partition(":")[0] for name in recipe.foreign_code}
    return Code(
        rlanything=__version__,
        commit=_commit(),
        python=platform.python_version(),
        torch=version("torch"),
        transformers=version("transformers"),
        sha256=dict(_digests(sorted(registered | named), named)),
    )


def _digests(modules: Iterable[str], needed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields modules with their digests; without registered ones that are no longer there."""
    for module in modules:
        top = module.partition(".")[0]
        # As plug-ins are found: in the working directory after all installed ones.
        spec = PathFinder.find_spec(top, [*sys.path, os.getcwd()])
        if spec is None or spec.origin is None:
            if module not in needed:
                continue
            raise SpeedrunError(f"there is no module {module}: install it, or run where it lies")
        file = Path(spec.origin)
        package = spec.submodule_search_locations is not None
        yield module, tree_digest(file.parent, "**/*.py") if package else digest(file.read_bytes())


def _commit() -> str | None:
    """Returns the commit of the checkout with this file; None if git knows none."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def hardware(cores: int) -> Hardware:
    """Returns this machine, with the number of cores that the run could use."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = [line.partition(":") for line in file]
    names = [value.strip() for key, _, value in lines if key.strip() == "model name"]
    cpu = names[0] if names else platform.processor() or platform.machine()
    return Hardware(cpu=cpu, cores=cores, system=f"{platform.system()} {platform.machine()}")
