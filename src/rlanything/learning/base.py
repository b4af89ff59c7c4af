"""The learner's interface, as far as the loop knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from rlanything.records import Sample

Statistics: TypeAlias = Mapping[str, float | None]
"""Statistics of an update by their names in docs/metrics.md; None if there was nothing to
measure."""


class Updates(Protocol):
    """A learner: updates the weights of one model."""

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> Statistics:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        `on_samples`: called with each number of finished samples, for a progress bar."""
        ...
