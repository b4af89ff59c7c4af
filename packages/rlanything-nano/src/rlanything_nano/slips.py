"""The slip rate of a domain's demonstrator, if its plan does not set one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.records import Trajectory

SLIPS = (0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Slip rates to try if a plan sets none."""
TRIALS = 96
"""Number of games for each rate; the games are the same."""
KEPT = 2 / 3
"""Share of the expert's own success that a demonstrator must keep."""


def find_slip(demonstrated: Callable[[float], Sequence[Trajectory]], progress: Progress) -> float:
    """Returns the highest slip rate at which the expert keeps most of its success. `demonstrated`:
    plays the same games with a slip rate. Raises `DomainError` if the expert wins none of them."""
    won: dict[float, float] = {}
    for slip in SLIPS:
        played = demonstrated(slip)
        won[slip] = sum(t.outcome == 1 for t in played) / max(len(played), 1)
    if not won[0.0]:
        raise DomainError(
            f"the expert wins none of {TRIALS} games: nothing can be learned from it; fix "
            "`expert`, or give the plan more max_steps"
        )
    slip = max(slip for slip, share in won.items() if share >= KEPT * won[0.0])
    progress.log(
        f"the expert wins {won[0.0]:.0%} of its games; it demonstrates with slips in "
        f"{slip:.0%} of its actions, and wins {won[slip]:.0%}"
    )
    return slip
