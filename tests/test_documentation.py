"""The documentation: pages run, block by block; links find their headings; lines fit."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from helpers import newcomer
from helpers.neighbours import needs_plugin
from helpers.page import SECONDS, SHOWN, blocks, play
from helpers.paths import PACKAGES, ROOT
from rlanything.cli import app
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.shipped import shipped_files

DOCUMENTATION = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *PACKAGES.glob("*/*.md")])
WRAPPED = [page for page in DOCUMENTATION if page.name != "transcript.md"]
"""All but the page that shows prompts as they are."""
CURRENT = [page for page in DOCUMENTATION if page.name != "CHANGELOG.md"]
"""All but the page that also names what is gone."""
EXECUTED = [page for page in CURRENT if any(block.language not in SHOWN for block in blocks(page))]
SCRIPTS = ("README.md", "docs/python.md", "docs/plugins.md", "docs/concepts/advantages.md")
INLINE = re.compile(r"`(rlanything [^`]+)`")
SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+=\S.*")
OTHERS = {"longest"}
"""Commands that a page teaches how to write."""
PLACEHOLDER = re.compile(
    r"(?<![^\s=/])(RUN|MODEL|PATH\w*|OTHER_RUN|FOLDER|NAME|FILE|FIRST)(?![\w=])"
)
"""Names that stand for a reader's own."""


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_python_of_a_page_runs_as_one_script(page: str, tmp_path: Path) -> None:
    assert play(ROOT / page, tmp_path, ("python",)) == ""


def test_a_page_is_executed_in_its_order_up_to_what_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    python = "```python\nfrom seven import N\n\nassert os.environ['N'] == N\n```\n"
    text = "```python\n# seven.py\nN = '7'\n```\n<!-- run first: echo 7 > made -->\n"
    text += "```\nmkdir there && cd there\nexport N=$(< ../made)\n```\n" + python
    text += "<!-- not run: it fails -->\n```\nfalse\n```\n```\ntouch $OLDPWD/end\n```\n"
    page.write_text(text)
    assert play(page, tmp_path / "first") == ""
    page.write_text(text + "```\nls nowhere\nrm $OLDPWD/end\n```\n")
    assert "nowhere" in play(page, tmp_path / "second")
    assert [(tmp_path / name / "here" / "end").exists() for name in ("first", "second")] == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_and_the_python_of_a_page_run_in_their_order(
    page: Path, tmp_path: Path
) -> None:
    assert play(page, tmp_path) == ""


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_executed_or_says_why_not(page: Path) -> None:
    text, found = page.read_text(encoding="utf-8"), blocks(page)
    assert len(re.findall(r"^\s*(?:```|~~~(?!text)\w)", text, re.M)) == 2 * len(found), (
        "a fence is unclear"
    )
    assert {block.language for block in found} <= {"", "python", *SHOWN}, "another language"
    comments = re.findall(r"^ *<!-- *(?:not run|run )", text, re.M)
    assert len(comments) == sum(bool(block.comment) for block in found), "a comment has no block"
    for block in found:
        assert not (block.comment and block.language in SHOWN), "nothing of it would run"
        if block.comment != "not run" and not block.language:
            commands = re.sub(r"#.*", "", block.code)
            assert PLACEHOLDER.findall(commands) == [], "a name that nobody has"


def documented(page: Path) -> list[list[str]]:
    """Returns the words after `rlanything` in every command on a page, whole or in part."""
    text = page.read_text(encoding="utf-8")
    lines = [" ".join(line.split()) for line in INLINE.findall(text)]
    for block in blocks(page):
        if not block.language:
            lines += re.sub(r"\\?\n +", " ", block.code).splitlines()
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
    for block in blocks(page):
        if block.language != "yaml":
            continue
        content = yaml.safe_load(block.code)
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
    # The site has no pages of folders.
    assert [link for link in links if not (page.parent / link).is_file()] == []


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
