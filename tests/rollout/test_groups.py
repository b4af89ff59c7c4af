"""From experience to samples."""

from __future__ import annotations

from helpers.scripted import judged
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.signals import task_signals
from rlanything.records import Completion, Sample, Task
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, shuffled

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


def test_an_accuracy_at_the_bound_is_none_beyond_it_where_rollouts_are_missing():
    members = tuple(judged(str(i), [(1,)], 1 if i < 12 else -1) for i in range(47))
    signals = task_signals(
        [each.trajectory.outcome for each in members],
        [each.scores for each in members],
        FeedbackSettings(),
    )
    scheduled = ScheduledTask("s", Task("s", ""), False)
    group = RolloutGroup(scheduled, members, signals.accuracy, signals, unplayable=13)
    assert group.bounds == (12 / 60, 25 / 60)
    assert group.direction(0.2, 0.8) is None


def test_nothing_can_be_shuffled():
    assert shuffled([], 0) == []
