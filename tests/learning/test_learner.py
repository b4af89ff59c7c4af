"""The learner's gradients, against plain forwards of each sequence alone."""

from __future__ import annotations

import copy
import ctypes
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from helpers.guess import GUESS
from helpers.tiny import (
    plain_logprobs,
    sample_of,
    tiny_model,
    tiny_recurrent_model,
    tiny_sliding_model,
)
from rlanything.algorithm.losses import LossInputs, LossOutputs, with_kl
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import Choices, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.loading import put
from rlanything.engines.hf.model import LanguageModel, ModelError
from rlanything.learning.learner import Learner
from rlanything.records import Sample

ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
KINDS = {
    "qwen2, tied, grouped heads": ("qwen2", 4, 2),
    "llama, one key head": ("llama", 4, 1),
    "llama": ("llama", 4, 4),
}


def role(**settings: object) -> TrainedRoleConfig:
    defaults = {"learning_rate": 1e-3, "max_grad_norm": 1e9, "temperature": 1.0}
    return TrainedRoleConfig.model_validate(defaults | settings)


def random_samples(seed: int, count: int = 6) -> list[Sample]:
    """Shared prompts, responses that share beginnings, some of them the same, some restricted."""
    rng = np.random.default_rng(seed)
    stems = [rng.integers(5, 320, rng.integers(1, 9)).tolist() for _ in range(2)]
    samples = []
    for number in range(count):
        prompt = stems[rng.integers(2)] + rng.integers(5, 7, rng.integers(0, 3)).tolist()
        response = rng.integers(5, 9, rng.integers(1, 6)).tolist()
        allowed: list[tuple[int, ...]] = []
        for token in response:
            others = rng.integers(9, 320, rng.integers(0, 4)).tolist()
            allowed.append(() if rng.random() < 0.5 else tuple(sorted({token, *others})))
        # Near uniform over what was allowed, so that ratios lie on both sides of the clip range.
        logprobs = [
            -float(np.log(len(may) or 320)) + float(rng.normal(0, 0.5)) if len(may) != 1 else 0.0
            for may in allowed
        ]
        advantage = float(rng.choice((-1, 1)) * rng.uniform(0.2, 2))
        samples.append(sample_of(prompt, response, advantage, logprobs, allowed, f"{number}/0"))
    return samples


def sampled_by(
    model: LanguageModel, samples: Sequence[Sample], temperature: float, seed: int
) -> list[Sample]:
    """The samples with log-probs near the model's own, on both sides of the clip range.

    A ratio of e^9 would multiply float32's rounding, too, and tell nothing about the packs."""
    rng = np.random.default_rng(seed)
    near: list[Sample] = []
    for sample in samples:
        own = plain_logprobs(model, sample.completion, temperature).detach().numpy()
        noise = rng.normal(0, 0.3, len(own)) * [len(m) != 1 for m in sample.completion.allowed]
        completion = replace(sample.completion, logprobs=tuple((own + noise).tolist()))
        near.append(replace(sample, completion=completion))
    return near


def plain_loss(
    model: LanguageModel, samples: Sequence[Sample], settings: TrainedRoleConfig
) -> torch.Tensor:
    """The mean loss, one sequence at a time and without packs."""
    total = torch.zeros(())
    for sample in samples:
        completion = sample.completion
        chosen = [i for i, may in enumerate(completion.allowed) if len(may) != 1]
        if not chosen:
            continue
        new = plain_logprobs(model, completion, settings.temperature)[chosen]
        old = torch.tensor([completion.logprobs[i] for i in chosen], dtype=new.dtype)
        total = total + sample_loss(new, old, sample.mean_advantage, settings)
    return total / len(samples)


def sample_loss(
    new: torch.Tensor, old: torch.Tensor, advantage: float, settings: TrainedRoleConfig
) -> torch.Tensor:
    """The mean loss of a sample's chosen tokens, whose log-probs are `new` and `old` [tokens]."""
    advantages, one_sample = torch.full_like(new, advantage), torch.zeros(len(new)).long()
    return settings.loss.function(
        LossInputs(new, old, advantages, one_sample, 1, settings.kl_weight)
    ).loss.mean()


