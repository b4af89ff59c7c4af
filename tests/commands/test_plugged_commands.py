"""Commands are plug-ins: those of other packages are as good as the built-in ones."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from typing import Protocol

import pytest
import typer

from helpers.command import call
from helpers.paths import PACKAGES, ROOT
from rlanything import plugins
from rlanything.commands.registry import ELSEWHERE
from rlanything.domains.base import DomainError

BUILT_IN = ["train", "resume", "eval", "recipes", "report", "tasks", "export", "new"]
BUILT_IN += ["doctor"]


def greet(name: str = "world", times: int = 1) -> None:
    """Say hello to somebody."""
    if times < 1:
        raise GreetingError("--times must be at least 1: give 1 or more")
    typer.echo(f"hello {name} " * times)


several = typer.Typer(no_args_is_help=True, help="Greetings in groups.")
several.command("greet")(greet)


class GreetingError(DomainError):
    """Another package's error that derives from one of this package."""


def stumble() -> None:
    """Fail for a reason that no user can mend."""
    raise ValueError("a fault of the program")


class Plug(Protocol):
    def __call__(self, **commands: str) -> None: ...


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    """Adds commands, name to `module:name`, to those that are installed."""
    real = plugins.entry_points

    def add(**commands: str) -> None:
        added = [EntryPoint(name, path, "rlanything.commands") for name, path in commands.items()]

        def entries(group: str) -> EntryPoints:
            return EntryPoints([*real(group=group), *EntryPoints(added).select(group=group)])

        monkeypatch.setattr(plugins, "entry_points", entries)

    return add


Captured = pytest.CaptureFixture[str]


def listed(text: str) -> list[str]:
    """The names in the box of commands."""
    lines = text.split(" Commands ")[1].splitlines()[1:]
    return [line.split()[1] for line in lines if line.startswith("│ ") and line[2] != " "]


def test_help_lists_the_commands_as_users_meet_them_and_then_those_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, plug: Plug
) -> None:
    plug(zebra=f"{__name__}:greet", greet=f"{__name__}:greet", groups=f"{__name__}:several")
    assert call(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    shown = listed(printed)
    assert [name for name in shown if name in BUILT_IN] == BUILT_IN
    others = shown[len(BUILT_IN) :]
    assert others == sorted(others)
    assert {"greet", "groups", "zebra"} <= set(others)
    assert "Say hello to somebody." in printed
    assert "Greetings in groups." in printed


def test_a_command_of_another_package_runs_alone_or_in_a_group(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, plug: Plug
) -> None:
    plug(greet=f"{__name__}:greet", groups=f"{__name__}:several")
    assert call(monkeypatch, "greet", "--name", "you") == 0
    assert call(monkeypatch, "groups", "greet", "--name", "all") == 0
    assert capsys.readouterr().out.split() == ["hello", "you", "hello", "all"]
    assert call(monkeypatch, "groups", "[/x]") == 2
    assert capsys.readouterr().err.startswith("error: No such command '[/x]'; `")
    assert call(monkeypatch, "groups") == 2
    out, err = capsys.readouterr()
    assert "Usage" in out
    assert err == ""


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_toys.play:play", "command broken needs the module no_such_toys: install"),
        (f"{__name__}:nowhere", "command broken cannot be imported"),
        (f"{__name__}:BUILT_IN", "command broken cannot be used"),
    ],
)
def test_a_command_that_cannot_be_imported_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, plug: Plug, path: str, reason: str
) -> None:
    plug(broken=path)
    monkeypatch.setenv("COLUMNS", "300")
    assert call(monkeypatch, "--help") == 0
    assert f"Not available: {reason}" in capsys.readouterr().out
    assert call(monkeypatch, "--version") == 0
    assert call(monkeypatch, "broken", "one", "--two", "3") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {reason}")


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert call(monkeypatch, f"{__name__}:greet") == 2
    assert "No such command" in capsys.readouterr().err


def test_a_command_of_a_package_that_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    commands: dict[str, str] = {}
    for path in PACKAGES.glob("*/pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        [extra] = [name for name, needs in extras.items() if needs == [project["name"]]] or [""]
        if names := project.get("entry-points", {}).get("rlanything.commands"):
            commands[extra] = " ".join(sorted(names))
    assert commands == ELSEWHERE
    bare = EntryPoints([EntryPoint("train", "rlanything.commands.train:train", "any")])
    monkeypatch.setattr(plugins, "entry_points", lambda group: bare)
    assert call(monkeypatch, "watch", "runs/mine") == 2
    assert capsys.readouterr().err == (
        "error: command watch is in a package of its own: pip install 'rlanything[watch]' "
        "(in a checkout: pip install packages/rlanything-watch)\n"
    )


def test_an_installation_that_is_older_than_its_commands_is_told_to_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([]))
    assert call(monkeypatch, "train", "guess") == 2
    assert capsys.readouterr().err.startswith(
        "error: no commands are registered: run `pip install`"
    )


def test_errors_that_derive_from_the_packages_own_are_one_line_and_others_are_raised(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, plug: Plug
) -> None:
    plug(greet=f"{__name__}:greet", stumble=f"{__name__}:stumble")
    assert call(monkeypatch, "greet", "--times", "0") == 2
    assert capsys.readouterr().err == "error: --times must be at least 1: give 1 or more\n"
    with pytest.raises(ValueError, match="a fault of the program"):
        call(monkeypatch, "stumble")


def test_help_imports_neither_torch_nor_what_commands_do() -> None:
    code = (
        "import sys; from rlanything.cli import app; app(['--help'], standalone_mode=False); "
        "heavy = {'torch', 'transformers', 'pydantic', 'numpy'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stderr, result.returncode) == ("", 0)
    assert "doctor" in result.stdout


def test_the_package_runs_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "rlanything", "--version"], capture_output=True, text=True
    )
    assert result.stdout.startswith("rlanything ")
