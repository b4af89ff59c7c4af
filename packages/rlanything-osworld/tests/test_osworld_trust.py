"""A provider of machines is code, which a recipe cannot allow itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command import call
from rlanything.config.recipe import load_recipe


def test_a_provider_of_machines_is_code_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    domain = {"name": "osworld", "options": {"provider": "evil:Part"}}
    path.write_text(json.dumps({"name": "mine", "domain": domain}))
    assert call(monkeypatch, "train", str(path)) == 2
    assert "domain.options.provider: evil:Part is code" in capsys.readouterr().err
    assert load_recipe(path, ["domain.options.provider=evil:Part"]).code == ["evil:Part"]
    assert load_recipe(path, ["domain.options.provider=docker"]).code == []
