"""Tests with the public SDK as the client of a service that computes for real; they are skipped
without the SDK."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("tinker") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def serving() -> Iterator[Any]:
    """A service with the models of `examples/guess.py`, and its URL."""
    from helpers.tinker_service import KEY, tinker_service
    from rlanything.engines.shipped import NAMES

    models = {f"tiny/guess-{role}": NAMES["nano-guess"] / role for role in ("policy", "judge")}
    with pytest.MonkeyPatch.context() as patch, tinker_service(models) as (service, url):
        patch.setenv("TINKER_API_KEY", KEY)
        patch.setenv("TINKER_TELEMETRY", "0")
        yield service, url
