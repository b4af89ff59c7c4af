"""Rows: every sample is computed alone, with little padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers.tiny import sample_of
from rlanything.learning.padding import pad

few_tokens = st.lists(st.integers(0, 9), min_size=1, max_size=9)
sample_lists = st.lists(
    st.tuples(few_tokens, few_tokens).map(lambda pair: sample_of(*pair)), min_size=1, max_size=20
)
limits = st.integers(1, 60)


@given(sample_lists, limits)
def test_every_sample_stands_in_a_row_of_its_own(samples, limit):
    rows = pad(samples, limit)
    placed = [id(sample) for each in rows for sample in each.samples]
    assert sorted(placed) == sorted(id(sample) for sample in samples)
    for each in rows:
        for line, (sample, path) in enumerate(zip(each.samples, each.paths, strict=True)):
            assert tuple(each.ids.flat[path]) == sample.completion.tokens
            assert set(path // each.ids.shape[1]) == {line}


@given(sample_lists, limits)
def test_only_one_sample_alone_may_exceed_the_limit(samples, limit):
    for each in pad(samples, limit):
        assert each.computed_tokens <= limit or len(each.samples) == 1


def test_samples_of_one_length_are_not_padded():
    long, short = [sample_of([1] * 8, [i]) for i in range(3)], sample_of([1], [2])
    assert [each.computed_tokens for each in pad([long[0], short, *long[1:]], 27)] == [27, 2]
