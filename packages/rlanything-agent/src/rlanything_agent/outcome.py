"""The outcome of an episode: the program's return value, or how its command ended."""

from __future__ import annotations

import contextlib
import math
import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rlanything.domains.rounding import as_good


class BadOutcome(ValueError):
    """A return value that is not an outcome; one line that ends with the remedy."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of rewards that a program promises, and the reward from which an episode is won."""

    lowest: float = 0.0
    highest: float = 1.0
    win_at: float = 1.0

    def outcome(self, value: Any) -> tuple[int, float | None]:
        """Returns the outcome (+1 or -1) and the reward; the reward is None for a plain yes or no.
        Raises `BadOutcome` for any other value."""
        if hasattr(value, "item"):  # scalars of numpy and torch; their arrays are refused
            with contextlib.suppress(Exception):
                value = value.item()
        if isinstance(value, bool):
            return (1 if value else -1), None
        promised = f"return True, False or a reward from {self.lowest:g} to {self.highest:g}"
        if not isinstance(value, numbers.Real | Decimal):
            raise BadOutcome(f"its agent returned {value!r:.80}: {promised}")
        try:
            reward = float(value)
        except (OverflowError, ValueError):
            raise BadOutcome(f"its agent returned a number out of range: {promised}") from None
        # Sums of floats, or single precision, can miss a bound by a little.
        for bound in (self.lowest, self.highest, self.win_at):
            reward = as_good(reward, bound)
        if math.isnan(reward) or not self.lowest <= reward <= self.highest:
            raise BadOutcome(
                f"its agent returned {reward:g}: {promised}, or set domain.options.reward_range"
            )
        return (1 if reward >= self.win_at else -1), reward


def last_line(printed: str) -> bool | float:
    """Returns the outcome in the last line of a program's output. Raises `BadOutcome`."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    if said.lower() in ("true", "false"):
        return said.lower() == "true"
    try:
        return float(said)
    except ValueError:
        raise BadOutcome(
            f"the last line that its agent printed is {said!r:.80}: print true, false or a reward "
            "there, or set domain.options.outcome=exit_code"
        ) from None