def gradient(model: LanguageModel) -> torch.Tensor:
    return torch.cat(
        [
            (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten()
            for weight in model.network.parameters()
        ]
    )


def weights(model: LanguageModel) -> torch.Tensor:
    return torch.cat([weight.detach().flatten().clone() for weight in model.network.parameters()])


def in_one_task(samples: Sequence[Sample]) -> list[tuple[str, Sample]]:
    return [("task", sample) for sample in samples]


def in_float64(model: LanguageModel) -> LanguageModel:
    """The same weights; nothing computes in less, as transformers' own norms would."""
    model.network.double()
    for module in model.network.modules():
        for name, child in module.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                weight: Any = child.weight
                norm = torch.nn.RMSNorm(len(weight), child.variance_epsilon, dtype=torch.float64)  # pyright: ignore[reportArgumentType]
                norm.weight = weight
                setattr(module, name, norm)
    return model


def with_lora(model: LanguageModel) -> LanguageModel:
    """Only adapters train, and they are not at their start, where half of them has no gradient."""
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    network: Any = inject_adapter_in_model(settings, model.network)
    torch.manual_seed(0)
    for name, weight in network.named_parameters():
        weight.requires_grad_("lora_" in name)
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return LanguageModel(network, model.tokenizer)


def assert_same_gradient(
    model: LanguageModel,
    samples: Sequence[Sample],
    settings: TrainedRoleConfig,
    tolerance: float = 1e-5,
):
    """Of all parameters together, and of each of them."""
    statistics = Learner(model, settings).update(in_one_task(samples), seed=0)
    found = gradient(model)
    model.network.zero_grad()
    loss = plain_loss(model, samples, settings)
    loss.backward()
    expected = gradient(model)
    assert expected.norm() > 0
    assert (found - expected).norm() <= tolerance * expected.norm()
    assert statistics["loss"] == pytest.approx(loss.item(), rel=tolerance, abs=tolerance / 10)
    # The bias of keys hardly changes attention: its gradient is what rounding leaves.
    rounding = 1e-14 if found.dtype == torch.float64 else 1e-6
    sizes = [weight.numel() for weight in model.network.parameters()]
    for one, other in zip(found.split(sizes), expected.split(sizes), strict=True):
        assert (one - other).norm() <= tolerance * other.norm() + rounding * expected.norm()


def tried(seed: int, temperature: float, model: LanguageModel) -> list[Sample] | None:
    """Random samples near the model's own; None where nothing was chosen in any of them."""
    samples = sampled_by(model, random_samples(seed), temperature, seed)
    forced = all(len(may) == 1 for sample in samples for may in sample.completion.allowed)
    return None if forced else samples


ways = pytest.mark.parametrize("packing", ["shared", "padded"])
kinds = pytest.mark.parametrize("kind", KINDS)
tries = given(
    seed=st.integers(0, 2**32 - 1),
    max_pack_tokens=st.sampled_from((1, 12, 25, 1000)),
    temperature=st.sampled_from((0.6, 1.0, 1.4)),
)


@ways
@kinds
@settings(max_examples=12, deadline=None)
@tries
def test_the_gradient_is_that_of_separate_sequences(
    packing, kind, seed, max_pack_tokens, temperature
):
    name, heads, key_value_heads = KINDS[kind]
    # Weights small enough that float32 can tell a wrong pack from its own rounding.
    model = tiny_model(seed % 1000, name, heads, key_value_heads, scale=0.1)
    if samples := tried(seed, temperature, model):
        # A learning rate of 0: the expected gradient must be taken at the same weights.
        chosen = role(
            learning_rate=0,
            packing=packing,
            max_pack_tokens=max_pack_tokens,
            temperature=temperature,
        )
        assert_same_gradient(model, samples, chosen)


@ways
def test_a_gradient_is_had_without_an_update(packing: str) -> None:
    model = tiny_model(0, "qwen2", 4, 2)
    samples = sampled_by(model, random_samples(0), 1.0, 0)
    chosen = role(learning_rate=0, packing=packing, max_pack_tokens=12)
    learner, before = Learner(model, chosen), weights(model)
    found = learner.gradient(samples)
    assert all(weight.grad is None for weight in model.network.parameters())
    assert torch.equal(weights(model), before)
    learner.update(in_one_task(samples), seed=0)
    assert torch.equal(found, gradient(model))
    # However many minibatches an update takes, this is the mean over all samples.
    several = Learner(model, role(packing=packing, max_pack_tokens=12, minibatches=3))
    assert torch.equal(several.gradient(samples), found)


@kinds
@settings(max_examples=12, deadline=None)
@tries
def test_in_float64_it_is_so_to_ten_digits_in_every_parameter(
    kind, seed, max_pack_tokens, temperature
):
    name, heads, key_value_heads = KINDS[kind]
    model = in_float64(tiny_model(seed % 1000, name, heads, key_value_heads, scale=0.2))
    if samples := tried(seed, temperature, model):
        chosen = role(learning_rate=0, max_pack_tokens=max_pack_tokens, temperature=temperature)
        assert_same_gradient(model, samples, chosen, 1e-10)


@settings(max_examples=8, deadline=None)
@tries
def test_the_gradient_of_lora_adapters_is_that_of_separate_sequences(
    seed, max_pack_tokens, temperature
):
    model = in_float64(with_lora(tiny_model(seed % 1000, scale=0.2)))
    if samples := tried(seed, temperature, model):
        chosen = role(learning_rate=0, max_pack_tokens=max_pack_tokens, temperature=temperature)
        assert_same_gradient(model, samples, chosen, 1e-10)


def test_long_samples_in_several_tiles_have_the_gradient_of_separate_sequences():
    rng = np.random.default_rng(0)
    stem = rng.integers(5, 320, 150).tolist()
    samples = [
        sample_of(stem + rng.integers(5, 320, 40 * (i % 4)).tolist(), [9 + i, 30], 1.5 - i)
        for i in range(8)
    ]
    model = in_float64(tiny_model(scale=0.2))
    near = sampled_by(model, samples, 1.0, seed=0)
    for limit in (200, 300, 1000):
        assert_same_gradient(model, near, role(learning_rate=0, max_pack_tokens=limit), 1e-10)


@pytest.mark.parametrize("build", [tiny_sliding_model, tiny_recurrent_model])
def test_models_that_cannot_share_are_refused_and_train_padded(build):
    model = build(0)
    with pytest.raises(ModelError, match="packing: padded") as error:
        Learner(model, role())
    assert str(model.sharing_problem) in str(error.value)
    samples = sampled_by(model, random_samples(0), 1.0, seed=0)
    # Recurrences add up in blocks of their own, and round a little differently in longer rows.
    assert_same_gradient(model, samples, role(learning_rate=0, packing="padded"), 1e-4)


def test_dropout_is_off_so_that_the_learner_is_the_sampler():
    model = tiny_model(scale=0.2)
    for layer in model.network.model.layers:  # pyright: ignore[reportGeneralTypeIssues]
        layer.self_attn.attention_dropout = 0.5
    assert_same_gradient(model, sampled_by(model, random_samples(0), 1.0, 0), role(learning_rate=0))


@pytest.mark.parametrize("packing", ["shared", "padded"])
def test_positions_that_stretch_with_a_sequence_are_refused(packing):
    plain: Any = tiny_model(kind="llama").network.config
    config = copy.deepcopy(plain)
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    model = LanguageModel(LlamaForCausalLM(config), tiny_model().tokenizer)
    with pytest.raises(ModelError, match="dynamic RoPE"):
        Learner(model, role(packing=packing))


def test_a_sample_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="without a prompt"):
        Learner(tiny_model(), role()).update(in_one_task([sample_of([], [5])]), seed=0)


