"""`rlanything plan` with recipes and models of strangers: nothing of theirs runs or steers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from helpers.brought_code import (
    brings_code,
    check_fetches_no_kernel,
    check_never_run,
    willing,
)
from helpers.command import call, printed, refused
from helpers.damaged import DAMAGES
from helpers.fake_endpoint import FakeEndpoint
from helpers.guess import FEW, GUESS, write_recipe
from helpers.tiny import tiny_model
from rlanything.engines.hf import damage
from rlanything_planning.assumptions import tokenizer_of

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return willing(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model(1).save(tmp_path / "model")
    return tmp_path / "model"


def recipe(**sections: object) -> str:
    """A recipe in a file of the current folder; `sections` are added."""
    path = Path("recipe.yaml")
    path.write_text(yaml.safe_dump({"name": "mine", "domain": {"name": "text"}, **sections}))
    return str(path)


def test_a_recipe_shows_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    recipe = tmp_path / "a[/b].yaml"
    recipe.parent.mkdir()
    write_recipe(recipe)
    monkeypatch.setenv("COLUMNS", "400")
    assert call(monkeypatch, "plan", str(recipe), 'name="[/q] \u202e"') == 0
    assert "[/q] \\u202e on 1 x cpu" in printed(capsys)
    odd = recipe.with_name("c].yaml")
    odd.write_text(f"{GUESS.read_text()}steps: 1\n")
    assert call(monkeypatch, "plan", str(odd)) == 2
    assert printed(capsys).startswith(f"error: {odd}: steps: ")
    assert call(monkeypatch, "plan", str(tmp_path / "[/c].yaml")) == 2
    assert "[/c].yaml: no such recipe" in printed(capsys)
    assert call(monkeypatch, "plan", str(tmp_path)) == 2
    assert printed(capsys).count("\n") == 1
    assert call(monkeypatch, "plan", "guess", "--count", "[/q]\x1b") == 2
    assert printed(capsys).startswith("error: Invalid value for '--count': ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "recipe.yaml: domain.name: subprocess:run is code"),
        (("--allow-code",), "domain subprocess:run is no domain but of Python's own module"),
    ],
)
def test_a_plan_runs_nothing_that_a_recipe_names(
    options: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = recipe(domain={"name": "subprocess:run", "options": {"args": ["touch", "PWNED"]}})
    assert said in refused(monkeypatch, capsys, "plan", path, *options)
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("settings", [{"key_variable": "MY_SECRET"}, {}], ids=["named", "default"])
def test_a_plan_sends_no_secret_that_a_recipe_names(
    settings: dict[str, str],
    tmp_path: Path,
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    variable = settings.get("key_variable", "OPENAI_API_KEY")
    monkeypatch.setenv(variable, "do-not-tell-4711")
    engine = {"name": "openai", "url": fake.url, **settings}
    path = recipe(judge={"model": "m", "train": False, "engine": engine})
    line = refused(monkeypatch, capsys, "plan", path)
    assert f"judge.engine.key_variable: the environment variable {variable} would be sent" in line
    assert "do-not-tell-4711" not in line
    assert not fake.requests


@pytest.mark.parametrize("model_type", ["evil", "seed_oss"])
@pytest.mark.parametrize("tokenizer", [False, True], ids=["model", "tokenizer"])
def test_a_plan_never_runs_the_code_of_a_model(
    model_type: str,
    tokenizer: bool,
    mark: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    folder = brings_code(mark, model_type, tokenizer)
    words = ["plan", "guess", f"policy.model={folder}"]
    check_never_run(mark, model_type, words, monkeypatch, capsys)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_plan_fetches_no_kernel_that_a_configuration_names(
    key: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = brings_code(mark, "seed_oss", tokenizer=False)
    words = ["plan", "guess", f"policy.model={folder}"]
    check_fetches_no_kernel(folder, key, words, monkeypatch)


@pytest.mark.parametrize("name", ["unsafe", "loops", "tokenizer is a list", "no heads"])
def test_a_damaged_model_is_one_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.setattr(damage, "TEMPLATE_SECONDS", 0.2)
    DAMAGES[name](folder)
    capfd.readouterr()
    line = refused(monkeypatch, capfd, "plan", str(GUESS), *FEW, f"policy.model={folder}")
    assert str(folder) in line or "policy.model" in line


def test_adapters_without_a_tokenizer_are_planned_with_that_of_their_model(
    folder: Path, tmp_path: Path
) -> None:
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    get_peft_model(network, config).save_pretrained(str(tmp_path / "adapters"))
    assert tokenizer_of(str(tmp_path / "adapters"))[1] == "its own tokenizer"
