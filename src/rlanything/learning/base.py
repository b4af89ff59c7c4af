"""The learner's interface, as far as the loop knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rlanything.records import Sample


class Updates(Protocol):
    """A learner: moves the weights of one model."""

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        `on_samples`: called with each number of samples that are done, for a progress bar."""
        ...
