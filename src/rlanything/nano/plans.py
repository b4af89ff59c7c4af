"""How the models of each domain are made: a plan, and the builder that follows it."""

from __future__ import annotations

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
    if domain in EPISODES:
        plan = replace(EPISODES[domain], seed=seed)
        return episodes.Builder(plan, out, workers, view).build()
    if domain in PROGRAMS:
        plan = replace(PROGRAMS[domain], seed=seed)
        return programs.Builder(plan, out, workers, view).build()
    known = ", ".join([*EPISODES, *PROGRAMS])
    raise DomainError(f"no tiny models are planned for domain {domain!r}: use one of {known}")
