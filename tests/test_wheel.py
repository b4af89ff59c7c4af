"""What a wheel holds, and that it is all one needs: installed from it, away from any checkout."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Mapping
from configparser import ConfigParser
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from helpers.neighbours import needs_plugin
from helpers.paths import PACKAGES, ROOT, SOURCE

BUILD_SECONDS, RUN_SECONDS = 300, 300
MOST_BYTES = 3_000_000
"""Size of the core's wheel, tiny models included."""

SMALL = (
    *("loop.iterations=2", "loop.tasks=4", "loop.tasks_per_iteration=2", "threads=1"),
    *("loop.rollouts_per_task=2", "evaluation.episodes=0", "environment.workers=1"),
)
GROUPS = {
    f"rlanything.{kind}"
    for kind in ("adapters", "commands", "domains", "engines", "judges", "losses")
}
PROJECTS = [ROOT, *sorted(path.parent for path in PACKAGES.glob("*/pyproject.toml"))]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of this repository by distribution, such as `rlanything_coding`."""
    folder = tmp_path_factory.mktemp("wheels")
    words = [sys.executable, "-m", "pip", "wheel", *map(str, PROJECTS), "--no-deps", "-q"]
    words += ["--no-build-isolation", "--wheel-dir", str(folder)]
    words += ["--no-input", "--disable-pip-version-check"]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert built.returncode == 0, built.stderr
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def wheel(wheels: dict[str, Path]) -> Path:
    return wheels["rlanything"]


def installed(home: Path, *wheels: Path) -> Path:
    """Returns the interpreter of an environment with these wheels, what they need, and nothing
    else of this repository."""
    venv.create(home)
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = packages / "site-packages"
    for wheel in wheels:
        with ZipFile(wheel) as opened:
            opened.extractall(packages)
    there = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for part in (part for folder in there for part in Path(folder).iterdir()):
        ours = part.name.startswith("rlanything") or part.suffix == ".pth"
        if not ours and not (packages / part.name).exists():
            (packages / part.name).symlink_to(part)
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the core alone."""
    return installed(tmp_path_factory.mktemp("core"), wheel)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def environment() -> Mapping[str, str]:
    """This process's, without what would lead to the checkout."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "COLUMNS": "200"
    }


def run(python: Path, folder: Path, *words: str) -> str:
    """Returns what a command prints; it must succeed."""
    done = subprocess.run(
        [str(python), *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_holds_all_that_ships(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    package = SOURCE / "rlanything"
    shipped = {
        f"rlanything/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped |= {
        f"rlanything/{path.relative_to(ROOT)}"
        for path in (ROOT / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "rlanything/examples/guess.py" in shipped
    assert "rlanything/models/nano-guess/policy/model.safetensors" in shipped
    assert shipped - inside == set()
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/"))]


def test_every_package_has_a_wheel_with_all_of_its_files(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"rlanything", *(path.name.replace("-", "_") for path in PROJECTS[1:])}
    for project in PROJECTS[1:]:
        name = project.name.replace("-", "_")
        source = project / "src"
        files = {
            str(path.relative_to(source))
            for path in source.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        with ZipFile(wheels[name]) as opened:
            assert files - set(opened.namelist()) == set(), name


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    sums = []
    for builds in ("first", "second"):
        source = tmp_path / builds
        shutil.copytree(PACKAGES / "rlanything-ray", source)
        os.utime(source / "src" / "rlanything_ray" / "seats.py")
        words = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"]
        settings = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run([*words, "-d", "out"], cwd=source, env=settings, check=True)
        built = sorted((source / "out").iterdir())
        sums.append({path.name: sha256(path.read_bytes()).hexdigest() for path in built})
    assert len(sums[0]) == 2
    assert sums[0] == sums[1]


def test_the_wheel_of_the_core_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES


def test_its_metadata_registers_every_plug_in(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith("/entry_points.txt")]
        registered = ConfigParser(delimiters="=")
        registered.read_string(opened.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["entry-points"]) >= GROUPS
    assert {group: dict(registered[group]) for group in registered.sections()} == {
        "console_scripts": project["scripts"],
        **project["entry-points"],
    }


def test_recipes_are_listed_from_anywhere(python: Path, elsewhere: Path) -> None:
    [place] = run(python, elsewhere, "-c", "import rlanything; print(rlanything.__file__)").split()
    assert Path(place).is_relative_to(python.parents[1])
    listed = run(python, elsewhere, "-m", "rlanything", "recipes")
    assert " guess " in f" {listed}"
    assert "quickstart" not in listed
    assert list(elsewhere.iterdir()) == [], "listing leaves nothing behind"


def trains(python: Path, elsewhere: Path, recipe: str) -> None:
    folder = elsewhere / "run"
    words = ["train", recipe, f"run_dir={folder}", *SMALL]
    run(python, elsewhere, "-m", "rlanything", *words)
    with closing(sqlite3.connect(folder / "run.sqlite")) as store:
        [(finished,)] = store.execute("SELECT value FROM run WHERE key = 'finished'").fetchall()
    assert finished
    assert (folder / "report.html").exists()
    assert (folder / "checkpoints" / "iter-00002" / "policy" / "model.safetensors").exists()


def test_the_core_alone_trains_guess(python: Path, elsewhere: Path) -> None:
    trains(python, elsewhere, "guess")


@needs_plugin("domain", "alfworld")
def test_the_core_with_alfworld_trains_the_quickstart(
    wheels: dict[str, Path], elsewhere: Path, tmp_path: Path
) -> None:
    both = installed(tmp_path / "both", wheels["rlanything"], wheels["rlanything_alfworld"])
    trains(both, elsewhere, "quickstart")
