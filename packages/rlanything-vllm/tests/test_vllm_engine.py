"""vLLM against the learner: the same log-probs, before and after its weights moved."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from helpers.starts import engine_of, nano_policy
from helpers.tiny import plain_logprobs, tiny_model
from rlanything.config.roles import LoraSettings
from rlanything.engines.base import Choices, ModelError, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.records import Completion
from rlanything_vllm.engine import EngineLost, VLLMEngine

TOLERANCE = 1e-4
END, MARKER = 1, 69
CHOICES = Choices(MARKER, ((80, 81, END), (80, 82, 83, END), (90, END)), free_tokens=3)


def prompts(count: int, seed: int = 0, longest: int = 150) -> list[tuple[int, ...]]:
    """Random prompts of mixed lengths, the first of one token."""
    rng = np.random.default_rng(seed)
    return [
        tuple(rng.integers(5, 320, length).tolist())
        for length in (1, *rng.integers(2, longest, count - 1))
    ]


def flat(groups: Sequence[Sequence[Completion]]) -> list[Completion]:
    return [each for group in groups for each in group]


@torch.no_grad()
def difference(model: LanguageModel, completions: Sequence[Completion], temperature: float):
    """The largest between the engine's log-probs and those of a plain forward."""
    return max(
        (torch.tensor(each.logprobs) - plain_logprobs(model, each, temperature)).abs().max().item()
        for each in completions
    )


@torch.no_grad()
def move(model: LanguageModel, scale: float = 0.02) -> None:
    for weights in model.network.parameters():
        weights.add_(torch.randn_like(weights) * scale)


@pytest.mark.parametrize("choices", [None, CHOICES])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.4])
def test_logprobs_are_those_of_the_learner(engine, frozen, choices, temperature):
    requests = [Request(prompt, (i, 2**62 + i), choices) for i, prompt in enumerate(prompts(9))]
    requests.append(Request((10, 11), (1,)))
    groups = engine.generate(requests, Sampling(temperature, 12))
    assert [len(group) for group in groups] == [2] * 9 + [1]
    assert difference(frozen, flat(groups), temperature or 1.0) < TOLERANCE


def test_without_chance_vllm_writes_what_the_embedded_engine_writes(engine, frozen):
    requests = [
        Request(prompt, (0,), CHOICES if i % 2 else None) for i, prompt in enumerate(prompts(12))
    ]
    ours, theirs = (e.generate(requests, Sampling(0.0, 12)) for e in (HFEngine(frozen), engine))
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert (a.prompt_ids, a.token_ids, a.allowed) == (b.prompt_ids, b.token_ids, b.allowed)
        assert (a.stop_reason, a.text) == (b.stop_reason, b.text)


def test_a_response_keeps_its_end_of_turn_token_with_its_logprob(engine, frozen):
    group = flat(engine.generate([Request((10, 11, 12), tuple(range(60)))], Sampling(1.5, 12)))
    stopped = [each for each in group if each.stop_reason == "stop"]
    assert 0 < len(stopped) < len(group)
    for each in group:
        assert len(each.logprobs) == len(each.allowed) == len(each.token_ids)
        assert END not in each.token_ids[:-1]
        assert (each.token_ids[-1] == END) == (each.stop_reason == "stop")
        assert each.stop_reason == "stop" or len(each.token_ids) == 12
        shown = each.token_ids[:-1] if each.stop_reason == "stop" else each.token_ids
        assert each.text == frozen.decode(shown)


def test_choices_are_kept_whoever_else_is_in_the_batch(engine):
    requests = [
        Request(prompt, tuple(range(i, i + 3)), CHOICES if i % 3 else None)
        for i, prompt in enumerate(prompts(60, longest=20))
    ]
    for request, group in zip(requests, engine.generate(requests, Sampling(1.0, 12)), strict=True):
        for each in group if request.choices else ():
            if MARKER in each.token_ids:
                at = each.token_ids.index(MARKER)
                assert each.token_ids[at + 1 :] in CHOICES.options
                assert at <= CHOICES.free_tokens
            else:
                assert each.stop_reason == "stop"  # it may end its turn in its free text


