"""Shipped recipes are found by name from any folder; a mistyped one is looked up nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from helpers.guess import GUESS
from helpers.neighbours import needs_plugin
from helpers.paths import ROOT, SOURCE
from rlanything.commands.recipes import recipes
from rlanything.config import shipped
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.shipped import shipped_files, shipped_recipes
from rlanything.domains.registry import load_domain
from rlanything.engines.shipped import domain_of

MINIMAL = "name: {name}\ndomain: {{name: text}}\n"
PROMPTED = """
from rlanything.domains.base import DomainOptions, File
from rlanything.domains.text import TextDomain
class Prompted(TextDomain):
    class Options(DomainOptions):
        prompts: File | None = None
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_each_is_loaded_by_its_name_from_any_folder():
    names = list(shipped_recipes())
    assert {"guess", "guess-smollm2"} <= set(names)
    assert all(load_recipe(name).name == name for name in names)


def test_each_says_in_one_whole_line_what_it_is():
    for name, what in shipped_recipes().items():
        assert 20 <= len(what) <= 100, name
        assert what.endswith((".", ").")), name


def test_a_file_wins_over_a_shipped_name(elsewhere):
    (elsewhere / "guess").write_text(MINIMAL.format(name="mine"))
    assert load_recipe("guess").name == "mine"


def test_a_folder_does_not_hide_a_shipped_name(elsewhere):
    (elsewhere / "guess").mkdir()
    assert load_recipe("guess").name == "guess"


def test_paths_data_and_recipes_give_the_same():
    guess = load_recipe("guess")
    assert load_recipe(GUESS) == load_recipe(str(GUESS)) == guess
    assert load_recipe(guess) is guess
    changed = load_recipe(guess, ["seed=7", "adapter.model=judge"])
    assert (changed.seed, changed.adapter.model) == (7, "judge")
    assert changed == load_recipe("guess", {"seed": 7, "adapter.model": "judge"})
    assert load_recipe(guess.model_dump()) == guess


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("gues-smollm2", "did you mean guess-smollm2?"),
        ("recipes/guess-smolm2.yaml", "did you mean guess-smollm2"),
        ("guess.yaml", "did you mean guess"),
        ("mien.yaml", "did you mean mine.yaml?"),
        ("org/model", "the installed ones are"),
        ("nothing-like-it", "the installed ones are"),
    ],
)
def test_what_does_not_exist_is_one_line_with_near_matches(elsewhere, source, remedy):
    (elsewhere / "mine.yaml").write_text(MINIMAL.format(name="mine"))
    with pytest.raises(RecipeError, match=f"{source}: no such recipe; ") as caught:
        load_recipe(source)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_in_the_place_of_a_recipe_is_told_apart(tmp_path):
    for name in ("recipe.yaml", "run.sqlite"):
        (tmp_path / name).touch()
    with pytest.raises(
        RecipeError,
        match=f"^{tmp_path}: a run's directory; continue it with `rlanything resume {tmp_path}`",
    ):
        load_recipe(tmp_path)


def test_a_folder_of_prompts_next_to_a_recipe_is_found(elsewhere):
    (elsewhere / "recipes" / "prompts").mkdir(parents=True)
    (elsewhere / "recipes" / "prompted.py").write_text(PROMPTED)
    own = elsewhere / "recipes" / "own.yaml"
    own.write_text("name: own\ndomain: {name: prompted:Prompted, options: {prompts: prompts}}\n")
    found = load_recipe(own, allow_code=True).domain.options["prompts"]
    assert found == str(elsewhere / "recipes" / "prompts")


def test_a_module_next_to_a_recipe_is_found_also_from_what_a_run_wrote():
    recipe = load_recipe("guess")
    assert recipe.domain.module_folder == ROOT / "examples"
    assert recipe.foreign_code == set()
    load_domain(recipe.domain.name, {}).tasks("train", 1, 0)
    written = recipe.model_dump_json()
    Path("recipe.yaml").write_text(written)
    code = (
        "from rlanything.config.recipe import load_recipe\n"
        "from rlanything.domains.registry import load_domain\n"
        "load_domain(load_recipe('recipe.yaml').domain.name, {})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCE)})


def test_a_wheel_holds_them_where_they_are_looked_for(elsewhere, monkeypatch):
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = hatch["targets"]["wheel"]["force-include"]
    assert included == {"examples": "rlanything/examples"}
    (elsewhere / "examples").mkdir()
    (elsewhere / "examples" / "only.yaml").write_text(
        "# Only this.\n" + MINIMAL.format(name="only")
    )
    monkeypatch.setattr(shipped, "PACKAGE", elsewhere)
    monkeypatch.setattr(shipped, "shipped_packages", list)
    assert shipped_files() == {"only": elsewhere / "examples" / "only.yaml"}
    assert shipped_recipes() == {"only": "Only this."}


@needs_plugin("domain", "physics")
def test_models_of_one_domain_name_it_and_those_of_several_name_none():
    assert domain_of("nano-physics") == "physics"
    assert domain_of("nano-two-worlds") is None


def test_the_command_lists_them(monkeypatch):
    extras = {"guess:Guess": ["toys"]}
    monkeypatch.setattr("rlanything.plugins.extras_of", lambda kind, name: extras.get(name, []))
    app = Typer()
    app.command()(recipes)
    result = CliRunner().invoke(app, ["--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)["recipes"]}
    assert rows["guess"]["domain"] == "guess:Guess"
    table = CliRunner().invoke(app, []).stdout
    assert all(name in table for name in rows)
    assert rows["guess"]["needs"] == "[toys]"
    assert rows["guess-smollm2"]["needs"] == "[lora], model"
    assert [line.split()[0] for line in table.splitlines() if line[:1].strip()][1] == "guess"
    assert max(map(len, table.splitlines())) <= 80
    assert len(table.splitlines()) < 4 * len(rows)


def test_a_recipe_whose_engine_is_not_installed_is_listed_all_the_same(elsewhere, monkeypatch):
    (elsewhere / "recipes").mkdir()
    lines = "# A model that another package runs.\n" + MINIMAL.format(name="large")
    (elsewhere / "recipes" / "large.yaml").write_text(
        f"{lines}policy: {{engine: {{name: lora}}}}\n"
    )
    monkeypatch.setattr(shipped, "shipped_packages", lambda: [elsewhere])
    app = Typer()
    app.command()(recipes)
    listed = json.loads(CliRunner().invoke(app, ["--json"]).stdout)["recipes"]
    [large] = [row for row in listed if row["name"] == "large"]
    assert (large["domain"], large["needs"]) == (None, "[lora]")
