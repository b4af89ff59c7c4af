"""How the models of each domain are made: a plan, and the builder that follows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlanything.environments.base import DomainError
from rlanything.nano import episodes, programs
from rlanything.view import View

EPISODES = {
    "alfworld": episodes.Plan(),
    "miniwob": episodes.Plan(
        domain="miniwob",
        options={},
        decoding="free",
        response_tokens=48,
        judgement_tokens=48,
        max_steps=8,
        games=6000,
        demonstrations_per_game=1,
    ),
}
PROGRAMS = {"coding": programs.Plan()}


def build(domain: str, seed: int, out: Path, workers: int, view: View) -> dict[str, Any]:
    """What was measured. Raises `DomainError` for a domain without a plan."""
    make: Callable[[], dict[str, Any]]
    if domain in EPISODES:
        make = episodes.Builder(replace(EPISODES[domain], seed=seed), out, workers, view).build
    elif domain in PROGRAMS:
        make = programs.Builder(replace(PROGRAMS[domain], seed=seed), out, workers, view).build
    else:
        known = ", ".join([*EPISODES, *PROGRAMS])
        raise DomainError(f"no tiny models are planned for domain {domain!r}: use one of {known}")
    return make()