def test_a_sample_depends_on_its_seed_and_not_on_its_batch(engine):
    requests = [
        Request(prompt, (i, i + 100), CHOICES if i % 2 else None)
        for i, prompt in enumerate(prompts(12, seed=2))
    ]
    together = engine.generate(requests, Sampling(1.0, 12))
    again = flat(engine.generate(requests, Sampling(1.0, 12)))
    assert [one.token_ids for one in again] == [one.token_ids for one in flat(together)]
    for one, other in zip(again, flat(together), strict=True):  # which began without cached prompts
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    for request, group in zip(requests, together, strict=True):
        for seed, completion in zip(request.seeds, group, strict=True):
            alone = flat(engine.generate([replace(request, seeds=(seed,))], Sampling(1.0, 12)))
            assert alone[0].token_ids == completion.token_ids
    [group] = engine.generate([Request(prompts(2)[1], tuple(range(20)))], Sampling(2.0, 8))
    assert len({each.token_ids for each in group}) == 20


def test_more_tokens_than_a_step_takes_still_have_their_seeds(engine, frozen):
    # vLLM would split these prompts between its steps, which a CPU's seeds do not survive.
    requests = [Request(prompt, (i,)) for i, prompt in enumerate(prompts(100, longest=300))]
    together = engine.generate(requests, Sampling(1.0, 4))
    assert engine.generate(requests[-1:], Sampling(1.0, 4))[0][0].token_ids == (
        together[-1][0].token_ids
    )
    assert difference(frozen, flat(together)[::9], 1.0) < TOLERANCE


def test_samples_and_turns_of_a_prompt_share_what_was_computed(engine):
    engine.sync_weights()
    [prompt] = prompts(2, seed=5, longest=301)[1:]
    assert len(prompt) > 64
    before = engine.reused_tokens
    [group] = engine.generate([Request(prompt, tuple(range(8)))], Sampling(1.0, 8))
    # Whole blocks of 32 tokens, by all samples but the first.
    whole = (len(prompt) - 1) // 32 * 32
    assert engine.reused_tokens - before == 7 * whole
    longer = (*group[0].tokens, *range(10, 60))
    engine.generate([Request(longer, (1,))], Sampling(1.0, 8))
    assert engine.reused_tokens - before >= 8 * whole


@pytest.mark.parametrize("kind", ["nano", "qwen2", "llama"])
def test_new_weights_are_used_once_the_engine_was_told(kind):
    # nano and qwen2 have tied embeddings, llama has not.
    model = nano_policy() if kind == "nano" else tiny_model(1, kind, 1, 1, scale=0.2)
    engine = engine_of(model)
    requests = [Request(prompt, (1, 2)) for prompt in prompts(6)]
    sampling = Sampling(0.9, 10)
    first = flat(engine.generate(requests, sampling))
    assert difference(model, first, 0.9) < TOLERANCE
    worker = engine.process_id
    for _ in range(2):
        move(model)
        stale = flat(engine.generate(requests, sampling))
        assert difference(model, stale, 0.9) > 0.01
        engine.sync_weights()
        fresh = flat(engine.generate(requests, sampling))
        assert difference(model, fresh, 0.9) < TOLERANCE
        assert [each.logprobs for each in fresh] != [each.logprobs for each in stale]
    assert engine.process_id == worker


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_adapters_that_train_are_handed_over_beside_weights_that_stay(tmp_path, kind, monkeypatch):
    tiny_model(1, kind, 1, 1, scale=0.2).save(tmp_path / "base")
    model = load_model(tmp_path / "base", "float32")
    add_adapters(model, LoraSettings(rank=4), seed=1)
    orders = []
    ask = VLLMEngine._ask

    def asking(engine, order, *rest):
        orders.append(type(order).__name__)
        return ask(engine, order, *rest)

    monkeypatch.setattr(VLLMEngine, "_ask", asking)
    engine = engine_of(model)
    requests = [Request(prompt, (1, 2)) for prompt in prompts(6)]
    drawn = flat(engine.generate(requests, Sampling(0.9, 10)))
    assert difference(model, drawn, 0.9) < TOLERANCE
    for _ in range(2):
        with torch.no_grad():
            for name, weights in model.network.named_parameters():
                if ".lora_" in name:
                    weights.add_(torch.randn_like(weights) * 0.1)
        assert difference(model, drawn, 0.9) > 0.01
        engine.sync_weights()
        drawn = flat(engine.generate(requests, Sampling(0.9, 10)))
        assert difference(model, drawn, 0.9) < TOLERANCE
    assert orders == ["Weights", "Adapters", "Draws", *["Adapters", "Draws"] * 2]
    os.kill(engine.process_id, signal.SIGKILL)
    again = flat(engine.generate(requests, Sampling(0.9, 10)))
    assert [each.token_ids for each in again] == [each.token_ids for each in drawn]
    assert "Weights" in orders[-4:]  # who comes in its place needs all of them