@ways
@pytest.mark.parametrize("loss", ["clip_higher", "gspo", "reinforce"])
def test_with_every_loss_the_gradient_is_that_of_separate_sequences_whatever_the_packs(
    loss, packing
):
    model = in_float64(tiny_model(scale=0.2))
    samples = tried(0, 1.0, model)
    assert samples is not None
    clip = {} if loss == "reinforce" else {"clip_range": 0.05, "clip_range_high": 0.1}
    by_name = {"name": loss, "options": clip}
    for limit in (1, 12, 25, 1000):
        chosen = role(learning_rate=0, loss=by_name, packing=packing, max_pack_tokens=limit)
        assert_same_gradient(model, samples, chosen, 1e-10)


@settings(max_examples=20, deadline=None)
@given(st.floats(-2, 2).filter(bool), st.sampled_from(["clipped", "gspo", "reinforce"]))
def test_a_constant_advantage_of_each_token_is_that_of_the_sample_bit_for_bit(advantage, loss):
    sample = sample_of([10, 11], [20, 21, 22], advantage, [-5.0, -4.0, -6.0])
    other = sample_of([10, 12], [23, 24], -0.5, [-5.0, -4.0])
    moved: list[torch.Tensor] = []
    for own in (advantage, (advantage,) * 3):
        model = tiny_model(scale=0.2)
        pair = [replace(sample, advantage=own), other]
        Learner(model, role(loss=loss)).update(in_one_task(pair), seed=0)
        moved.append(weights(model))
    assert torch.equal(*moved)


