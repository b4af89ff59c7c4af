"""The embedded engine against a plain forward pass of the same model."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

from helpers.paths import ROOT
from helpers.tiny import plain_logits, plain_logprobs, tiny_model
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import Choices, Request, Sampling
from rlanything.engines.hf import cache as cache_module
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.engine import BATCH_ROWS, MIN_COPIED, HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.partial_completion import PartialCompletion, draw
from rlanything.learning.learner import Learner
from rlanything.records import Completion, Sample

END = 1
MARKER = 69
CHOICES = Choices(MARKER, ((80, 81, END), (80, 82, 83, END), (90, END)), free_tokens=3)
SAMPLING = Sampling(temperature=0.7, max_tokens=9)


def prompts(count: int, seed: int = 0, longest: int = 40) -> list[tuple[int, ...]]:
    """Random prompts of mixed lengths, the first of one token."""
    rng = np.random.default_rng(seed)
    lengths = [1, *rng.integers(2, longest, count - 1)]
    return [tuple(rng.integers(5, 320, length).tolist()) for length in lengths]


def flat(groups: Sequence[Sequence[Completion]]) -> list[Completion]:
    return [each for group in groups for each in group]


def assert_exact(model: LanguageModel, completions: Sequence[Completion], temperature: float):
    for each in completions:
        expected = plain_logprobs(model, each, temperature)
        torch.testing.assert_close(torch.tensor(each.logprobs), expected, atol=1e-4, rtol=0)


def prefilled_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompt tokens each wave of prefills computes from now on."""
    computed: list[int] = []
    prefill = HFEngine._prefill

    def counted(engine, rows, batch):
        held = [len(engine._cache.tokens[row]) for row in rows]
        computed.append(sum(len(r.prompt_ids) - n for r, n in zip(batch, held, strict=True)))
        return prefill(engine, rows, batch)

    monkeypatch.setattr(HFEngine, "_prefill", counted)
    return computed


@pytest.mark.parametrize("choices", [None, CHOICES])
def test_logprobs_of_mixed_prompts_and_several_samples_are_those_of_a_plain_forward(
    frozen_model, choices
):
    requests = [
        Request(prompt, tuple(range(i, i + 1 + i % 3)), choices)
        for i, prompt in enumerate(prompts(14))
    ]
    groups = HFEngine(frozen_model).generate(requests, SAMPLING)
    assert [len(group) for group in groups] == [len(request.seeds) for request in requests]
    assert [group[0].prompt_ids for group in groups] == [r.prompt_ids for r in requests]
    assert_exact(frozen_model, flat(groups), SAMPLING.temperature)


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_logprobs_are_right_for_both_architectures_without_grouped_heads(kind):
    model = tiny_model(3, kind, heads=4, key_value_heads=4)
    requests = [Request(prompt, (1, 2)) for prompt in prompts(5)]
    assert_exact(model, flat(HFEngine(model).generate(requests, SAMPLING)), 0.7)


@pytest.mark.parametrize("choices", [None, CHOICES])
def test_continued_conversations_compute_only_what_is_new_and_stay_exact(
    frozen_model, choices, monkeypatch
):
    prefilled: list[int] = []
    original = LanguageModel.hidden_states

    def counting(self, ids, positions, mask, cache=None):
        if ids.shape[1] > 1:
            prefilled.append(ids.numel())
        return original(self, ids, positions, mask, cache)

    engine = HFEngine(frozen_model)
    texts = {f"episode {i}": prompt for i, prompt in enumerate(prompts(6, longest=80))}
    rng = np.random.default_rng(1)
    for turn in range(5):
        requests = [Request(text, (turn,), choices, name) for name, text in texts.items()]
        with monkeypatch.context() as patch:
            patch.setattr(LanguageModel, "hidden_states", counting)
            groups = engine.generate(requests, SAMPLING)
        assert_exact(frozen_model, flat(groups), SAMPLING.temperature)
        if turn > 0:
            # Six new tokens and what was not computed of the response: what ended it, or the last
            # choice in it and the forced end behind that.
            assert sum(prefilled) == len(texts) * (7 if choices is None else 9)
        prefilled.clear()
        texts = {
            name: (*text, *group[0].token_ids, *rng.integers(5, 320, 6).tolist())
            for (name, text), group in zip(texts.items(), groups, strict=True)
        }
        if turn == 1:
            del texts["episode 2"]  # An episode that ends leaves a gap between the rows.


