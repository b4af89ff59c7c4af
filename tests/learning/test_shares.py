"""Work in minibatches, and shared among seats."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.tiny import sample_of
from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.shares import Pass, arrange, minibatches, share
from rlanything.records import Sample

task_sizes = st.lists(st.integers(1, 6), min_size=1, max_size=10)


def batch_samples(sizes: Sequence[int]) -> list[tuple[str, Sample]]:
    """Samples of several tasks, dealt in turn so that no task's stand together."""
    rounds = range(max(sizes))
    return [
        (f"task {task}", sample_of([task], [number], source=f"{task}/{number}"))
        for number in rounds
        for task, size in enumerate(sizes)
        if number < size
    ]


@given(task_sizes, st.integers(1, 6), st.integers(0, 1000))
def test_minibatches_keep_tasks_whole_and_samples_in_order(sizes, count, seed):
    samples = batch_samples(sizes)
    batches = minibatches(samples, count, seed)
    assert len(batches) == min(count, len(sizes))
    assert all(batches)
    runs: list[list[str]] = []
    for batch in batches:
        for sample in batch:
            task, _ = sample.source.split("/")
            if runs and runs[-1][0].split("/")[0] == task and runs[-1][-1] != sample.source:
                runs[-1].append(sample.source)
            else:
                runs.append([sample.source])
    assert sorted(runs) == sorted(
        [f"{task}/{number}" for number in range(size)] for task, size in enumerate(sizes)
    )


@given(task_sizes, st.integers(1, 6), st.integers(0, 1000))
def test_minibatches_differ_by_at_most_the_largest_task(sizes, count, seed):
    lengths = [len(batch) for batch in minibatches(batch_samples(sizes), count, seed)]
    assert max(lengths) - min(lengths) <= max(sizes)


def test_minibatches_are_shuffled_by_their_seed_only():
    samples = batch_samples([2] * 12)

    def drawn(seed: int) -> list[list[str]]:
        return [[sample.source for sample in batch] for batch in minibatches(samples, 3, seed)]

    assert drawn(1) == drawn(1)
    assert len({str(drawn(seed)) for seed in range(10)}) == 10


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=25)
packings = st.sampled_from(("shared", "padded"))


@given(lengths, packings, st.integers(1, 5), st.integers(1, 3))
def test_seats_share_every_pass_once_and_have_equally_many(
    lengths: list[int], packing: str, seats: int, updates: int
) -> None:
    samples = [
        (f"t{i % 4}", sample_of([i + 5], [7] * length, source=f"{i}/0"))
        for i, length in enumerate(lengths)
    ]
    settings = TrainedRoleConfig.model_validate(
        {"packing": packing, "max_pack_tokens": 30, "minibatches": updates}
    )
    work = arrange(samples, settings, seed=1)
    shares = share(work, seats)
    assert len(shares) == seats
    assert share(work, 1) == [work]
    for number, minibatch in enumerate(work):
        own = [mine[number] for mine in shares]
        assert len({len(passes) for passes in own}) == 1
        counted = [[id(each) for each in passes if each.counts] for passes in own]
        assert sorted(chain.from_iterable(counted)) == sorted(map(id, minibatch))
        order = {id(each): place for place, each in enumerate(minibatch)}
        assert all(places == sorted(places, key=order.__getitem__) for places in counted)
        sizes = [each.batch.computed_tokens for each in minibatch]
        fillers = [each for passes in own for each in passes if not each.counts]
        assert all(each.batch.computed_tokens == min(sizes) for each in fillers)
        # Longest first is within 4/3 of the best, and no sharing is better than these two.
        loads = [sum(each.batch.computed_tokens for each in ps if each.counts) for ps in own]
        best = max(max(sizes), sum(sizes) / seats)
        assert max(loads) <= best + max(sizes) * (seats - 1) / seats


def test_one_seat_has_todays_order_and_a_minibatch_counts_all_its_samples() -> None:
    samples = batch_samples([3, 2, 4])
    settings = TrainedRoleConfig(max_pack_tokens=4, minibatches=2)
    [work] = share(arrange(samples, settings, seed=3), 1)
    parts = minibatches(samples, 2, seed=3)
    for passes, part in zip(work, parts, strict=True):
        assert {each.mean_over for each in passes} == {len(part)}
        assert sum(len(each.batch.samples) for each in passes) == len(part)


def test_a_share_travels_to_another_process() -> None:
    work = arrange(batch_samples([3, 2]), TrainedRoleConfig(), seed=0)
    [[[sent]]] = pickle.loads(pickle.dumps(share(work, 1)))
    [[each]] = work
    assert isinstance(sent, Pass)
    assert sent.mean_over == each.mean_over
    assert sent.batch.samples == each.batch.samples


def test_nothing_to_do_is_nothing_for_every_seat() -> None:
    assert share(arrange([], TrainedRoleConfig(), seed=0), 3) == [[], [], []]


def test_samples_that_carry_nothing_are_refused() -> None:
    without = [("t", Sample("a/0", sample_of([1], [2]).completion, 0.0))]
    with pytest.raises(ValueError, match="advantage 0"):
        arrange(without, TrainedRoleConfig(), seed=0)
