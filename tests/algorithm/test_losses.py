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
from rlanything.algorithm.losses.base import Loss, LossInputs, LossOutputs, LossSettings
from rlanything.algorithm.losses.clip_higher import clip_higher
from rlanything.algorithm.losses.clipped import clipped
from rlanything.algorithm.losses.gspo import gspo
from rlanything.algorithm.losses.registry import load_loss
from rlanything.algorithm.losses.reinforce import reinforce
from rlanything.config.roles import TrainedRoleConfig
from rlanything.plugins import PluginError

LOSSES: dict[str, Loss] = {
    "clip_higher": clip_higher,
    "clipped": clipped,
    "gspo": gspo,
    "reinforce": reinforce,
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)

logprobs = st.floats(-8, -1e-3)
token = st.tuples(logprobs, logprobs)
advantage = st.floats(-3, 3).filter(lambda a: abs(a) > 1e-3)
Samples = list[tuple[float, list[tuple[float, float]]]]
"""An advantage and the (new, old) log-probs of the tokens, for each sample."""
samples = st.lists(
    st.tuples(advantage, st.lists(token, min_size=1, max_size=5)), min_size=1, max_size=4
)
loss_settings = st.builds(
    LossSettings,
    clip_range=st.floats(0.01, 0.9),
    clip_range_high=st.none() | st.floats(0.01, 2),
    kl_weight=st.floats(0, 1),
)
NO_KL = LossSettings(kl_weight=0)


def inputs(batch: Samples, settings: LossSettings, **others: Any) -> LossInputs:
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
        settings,
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
@given(samples, loss_settings)
def test_on_policy_every_gradient_is_that_of_reinforce_and_nothing_is_clipped(
    loss, batch, settings
):
    on_policy = [(value, [(new, new) for new, _ in tokens]) for value, tokens in batch]
    given = inputs(on_policy, settings)
    expected = [-value / len(tokens) / len(batch) for value, tokens in batch for _ in tokens]
    assert_close(gradient(loss, given), expected)
    outputs = loss(given)
    assert not outputs.clipped.any()
    assert (outputs.ratio == 1).all()
    assert (outputs.kl == 0).all()


@every_loss
@given(samples, st.floats(0.01, 1), st.floats(0.01, 1), st.randoms())
def test_the_kl_terms_are_the_same_in_every_loss(loss, batch, beta, reference_weight, random):
    reference = torch.tensor(
        [random.uniform(-8, 0) for _, tokens in batch for _ in tokens], dtype=torch.float64
    )
    free = loss(inputs(batch, NO_KL))
    assert free.reference_kl is None
    settings = LossSettings(kl_weight=beta, reference_kl_weight=reference_weight)
    held = loss(inputs(batch, settings, reference_logprobs=reference, importance=1.0))
    new, old = torch.tensor([pair for _, tokens in batch for pair in tokens], dtype=torch.float64).T
    for found, other in ((held.kl, old), (held.reference_kl, reference)):
        assert_close(found, (other - new).exp() - 1 - (other - new))
    assert_close(held.loss - free.loss, beta * held.kl + reference_weight * held.reference_kl)


@every_loss
@given(samples, loss_settings, st.floats(0.1, 3))
def test_importance_weighs_the_policys_term_and_not_the_kl(loss, batch, settings, weight):
    plain, weighed = (
        loss(inputs(batch, settings, importance=importance)) for importance in (1.0, weight)
    )
    penalty = settings.kl_weight * plain.kl
    assert_close(weighed.loss - penalty, weight * (plain.loss - penalty))


@every_loss
@given(samples, loss_settings)
def test_a_batch_gives_what_its_samples_give_alone(loss, batch, settings):
    together = loss(inputs(batch, settings))
    alone = [loss(inputs([sample], settings)) for sample in batch]
    for name in ("loss", "ratio", "clipped", "kl"):
        expected = torch.cat([getattr(outputs, name) for outputs in alone])
        assert_close(getattr(together, name).double(), expected.double())


