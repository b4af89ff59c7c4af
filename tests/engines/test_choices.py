"""Which tokens may come next, and what the log-probs over just those are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.tiny import tiny_model
from rlanything.engines.base import Choices, Request, Sampling
from rlanything.engines.hf.choices import ChoiceWalker, restricted_logprobs
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.partial_completion import PartialCompletion

END, MARKER = 1, 69
OPTIONS = ((80, END), (80, 81, END), (82, 80, END))

token_lists = st.lists(st.integers(2, 6), min_size=1, max_size=5)
option_sets = st.lists(token_lists, min_size=1, max_size=6).map(
    lambda options: tuple((*option, END) for option in options)
)


@given(option_sets, st.integers(0, 4), st.randoms(use_true_random=False))
def test_every_walk_spells_free_text_the_marker_and_one_option(options, free_tokens, rng):
    walker = ChoiceWalker(Choices(MARKER, options, free_tokens))
    written: list[int] = []
    while not written or written[-1] != END:
        allowed = walker.allowed()
        assert list(allowed) == sorted(set(allowed))
        # Free text may be anything but the end; the marker comes early now and then.
        token = rng.choice(allowed or (*range(2, 7), MARKER))
        walker.advance(token)
        written.append(token)
    at = written.index(MARKER)
    assert at <= free_tokens
    assert tuple(written[at + 1 :]) in options


@given(option_sets)
def test_every_option_can_be_reached_and_its_prefixes_allow_exactly_what_continues_them(options):
    for option in options:
        walker = ChoiceWalker(Choices(MARKER, options, 0))
        walker.advance(MARKER)
        for depth, token in enumerate(option):
            continuations = {o[depth] for o in options if o[:depth] == option[:depth]}
            assert walker.allowed() == tuple(sorted(continuations))
            if token != END:
                walker.advance(token)


@given(option_sets, st.integers(0, 3), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_draft_takes_the_rest_as_soon_as_it_has_no_alternative(options, free, most, rng):
    """Also where a response ends for want of room."""
    choices = Choices(MARKER, options, free)
    partial = PartialCompletion.begin(Request((5,), (0,), choices), 0, Sampling(1.0, most), [END])
    walker = ChoiceWalker(choices)
    taken = 0
    while taken < len(partial.token_ids) or not partial.over:
        allowed = walker.allowed()
        if taken == len(partial.token_ids):
            token = rng.choice(allowed or (*range(2, 7), MARKER))
            partial.take(token, -1.0, allowed)
        assert partial.allowed[taken] == allowed
        token = partial.token_ids[taken]
        assert token in (allowed or (token,))
        # What was not drawn here was forced.
        assert partial.logprobs[taken] == -1.0 or (allowed == (token,) and partial.over)
        taken += 1
        if token != END:
            walker.advance(token)
    assert partial.stopped == (partial.token_ids[-1] == END)
    assert partial.stopped or taken == most


def test_the_marker_is_forced_once_the_free_tokens_are_spent():
    walker = ChoiceWalker(Choices(MARKER, OPTIONS, 2))
    assert walker.allowed() == ()
    walker.advance(5)
    assert walker.allowed() == ()
    walker.advance(5)
    assert walker.allowed() == (MARKER,)
    walker.advance(MARKER)
    assert walker.allowed() == (80, 82)


def test_an_early_marker_ends_the_free_text():
    walker = ChoiceWalker(Choices(MARKER, OPTIONS, 9))
    walker.advance(MARKER)
    assert walker.allowed() == (80, 82)


@pytest.mark.parametrize("options", [(), ((),), ((80, END), ())])
def test_choices_without_an_option_are_refused(options):
    with pytest.raises(ValueError, match="choices need options"):
        ChoiceWalker(Choices(MARKER, options, 2))


def test_the_engine_writes_only_allowed_options_and_records_what_was_allowed():
    model = tiny_model(2)
    choices = Choices(MARKER, OPTIONS, free_tokens=2)
    [group] = HFEngine(model).generate(
        [Request((10, 11, 12), tuple(range(60)), choices)], Sampling(1.0, 12)
    )
    ended_in_free_text = 0
    reached = set()
    for completion in group:
        walker = ChoiceWalker(choices)
        for token, allowed, logprob in zip(
            completion.token_ids, completion.allowed, completion.logprobs, strict=True
        ):
            assert allowed == walker.allowed()
            assert not allowed or token in allowed
            assert len(allowed) != 1 or logprob == 0
            if token != END:
                walker.advance(token)
        if MARKER in completion.token_ids:
            reached.add(completion.token_ids[completion.token_ids.index(MARKER) + 1 :])
        else:
            ended_in_free_text += 1
            assert completion.token_ids[-1] == END
            assert len(completion.token_ids) <= 2
    assert reached == set(OPTIONS)
    assert ended_in_free_text < 10


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 2.0))
def test_restricted_logprobs_are_the_softmax_over_the_allowed_tokens(seed, temperature):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (5, 8))
    allowed = [()] + [
        tuple(rng.choice(8, rng.integers(1, 9), replace=False).tolist()) for _ in range(4)
    ]
    found = restricted_logprobs(torch.tensor(logits), allowed, temperature).numpy()
    for line, may in enumerate(allowed):
        tokens = list(may) or list(range(8))
        weights = np.exp(logits[line, tokens] / temperature)
        expected = np.full(8, -np.inf)
        expected[tokens] = np.log(weights / weights.sum())
        np.testing.assert_allclose(found[line], expected, atol=1e-4)


def test_the_gradient_through_restricted_logprobs_is_finite_and_leaves_others_alone():
    logits = torch.randn(2, 5, requires_grad=True)
    restricted_logprobs(logits, [(1, 3), ()], 1.0)[:, 3].sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, [0, 2, 4]].abs().sum() == 0
    assert (logits.grad[0, [1, 3]] != 0).all()
