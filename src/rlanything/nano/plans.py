"""How the models of each domain are made: a plan, and the builder that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.nano import episodes, programs
from rlanything.nano.making import ROLES, RoleName
from rlanything.progress import Progress

EPISODES = {
    "alfworld": episodes.Plan(),
    "miniwob": episodes.Plan(
        domain="miniwob",
        options={},
        decoding="free",
        response_tokens=48,
        judgement_tokens=48,
        max_steps=10,
        games=8000,
        demonstrations_per_game=1,
        together=3,
        copying_updates=4000,
        policy_epochs=3,
        spaces_apart=True,
        slip=0.2,
        judged_games=1500,
        label_noise=0.15,
        adapter_games=2000,
    ),
}
PROGRAMS = {"coding": programs.Plan()}


def build(
    domain: str,
    seed: int,
    out: Path,
    workers: int,
    progress: Progress,
    roles: Sequence[RoleName] = ROLES,
) -> dict[str, Any]:
    """What was measured. `roles`: those to make; the others are read from the folder. Raises
    `DomainError` for a domain without a plan."""
    if domain in EPISODES:
        plan = replace(EPISODES[domain], seed=seed)
        return episodes.Builder(plan, out, workers, progress).build(roles)
    if domain in PROGRAMS:
        plan = replace(PROGRAMS[domain], seed=seed)
        return programs.Builder(plan, out, workers, progress).build(roles)
    known = ", ".join([*EPISODES, *PROGRAMS])
    raise DomainError(f"no tiny models are planned for domain {domain!r}: use one of {known}")
