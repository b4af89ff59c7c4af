"""Recipes of strangers that would take long, never end, or put a run where it does not belong."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rlanything.config.problems import RecipeError
from rlanything.config.recipe import MOST_BYTES, load_recipe
from rlanything.config.yaml import YamlError, read_yaml

LARGE = {
    "items": "[" + "1," * 520_000 + "1]",
    "keys": "\n".join(f"k{i}: {i}" for i in range(80_000)),
    "comment": "# a\n" * 260_000,
    "depth": "[" * 1_000_000,
    "braces": "{" * 1_000_000,
    "tag": "!" * 1_000_000,
    "lines": "'" + "\n" * 1_000_000,
    "words": "a: " + "x " * 520_000,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_a_text_of_a_megabyte_is_read_or_refused_soon(text: str) -> None:
    begun, said = time.process_time(), ""
    try:
        read_yaml(text)
    except YamlError as error:
        said = str(error)
    assert len(said) < 400
    assert time.process_time() - begun < 60, "some 2 s here; quadratic time takes many minutes"


def test_what_is_larger_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("#" * MOST_BYTES + "\nname: x\n")
    with pytest.raises(RecipeError, match=r"large\.yaml: cannot be read \(it is larger than 1,024"):
        load_recipe(path)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/null", "folder"])
def test_what_is_no_plain_file_is_not_read(kind: str, tmp_path: Path) -> None:
    path = Path(kind) if kind.startswith("/") else tmp_path / "recipe.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(path)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x", "", ".", "..", "a/..", "a\x1bb"])
def test_a_name_leads_to_no_place_outside_of_runs(name: str) -> None:
    data = {"name": name, "domain": {"name": "guess"}}
    with pytest.raises(RecipeError, match="name: it names a folder inside runs/"):
        load_recipe(data)
    placed = load_recipe({**data, "name": "sweep/first"})
    assert placed.directory == Path("runs/sweep/first")
