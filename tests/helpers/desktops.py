"""Desktops for tests, where this machine can make them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlanything_osworld.desktop import Desktop, DesktopUnavailable
from rlanything_osworld.packages import APPLICATIONS, DESKTOP, missing
from rlanything_osworld.watchdog import DesktopLimits

LACKING = missing(DESKTOP)
WITHOUT_DESKTOP = pytest.mark.skipif(
    bool(LACKING), reason=f"a desktop needs packages that are not here: {', '.join(LACKING)}"
)


def needs_application(name: str) -> pytest.MarkDecorator:
    """Returns the mark that skips a test where a Debian package is not installed."""
    lacking = missing({name: APPLICATIONS[name]})
    return pytest.mark.skipif(bool(lacking), reason=f"{name} is not installed")


@contextmanager
def desktop(limits: DesktopLimits | None = None) -> Iterator[Desktop]:
    """Yields a started desktop; skips the test where the kernel forbids it."""
    started = Desktop(limits=limits)
    try:
        try:
            started.ready()
        except DesktopUnavailable as reason:
            pytest.skip(str(reason))
        yield started
    finally:
        started.close()


def said(machine: Desktop, command: str, seconds: float = 30.0) -> str:
    """Returns what a shell command prints, both streams; "(late)" where it takes too long."""
    body = {"command": f"({command}) 2>&1", "shell": True, "timeout": seconds}
    return json.loads(machine.request("POST", "/execute", body, seconds + 30))["output"]
