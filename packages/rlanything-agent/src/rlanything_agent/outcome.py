"""The outcome of an episode: what the program returned, or how its command ended."""

from __future__ import annotations

import contextlib
import math
import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rlanything.domains.winning import as_good


class BadOutcome(ValueError):
    """A program returned what is no outcome; one line that ends with the remedy."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The rewards that a program promises, and where winning begins."""

    lowest: float = 0.0
    highest: float = 1.0
    win_at: float = 1.0

    def outcome(self, value: Any) -> tuple[int, float | None]:
        """Returns the outcome (+1 or -1), and the reward; None for a plain yes or no. Raises
        `BadOutcome` for what is neither."""
        if hasattr(value, "item"):  # numpy's and torch's numbers; of arrays of them it is refused
            with contextlib.suppress(Exception):
                value = value.item()
        if isinstance(value, bool):
            return (1 if value else -1), None
        promised = f"return True, False or a reward from {self.lowest:g} to {self.highest:g}"
        if not isinstance(value, numbers.Real | Decimal):
            raise BadOutcome(f"its agent returned {value!r:.80}: {promised}")
        reward = float(value)
        # Parts that add up to a bound, or single precision, miss it by a little.
        for bound in (self.lowest, self.highest, self.win_at):
            reward = as_good(reward, bound)
        if math.isnan(reward) or not self.lowest <= reward <= self.highest:
            raise BadOutcome(
                f"its agent returned {reward:g}: {promised}, or set domain.options.reward_range"
            )
        return (1 if reward >= self.win_at else -1), reward


def last_line(printed: str) -> bool | float:
    """Returns the outcome that the last line of a program's output says. Raises `BadOutcome`."""
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