@pytest.mark.parametrize("sampling", [SAMPLING, Sampling(0.0, 9)])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_forced_end_takes_no_pass_and_changes_nothing(samples, sampling, monkeypatch):
    model = tiny_model()
    model.network.double()  # so that rounding cannot be mistaken for a difference
    passes: list[int] = []
    original = LanguageModel.hidden_states

    def counting(self, ids, positions, mask, cache=None):
        passes[-1] += 1
        return original(self, ids, positions, mask, cache)

    def three_turns() -> list[Completion]:
        passes.append(0)
        engine, found = HFEngine(model), list[Completion]()
        texts = prompts(5)
        for turn in range(3):
            seeds = tuple(range(turn, turn + samples))
            requests = [Request(p, seeds, CHOICES, str(i)) for i, p in enumerate(texts)]
            groups = engine.generate(requests, sampling)
            found += flat(groups)
            texts = [(*group[0].tokens, 9, 10) for group in groups]
        return found

    monkeypatch.setattr(LanguageModel, "hidden_states", counting)
    ours = three_turns()
    monkeypatch.setattr(PartialCompletion, "_take_forced_end", lambda partial: None)
    expected = three_turns()
    assert passes[0] < passes[1]
    for one, other in zip(ours, expected, strict=True):
        assert replace(one, logprobs=()) == replace(other, logprobs=())
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_rows_that_move_while_some_are_still_decoded_stay_exact(frozen_model, samples):
    # Short answers and long ones alternate, so that the long ones have to be brought together.
    engine = HFEngine(frozen_model)
    texts = dict(enumerate(prompts(16, seed=3)))
    for turn in range(4):
        requests = [
            Request(text, tuple(range(samples)), None if i % 3 == 0 else CHOICES, str(i))
            for i, text in texts.items()
        ]
        groups = engine.generate(requests, SAMPLING)
        assert [group[0].prompt_ids for group in groups] == list(texts.values())
        assert_exact(frozen_model, flat(groups), SAMPLING.temperature)
        texts = {
            i: (*text, *group[0].token_ids, 7, 8)
            for (i, text), group in zip(texts.items(), groups, strict=True)
            if (i + turn) % 4
        }


def test_a_long_row_that_ended_keeps_its_response_when_shorter_ones_take_its_place(frozen_model):
    # Rows 0 and 5 to 7 end first, then 2 and 3: row 4 then takes the place of row 0, beside row 1.
    engine = HFEngine(frozen_model)
    texts = [tuple(range(10, 70)), *(tuple(range(10 * i, 10 * i + 5)) for i in range(1, 8))]
    drawn = [3, 8, 5, 5, 8, 3, 3, 3]
    requests = [
        Request(text, (i,), Choices(MARKER, ((END,),), free_tokens=count), str(i))
        for i, (text, count) in enumerate(zip(texts, drawn, strict=True))
    ]
    groups = engine.generate(requests, Sampling(0.7, 12))
    assert [len(group[0].token_ids) for group in groups] == [count + 2 for count in drawn]
    later = [Request((*g[0].tokens, 7, 8), (9,), None, str(i)) for i, g in enumerate(groups)]
    assert_exact(frozen_model, flat(engine.generate(later, SAMPLING)), SAMPLING.temperature)


def test_rows_that_storage_has_no_room_for_yet_can_be_brought_together(frozen_model, monkeypatch):
    # The third call takes four rows of the first and one that is new.
    monkeypatch.setattr(cache_module, "KEPT_ROWS", 11)
    engine = HFEngine(frozen_model)
    for call in range(4):
        requests = [
            Request(prompt, (i,), None, f"{call}/{i}")
            for i, prompt in enumerate(prompts(5, seed=call))
        ]
        assert_exact(frozen_model, flat(engine.generate(requests, SAMPLING)), SAMPLING.temperature)