def test_adapters_that_vllm_cannot_take_are_refused(tmp_path):
    tiny_model(1).save(tmp_path / "base")
    model = load_model(tmp_path / "base", "float32")
    add_adapters(model, LoraSettings(rank=600), seed=1)
    with pytest.raises(ModelError, match=r"rank 600; lower lora\.rank"):
        engine_of(model)
    with pytest.raises(ModelError, match=r"adapters in bfloat16 only; set policy\.dtype"):
        engine_of(model, device="cuda")


def test_an_engine_that_sleeps_leaves_no_process_and_says_the_same_afterwards(frozen):
    engine = engine_of(frozen, sleep=True)
    requests = [Request(prompt, (1, 2)) for prompt in prompts(6)]
    before = engine.generate(requests, Sampling(1.0, 10))
    worker = engine.process_id
    engine.release_cache()
    assert not Path(f"/proc/{worker}").exists()
    after = engine.generate(requests, Sampling(1.0, 10))
    assert [[each.token_ids for each in g] for g in after] == [
        [each.token_ids for each in g] for g in before
    ]
    assert engine.process_id != worker
    engine.release_cache()
    engine.release_cache()  # twice is no harm


def test_an_engine_that_does_not_sleep_stays_when_it_rests(engine):
    worker = engine.process_id
    engine.release_cache()
    assert Path(f"/proc/{worker}").exists()


# No weight that another one is tied to: some releases of vLLM get it from that one.
@pytest.mark.parametrize("lost", ["0.self_attn.o_proj", "1.mlp.down_proj"])
def test_weights_that_do_not_arrive_are_found_out_at_once(frozen, lost, monkeypatch):
    whole = nn.Module.state_dict

    def incomplete(module, *args, **keywords):
        return {k: v for k, v in whole(module, *args, **keywords).items() if lost not in k}

    with monkeypatch.context() as patch:
        patch.setattr(type(frozen.network), "state_dict", incomplete)
        broken = engine_of(frozen)
        with pytest.raises(EngineLost, match=r"policy: .* log-probs differ .*name: embedded"):
            broken.generate([Request(prompt, (1,)) for prompt in prompts(8)], Sampling(1.0, 8))


def test_a_prompt_that_does_not_fit_is_one_line_that_names_the_key(frozen):
    small = engine_of(frozen, max_context=64)
    assert len(flat(small.generate([Request((5,) * 56, (1,))], Sampling(1.0, 8)))) == 1
    with pytest.raises(ModelError, match=r"prompt of 57 tokens .* policy\.engine\.max_context"):
        small.generate([Request((5,) * 57, (1,))], Sampling(1.0, 8))


def test_no_requests_give_no_completions(engine):
    assert engine.generate([], Sampling(1.0, 8)) == []


def test_an_engine_that_cannot_start_says_why(frozen):
    with pytest.raises(ModelError, match=r"policy\.engine: .*(memory|cache).*embedded"):
        engine_of(frozen, memory_gib=2e-6)
    with pytest.raises(ModelError, match=r"policy\.engine: .*runs on cpu, not on cuda"):
        engine_of(frozen, device="cuda")
