"""The example: it trains, it is short, and the README says so."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW
from helpers.paths import ROOT
from rlanything.config.recipe import load_recipe
from rlanything.engines import shipped
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

EXAMPLE = ROOT / "examples" / "guess.py"


def test_the_example_domain_trains_on_the_nano_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "run"
    overrides = [*FEW, f"run_dir={folder}", "evaluation.episodes=16"]
    recipe = load_recipe(ROOT / "examples" / "guess.yaml", overrides)
    lines = Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    assert any(line.startswith("policy, in_domain:") for line in lines)
    store = Store(folder / "run.sqlite")
    (trained,) = store.query("SELECT COUNT(*) FROM samples WHERE role = 'policy'")[0]
    assert trained > 0
    before = (shipped.NAMES["nano-guess"] / "policy" / "model.safetensors").read_bytes()
    after = (folder / "checkpoints/iter-00002/policy/model.safetensors").read_bytes()
    assert hashlib.sha256(before).digest() != hashlib.sha256(after).digest()


def test_the_example_has_at_most_sixty_lines_of_code() -> None:
    text = EXAMPLE.read_text()
    docstring = ast.parse(text).body[0]
    assert docstring.end_lineno is not None
    code = [line for line in text.splitlines()[docstring.end_lineno :] if line.strip()]
    assert len(code) <= 60


def test_the_readme_says_how_long_the_example_is() -> None:
    lines = len(EXAMPLE.read_text().splitlines())
    said = f"[`examples/guess.py`](examples/guess.py) is the same game in {lines} lines"
    assert said in " ".join((ROOT / "README.md").read_text().split())
