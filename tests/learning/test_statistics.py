"""Statistics of an update: what was skipped does not spoil the means of the rest."""

from __future__ import annotations

import math

import torch

from helpers.tiny import sample_of
from rlanything.algorithm.losses import LossConfig, LossInputs
from rlanything.learning.padding import pad
from rlanything.learning.statistics import Totals


def add(totals: Totals, new: torch.Tensor) -> None:
    """Adds a pass over one sample whose old log-probs are -1."""
    old = torch.full_like(new, -1.0)
    samples = torch.zeros(len(new)).long()
    outputs = LossConfig().function(LossInputs(new, old, torch.ones(len(new)), samples, 1, 0.01))
    totals.mismatch.add(new, old)
    [batch] = pad([sample_of([5], [6] * len(new))], 64)
    totals.add(batch, outputs.loss.mean(), outputs, -new)


def test_what_nothing_was_measured_on_is_no_number():
    nothing, skipped = Totals(), Totals()
    add(skipped, torch.tensor([math.nan, -0.5]))
    skipped.skip_update()
    for totals in (nothing, skipped):
        statistics = totals.statistics()
        names = ("ratio_mean", "ratio_max", "clip_share", "kl", "entropy", "loss", "grad_norm")
        assert {statistics[name] for name in names} == {None}
        assert statistics["updates"] == statistics["chosen_tokens"] == 0
    mismatch = nothing.statistics()
    assert {value for name, value in mismatch.items() if name.startswith("mismatch")} == {None}


def test_a_skipped_update_leaves_the_means_of_the_others_as_they_were():
    alone, beside = Totals(), Totals()
    for totals in (alone, beside):
        add(totals, torch.tensor([-1.1, -0.9]))
        totals.end_of_update(1.0)
    add(beside, torch.tensor([math.nan, -0.5]))
    beside.skip_update()
    expected, statistics = alone.statistics(), beside.statistics()
    assert statistics["skipped_updates"] == 1
    assert all(math.isfinite(value or 0) for value in statistics.values())
    for name in ("ratio_mean", "ratio_max", "clip_share", "kl", "entropy", "loss"):
        assert statistics[name] == expected[name]