def test_each_token_trains_on_its_own_advantage():
    model = in_float64(tiny_model(scale=0.2))
    sample = sample_of([10, 11], [20, 21, 22], 1.0, [-5.0] * 3)
    by_token = replace(sample, advantage=(0.0, 2.0, -1.0))
    Learner(model, role(learning_rate=0, loss="reinforce", kl_weight=0)).update(
        in_one_task([by_token]), seed=0
    )
    found = gradient(model)
    model.network.zero_grad()
    logprobs = plain_logprobs(model, sample.completion, 1.0)
    (-(2.0 * logprobs[1] - logprobs[2]) / 3).backward()
    torch.testing.assert_close(found, gradient(model), rtol=1e-10, atol=1e-10)


def test_two_samples_with_one_response_train_on_their_own_advantages():
    model = tiny_model()
    pair = [sample_of([10, 11], [20, 21], advantage, [-4.0, -5.0]) for advantage in (2.0, -0.5)]
    assert_same_gradient(model, pair, role(learning_rate=0))


def test_the_objective_is_a_mean_over_samples_of_means_over_tokens_whatever_the_packs():
    samples = [
        sample_of([10, 11], [20], 1.0, [-5.0]),
        sample_of([10, 11], [20, 21, 22, 23, 24, 25], -1.0, [-5.0] * 6),
        sample_of([12], [30, 31], 0.5, [-5.0] * 2),
    ]
    expected = plain_loss(tiny_model(), samples, role()).item()
    for limit in (1, 5, 9, 1000):
        statistics = Learner(tiny_model(), role(max_pack_tokens=limit)).update(
            in_one_task(samples), seed=0
        )
        assert statistics["loss"] == pytest.approx(expected, rel=1e-5)


def test_tokens_with_one_allowed_option_neither_count_nor_dilute():
    forced = ((), (21,), (22,), ())
    with_forced = sample_of([10], [20, 21, 22, 23], 1.0, [-3.0, 0.0, 0.0, -4.0], forced)
    model = tiny_model()
    statistics = Learner(model, role(learning_rate=0)).update(in_one_task([with_forced]), 0)
    assert statistics["chosen_tokens"] == 2
    found = gradient(model)
    model.network.zero_grad()
    logprobs = plain_logprobs(model, with_forced.completion)[[0, 3]]
    sample_loss(logprobs, torch.tensor([-3.0, -4.0]), 1.0, role()).backward()
    assert (found - gradient(model)).norm() <= 1e-5 * found.norm()


