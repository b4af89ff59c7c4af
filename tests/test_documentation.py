"""The documentation: its Python runs, page by page; its links find their headings; lines fit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from helpers import newcomer
from helpers.neighbours import needs_plugin
from helpers.paths import PACKAGES, ROOT, SOURCE
from rlanything.cli import app
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.shipped import shipped_files

DOCUMENTATION = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *PACKAGES.glob("*/*.md")])
WRAPPED = [page for page in DOCUMENTATION if page.name != "transcript.md"]
"""All but the page that shows prompts as they are."""
CURRENT = [page for page in DOCUMENTATION if page.name != "CHANGELOG.md"]
"""All but the page that also names what is gone."""
SCRIPTS = ("README.md", "docs/python.md", "docs/plugins.md", "docs/concepts/advantages.md")
BLOCK = re.compile(r"(<!-- not run: .*-->\n)?```python\n(.*?)```", re.DOTALL)
"""A block of Python, and the comment before those that are shown only."""
COMMANDS = re.compile(r"^```(?:bash|sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(rlanything [^`]+)`")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+=\S.*")
OTHERS = {"longest"}
"""Commands that a page teaches how to write."""
FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a file of its own."""

SMALL = """\
import rlanything.runs.trainer as trainer
from rlanything.config.recipe import load_recipe

TINY = ["threads=1", "loop.tasks=4", "loop.tasks_per_iteration=2", "loop.rollouts_per_task=2"]
TINY += ["policy.minibatches=1", "adapter.tries=1", "evaluation.judged_episodes=1"]


def load_small(source, overrides=(), **allowed):
    recipe = load_recipe(source, overrides, **allowed)
    if str(source).startswith("runs"):  # a run that is resumed: small already
        return recipe
    episodes = min(recipe.evaluation.episodes, 2)
    return load_recipe(recipe, [*TINY, f"evaluation.episodes={episodes}"])


trainer.load_recipe = load_small
"""
"""What every script begins with: recipes have fewer episodes than a reader wants, so that a page
takes seconds and not minutes."""


def blocks(page: str) -> list[str]:
    """The Python of a page that is run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [code for shown_only, code in BLOCK.findall(text) if not shown_only]


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_python_of_a_page_runs_as_one_script(page: str, tmp_path: Path) -> None:
    script = [SMALL]
    for code in blocks(page):
        if named := FILE.match(code):
            (tmp_path / named[1]).write_text(code, encoding="utf-8")
        else:
            script.append(code)
    (tmp_path / "page.py").write_text("\n\n".join(script), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]


def documented(page: Path) -> list[list[str]]:
    """Returns the words after `rlanything` in every command on a page, whole or in part."""
    text = page.read_text(encoding="utf-8")
    lines = [" ".join(line.split()) for line in INLINE.findall(text)]
    for block in COMMANDS.findall(text):
        lines += block.replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.split(r" && | \| ", line)]
    found = [shlex.split(part, comments=True) for part in parts if part.startswith("rlanything ")]
    return [words[1:] for words in found if words[1] not in OTHERS]


@needs_plugin("command", "ablate")
@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_documentation_exist_with_their_options_and_keys(page: Path) -> None:
    recipes, whole = shipped_files(), typer.main.get_command(app)
    for words in documented(page):
        command: Any = whole
        try:
            context = command.make_context(None, [*words])
            while rest := [*getattr(context, "_protected_args", ()), *context.args]:
                if not hasattr(command, "resolve_command"):
                    break
                _, command, rest = command.resolve_command(context, rest)
                context = command.make_context(None, [*rest], parent=context)
        except (typer.BadParameter, typer.Exit):
            pass  # a part of a command, or a made-up value
        if words[0] == "train" and len(words) > 1 and words[1] in recipes:
            settings = [word for word in words if SETTING.fullmatch(word)]
            load_recipe(recipes[words[1]], settings, allow_code=True)


@needs_plugin("command", "ablate")
@pytest.mark.parametrize("page", DOCUMENTATION, ids=lambda page: str(page.relative_to(ROOT)))
def test_recipes_of_the_documentation_load(page: Path) -> None:
    for block in YAML.findall(page.read_text(encoding="utf-8")):
        content = yaml.safe_load(block)
        if not content.keys() & {*Recipe.model_fields, "policy", "domains"}:
            continue  # a file of another kind
        content.setdefault("name", "page")
        if "roles" not in content:
            content.setdefault("policy", {"model": "nano-guess", "decoding": "choices"})
        if "domains" not in content:
            content.setdefault("domain", {"name": "guess:Guess"})
        load_recipe(content, allow_code=True)


@pytest.mark.parametrize("page", WRAPPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_the_documentation_end_within_100_characters(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    # A row of a table and a link of one word cannot be broken.
    breakable = [line for line in lines if not line.startswith("|") and " " in line.strip()]
    assert [line for line in breakable if len(line) > 100] == []


@pytest.mark.parametrize("page", DOCUMENTATION, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    gone = [
        f"{other}#{anchor}"
        for other, anchor in links
        if anchor not in anchors((page.parent / other) if other else page)
    ]
    assert gone == []


@pytest.mark.parametrize("page", DOCUMENTATION, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]+)(?:#[^)\s]+)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("stage", newcomer.STAGES, ids=lambda stage: stage.name)
def test_a_page_has_the_commands_that_a_newcomer_runs(stage: newcomer.Stage) -> None:
    assert all(re.match(r"(git|pip|python|rlanything) ", line) for line in newcomer.commands(stage))
    assert ("my_judge.py" in newcomer.files(stage)) == (stage.name == "own-judge")


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {page.relative_to(ROOT).as_posix() for page in DOCUMENTATION}
    made = {f"notebooks/{path.name}.md" for path in ROOT.glob("notebooks/*.ipynb")}
    assert named == pages | made | {"docs/cli.md"}  # the last ones only the site has


def test_the_readme_has_at_most_150_lines_and_names_the_hardware_in_the_fifth() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert "CPU" in lines[4]
    assert "GPU" in lines[4]


@pytest.mark.parametrize("name", ["advantages", "design", "exactness", "judge", "loop", "tasks"])
def test_a_concept_has_one_picture_and_at_most_800_words(name: str) -> None:
    page = ROOT / "docs" / "concepts" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= 800
    [picture] = re.findall(r"!\[[^\]]+\]\((\w+\.svg)\)", text)
    assert (page.parent / picture).is_file()


def anchors(page: Path) -> set[str]:
    """The names that a page's headings have in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("recipe", shipped_files().values(), ids=lambda path: path.stem)
def test_a_recipe_begins_with_a_sentence_that_says_what_it_is(recipe: Path) -> None:
    first, *lines = recipe.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"# [A-Z].{20,88}\.", first)
    assert [line for line in lines if len(line) > 100] == []
