"""What a wheel holds, and that it is all one needs: installed from it, away from any checkout."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Mapping
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest

from helpers.paths import ROOT, SOURCE

BUILD_SECONDS, RUN_SECONDS = 180, 300
UNREACHABLE = ("No matching distribution", "Could not find a version", "Connection", "Temporary")
"""What pip says where it cannot reach the registry that it gets hatchling from."""

SMALL = (
    *("loop.iterations=1", "loop.tasks=4", "loop.tasks_per_iteration=2", "threads=1"),
    *("loop.rollouts_per_task=2", "evaluation.episodes=0", "environment.workers=1"),
)
GROUPS = {
    f"rlanything.{kind}"
    for kind in ("adapters", "commands", "domains", "engines", "judges", "losses")
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "-q", "--no-input"]
    words += ["--disable-pip-version-check", "--build-constraint", "constraints.txt"]
    built = subprocess.run(
        [*words, "--wheel-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if built.returncode and any(words in built.stderr for words in UNREACHABLE):
        pytest.skip("pip cannot reach a registry to get hatchling from, which builds the wheel")
    assert built.returncode == 0, built.stderr
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel in it, and what the wheel needs."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home)
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = packages / "site-packages"
    with ZipFile(wheel) as opened:
        opened.extractall(packages)
    # A line in a .pth adds a folder, but heeds no .pth in it: so not the checkout's either.
    needed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "needed.pth").write_text("\n".join(sorted(needed)))
    return home / "bin" / "python"


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
    for kind in ("recipes", "examples"):
        shipped |= {
            f"rlanything/{path.relative_to(ROOT)}"
            for path in (ROOT / kind).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    assert "rlanything/examples/guess.py" in shipped
    assert "rlanything/recipes/quickstart.yaml" in shipped
    assert "rlanything/domains/alfworld/prompts/policy.txt" in shipped
    assert "rlanything/nano/models/policy/model.safetensors" in shipped
    assert shipped - inside == set()
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/"))]


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
    for name in ("tiny", "quickstart", "guess"):
        assert f" {name} " in listed
    assert list(elsewhere.iterdir()) == [], "listing leaves nothing behind"


@pytest.mark.parametrize("recipe", ["tiny", "guess"])
def test_a_shipped_recipe_trains_to_the_end_from_anywhere(
    python: Path, elsewhere: Path, recipe: str
) -> None:
    folder = elsewhere / "run"
    words = ["train", recipe, f"run_dir={folder}", *SMALL]
    run(python, elsewhere, "-m", "rlanything", *words)
    with closing(sqlite3.connect(folder / "run.sqlite")) as store:
        [(finished,)] = store.execute("SELECT value FROM run WHERE key = 'finished'").fetchall()
    assert finished
    assert (folder / "report.html").exists()
    assert (folder / "checkpoints" / "iter-00001" / "policy" / "model.safetensors").exists()