def test_samples_of_forced_tokens_only_move_nothing():
    model = tiny_model()
    before = weights(model)
    forced = sample_of([10], [20, 21], 1.0, [0.0, 0.0], [(20,), (21,)])
    statistics = Learner(model, role()).update(in_one_task([forced]), seed=0)
    assert statistics["chosen_tokens"] == statistics["grad_norm"] == 0
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_the_samplers_logprobs_are_the_learners_so_the_first_ratio_is_1():
    model = tiny_model(4)
    choices = Choices(69, ((80, 81, 1), (82, 1)), free_tokens=2)
    requests = [Request((10, 11, 12 + i), (1, 2, 3), choices if i % 2 else None) for i in range(6)]
    groups = HFEngine(model).generate(requests, Sampling(0.8, 7))
    samples = [Sample("a/0", each, 1.0) for group in groups for each in group]
    statistics = Learner(model, role(temperature=0.8, learning_rate=0)).update(
        in_one_task(samples), seed=0
    )
    assert statistics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert statistics["ratio_max"] == pytest.approx(1, abs=1e-3)
    assert statistics["clip_share"] == 0
    assert statistics["kl"] == pytest.approx(0, abs=1e-6)


def test_statistics_describe_the_update():
    model = tiny_model()
    samples = [sample_of([10, 11], [20, 30 + i], 1.0, [-5.0, -5.0]) for i in range(3)]
    seen: list[int] = []
    learner = Learner(model, role(learning_rate=0, max_pack_tokens=4))
    statistics = learner.update(in_one_task(samples), seed=0, on_samples=seen.append)
    new = torch.stack([plain_logprobs(model, sample.completion) for sample in samples])
    ratio = (new + 5).exp()
    assert sum(seen) == statistics["samples"] == 3
    assert statistics["updates"] == 1
    assert statistics["sample_tokens"] == 12
    assert statistics["computed_tokens"] == 12  # A limit of 4 leaves nothing to share.
    assert statistics["chosen_tokens"] == 6
    assert statistics["ratio_mean"] == pytest.approx(ratio.mean().item(), rel=1e-4)
    assert statistics["ratio_max"] == pytest.approx(ratio.max().item(), rel=1e-4)
    assert statistics["clip_share"] == pytest.approx((ratio > 1.2).float().mean().item())
    assert 0 < (statistics["entropy"] or 0) < np.log(320)
    assert statistics["grad_norm"] == pytest.approx(gradient(model).norm().item(), rel=1e-4)


def test_advantage_0_is_refused_before_anything_moves():
    model = tiny_model()
    before = weights(model)
    samples = [sample_of([10], [20], 1.0), sample_of([10], [21], 0.0)]
    with pytest.raises(ValueError, match="advantage 0"):
        Learner(model, role()).update(in_one_task(samples), seed=0)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_a_learning_rate_of_0_moves_nothing():
    model = tiny_model()
    before = weights(model)
    chosen = role(learning_rate=0, weight_decay=0.1, minibatches=3)
    Learner(model, chosen).update([(str(i), s) for i, s in enumerate(random_samples(0))], seed=0)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_advantages_sign_decides_whether_sampled_tokens_become_likelier(advantage):
    model = tiny_model()
    [[completion]] = HFEngine(model).generate([Request((10, 11), (3,))], Sampling(1.0, 6))
    before = plain_logprobs(model, completion).sum().item()
    Learner(model, role(learning_rate=1e-3)).update(
        in_one_task([Sample("a/0", completion, advantage)]), seed=0
    )
    change = plain_logprobs(model, completion).sum().item() - before
    assert change * advantage > 1e-3


