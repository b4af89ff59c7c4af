"""An installed package that resolves names from options of its own imports no stranger's code: what
a recipe names is imported only where its user allowed it, whichever option it stands in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helpers.command import call
from helpers.guess import GUESS
from helpers.neighbours import JUDGE_EVAL
from helpers.outside import python_path
from rlanything.config.problems import TrustError
from rlanything.config.recipe import load_recipe
from rlanything.plugins import PluginError, child_environment, load_plugin
from rlanything.runs.directory import create_run, now

Captured = pytest.CaptureFixture[str]

PACKAGE = '''
"""Somebody's package: parts whose options name functions, in every form an option can have."""

from typing import Any

from rlanything.config.engines import ConfigSection, EngineConfig
from rlanything.domains.base import (
    CodeName, CommandWords, DomainOptions, File, Observation, SecretVariable, StepResult
)
from rlanything.domains.registry import load_domain, named_function
from rlanything.domains.text import TextDomain
from rlanything.engines.hf.config import EmbeddedEngineConfig
from rlanything.plugins import load_plugin
from rlanything.records import Task
from rlanything.roles.judges.base import StepJudge


def resolve(option):
    if isinstance(option, dict):
        if set(option) == {"module", "function"}:
            return resolve(option["module"] + ":" + option["function"])
        return [resolve(value) for pair in option.items() for value in pair]
    if isinstance(option, list):
        return [resolve(value) for value in option]
    return named_function("scorer", option, "(task)") if ":" in option else None


class Room:
    def __init__(self, late):
        self.late = late

    def reset(self, task):
        resolve(self.late)
        return Observation("A door.", ("open", "wait"))

    def step(self, response):
        return StepResult(Observation("It is open."), "open", True, 1)


class Rooms(TextDomain):
    def __init__(self, scorer="", late="", inner=""):
        resolve(scorer)
        self.late = late
        if inner:
            load_domain(inner, {})

    def tasks(self, split, count, seed):
        return [Task(f"{split}-{i}", "Open the door.") for i in range(count)]

    def environment(self):
        return Room(self.late)


class Hook(ConfigSection):
    by: CodeName


class Tutor(ConfigSection):
    url: str
    token: SecretVariable | None = None


class Halls(Rooms):
    class Options(DomainOptions):
        size: int = 3
        scorer: CodeName = ""
        scorers: list[CodeName] = []
        named: dict[str, CodeName] = {}
        hooks: list[Hook] = []
        program: CommandWords = ()
        tutors: list[Tutor] = []
        book: File | None = None

    def __init__(self, **options):
        chosen = self.Options.read(options)
        self.late = ""
        for name in (chosen.scorer, *chosen.scorers, *chosen.named.values(), *chosen.hooks):
            resolve(getattr(name, "by", name))


class Annex(Halls):
    def __init__(self, flavour="", **options):
        super().__init__(**options)


class Rater(StepJudge):
    samples = 1

    def __init__(self, scorer):
        load_plugin("scorer", scorer["by"])

    def judge(self, trajectories, seed, on_judgements=None):
        raise NotImplementedError


class Writer:
    def __init__(self, style):
        load_plugin("style", style)

    def propose(self, requests, iteration, seed):
        return []


class Engine(EngineConfig):
    hooks: list[Any] = []

    def build(self, model, setting):
        for hook in self.hooks:
            load_plugin("hook", hook)
        return EmbeddedEngineConfig().build(model, setting)
