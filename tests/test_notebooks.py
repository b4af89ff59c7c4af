"""The notebooks: each runs as a plain script, whose assertions are on what a reader should see, and
its committed form has the same cells."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.neighbours import needs_plugin
from helpers.paths import ROOT

SCRIPTS = sorted(ROOT.glob("notebooks/[0-9]*.py"))
NEEDS = {"05": ("domain", "agent"), "06": ("command", "judge"), "08": ("judge", "replays")}
"""The neighbour that a notebook needs, by kind and name of its plug-in."""
LONG = ("01", "04", "05", "08")
"""Numbers of the notebooks that take more than 25 seconds of CPU time."""
LINK = re.compile(r"\]\(\s*([^)#\s:]+)(?:#[^)\s]+)?\)")


def script(path: Path) -> object:
    number = path.stem[:2]
    kind, name = NEEDS.get(number, ("domain", "text"))
    marks = [needs_plugin(kind, name)]
    marks += [pytest.mark.slow] if number in LONG else []
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [script(path) for path in SCRIPTS])
def test_a_notebook_runs_as_a_script(path: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr[-3000:]


def test_there_are_eight_and_each_ends_with_assertions_and_what_to_try() -> None:
    assert [path.stem[:2] for path in SCRIPTS] == [f"0{number}" for number in range(1, 9)]
    for path in SCRIPTS:
        *_, checks, last = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.M)
        assert "assert " in checks, path.name
        assert "Try next:" in last, path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_committed_notebook_has_the_cells_of_its_script(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    build = runpy.run_path(str(path.with_name("build.py")))
    written = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    cells = [(cell.cell_type, cell.source) for cell in written.cells]
    made = [(cell.cell_type, cell.source) for cell in build["notebook"](path).cells]
    assert cells == made, "run `make notebooks`"
    assert path.with_suffix(".ipynb").stat().st_size < 30_000


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_a_file(path: Path) -> None:
    links = LINK.findall(re.sub(r"^# ?", "", path.read_text(encoding="utf-8"), flags=re.M))
    assert [link for link in links if not (path.parent / link).exists()] == []
