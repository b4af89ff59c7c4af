"""What the losses have in common, and what sets each of them apart."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from helpers.paths import ROOT
from rlanything import plugins
from rlanything.algorithm import losses
from rlanything.algorithm.losses import Loss, LossConfig, LossInputs, LossOutputs
from rlanything.config.roles import TrainedRoleConfig
from rlanything.plugins import PluginError

READ = {
    "clip_higher": ("clip_range", "clip_range_high"),
    "clipped": ("clip_range",),
    "gspo": ("clip_range", "clip_range_high"),
    "reinforce": (),
}
"""The options of the shipped losses, by name."""
every_loss = pytest.mark.parametrize("name", READ)

logprobs = st.floats(-8, -1e-3)
token = st.tuples(logprobs, logprobs)
advantage = st.floats(-3, 3).filter(lambda a: abs(a) > 1e-3)
Samples = list[tuple[float, list[tuple[float, float]]]]
"""An advantage and the (new, old) log-probs of the tokens, for each sample."""
samples = st.lists(
    st.tuples(advantage, st.lists(token, min_size=1, max_size=5)), min_size=1, max_size=4
)
clips = st.fixed_dictionaries(
    {"clip_range": st.floats(0.01, 0.9), "clip_range_high": st.none() | st.floats(0.01, 2)}
)
kl_weights = st.floats(0, 1)


def loss_of(name: str, **options: Any) -> Loss:
    """The shipped loss with those of the options that it reads."""
    read = {key: value for key, value in options.items() if key in READ[name]}
    return LossConfig(name=name, options=read).function


gspo, clipped, reinforce = map(loss_of, ("gspo", "clipped", "reinforce"))


def inputs(batch: Samples, kl_weight: float = 0.0, **others: Any) -> LossInputs:
    """In float64, with a gradient."""
    new, old, advantages, numbers = [], [], [], []
    for number, (value, tokens) in enumerate(batch):
        new += [pair[0] for pair in tokens]
        old += [pair[1] for pair in tokens]
        advantages += [value] * len(tokens)
        numbers += [number] * len(tokens)
    return LossInputs(
        torch.tensor(new, dtype=torch.float64, requires_grad=True),
        torch.tensor(old, dtype=torch.float64),
        torch.tensor(advantages, dtype=torch.float64),
        torch.tensor(numbers, dtype=torch.long),
        len(batch),
        kl_weight,
        **others,
    )


def gradient(loss: Loss, given: LossInputs) -> Tensor:
    """[tokens], of the mean over samples of means over tokens."""
    lengths = torch.bincount(given.samples).clamp(min=1)[given.samples]
    (loss(given).loss / lengths / given.sample_count).sum().backward()
    assert given.new_logprobs.grad is not None
    return given.new_logprobs.grad


def assert_close(found: Tensor, expected: Tensor | Sequence[float], tolerance: float = 1e-9):
    goal = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, goal, rtol=tolerance, atol=tolerance)


@every_loss
@given(samples, clips, kl_weights)
def test_on_policy_every_gradient_is_that_of_reinforce_and_nothing_is_clipped(
    name, batch, clip, beta
):
    loss = loss_of(name, **clip)
    on_policy = [(value, [(new, new) for new, _ in tokens]) for value, tokens in batch]
    given = inputs(on_policy, beta)
    expected = [-value / len(tokens) / len(batch) for value, tokens in batch for _ in tokens]
    assert_close(gradient(loss, given), expected)
    outputs = loss(given)
    assert not outputs.clipped.any()
    assert (outputs.ratio == 1).all()
    assert (outputs.kl == 0).all()


@every_loss
@given(samples, st.floats(0.01, 1), st.floats(0.01, 1), st.randoms())
def test_the_kl_terms_are_the_same_in_every_loss(name, batch, beta, reference_weight, random):
    loss = loss_of(name)
    reference = torch.tensor(
        [random.uniform(-8, 0) for _, tokens in batch for _ in tokens], dtype=torch.float64
    )
    free = loss(inputs(batch))
    assert free.reference_kl is None
    weights = {"reference_kl_weight": reference_weight, "reference_logprobs": reference}
    held = loss(inputs(batch, beta, importance=1.0, **weights))
    assert held.reference_kl is not None
    new, old = torch.tensor([pair for _, tokens in batch for pair in tokens], dtype=torch.float64).T
    for found, other in ((held.kl, old), (held.reference_kl, reference)):
        assert_close(found, (other - new).exp() - 1 - (other - new))
    assert_close(held.loss - free.loss, beta * held.kl + reference_weight * held.reference_kl)


@every_loss
@given(samples, clips, kl_weights, st.floats(0.1, 3))
def test_importance_weighs_the_policys_term_and_not_the_kl(name, batch, clip, beta, weight):
    loss = loss_of(name, **clip)
    plain, weighed = (
        loss(inputs(batch, beta, importance=importance)) for importance in (1.0, weight)
    )
    penalty = beta * plain.kl
    assert_close(weighed.loss - penalty, weight * (plain.loss - penalty))


@every_loss
@given(samples, clips, kl_weights)
def test_a_batch_gives_what_its_samples_give_alone(name, batch, clip, beta):
    loss = loss_of(name, **clip)
    together = loss(inputs(batch, beta))
    alone = [loss(inputs([sample], beta)) for sample in batch]
    for name in ("loss", "ratio", "clipped", "kl"):
        expected = torch.cat([getattr(outputs, name) for outputs in alone])
        assert_close(getattr(together, name).double(), expected.double())


@every_loss
def test_a_batch_without_chosen_tokens_is_no_problem(name):
    outputs = loss_of(name)(inputs([(1.0, []), (-1.0, [])], 0.01))
    assert len(outputs.loss) == len(outputs.ratio) == len(outputs.clipped) == 0


@every_loss
def test_a_recipe_takes_the_options_that_its_loss_reads(name: str) -> None:
    both_sides = [(1.0, [(-1.0, -2.0)]), (-1.0, [(-2.0, -1.0)])]
    for key in ("clip_range", "clip_range_high"):
        chosen = {"loss": {"name": name, "options": {key: 0.3}}}
        if key in READ[name]:
            loss = TrainedRoleConfig.model_validate(chosen).loss
            assert loss.options == {key: 0.3}
            plain, changed = loss_of(name)(inputs(both_sides)), loss.function(inputs(both_sides))
            assert not torch.equal(plain.loss, changed.loss)
        else:
            known = ", ".join(READ[name]) or "none"
            with pytest.raises(
                ValueError, match=f"unknown option {key}.* its options are: {known}"
            ):
                TrainedRoleConfig.model_validate(chosen)
    resolved = TrainedRoleConfig.model_validate({"loss": name}).model_dump()
    assert TrainedRoleConfig.model_validate(resolved).loss.name == name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"clip_rang": 0.3},
            "loss clip_higher: unknown option clip_rang, did you mean clip_range?",
        ),
        ({"clip_range": 1}, r"loss clip_higher: clip_range: .* less than 1 \(got 1\)"),
        ({"clip_range": "0.2"}, r"clip_range: .* valid number \(got '0.2'\)"),
        ({"clip_range_high": 0.0}, r"clip_range_high: .* greater than 0 \(got 0.0\)"),
    ],
)
def test_an_option_that_a_loss_refuses_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LossConfig(name="clip_higher", options=options)


@given(samples)
def test_a_loss_reads_an_advantage_of_each_token(batch):
    whole = inputs(batch)
    scale = torch.linspace(0.5, 2, len(whole.advantages), dtype=torch.float64)
    by_token = replace(whole, advantages=whole.advantages * scale)
    assert_close(reinforce(by_token).loss, reinforce(whole).loss * scale)
    assert_close(clipped(by_token).loss, clipped(whole).loss * scale)


@given(samples, clips)
def test_gspo_has_one_ratio_a_sample_the_geometric_mean_of_its_tokens(batch, clip):
    ratios = loss_of("gspo", **clip)(inputs(batch)).ratio
    place = 0
    for _, tokens in batch:
        mean = sum(new - old for new, old in tokens) / len(tokens)
        assert_close(ratios[place : place + len(tokens)], [math.exp(mean)] * len(tokens))
        place += len(tokens)


@given(samples, st.randoms())
def test_gspo_does_not_care_for_the_order_of_a_samples_tokens(batch, random):
    shuffled = [(value, random.sample(tokens, len(tokens))) for value, tokens in batch]
    one, other = (gspo(inputs(given)) for given in (batch, shuffled))
    assert_close(one.loss, other.loss)
    assert_close(one.ratio, other.ratio)


one_token = st.lists(st.tuples(advantage, token.map(lambda pair: [pair])), min_size=1)


@given(one_token, clips, kl_weights)
def test_gspo_is_clip_higher_for_samples_of_one_token(batch, clip, beta):
    by_sample, by_token = loss_of("gspo", **clip), loss_of("clip_higher", **clip)
    one, other = inputs(batch, beta), inputs(batch, beta)
    assert_close(gradient(by_sample, one), gradient(by_token, other))
    assert_close(by_sample(one).loss, by_token(other).loss)
    assert torch.equal(by_sample(one).clipped, by_token(other).clipped)


@given(samples, clips)
def test_gspos_gradient_is_the_papers(batch, clip):
    low, high = 1 - clip["clip_range"], 1 + (clip["clip_range_high"] or clip["clip_range"])
    expected: list[float] = []
    for value, tokens in batch:
        s = math.exp(sum(new - old for new, old in tokens) / len(tokens))
        assume(min(abs(s - low), abs(s - high)) > 1e-9)
        flat = s > high if value > 0 else s < low
        expected += [0.0 if flat else -s * value / len(tokens) / len(batch)] * len(tokens)
    assert_close(gradient(loss_of("gspo", **clip), inputs(batch)), expected)


@given(samples)
def test_gspo_clips_whole_samples(batch):
    flat = gspo(inputs(batch)).clipped.tolist()
    place = 0
    for _, tokens in batch:
        assert len(set(flat[place : place + len(tokens)])) == 1
        place += len(tokens)


def test_where_a_sample_ends_matters_to_gspo():
    tokens = [(-1.0, -2.0), (-2.0, -1.5)]
    one = gspo(inputs([(1.0, tokens)]))
    two = gspo(inputs([(1.0, tokens[:1]), (1.0, tokens[1:])]))
    assert_close(one.ratio, [math.exp(0.25)] * 2)
    assert_close(two.ratio, [math.exp(1.0), math.exp(-0.5)])
    assert not torch.equal(one.loss, two.loss)


@given(samples, st.floats(0.01, 0.9), st.floats(0, 1))
def test_clip_higher_with_equal_bounds_is_the_clipped_loss_bit_for_bit(batch, eps, beta):
    plain = loss_of("clipped", clip_range=eps)
    for high in (None, eps):
        same = loss_of("clip_higher", clip_range=eps, clip_range_high=high)
        assert torch.equal(
            gradient(same, inputs(batch, beta)), gradient(plain, inputs(batch, beta))
        )
        assert torch.equal(same(inputs(batch, beta)).loss, plain(inputs(batch, beta)).loss)


@given(samples, st.floats(0.01, 0.9), st.floats(0.01, 2))
def test_clip_higher_is_flat_above_for_good_tokens_and_below_for_bad_ones_only(batch, low, high):
    loss = loss_of("clip_higher", clip_range=low, clip_range_high=high)
    given = inputs(batch)
    outputs = loss(given)
    good = given.advantages > 0
    assume(((outputs.ratio - 1 - high).abs() > 1e-9).all())
    assume(((outputs.ratio - 1 + low).abs() > 1e-9).all())
    flat = torch.where(good, outputs.ratio > 1 + high, outputs.ratio < 1 - low)
    assert torch.equal(outputs.clipped, flat)
    assert torch.equal(gradient(loss, given) == 0, flat)


@given(samples, st.floats(0.2, 2))
def test_a_higher_upper_bound_clips_fewer_tokens_and_none_of_bad_samples_otherwise(batch, high):
    given = inputs(batch)
    before = loss_of("clip_higher")(given).clipped
    after = loss_of("clip_higher", clip_range_high=high)(given).clipped
    assert not (after & ~before).any()
    bad = given.advantages < 0
    assert torch.equal(before[bad], after[bad])


@given(samples, st.randoms())
def test_reinforce_does_not_read_the_old_log_probs(batch, random):
    other = [(a, [(new, random.uniform(-8, 0)) for new, _ in tokens]) for a, tokens in batch]
    one, two = inputs(batch), inputs(other)
    assert torch.equal(reinforce(one).loss, reinforce(two).loss)
    assert torch.equal(gradient(reinforce, one), gradient(reinforce, two))
    assert_close(reinforce(one).loss, -one.advantages * one.new_logprobs)


@given(samples)
def test_reinforce_clips_nothing_and_shows_the_tokens_own_ratios(batch):
    given = inputs(batch, 0.01)
    outputs = reinforce(given)
    assert outputs.clipped.dtype == torch.bool
    assert not outputs.clipped.any()
    assert_close(outputs.ratio, (given.new_logprobs - given.old_logprobs).exp())


def shipped() -> EntryPoints:
    """The entry points of pyproject.toml, whatever is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = "rlanything.losses"
    names: dict[str, str] = project["entry-points"][group]
    return EntryPoints(EntryPoint(name, value, group) for name, value in names.items())


def test_the_shipped_losses_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: shipped().select(group=group))
    assert set(shipped().names) == set(READ)
    for name in READ:
        function = LossConfig(name=name).function
        assert getattr(function, "func", function) is getattr(losses, name)


def test_an_unknown_loss_is_one_line_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: shipped().select(group=group))
    with pytest.raises(ValueError, match="unknown loss 'ppo': use one of clip_higher, clipped, "):
        LossConfig(name="ppo")


def test_a_function_is_its_own_loss_and_what_is_none_is_refused() -> None:
    def mine(given: LossInputs) -> LossOutputs:
        return clipped(given)

    assert LossConfig.model_validate(mine).function is mine
    with pytest.raises(PluginError, match=r":READ is no function"):
        _ = LossConfig(name=f"{__name__}:READ").function
    with pytest.raises(PluginError, match="loss math:pi is no loss but of Python's own module"):
        _ = LossConfig(name="math:pi").function
