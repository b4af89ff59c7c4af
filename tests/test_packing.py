"""Packs: every sample is in there whole, and sees itself only."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlanything.learning.packing import Pack, pack
from rlanything.records import Sample
from tiny import sample_of

few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=7)
sample_lists = st.lists(
    st.tuples(few_tokens, few_tokens).map(lambda pair: sample_of(*pair)), min_size=1, max_size=12
)


def tokens_of(sample: Sample) -> tuple[int, ...]:
    return (*sample.completion.prompt_ids, *sample.completion.token_ids)


def one_pack(samples: list[Sample]) -> Pack:
    [only] = pack(samples, 10_000)
    return only


@given(sample_lists, st.integers(1, 30))
def test_every_samples_path_spells_its_tokens_from_a_root_down(samples, limit):
    for part in pack(samples, limit):
        for sample, path in zip(part.samples, part.paths, strict=True):
            assert tuple(part.ids[node] for node in path) == tokens_of(sample)
            assert [part.parents[node] for node in path] == [-1, *path[:-1]]


@given(sample_lists, st.integers(1, 30))
def test_no_sample_is_dropped_doubled_or_moved_whatever_the_limit(samples, limit):
    packed = [sample for part in pack(samples, limit) for sample in part.samples]
    assert len(packed) == len(samples)
    assert all(a is b for a, b in zip(packed, samples, strict=True))


@given(sample_lists, st.integers(1, 30))
def test_only_a_pack_of_one_may_exceed_the_limit(samples, limit):
    for part in pack(samples, limit):
        distinct = {tokens_of(sample) for sample in part.samples}
        assert len(part) <= limit or len(distinct) == 1


@given(sample_lists)
def test_every_distinct_beginning_is_computed_once(samples):
    part = one_pack(samples)
    beginnings = {
        tokens_of(sample)[:end]
        for sample in samples
        for end in range(1, len(tokens_of(sample)) + 1)
    }
    assert len(part) == len(part.ids) == len(part.parents) == len(beginnings)


@given(sample_lists, few_tokens)
def test_the_cost_of_a_sample_is_known_before_it_is_added(samples, tokens):
    part = one_pack(samples)
    cost, before = part.new_nodes(tokens), len(part)
    part.add(sample_of(tokens[:1], tokens[1:]))
    assert len(part) - before == cost


@given(sample_lists)
def test_positions_are_depths(samples):
    part = one_pack(samples)
    positions = part.positions()
    for path in part.paths:
        assert positions[path].tolist() == list(range(len(path)))


@given(sample_lists)
def test_the_mask_is_the_ancestor_relation(samples):
    part = one_pack(samples)
    expected = np.zeros((len(part), len(part)), dtype=bool)
    for node in range(len(part)):
        ancestor = node
        while ancestor != -1:
            expected[node, ancestor] = True
            ancestor = part.parents[ancestor]
    np.testing.assert_array_equal(part.mask(), expected)


def test_a_prompt_with_several_responses_costs_its_length_once():
    samples = [sample_of(range(50), [60 + i, 99]) for i in range(4)]
    part = one_pack(samples)
    assert len(part) == 50 + 4 * 2
    assert sum(len(path) for path in part.paths) == 4 * 52


def test_a_continued_conversation_costs_only_what_is_new():
    first = sample_of([1, 2, 3], [4, 5])
    second = sample_of([1, 2, 3, 4, 5, 6], [7])
    assert len(one_pack([first, second])) == 7


def test_a_sample_longer_than_the_limit_gets_a_pack_of_its_own():
    samples = [sample_of([1], [2]), sample_of(range(10, 30), [5]), sample_of([1], [3])]
    assert [len(part) for part in pack(samples, 8)] == [2, 21, 2]


def test_no_samples_make_no_packs():
    assert list(pack([], 8)) == []
