"""The command that builds tiny models: its help, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.command import call

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [(["--domain", "text", "--role", "coach"], "coach"), (["--domain", "json:Nope"], "json:Nope")],
)
def test_nano_build_refuses_a_role_or_domain_that_there_is_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    options: list[str],
    wrong: str,
) -> None:
    arguments = [*options, "--out", str(tmp_path / "models")]
    assert call(monkeypatch, "nano", "build", *arguments) == 2
    assert wrong in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_its_help_says_how_it_is_used(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert call(monkeypatch, "nano", "build", "--help") == 0
    assert "Usage" in capsys.readouterr().out


def test_a_group_without_arguments_is_answered_with_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "nano") == 2
    out, err = capsys.readouterr()
    assert "Usage" in out
    assert err == ""
