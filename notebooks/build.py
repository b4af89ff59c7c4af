"""Runs the notebooks' scripts and writes each as a notebook with its outputs.

    python notebooks/build.py [NAME ...]

A script is in the percent format, which Jupytext and editors read: `# %%` begins a cell of code,
`# %% [markdown]` a cell of text. NAME: the beginning of a file name; without any, all scripts.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
SECONDS = 600
"""Limit of one cell."""
PLACE = re.compile(r"^.*?(?=RunWarning: )|^.*TqdmWarning.*\n|^  \S.*\n", re.MULTILINE)
"""File names and lines of code that Python prints with a warning."""


def scripts() -> list[Path]:
    """Returns the scripts, in order."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def notebook(script: Path) -> nbformat.NotebookNode:
    """Returns a script as a notebook without outputs."""
    cells = []
    parts = re.split(r"^# %%", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for number, part in enumerate(parts):
        kind, _, body = part.partition("\n")
        if kind.strip() == "[markdown]":
            text = re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()
            cell = nbformat.v4.new_markdown_cell(text)
        else:
            cell = nbformat.v4.new_code_cell(body.strip())
        cell["id"] = f"cell-{number}"  # the default is random
        cells.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": python})


def with_outputs(script: Path) -> nbformat.NotebookNode:
    """Returns a script as a notebook, run in a fresh folder."""
    made = notebook(script)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(made, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    made.metadata = notebook(script).metadata
    return tidied(made)


def tidied(made: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Returns a notebook without times and paths, and with one output for what a cell printed."""
    for cell in made.cells:
        cell.metadata = {}
        printed: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                output["text"] = PLACE.sub("", output["text"])
            if printed and output.get("name") == printed[-1].get("name") == "stdout":
                printed[-1]["text"] += output["text"]
            elif output.get("text") != "":
                printed.append(output)
        if cell.cell_type == "code":
            cell["outputs"] = printed
    return made


def main(names: list[str]) -> None:
    for script in scripts():
        if not names or script.stem.startswith(tuple(names)):
            print(script.stem, flush=True)
            nbformat.write(with_outputs(script), script.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