def test_a_prompt_that_only_begins_like_the_last_one_is_still_exact(frozen_model):
    engine = HFEngine(frozen_model)
    long = prompts(2, seed=4, longest=60)[1]
    for prompt in (long, long[: len(long) // 2], (*long[:3], 7, 7, 7), long[1:], long, long):
        groups = engine.generate([Request(prompt, (1, 2), conversation="same")], SAMPLING)
        assert_exact(frozen_model, flat(groups), SAMPLING.temperature)


def test_prompts_of_one_call_that_begin_alike_compute_their_beginning_once(
    frozen_model, monkeypatch
):
    stem, other = prompts(3, longest=80)[1:], prompts(9, seed=1)[1:]
    long = stem[0] * 3 + stem[1]
    assert len(long) >= 3 * MIN_COPIED
    endings = [(), (), *other, long]
    requests = [Request(long + end, (i,), None, f"c{i}") for i, end in enumerate(endings)]
    computed = prefilled_tokens(monkeypatch)
    engine = HFEngine(frozen_model)
    groups = engine.generate(requests, SAMPLING)
    # The one whole prompt and of the others their ends; equal prompts still compute one token each.
    everything = sum(len(request.prompt_ids) for request in requests)
    assert sum(computed) <= everything - (len(requests) - 1) * (len(long) - 1)
    assert_exact(frozen_model, flat(groups), SAMPLING.temperature)
    # Rows that were copied are as good as computed ones when the conversation goes on.
    further = [
        replace(request, prompt_ids=(*request.prompt_ids, *group[0].token_ids, 7, 8))
        for request, group in zip(requests, groups, strict=True)
    ]
    assert_exact(frozen_model, flat(engine.generate(further, SAMPLING)), SAMPLING.temperature)


def test_tasks_under_one_system_prompt_share_it_and_their_rollouts_share_the_task(
    frozen_model, monkeypatch
):
    rng = np.random.default_rng(2)
    system = rng.integers(5, 320, 20).tolist()
    tasks = [rng.integers(5, 320, 60).tolist() for _ in range(3)]
    requests = [
        Request((*system, *task), (g,), None, f"{t}/{g}")
        for g in range(4)
        for t, task in enumerate(tasks)
    ]
    computed = prefilled_tokens(monkeypatch)
    groups = HFEngine(frozen_model).generate(requests, SAMPLING)
    # The system prompt, three tasks, and one token of each prompt that is computed already.
    assert sum(computed) == 20 + 3 * 60 + 9
    assert len(computed) == 3
    assert_exact(frozen_model, flat(groups), SAMPLING.temperature)


def test_in_bfloat16_the_engine_generates_what_the_learner_computes():
    model = tiny_model(4)
    half = LanguageModel(model.network, model.tokenizer, torch.bfloat16)
    requests = [Request(prompt, (1, 2)) for prompt in prompts(6)]
    samples = [
        Sample("a/0", each, 1.0) for each in flat(HFEngine(half).generate(requests, SAMPLING))
    ]
    settings = TrainedRoleConfig(learning_rate=0, temperature=SAMPLING.temperature)
    statistics = Learner(half, settings).update([("a", sample) for sample in samples], seed=0)
    # bfloat16 has three digits; a wrong row or position would be off by far more.
    assert statistics["ratio_mean"] == pytest.approx(1, abs=0.05)
    assert statistics["kl"] == pytest.approx(0, abs=0.02)


def test_requests_that_share_a_conversation_in_one_call_do_not_share_keys(frozen_model):
    requests = [Request(prompt, (5,), conversation="same") for prompt in prompts(4)]
    engine = HFEngine(frozen_model)
    for _ in range(2):
        assert_exact(frozen_model, flat(engine.generate(requests, SAMPLING)), 0.7)


def test_a_sample_is_the_same_alone_and_in_a_batch(frozen_model):
    requests = [
        Request(prompt, (i, i + 100), CHOICES if i % 2 else None)
        for i, prompt in enumerate(prompts(9, seed=2))
    ]
    together = HFEngine(frozen_model).generate(requests, SAMPLING)
    for request, group in zip(requests, together, strict=True):
        for seed, completion in zip(request.seeds, group, strict=True):
            alone = HFEngine(frozen_model).generate([replace(request, seeds=(seed,))], SAMPLING)
            assert alone[0][0].token_ids == completion.token_ids
            assert alone[0][0].logprobs == pytest.approx(completion.logprobs, abs=1e-4)


def test_different_seeds_give_different_tokens(frozen_model):
    request = Request(prompts(2)[1], tuple(range(20)))
    [group] = HFEngine(frozen_model).generate([request], Sampling(1.0, 8))
    assert len({each.token_ids for each in group}) == 20


def test_temperature_0_takes_the_most_likely_token(frozen_model):
    requests = [
        Request(prompt, (1,), CHOICES if i % 2 else None) for i, prompt in enumerate(prompts(6))
    ]
    for [completion] in HFEngine(frozen_model).generate(requests, Sampling(0.0, 8)):
        ids = (*completion.prompt_ids, *completion.token_ids)
        logits = plain_logits(frozen_model, ids)[len(completion.prompt_ids) - 1 : -1]
        best = restricted_logprobs(logits, completion.allowed, 1.0).argmax(-1)
        assert completion.token_ids == tuple(best.tolist())


def test_a_response_stops_at_its_end_of_turn_token_and_keeps_it(frozen_model):
    request = Request((10, 11, 12), tuple(range(30)), replace(CHOICES, free_tokens=2))
    [group] = HFEngine(frozen_model).generate([request], Sampling(1.0, 12))
    for completion in group:
        assert completion.stop_reason == "stop"
        assert completion.token_ids[-1] == END
        assert END not in completion.token_ids[:-1]
        assert completion.text == frozen_model.decode(completion.token_ids[:-1])
        assert len(completion.logprobs) == len(completion.allowed) == len(completion.token_ids)


def test_a_response_may_be_nothing_but_its_end(frozen_model):
    request = Request((10, 11, 12), tuple(range(600)))
    [group] = HFEngine(frozen_model).generate([request], Sampling(2.0, 2))
    empty = [completion for completion in group if completion.token_ids[0] == END]
    assert empty
    assert {(each.token_ids, each.text, each.stop_reason) for each in empty} == {
        ((END,), "", "stop")
    }


def test_a_response_without_end_stops_at_its_length(frozen_model):
    long = Choices(MARKER, ((80,) * 40 + (END,),), free_tokens=0)
    [[completion]] = HFEngine(frozen_model).generate(
        [Request((10, 11), (1,), long)], Sampling(1.0, 5)
    )
    assert completion.stop_reason == "length"
    assert completion.token_ids == (MARKER, 80, 80, 80, 80)
    assert completion.text == frozen_model.decode(completion.token_ids)


def test_every_stop_token_of_the_model_ends_a_response():
    model = tiny_model()
    assert model.network.generation_config is not None
    model.network.generation_config.eos_token_id = [END, 77]
    model = LanguageModel(model.network, model.tokenizer)
    assert model.stop_ids == (END, 77)
    forced = Choices(MARKER, ((77,),), free_tokens=0)
    [[completion]] = HFEngine(model).generate([Request((10,), (1,), forced)], Sampling(1.0, 5))
    assert (completion.token_ids, completion.stop_reason) == ((MARKER, 77), "stop")


def test_a_call_that_was_broken_off_leaves_nothing_to_the_next(frozen_model, monkeypatch):
    requests = [Request(ids, (i,), conversation=f"c{i}") for i, ids in enumerate(prompts(4))]
    expected = HFEngine(frozen_model).generate(requests, SAMPLING)
    engine = HFEngine(frozen_model)
    engine.generate(requests[::-1], SAMPLING)
    with monkeypatch.context() as patch:
        patch.setattr(cache_module.RaggedCache, "_reserve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(requests, SAMPLING)
    assert engine.generate(requests, SAMPLING) == expected


def interrupted(*given):
    raise KeyboardInterrupt


def test_changed_weights_are_used_once_the_engine_was_told():
    model = tiny_model(1)
    engine = HFEngine(model)
    requests = [Request(prompt, (1,), conversation=str(i)) for i, prompt in enumerate(prompts(4))]
    before = flat(engine.generate(requests, SAMPLING))
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.mul_(1.1)
    engine.sync_weights()
    after = flat(engine.generate(requests, SAMPLING))
    assert_exact(model, after, SAMPLING.temperature)
    assert [each.logprobs for each in before] != [each.logprobs for each in after]


def test_more_conversations_than_the_cache_keeps_are_still_exact(frozen_model, monkeypatch):
    monkeypatch.setattr(cache_module, "KEPT_ROWS", 4)
    engine = HFEngine(frozen_model)
    rng = np.random.default_rng(5)
    texts = {str(i): prompt for i, prompt in enumerate(prompts(11))}
    most = 4
    for turn, size in enumerate((3, 4, 1, 4, 2, 4, 3, 4, 7, 2, 6, 11, 11)):
        # Batches of all sizes, so that rows are evicted from the middle and reused in any order.
        names = rng.permutation(list(texts))[:size]
        requests = [Request(texts[name], (turn,), conversation=str(name)) for name in names]
        groups = engine.generate(requests, Sampling(1.0, 4))
        assert_exact(frozen_model, flat(groups), 1.0)
        for name, [completion] in zip(names, groups, strict=True):
            texts[name] = (*texts[name], *completion.token_ids, 9, 9)
        most = max(most, size)
        assert len(engine._cache.tokens) <= most


def test_more_requests_than_a_batch_holds_come_back_in_order(frozen_model):
    requests = [Request((5 + i % 300, 6), (i,)) for i in range(BATCH_ROWS + 3)]
    groups = HFEngine(frozen_model).generate(requests, Sampling(1.0, 2))
    assert [group[0].prompt_ids for group in groups] == [r.prompt_ids for r in requests]
    assert_exact(frozen_model, flat(groups)[-3:], 1.0)


def test_no_requests_give_no_completions(frozen_model):
    assert HFEngine(frozen_model).generate([], SAMPLING) == []


def test_new_conversations_do_not_lengthen_the_cache(frozen_model):
    engine = HFEngine(frozen_model)
    for i in range(20):
        engine.generate([Request((5, 6, 7), (1,), conversation=str(i))], Sampling(1.0, 2))
    keys, _ = engine._cache._layers[0]
    rows, _, columns, _ = keys.shape
    assert 20 <= rows <= 30
    assert columns < 100


def test_responses_follow_the_models_distribution():
    # Two tokens after a forced marker: 4 x 4 outcomes whose probabilities are known exactly.
    model = tiny_model(6)
    options = tuple((a, b, END) for a in (70, 71, 72, 73) for b in (80, 81, 82, 83))
    choices = Choices(MARKER, options, free_tokens=0)
    temperature, count = 1.3, 4000
    probabilities = {}
    for a, b, end in options:
        completion = Completion(
            prompt_ids=(10, 11),
            token_ids=(MARKER, a, b, end),
            logprobs=(),
            allowed=((MARKER,), (70, 71, 72, 73), (80, 81, 82, 83), (END,)),
            stop_reason="stop",
            text="",
        )
        with torch.no_grad():
            probabilities[a, b] = plain_logprobs(model, completion, temperature).sum().exp().item()
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
    requests = [Request((10, 11), (seed,), choices) for seed in range(count)]
    drawn = Counter(
        completion.token_ids[1:3]
        for [completion] in HFEngine(model).generate(requests, Sampling(temperature, 4))
    )
    surprise = sum(
        (drawn[outcome] - count * p) ** 2 / (count * p) for outcome, p in probabilities.items()
    )
    # The 99.9th percentile of chi-square with 15 degrees of freedom.
    assert surprise < 37.7


def test_drawing_inverts_the_cumulative_distribution():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0]] * 5).log_softmax(-1)
    uniforms = [0.0, 0.2499, 0.2501, 0.75, np.nextafter(1.0, 0.0)]
    tokens, logprobs = draw(logits, [()] * 5, uniforms, Sampling(1.0, 1))
    assert tokens == [0, 0, 1, 3, 3]
    assert logprobs == pytest.approx([np.log(0.25)] * 5)


def test_drawing_never_leaves_the_allowed_tokens():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 20, (200, 11)), dtype=torch.float32)
    allowed = [
        tuple(sorted(rng.choice(11, rng.integers(1, 5), replace=False).tolist()))
        for _ in range(200)
    ]
    for uniform in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        tokens, logprobs = draw(logits, allowed, [uniform] * 200, Sampling(0.5, 1))
        assert all(token in may for token, may in zip(tokens, allowed, strict=True))
        assert np.isfinite(logprobs).all()


def test_the_pinned_versions_of_transformers_are_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [allowed] = [r for r in map(Requirement, project["dependencies"]) if r.name == "transformers"]
    vllm = (ROOT / "packages/rlanything-vllm").glob("requirements-*.txt")
    for pinned in (ROOT / "constraints.txt", *vllm):
        [pin] = re.findall(r"^transformers==(.*)$", pinned.read_text(), re.MULTILINE)
        assert allowed.specifier.contains(pin)