def test_without_samples_nothing_happens():
    model = tiny_model()
    before = weights(model)
    statistics = Learner(model, role()).update([], seed=0)
    assert statistics["updates"] == statistics["samples"] == 0
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_the_gradient_norm_is_clipped_for_each_update_and_reported_unclipped():
    model = tiny_model()
    samples = random_samples(3)
    statistics = Learner(model, role(max_grad_norm=0.01, learning_rate=0)).update(
        in_one_task(samples), seed=0
    )
    assert (statistics["grad_norm"] or 0) > 0.02
    assert gradient(model).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_adamw_remembers_its_moments_between_updates():
    ours, reference = tiny_model(), tiny_model()
    samples = random_samples(5)
    chosen = role(learning_rate=1e-3, weight_decay=0.01, max_grad_norm=0.5)
    learner = Learner(ours, chosen)
    optimizer = torch.optim.AdamW(reference.network.parameters(), lr=1e-3, weight_decay=0.01)
    for iteration in range(3):
        learner.update(in_one_task(samples), seed=iteration)
        optimizer.zero_grad()
        plain_loss(reference, samples, chosen).backward()
        torch.nn.utils.clip_grad_norm_(reference.network.parameters(), 0.5)
        optimizer.step()
    moved = (weights(reference) - weights(tiny_model())).norm()
    assert (weights(ours) - weights(reference)).norm() < 0.01 * moved


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_a_learner_continues_from_its_saved_state(tmp_path: Path, device: str):
    samples = random_samples(6)
    # Heads of 16 dimensions: FlexAttention, which GPUs have, knows no smaller ones.
    straight, resumed = (tiny_model(heads=2, key_value_heads=1) for _ in range(2))
    for model in (straight, resumed):
        put(model.network, "tiny", device)
    learner = Learner(straight, role())
    first = Learner(resumed, role())
    for each in (learner, first):
        each.update(in_one_task(samples), seed=0)
    first.snapshot(tmp_path / "optimizer")()
    second = Learner(resumed, role())
    second.load(tmp_path / "optimizer")
    for each in (learner, second):
        each.update(in_one_task(samples), seed=1)
    torch.testing.assert_close(weights(resumed), weights(straight), rtol=0, atol=0)


class Code:
    """Creates a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("trace",)


def pickled(file: Path) -> None:
    torch.save({"optimizer": Code()}, file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def of_another_shape(file: Path) -> None:
    save_file({"model.norm.weight.step": torch.ones(1), "skipped_in_a_row": torch.ones(1)}, file)


def without_metadata(file: Path) -> None:
    save_file({"skipped_in_a_row": torch.ones(1)}, file, {"DCP_SHARDING_INFO": "[]"})


@pytest.mark.parametrize(
    "damage", [pickled, cut, of_another_shape, without_metadata, Path.unlink, Path.mkdir]
)
def test_a_saved_state_that_is_none_is_one_line_and_no_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, model = tmp_path / "optimizer", tiny_model()
    learner = Learner(model, role())
    learner.update(in_one_task(random_samples(1)), seed=0)
    learner.snapshot(folder)()
    [file] = folder.iterdir()
    if damage is Path.mkdir:
        file.unlink()
    damage(file)
    with pytest.raises(ModelError) as caught:
        Learner(model, role()).load(folder)
    assert str(caught.value).startswith(f"cannot go on from {folder}: ")
    assert str(caught.value).isprintable()
    assert not Path("trace").exists()


def test_the_model_is_left_ready_to_generate():
    model = tiny_model()
    Learner(model, role()).update(in_one_task(random_samples(1)), seed=0)
    assert not model.network.training


def resident() -> float:
    """The memory of this process that is the machine's, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_generation_freed_is_the_systems_again_when_an_update_begins():
    torch.ones(4_000_000)  # once so much was freed, blocks of 1 MB come from the heap
    blocks = [torch.ones(250_000) for _ in range(400)]
    kept = blocks[::20]
    del blocks
    before = resident()
    Learner(tiny_model(), role()).update([], 0)
    assert resident() < before - 200
    del kept


def test_each_minibatch_is_one_optimizer_step():
    model = tiny_model()
    samples = [(f"task {i}", sample) for i, sample in enumerate(random_samples(7, 5))]
    learner = Learner(model, role(minibatches=3))
    assert learner.update(samples, seed=0)["updates"] == 3
    assert {float(state["step"]) for state in learner._optimizer.state.values()} == {3.0}


