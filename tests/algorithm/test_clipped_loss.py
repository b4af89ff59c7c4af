"""The clipped loss, term by term, against its definition."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rlanything.algorithm.losses import (
    LOG_RATIO_LIMIT,
    ClipOptions,
    LossInputs,
    LossOutputs,
    clipped,
)
from rlanything.config.roles import TrainedRoleConfig

logprobs = st.floats(-30, 0)
advantages = st.floats(-3, 3).filter(lambda a: abs(a) > 1e-3)
clip_ranges, kl_weights = st.floats(0.01, 0.9), st.floats(0, 1)


def outputs(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    beta: float = 0.01,
    eps: float = 0.2,
) -> LossOutputs:
    """The loss of tokens [tokens], each a sample of its own."""
    inputs = LossInputs(new, old, advantages, torch.arange(len(new)), len(new), beta)
    return clipped(inputs, ClipOptions(clip_range=eps))


def terms(
    new: float,
    old: float,
    advantage: float,
    beta: float = 0.01,
    eps: float = 0.2,
    dtype=torch.float64,
):
    """The loss of one token, and its gradient by the new log-prob."""
    tensor = torch.tensor([new], dtype=dtype, requires_grad=True)
    found = outputs(
        tensor,
        torch.tensor([old], dtype=dtype),
        torch.tensor([advantage], dtype=dtype),
        beta,
        eps,
    )
    found.loss.sum().backward()
    assert tensor.grad is not None
    return found, tensor.grad.item()


def test_the_defaults_are_the_designs():
    assert (ClipOptions().clip_range, TrainedRoleConfig().kl_weight) == (0.2, 0.01)
    assert LOG_RATIO_LIMIT == 10


@given(
    st.lists(st.tuples(logprobs, logprobs, advantages), min_size=1, max_size=6),
    clip_ranges,
    kl_weights,
)
def test_all_terms_equal_a_naive_rewrite(tokens, eps, beta):
    new, old, advantage = (np.array(column) for column in zip(*tokens, strict=True))
    found = outputs(torch.tensor(new), torch.tensor(old), torch.tensor(advantage), beta, eps)
    for i in range(len(tokens)):
        difference = min(max(new[i] - old[i], -10), 10)
        ratio = math.exp(difference)
        surrogate = min(ratio * advantage[i], min(max(ratio, 1 - eps), 1 + eps) * advantage[i])
        k3 = math.exp(-difference) - 1 + difference
        assert math.isclose(found.ratio[i], ratio, rel_tol=1e-9)
        assert math.isclose(found.kl[i], k3, rel_tol=1e-9, abs_tol=1e-12)
        expected = -surrogate + beta * k3
        assert math.isclose(found.loss[i], expected, rel_tol=1e-9, abs_tol=1e-9)


@given(logprobs, st.floats(0.01, 5), st.floats(0.01, 3))
def test_a_good_token_gains_nothing_above_the_clip_range(old, gain, advantage):
    found, gradient = terms(old + gain, old, advantage, 0)
    assume(abs(math.exp(gain) - 1.2) > 1e-6)
    above = math.exp(gain) > 1.2
    assert bool(found.clipped) == above
    assert (gradient == 0) == above
    assert found.loss.item() >= -1.2 * advantage - 1e-9


@given(logprobs, st.floats(-5, -0.01), st.floats(0.01, 3))
def test_a_good_token_below_the_clip_range_is_still_pulled_up(old, loss, advantage):
    found, gradient = terms(old + loss, old, advantage, 0)
    assert not found.clipped
    assert gradient < 0


@given(logprobs, st.floats(-5, -0.01), st.floats(-3, -0.01))
def test_a_bad_token_gains_nothing_below_the_clip_range(old, loss, advantage):
    assume(abs(math.exp(loss) - 0.8) > 1e-6)
    found, gradient = terms(old + loss, old, advantage, 0)
    below = math.exp(loss) < 0.8
    assert bool(found.clipped) == below
    assert (gradient == 0) == below


@given(logprobs, st.floats(0.01, 5), st.floats(-3, -0.01))
def test_a_bad_token_above_the_clip_range_is_still_pushed_down(old, gain, advantage):
    found, gradient = terms(old + gain, old, advantage, 0)
    assert not found.clipped
    assert gradient > 0


@given(logprobs, advantages, clip_ranges, kl_weights)
def test_on_policy_the_gradient_is_minus_the_advantage(logprob, advantage, eps, beta):
    found, gradient = terms(logprob, logprob, advantage, beta, eps)
    assert found.ratio.item() == 1
    assert found.kl.item() == 0
    assert not found.clipped
    assert math.isclose(gradient, -advantage, rel_tol=1e-9)


@given(st.floats(10.001, 60), st.sampled_from((-1, 1)), advantages)
def test_log_ratios_are_limited(distance, sign, advantage):
    found, gradient = terms(sign * distance, 0.0, advantage)
    at_limit, _ = terms(sign * LOG_RATIO_LIMIT, 0.0, advantage)
    assert found.ratio.item() == at_limit.ratio.item() == math.exp(sign * 10)
    assert found.loss.item() == at_limit.loss.item()
    assert gradient == 0


@given(logprobs, st.floats(-12, 12), st.sampled_from((torch.float32, torch.float64)))
def test_k3_is_never_negative(old, difference, dtype):
    found, _ = terms(old + difference, old, 1.0, dtype=dtype)
    assert found.kl.item() >= 0


@given(st.floats(-1e-2, 1e-2))
def test_k3_of_nearly_equal_logprobs_is_not_rounding_noise_in_float32(difference):
    found, _ = terms(difference, 0.0, 1.0, dtype=torch.float32)
    exact = float(np.float32(difference))
    expected = math.expm1(-exact) + exact
    assert abs(found.kl.item() - expected) <= 1e-7 * abs(difference) + 1e-12


@given(logprobs, st.floats(-9, 9), st.floats(0.01, 1))
def test_the_kl_term_pulls_back_to_where_the_tokens_were_drawn(old, difference, beta):
    assume(abs(difference) > 1e-6)
    # An advantage that is almost nothing leaves the KL term alone.
    _, gradient = terms(old + difference, old, 0.0, beta)
    assert gradient * difference > 0


@given(st.integers(0, 2**32 - 1))
def test_the_expectation_of_k3_under_the_new_weights_is_the_kl_divergence(seed):
    rng = np.random.default_rng(seed)
    new, old = rng.dirichlet(np.full(6, 5.0)), rng.dirichlet(np.full(6, 5.0))
    logs = torch.tensor(np.log(new)), torch.tensor(np.log(old))
    k3 = outputs(*logs, torch.ones(6)).kl.numpy()
    assert math.isclose((new * k3).sum(), (new * np.log(new / old)).sum(), abs_tol=1e-9)