@every_loss
def test_a_batch_without_chosen_tokens_is_no_problem(loss):
    outputs = loss(inputs([(1.0, []), (-1.0, [])], LossSettings()))
    assert len(outputs.loss) == len(outputs.ratio) == len(outputs.clipped) == 0


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("clipped", {"clip_range"}),
        ("clip_higher", {"clip_range", "clip_range_high"}),
        ("gspo", {"clip_range", "clip_range_high"}),
        ("reinforce", set()),
        ("mine:loss", {"clip_range", "clip_range_high"}),
    ],
)
def test_a_recipe_takes_the_settings_that_its_loss_reads(
    name: str, read: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLANYTHING_ALLOW_CODE", "1")
    both_sides = [(1.0, [(-1.0, -2.0)]), (-1.0, [(-2.0, -1.0)])]
    for key in ("clip_range", "clip_range_high"):
        if name in LOSSES:
            plain, changed = (
                LOSSES[name](inputs(both_sides, LossSettings(**{"clip_range": 0.2, key: value})))
                for value in (0.2, 0.3)
            )
            assert torch.equal(plain.loss, changed.loss) == (key not in read)
        if key in read:
            assert getattr(TrainedRoleConfig.model_validate({"loss": name, key: 0.3}), key) == 0.3
        else:
            with pytest.raises(ValueError, match=f"{key} is not read by loss: {name}"):
                TrainedRoleConfig.model_validate({"loss": name, key: 0.3})
    resolved = TrainedRoleConfig(loss=name).model_dump()
    assert TrainedRoleConfig.model_validate(resolved).loss == name


@given(samples, loss_settings)
def test_gspo_has_one_ratio_a_sample_the_geometric_mean_of_its_tokens(batch, settings):
    ratios = gspo(inputs(batch, settings)).ratio
    place = 0
    for _, tokens in batch:
        mean = sum(new - old for new, old in tokens) / len(tokens)
        assert_close(ratios[place : place + len(tokens)], [math.exp(mean)] * len(tokens))
        place += len(tokens)


@given(samples, st.randoms())
def test_gspo_does_not_care_for_the_order_of_a_samples_tokens(batch, random):
    shuffled = [(value, random.sample(tokens, len(tokens))) for value, tokens in batch]
    one, other = (gspo(inputs(given, NO_KL)) for given in (batch, shuffled))
    assert_close(one.loss, other.loss)
    assert_close(one.ratio, other.ratio)


@given(st.lists(st.tuples(advantage, token.map(lambda pair: [pair])), min_size=1), loss_settings)
def test_gspo_is_clip_higher_for_samples_of_one_token(batch, settings):
    one, other = inputs(batch, settings), inputs(batch, settings)
    assert_close(gradient(gspo, one), gradient(clip_higher, other))
    assert_close(gspo(one).loss, clip_higher(other).loss)
    assert torch.equal(gspo(one).clipped, clip_higher(other).clipped)


@given(samples, loss_settings)
def test_gspos_gradient_is_the_papers(batch, settings):
    low, high = 1 - settings.clip_range, 1 + settings.upper_clip_range
    expected: list[float] = []
    for value, tokens in batch:
        s = math.exp(sum(new - old for new, old in tokens) / len(tokens))
        assume(min(abs(s - low), abs(s - high)) > 1e-9)
        flat = s > high if value > 0 else s < low
        expected += [0.0 if flat else -s * value / len(tokens) / len(batch)] * len(tokens)
    found = gradient(gspo, inputs(batch, replace(settings, kl_weight=0)))
    assert_close(found, expected)


@given(samples)
def test_gspo_clips_whole_samples(batch):
    flat = gspo(inputs(batch, NO_KL)).clipped.tolist()
    place = 0
    for _, tokens in batch:
        assert len(set(flat[place : place + len(tokens)])) == 1
        place += len(tokens)


def test_where_a_sample_ends_matters_to_gspo():
    tokens = [(-1.0, -2.0), (-2.0, -1.5)]
    one = gspo(inputs([(1.0, tokens)], NO_KL))
    two = gspo(inputs([(1.0, tokens[:1]), (1.0, tokens[1:])], NO_KL))
    assert_close(one.ratio, [math.exp(0.25)] * 2)
    assert_close(two.ratio, [math.exp(1.0), math.exp(-0.5)])
    assert not torch.equal(one.loss, two.loss)


@given(samples, st.floats(0.01, 0.9), st.floats(0, 1))
def test_clip_higher_with_equal_bounds_is_the_clipped_loss_bit_for_bit(batch, eps, beta):
    for high in (None, eps):
        same = inputs(batch, LossSettings(eps, high, beta))
        plain = inputs(batch, LossSettings(eps, None, beta))
        assert torch.equal(gradient(clip_higher, same), gradient(clipped, plain))
        assert torch.equal(clip_higher(same).loss, clipped(plain).loss)


@given(samples, st.floats(0.01, 0.9), st.floats(0.01, 2))
def test_clip_higher_is_flat_above_for_good_tokens_and_below_for_bad_ones_only(batch, low, high):
    given = inputs(batch, LossSettings(low, high, 0))
    outputs = clip_higher(given)
    good = given.advantages > 0
    assume(((outputs.ratio - 1 - high).abs() > 1e-9).all())
    assume(((outputs.ratio - 1 + low).abs() > 1e-9).all())
    flat = torch.where(good, outputs.ratio > 1 + high, outputs.ratio < 1 - low)
    assert torch.equal(outputs.clipped, flat)
    assert torch.equal(gradient(clip_higher, given) == 0, flat)


@given(samples, st.floats(0.2, 2))
def test_a_higher_upper_bound_clips_fewer_tokens_and_none_of_bad_samples_otherwise(batch, high):
    narrow = inputs(batch, LossSettings(0.2, None, 0))
    wide = inputs(batch, LossSettings(0.2, high, 0))
    before, after = clip_higher(narrow).clipped, clip_higher(wide).clipped
    assert not (after & ~before).any()
    bad = narrow.advantages < 0
    assert torch.equal(before[bad], after[bad])


@given(samples, st.randoms())
def test_reinforce_does_not_read_the_old_log_probs(batch, random):
    other = [(a, [(new, random.uniform(-8, 0)) for new, _ in tokens]) for a, tokens in batch]
    one, two = inputs(batch, NO_KL), inputs(other, NO_KL)
    assert torch.equal(reinforce(one).loss, reinforce(two).loss)
    assert torch.equal(gradient(reinforce, one), gradient(reinforce, two))
    assert_close(reinforce(one).loss, -one.advantages * one.new_logprobs)


@given(samples)
def test_reinforce_clips_nothing_and_shows_the_tokens_own_ratios(batch):
    given = inputs(batch, LossSettings())
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
    assert {name: load_loss(name) for name in shipped().names} == LOSSES


def test_an_unknown_loss_is_one_line_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: shipped().select(group=group))
    with pytest.raises(PluginError) as error:
        load_loss("ppo")
    assert str(error.value) == (
        "unknown loss 'ppo': use one of clip_higher, clipped, gspo, reinforce, or `module:name`"
    )


def test_a_function_is_its_own_loss_and_what_is_none_is_refused() -> None:
    def mine(given: LossInputs) -> LossOutputs:
        return clipped(given)

    assert load_loss(mine) is mine
    with pytest.raises(PluginError, match=r":LOSSES' is no function"):
        load_loss(f"{__name__}:LOSSES")
    with pytest.raises(PluginError, match="loss math:pi is no loss but of Python's own module"):
        load_loss("math:pi")
