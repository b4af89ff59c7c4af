"""Intervals where two things vary independently: seeds of training, and items measured.

Every seed of an arm is measured on the same items: held-out tasks, or episodes and tasks of the
judge's evaluation. So the bootstrap is crossed (Owen 2007, the pigeonhole bootstrap): each resample
draws seeds with replacement and, apart from that, items with replacement, the same ones for all its
seeds. What is compared is resampled together: a difference is taken within each resample, between
the same seeds on the same items.

With few seeds the interval is on the narrow side: drawing n from n understates what they vary by
(n - 1) / n in variance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.intervals import Interval, percentile_interval

Floats: TypeAlias = npt.NDArray[np.float64]
Hits: TypeAlias = Sequence[tuple[int, int]]
"""Hits of one item, and of how many, by kind."""
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Counted:
    """Hits and totals [seeds, items, kinds] of one measure. Its value is the mean over seeds of the
    mean over kinds of hits as a share of totals, both summed over items."""

    hits: Floats
    totals: Floats


def counted(by_seed: Sequence[Mapping[str, Hits]], items: Sequence[str], kinds: int) -> Counted:
    """Returns the table of each seed's items; one that a seed lacks counts as nothing there."""
    nothing = [(0, 0)] * kinds
    table = np.array(
        [[seed.get(item, nothing) for item in items] for seed in by_seed], dtype=np.float64
    ).reshape(len(by_seed), len(items), kinds, 2)
    return Counted(table[..., 0], table[..., 1])


def crossed_mean(measured: Counted) -> Interval | None:
    """Returns the measure's value with its interval; None where nothing was counted."""
    return _interval(lambda seeds, items: _values(measured, seeds, items), measured)


def crossed_difference(before: Counted, after: Counted) -> Interval | None:
    """Returns after minus before, for the same seeds and items in the same order; None where
    nothing was counted. Raises ValueError where the shapes differ."""
    if before.hits.shape != after.hits.shape:
        raise ValueError(f"cannot pair {before.hits.shape} with {after.hits.shape}")
    return _interval(
        lambda seeds, items: _values(after, seeds, items) - _values(before, seeds, items), before
    )


def _interval(value: Callable[[Floats, Floats], Floats], measured: Counted) -> Interval | None:
    seeds, items, _ = measured.hits.shape
    if not seeds or not items:
        return None
    [estimate] = value(np.ones((1, seeds)), np.ones((1, items)))
    if np.isnan(estimate):
        return None
    resampled = value(*_draws(seeds, items))
    return percentile_interval(float(estimate), resampled[~np.isnan(resampled)])


@lru_cache(maxsize=8)
def _draws(seeds: int, items: int) -> tuple[Floats, Floats]:
    """Returns how often each resample has each seed [resamples, seeds] and each item [resamples,
    items]."""
    rng = np.random.default_rng(0)

    def draw(count: int) -> Floats:
        return rng.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)

    return draw(seeds), draw(items)


def _values(measured: Counted, seeds: Floats, items: Floats) -> Floats:
    """Returns the value of each resample [resamples], NaN where it has nothing to count."""
    hits, totals = (np.tensordot(items, each, (1, 1)) for each in (measured.hits, measured.totals))
    with np.errstate(invalid="ignore"):
        shares = (hits / totals).mean(axis=2)
        known = ~np.isnan(shares)
        weights = seeds * known
        return (np.where(known, shares, 0.0) * weights).sum(axis=1) / weights.sum(axis=1)