'''
ENTRY_POINTS = """
[rlanything.domains]
rooms = rooms:Rooms
halls = rooms:Halls
annex = rooms:Annex
[rlanything.judges]
rater = rooms:Rater
[rlanything.adapters]
writer = rooms:Writer
[rlanything.engines]
hooked = rooms:Engine
"""
EVIL = """
from pathlib import Path
from rlanything.domains.text import TextRollouts
Path('PWNED').touch()
def part(*_): ...
class Inner(TextRollouts): ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder in which every command works: a stranger's files, and PWNED if they run."""
    site = tmp_path / "site"
    (site / "rooms-1.0.dist-info").mkdir(parents=True)
    (site / "rooms.py").write_text(PACKAGE)
    (site / "rooms-1.0.dist-info" / "METADATA").write_text("Name: rooms\nVersion: 1.0\n")
    (site / "rooms-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    work = tmp_path / "work"
    work.mkdir()
    (work / "evil.py").write_text(EVIL)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setenv("PYTHONPATH", python_path(site))
    yield
    for name in ("rooms", "evil"):
        sys.modules.pop(name, None)


def recipe(**sections: object) -> str:
    settings = yaml.safe_load(GUESS.read_text())
    settings |= {"domain": {"name": "rooms"}, "judge": {"name": "oracle"}, "run_dir": "run"}
    settings["evaluation"] = {"episodes": 0}
    settings["loop"] = {"tasks": 2, "tasks_per_iteration": 1, "iterations": 1}
    Path("recipe.yaml").write_text(yaml.safe_dump(settings | sections))
    return "recipe.yaml"


OPTIONS = {
    "flat": {"scorer": "evil:part"},
    "list": {"scorer": ["evil:part"]},
    "value": {"scorer": {"by": {"name": "evil:part"}}},
    "key": {"scorer": {"evil:part": "a weight"}},
    "composed": {"scorer": {"module": "evil", "function": "part"}},
    "domain": {"inner": "evil:Inner"},
}
SECTIONS = {
    **{name: {"domain": {"name": "rooms", "options": given}} for name, given in OPTIONS.items()},
    "judge": {"judge": {"name": "rater", "options": {"scorer": {"by": "evil:part"}}}},
    "adapter": {"adapter": {"name": "writer", "options": {"style": "evil:part"}}},
    "engine": {
        "policy": {"model": "nano-guess", "engine": {"name": "hooked", "hooks": ["evil:part"]}}
    },
}


@pytest.mark.parametrize("part", SECTIONS)
def test_no_option_of_an_installed_part_imports_a_strangers_code(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "train", recipe(**SECTIONS[part])) == 2
    [line] = capsys.readouterr().err.splitlines()[-1:]
    named = "evil:Inner" if part == "domain" else "evil:part"
    assert f"{named} is code, which would be run" in line
    assert "--allow-code" in line
    assert not Path("PWNED").exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("workers", [0, 1])
def test_nor_where_it_is_named_first_when_an_episode_begins(
    workers: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    late = {"name": "rooms", "options": {"late": "evil:part"}}
    path = recipe(domain=late, environment={"workers": workers})
    call(monkeypatch, "train", path)
    assert "evil:part is code, which would be run" in capsys.readouterr().err
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("command", ["resume", "eval", JUDGE_EVAL])
def test_nor_does_a_run_directory(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    run = Path("run")
    create_run(run, load_recipe(GUESS, {"run_dir": run}), now())
    settings = yaml.safe_load((run / "recipe.yaml").read_text())
    settings["domain"] = {"name": "rooms", "options": OPTIONS["list"]}
    (run / "recipe.yaml").write_text(yaml.safe_dump(settings))
    assert call(monkeypatch, command, "run") == 2
    assert "evil:part is code" in capsys.readouterr().err
    assert not Path("PWNED").exists()


@pytest.mark.parametrize(
    ("part", "override"),
    [
        ("flat", "domain.options.scorer=evil:part"),
        ("list", "domain.options.scorer=['evil:part']"),
        ("value", "domain.options.scorer.by.name=evil:part"),
        ("key", "domain.options.scorer={'evil:part': a weight}"),
        ("domain", "domain.options.inner=evil:Inner"),
        ("engine", "policy.engine.hooks=['evil:part']"),
        *((part, "--allow-code") for part in SECTIONS),
    ],
)
def test_what_the_user_types_or_allows_is_imported(
    part: str, override: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "train", recipe(**SECTIONS[part]), "loop.iterations=0", override) == 0
    assert "is code" not in capsys.readouterr().err
    assert Path("PWNED").exists()


def test_processes_that_this_one_starts_may_import_no_more() -> None:
    assert "RLANYTHING_IMPORTS" not in child_environment()
    load_recipe(recipe(), ["domain.options.scorer=evil:part"])
    assert child_environment()["RLANYTHING_IMPORTS"] == '["evil:part"]'
    with pytest.raises(PluginError, match="other:part is code"):
        load_plugin("scorer", "other:part")
    load_plugin("scorer", "evil:part")


def test_a_recipe_that_ships_forbids_a_program_nothing() -> None:
    load_recipe("guess")
    load_plugin("scorer", "evil:part")


def test_what_one_recipe_was_allowed_another_does_not_take_away() -> None:
    path = recipe(domain={"name": "rooms", "options": OPTIONS["value"]})
    load_recipe(path, allow_code=True)
    load_recipe(recipe())
    load_plugin("scorer", "evil:part")
    with pytest.raises(PluginError, match="evil:Inner is code"):
        load_plugin("domain", "evil:Inner")


@pytest.mark.parametrize(
    "options", [{"scorer": {"by": {"key_variable": "MY_SECRET"}}}, {"key_variable": "MY_SECRET"}]
)
def test_no_option_of_an_installed_domain_names_a_secret(options: dict[str, object]) -> None:
    path = recipe(domain={"name": "rooms", "options": options})
    with pytest.raises(TrustError, match=r"key_variable=MY_SECRET yourself"):
        load_recipe(path, allow_code=True)
    load_recipe(path, [f"domain.options={json.dumps(options)}"])


DECLARED: list[tuple[dict[str, object], str, str]] = [
    ({"scorer": "evil:part"}, "scorer", "evil:part"),
    ({"scorers": ["fine", "evil:part"]}, "scorers.1", "evil:part"),
    ({"named": {"best": "evil:part"}}, "named.best", "evil:part"),
    ({"hooks": [{"by": "fine"}, {"by": "evil:part"}]}, "hooks.1.by", "evil:part"),
    ({"program": ["sh", "-c", "touch PWNED"]}, "program", "sh -c touch PWNED"),
]


@pytest.mark.parametrize(("options", "place", "named"), DECLARED, ids=[p for _, p, _ in DECLARED])
@pytest.mark.parametrize("name", ["halls", "annex"])
def test_options_that_another_package_declares_as_code_are_refused_as_the_recipe_is_read(
    name: str, options: dict[str, object], place: str, named: str
) -> None:
    path = recipe(domain={"name": name, "options": {**options, "flavour": "sweet"}})
    with pytest.raises(
        TrustError, match=rf"domain\.options\.{place}: {named} is code.*--allow-code"
    ):
        load_recipe(path)
    assert load_recipe(path, allow_code=True).code == [named]
    typed = load_recipe(path, [f"domain.options={json.dumps(options)}"])
    assert typed.code == [named]
    assert not Path("PWNED").exists()


def test_code_that_another_package_declares_works_where_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = recipe(domain={"name": "halls", "options": {"hooks": [{"by": "evil:part"}]}})
    assert call(monkeypatch, "train", path) == 2
    assert "domain.options.hooks.0.by: evil:part is code" in capsys.readouterr().err
    assert not Path("PWNED").exists()
    assert call(monkeypatch, "train", path, "loop.iterations=0", "--allow-code") == 0
    assert Path("PWNED").exists()


def test_a_secret_that_another_package_declares_is_asked_for_with_its_address() -> None:
    tutor = {"url": "http://stranger/v1", "token": "MY_SECRET"}
    path = recipe(domain={"name": "halls", "options": {"tutors": [tutor]}})
    said = r"domain\.options\.tutors\.0\.token: .* MY_SECRET would be sent to stranger"
    with pytest.raises(TrustError, match=said):
        load_recipe(path, allow_code=True)
    load_recipe(path, {"domain.options.tutors": [tutor]})


def test_a_file_that_another_package_declares_is_found_next_to_the_recipe() -> None:
    Path("book.txt").touch()
    options = {"book": "book.txt", "late": "book.txt"}
    loaded = load_recipe(recipe(domain={"name": "halls", "options": options}))
    assert loaded.domain.options == {**options, "book": str(Path("book.txt").resolve())}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sise": 3}, "domain.options.sise: unknown key, did you mean size? known here: book, "),
        ({"size": "big"}, "domain.options.size: input should be a valid integer (got 'big')"),
        ({"hooks": [{}]}, "domain.options.hooks.0.by: missing; add it"),
    ],
)
def test_options_that_another_package_does_not_take_are_named_with_the_remedy(
    options: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "train", recipe(domain={"name": "halls", "options": options})) == 2
    assert said in capsys.readouterr().err
