"""The command line, called in this process."""

from __future__ import annotations

import sys

import pytest

from rlanything.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["rlanything", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
