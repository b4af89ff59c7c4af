"""Files that a box shows: this Python's interpreter, its standard library, and their libraries.

Everything is under /python in the box. Compiled modules still name the host folder in which Python
compiled them: hiding it would slow down every import.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from rlanything_coding.sandbox.base import SandboxUnavailable

HOME = PurePosixPath("/python")
LIBRARIES = HOME / "libraries"
PACKAGES = HOME / "packages"
EXECUTABLE = HOME / "bin" / "python3"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The host's files and folders that a box shows, and those that it leaves empty."""

    shown: tuple[tuple[Path, PurePosixPath], ...]
    """Pairs of a path on the host and its path in the box."""
    hidden: tuple[PurePosixPath, ...]
    """Folders within them that stay empty in the box: third-party packages."""


@cache
def interpreter(packages: tuple[str, ...] = ()) -> Interpreter:
    """Returns this Python, with the named packages of the running environment.

    Raises `SandboxUnavailable` if a package is not installed here."""
    executable = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    standard = Path(sysconfig.get_path("stdlib"))
    inside = HOME / standard.relative_to(sys.base_prefix)
    shown = [(executable, EXECUTABLE), (standard, inside)]
    modules = list((standard / "lib-dynload").glob("*.so"))
    for package in packages:
        for place in _package(package, standard):
            shown.append((place, PACKAGES / place.name))
            modules += place.rglob("*.so") if place.is_dir() else [place]
    shown += _libraries([executable, *modules])
    hidden = [
        inside / name for name in ("site-packages", "dist-packages") if (standard / name).is_dir()
    ]
    return Interpreter(tuple(shown), tuple(hidden))


def _package(name: str, standard: Path) -> Iterator[Path]:
    """Yields the folder or file of a package, and the folder of libraries from its wheel."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise SandboxUnavailable(
            f"{name} is not installed: pip install {name}, or take it out of the executor's imports"
        )
    if spec.origin is None or spec.origin in ("built-in", "frozen"):
        return
    origin = Path(spec.origin)
    place = origin.parent if spec.submodule_search_locations else origin
    if place.is_relative_to(standard) and not place.is_relative_to(standard / "site-packages"):
        return
    yield place
    libraries = place.parent / f"{name}.libs"
    if libraries.is_dir():
        yield libraries


def _libraries(binaries: Sequence[Path]) -> list[tuple[Path, PurePosixPath]]:
    """Returns the shared libraries that binaries need, as this machine's loader finds them."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise SandboxUnavailable("ldd is not installed: install the C library's tools (libc-bin)")
    printed = subprocess.run([ldd, *map(str, binaries)], capture_output=True, text=True).stdout
    sources: dict[PurePosixPath, Path] = {}
    for line in printed.splitlines():
        # "name => /path (address)", or "/path (address)" for the loader itself.
        match = re.fullmatch(r"\s+(?:(\S+) => )?(/\S+) \(0x[0-9a-f]+\)", line)
        if match is None:
            continue
        name, path = match.groups()
        # The executable names the loader's path. Libraries are found by name; those from a wheel
        # are next to the binary that needs them, and are found from there.
        if name is None:
            sources[PurePosixPath(path)] = Path(path)
        elif ".libs/" not in path:
            sources[LIBRARIES / name] = Path(path)
    return [(source, target) for target, source in sources.items()]
