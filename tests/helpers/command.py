"""The command line, called in this process."""

from __future__ import annotations

import sys

import pytest

from rlanything.cli import main
from rlanything.terminal import visible


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["rlanything", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    """Runs a command that must be refused; its one line of error."""
    assert call(monkeypatch, *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """Everything that was printed, which has no control sequences."""
    out, err = capsys.readouterr()
    assert visible(out + err) == out + err
    return out + err