@pytest.mark.parametrize("packing", ["shared", "padded"])
def test_epochs_train_on_the_same_minibatches_again(packing: str):
    samples = [(f"task {i}", sample) for i, sample in enumerate(random_samples(7, 5))]
    settings = {"packing": packing, "minibatches": 3, "learning_rate": 0.01}
    once, twice = tiny_model(), tiny_model()
    one, two = Learner(once, role(**settings)), Learner(twice, role(**settings, epochs=2))
    told = list[int]()
    one.update(samples, seed=0)
    again = one.update(samples, seed=0)
    found = two.update(samples, seed=0, on_samples=told.append)
    assert found["updates"] == 6
    assert found["samples"] == sum(told) == 2 * (again["samples"] or 0)
    torch.testing.assert_close(weights(twice), weights(once))


def test_recomputed_ratios_of_later_epochs_compare_with_the_weights_before_the_first():
    samples = [(f"task {i}", sample) for i, sample in enumerate(random_samples(7, 5))]
    settings = {"old_logprobs": "recomputed", "learning_rate": 0.1, "kl_weight": 0}
    kl = [
        Learner(tiny_model(), role(**settings, epochs=epochs)).update(samples, seed=0)["kl"]
        for epochs in (1, 4)
    ]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert (kl[1] or 0) > 0.01


def off_by(samples: Sequence[Sample], shift: float) -> list[Sample]:
    """As if the sampler had computed every log-prob that much lower."""
    return [
        replace(
            sample,
            completion=replace(
                sample.completion, logprobs=tuple(x - shift for x in sample.completion.logprobs)
            ),
        )
        for sample in samples
    ]


def exactly_sampled(model: LanguageModel, samples: Sequence[Sample]) -> list[Sample]:
    return [
        replace(
            sample,
            completion=replace(
                sample.completion,
                logprobs=tuple(plain_logprobs(model, sample.completion, 1.0).tolist()),
            ),
        )
        for sample in samples
    ]


@pytest.mark.parametrize("old_logprobs", ["sampled", "recomputed"])
def test_the_mismatch_is_that_of_the_weights_that_sampled(old_logprobs):
    model = tiny_model(scale=0.2)
    samples = off_by(exactly_sampled(model, random_samples(3)), 0.2)
    pairs = [(str(i), sample) for i, sample in enumerate(samples)]
    settings = role(old_logprobs=old_logprobs, minibatches=3, learning_rate=0.1)
    found = Learner(model, settings).update(pairs, seed=0)
    assert found["mismatch_mean"] == pytest.approx(0.2, abs=1e-4)
    assert found["mismatch_max"] == pytest.approx(0.2, abs=1e-4)
    assert found["mismatch_outside"] == 1
    assert found["mismatch_kl"] == pytest.approx(np.expm1(0.2) - 0.2, abs=1e-4)
    clean = exactly_sampled(model, random_samples(3))
    settings = role(old_logprobs=old_logprobs, learning_rate=0)
    found = Learner(model, settings).update([("t", sample) for sample in clean], seed=0)
    assert found["mismatch_max"] == pytest.approx(0, abs=1e-4)
    assert found["mismatch_outside"] == 0


