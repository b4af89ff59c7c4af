"""The learner's interface, as far as the loop knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from rlanything.records import Sample

Statistics: TypeAlias = Mapping[str, float | None]
"""Of an update, under the names of docs/metrics.md; None: there was nothing to measure it on."""


class Updates(Protocol):
    """A learner: moves the weights of one model."""

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> Statistics:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        `on_samples`: called with each number of samples that are done, for a progress bar."""
        ...
