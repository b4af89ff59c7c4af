"""Packs: every sample is in there whole, sees itself only, and little is computed twice."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.tiny import sample_of
from rlanything.engines.hf.attention import visible
from rlanything.learning.packing import Pack, pack
from rlanything.records import Sample

few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=7)
sample_lists = st.lists(
    st.tuples(few_tokens, few_tokens).map(lambda pair: sample_of(*pair)), min_size=1, max_size=12
)
limits = st.integers(1, 30)


def beginnings(samples: list[Sample] | tuple[Sample, ...]) -> set[tuple[int, ...]]:
    """What a trie of the samples has nodes for."""
    tokens = [sample.completion.tokens for sample in samples]
    return {each[:end] for each in tokens for end in range(1, len(each) + 1)}


def one_pack(samples: list[Sample]) -> Pack:
    [only] = pack(samples, 10_000)
    return only


@given(sample_lists, limits)
def test_every_samples_path_spells_its_tokens_at_their_depths(samples, limit):
    for part in pack(samples, limit):
        for sample, path in zip(part.samples, part.paths, strict=True):
            assert tuple(part.ids[path]) == sample.completion.tokens
            assert part.positions[path].tolist() == list(range(len(path)))


@given(sample_lists, limits)
def test_no_sample_is_dropped_or_doubled_whatever_the_limit(samples, limit):
    packed = [id(sample) for part in pack(samples, limit) for sample in part.samples]
    assert sorted(packed) == sorted(id(sample) for sample in samples)


@given(sample_lists, limits)
def test_only_a_pack_with_a_longer_sample_may_exceed_the_limit_by_a_quarter_more(samples, limit):
    for part in pack(samples, limit):
        first = len(part.samples[0].completion.tokens)
        assert part.computed_tokens <= (limit if first <= limit else first + limit // 4)


@given(sample_lists)
def test_every_distinct_beginning_is_computed_once(samples):
    part = one_pack(samples)
    assert part.computed_tokens == len(part.ids) == len(part.positions) == len(part.ends)
    assert part.computed_tokens == len(beginnings(samples))


@given(sample_lists, limits)
def test_a_node_sees_those_on_its_path_up_to_itself_and_no_others(samples, limit):
    for part in pack(samples, limit):
        nodes = np.arange(part.computed_tokens)
        expected = np.zeros((len(nodes), len(nodes)), dtype=bool)
        for path in part.paths:
            for depth, node in enumerate(path):
                expected[node, path[: depth + 1]] = True
        np.testing.assert_array_equal(visible(part.ends, nodes, nodes), expected)


@given(sample_lists, limits)
def test_no_other_cut_between_leaves_computes_fewer_tokens_or_as_many_in_fewer_packs(
    samples, limit
):
    ordered = sorted(samples, key=lambda sample: sample.completion.tokens, reverse=True)
    possible: list[tuple[int, int]] = []
    for count in range(len(ordered)):
        for inner in combinations(range(1, len(ordered)), count):
            parts = [ordered[a:b] for a, b in pairwise([0, *inner, len(ordered)])]
            sizes = [len(beginnings(part)) for part in parts]
            first = [len(part[0].completion.tokens) for part in parts]
            allowed = [limit if size <= limit else size + limit // 4 for size in first]
            if all(n <= m for n, m in zip(sizes, allowed, strict=True)):
                possible.append((sum(sizes), len(parts)))
    found = pack(samples, limit)
    assert (sum(part.computed_tokens for part in found), len(found)) == min(possible)


def test_a_prompt_with_several_responses_costs_its_length_once():
    samples = [sample_of(range(50), [60 + i, 99]) for i in range(4)]
    part = one_pack(samples)
    assert part.computed_tokens == 50 + 4 * 2
    assert sum(len(path) for path in part.paths) == 4 * 52


def test_a_continued_conversation_costs_only_what_is_new():
    first = sample_of([1, 2, 3], [4, 5])
    second = sample_of([1, 2, 3, 4, 5, 6], [7])
    assert one_pack([first, second]).computed_tokens == 7


def test_a_trie_is_cut_where_its_branches_have_least_in_common():
    # Three pairs: within each six tokens are shared, between the pairs one, or none.
    stems = [[1, *[2] * 5], [1, *[3] * 5], [4] * 6]
    samples = [sample_of(stem, [7 + i]) for stem in stems for i in range(2)]
    found = pack(samples, 14)
    assert [len(part.samples) for part in found] == [2, 2, 2]
    assert sum(part.computed_tokens for part in found) == 3 * 8
    assert [len(part.samples) for part in pack(samples, 15)] == [2, 4]


def test_a_sample_longer_than_the_limit_gets_a_pack_of_its_own():
    samples = [sample_of([1], [2]), sample_of(range(10, 30), [5]), sample_of([1], [3])]
    assert [part.computed_tokens for part in pack(samples, 8)] == [21, 3]


def test_long_prompts_share_their_judgements_all_the_same():
    samples = [sample_of(range(100), [200 + i, 9]) for i in range(3)]
    assert [part.computed_tokens for part in pack(samples, 40)] == [106]


def test_the_order_of_samples_changes_nothing():
    samples = [sample_of([1, i % 3], [i]) for i in range(9)]
    one, other = one_pack(samples), one_pack(samples[::-1])
    np.testing.assert_array_equal(one.ids, other.ids)


def test_no_samples_make_no_packs():
    assert pack([], 8) == []