def test_recomputed_ratios_are_one_before_the_first_step_whatever_the_sampler_said():
    model = tiny_model(scale=0.2)
    samples = off_by(exactly_sampled(model, random_samples(5)), 0.5)
    settings = role(old_logprobs="recomputed", learning_rate=0)
    found = Learner(model, settings).update(in_one_task(samples), seed=0)
    assert found["ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert found["kl"] == pytest.approx(0, abs=1e-6)
    found = Learner(model, role(learning_rate=0)).update(in_one_task(samples), seed=0)
    assert found["ratio_mean"] == pytest.approx(np.exp(0.5), rel=1e-4)


def test_forward_passes_before_an_update_are_heard_of():
    told: list[int] = []
    samples = [(str(i), sample) for i, sample in enumerate(random_samples(4))]
    Learner(tiny_model(), role(old_logprobs="recomputed")).update(samples, 0, told.append)
    assert told[0] == 0
    assert sum(told) == len(samples)


@pytest.mark.parametrize(("cap", "weight"), [(1.2, 1.2), (10.0, float(np.exp(0.5)))])
def test_truncated_importance_weighs_the_surrogate(cap: float, weight: float):
    model = tiny_model(scale=0.2)
    samples = off_by(exactly_sampled(model, random_samples(5)), 0.5)
    settings = role(old_logprobs="recomputed", learning_rate=0, kl_weight=0)
    Learner(model, settings).update(in_one_task(samples), seed=0)
    plain = gradient(model)
    Learner(model, settings.model_copy(update={"importance_cap": cap})).update(
        in_one_task(samples), seed=0
    )
    torch.testing.assert_close(gradient(model), plain * weight, rtol=1e-3, atol=1e-6)


def test_an_importance_cap_without_recomputed_log_probs_is_refused():
    with pytest.raises(ValueError, match="needs old_logprobs: recomputed"):
        role(importance_cap=2.0)


def raised_log_probs(inputs: LossInputs) -> LossOutputs:
    """A loss of one's own: whatever the advantage, sampled tokens become likelier."""
    return with_kl(inputs, -inputs.new_logprobs)


def mean_of_tokens(inputs: LossInputs) -> LossOutputs:
    """A loss that does the learner's work, wrongly."""
    return replace(raised_log_probs(inputs), loss=inputs.new_logprobs.mean())


def test_a_loss_of_ones_own_trains_as_a_name_and_as_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_losses.py").write_text(
        "from rlanything.algorithm.losses import LossInputs, LossOutputs, with_kl\n"
        "def likelier(inputs: LossInputs) -> LossOutputs:\n"
        "    return with_kl(inputs, -inputs.new_logprobs)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RLANYTHING_ALLOW_CODE", "1")
    start, named, handed = (tiny_model() for _ in range(3))
    samples = in_one_task([sample_of([10, 11], [20, 21], -1.0, [-4.0, -5.0])])
    statistics = Learner(named, role(loss="own_losses:likelier")).update(samples, seed=0)
    assert statistics["clip_share"] == 0
    assert statistics["updates"] == 1
    Learner(handed, role(loss=raised_log_probs)).update(samples, seed=0)
    torch.testing.assert_close(weights(handed), weights(named), rtol=0, atol=0)
    before, after = (
        plain_logprobs(model, samples[0][1].completion).sum() for model in (start, named)
    )
    assert after > before


def test_an_unknown_loss_is_one_line() -> None:
    with pytest.raises(RecipeError, match=r"policy\.loss: unknown loss 'ppo': use one of .*$"):
        load_recipe(GUESS, ["policy.loss=ppo"])


def test_a_loss_that_takes_the_mean_itself_is_refused() -> None:
    samples = in_one_task([sample_of([10, 11], [20, 21], 1.0, [-4.0, -5.0])])
    with pytest.raises(ValueError, match=r"mean_of_tokens\): .* one number a token"):
        Learner(tiny_model(), role(loss=mean_of_tokens)).update(samples, seed=0)


def test_losses_are_told_which_tokens_belong_to_which_sample_and_see_samples_whole() -> None:
    seen: list[tuple[list[float], list[int], int]] = []

    def watched(inputs: LossInputs) -> LossOutputs:
        numbers = inputs.samples.tolist()
        seen.append((inputs.old_logprobs.tolist(), numbers, inputs.sample_count))
        return with_kl(inputs, -inputs.new_logprobs)

    # Log-probs are the samples' names; the third has no token that was chosen.
    forced = sample_of([10, 11], [24], 1.0, [0.0], [(24,)])
    samples = [
        sample_of([10, 11], [20 + i] * (i + 1), 1.0, [-float(i + 1)] * (i + 1)) for i in range(4)
    ]
    for limit in (1, 6, 1000):
        seen.clear()
        Learner(tiny_model(), role(max_pack_tokens=limit, loss=watched)).update(
            in_one_task([*samples[:2], forced, *samples[2:]]), seed=0
        )
        lengths: list[int] = []
        for names, numbers, count in seen:
            assert (
                len(set(zip(names, numbers, strict=True))) == len(set(numbers)) == len(set(names))
            )
            assert set(numbers) <= set(range(count))
            lengths += [numbers.count(number) for number in sorted(set(numbers))]
        assert sorted(lengths) == [1, 2, 3, 4]
        assert sum(count for _, _, count in seen) == 5
