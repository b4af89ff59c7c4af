"""`rlanything new environment`: the package it writes is found, trains and passes its own test."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers.command import call

SMALL = (
    *("loop.iterations=1", "loop.tasks=4", "loop.tasks_per_iteration=2", "threads=1"),
    *("loop.rollouts_per_task=2", "evaluation.episodes=0"),
)


def registered(package: Path) -> Path:
    """Returns a folder that registers a package as its installation would, without pip."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    folder = package / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    lines = [f"Name: {project['name']}", f"Version: {project['version']}"]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    entries = [
        line
        for group, names in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(entries))
    return folder.parent


def test_a_new_package_trains_at_once_and_passes_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "new", "environment", "my-game") == 0
    assert "rlanything train my-game" in capsys.readouterr().out
    path = os.pathsep.join([str(registered(tmp_path / "rlanything-my-game")), *sys.path])
    monkeypatch.setenv("PYTHONPATH", path)
    for words in (
        ["-m", "rlanything", "train", "my-game", "run_dir=run", *SMALL],
        ["-m", "pytest", "-q", "rlanything-my-game/tests"],
    ):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("My", "use lower-case letters"),
        ("a--b", "use lower-case letters"),
        ("../up", "use lower-case letters"),
        ("text", "an installed domain has this name"),
        ("here", "exists already"),
    ],
)
def test_a_name_that_cannot_be_taken_is_one_line_and_nothing_is_written(
    name: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rlanything-here").mkdir()
    assert call(monkeypatch, "new", "environment", name) == 2
    assert remedy in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rlanything-here"]
