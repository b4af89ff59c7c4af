"""From experience to samples."""

from __future__ import annotations

from rlanything.records import Completion, Sample
from rlanything.rollout.groups import shuffled

SAMPLES = [
    (f"t{i % 3}", Sample(f"s{i}", Completion.unsampled(str(i)), float(i + 1))) for i in range(30)
]


def test_shuffling_deals_the_same_advantages_to_other_samples_by_seed():
    dealt = shuffled(SAMPLES, 0)
    before, after = ([s.advantage for _, s in samples] for samples in (SAMPLES, dealt))
    assert sorted(after) == before != after
    assert [(t, s.source, s.completion) for t, s in dealt] == [
        (t, s.source, s.completion) for t, s in SAMPLES
    ]
    assert shuffled(SAMPLES, 0) == dealt != shuffled(SAMPLES, 1)


def test_nothing_can_be_shuffled():
    assert shuffled([], 0) == []
