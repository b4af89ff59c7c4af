"""The engine of last resort: against the fast one where both are right, and where only it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from helpers.tiny import plain_logprobs, tiny_model, tiny_recurrent_model, tiny_sliding_model
from rlanything.engines.base import Choices, Engine, ModelError, Request, Sampling
from rlanything.engines.hf.engine import HFEngine, embedded_engine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.plain import PlainEngine
from rlanything.records import Completion

END = 1
MARKER = 69
CHOICES = Choices(MARKER, ((80, 81, END), (80, 82, 83, END), (90, END)), free_tokens=3)
SAMPLING = Sampling(temperature=0.7, max_tokens=9)


def requests_of(choices: Choices | None, seed: int = 0) -> list[Request]:
    """Four prompts, of one token and more, with one to three samples."""
    rng = np.random.default_rng(seed)
    return [
        Request(
            tuple(rng.integers(5, 320, length).tolist()), tuple(range(i, i + 1 + i % 3)), choices
        )
        for i, length in enumerate((1, 2, 17, 40))
    ]


def sampled(engine: Engine, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
    return [each for group in engine.generate(requests, sampling) for each in group]


def drawn(completions: Sequence[Completion]) -> list[tuple]:
    """All of them but the log-probs, which round."""
    return [astuple(replace(each, logprobs=())) for each in completions]


def furthest(model: LanguageModel, completions: Sequence[Completion], temperature: float) -> float:
    """The largest distance between their log-probs and those of plain forward passes."""
    with torch.no_grad():
        return max(
            (torch.tensor(each.logprobs) - plain_logprobs(model, each, temperature))
            .abs()
            .max()
            .item()
            for each in completions
        )


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("choices", [None, CHOICES])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_both_engines_sample_the_same_completions(kind, choices, temperature):
    # Moderate weights: the log-probs of confident models round by more than the tolerance.
    model = tiny_model(2, kind, scale=0.2)
    requests, sampling = requests_of(choices), Sampling(temperature, 9)
    plain = sampled(PlainEngine(model), requests, sampling)
    fast = sampled(HFEngine(model), requests, sampling)
    assert drawn(plain) == drawn(fast)
    for ours, theirs in zip(plain, fast, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-5, rel=0)


def test_responses_end_at_each_stop_token_or_at_their_length(frozen_model):
    request = Request((10, 11, 12), tuple(range(12)), replace(CHOICES, free_tokens=2))
    for completion in sampled(PlainEngine(frozen_model), [request], Sampling(1.0, 12)):
        assert (completion.stop_reason, completion.token_ids[-1]) == ("stop", END)
        assert completion.text == frozen_model.decode(completion.token_ids[:-1])
    for completion in sampled(PlainEngine(frozen_model), [request], Sampling(1.0, 2)):
        assert (completion.stop_reason, len(completion.token_ids)) == ("length", 2)
        assert completion.text == frozen_model.decode(completion.token_ids)


@pytest.mark.parametrize("choices", [None, CHOICES])
@pytest.mark.parametrize("build", [tiny_sliding_model, tiny_recurrent_model])
def test_logprobs_of_sliding_and_recurrent_models_are_those_of_a_plain_forward(
    build: Callable[[int], LanguageModel], choices
):
    model = build(0)
    completions = sampled(PlainEngine(model), requests_of(choices), SAMPLING)
    assert furthest(model, completions, SAMPLING.temperature) < 1e-4


def test_the_fast_engine_refuses_what_it_would_get_wrong():
    model = tiny_sliding_model(0)
    with pytest.raises(ModelError, match="window of 4 tokens"):
        HFEngine(model)
    # What is refused would be wrong. Were it not, the test above would prove nothing.
    model.sharing_problem = None
    completions = sampled(HFEngine(model), requests_of(None), SAMPLING)
    assert furthest(model, completions, SAMPLING.temperature) > 0.1


def test_the_engine_fits_the_model():
    assert isinstance(embedded_engine(tiny_model()), HFEngine)
    assert isinstance(embedded_engine(tiny_sliding_model()), PlainEngine)
    assert isinstance(embedded_engine(tiny_recurrent_model()), PlainEngine)


@pytest.mark.parametrize("build", [tiny_sliding_model, tiny_recurrent_model])
def test_a_sample_is_the_same_alone_and_after_others(build: Callable[[int], LanguageModel]):
    model = build(1)
    engine, requests = PlainEngine(model), requests_of(None)
    together = engine.generate(requests, SAMPLING)
    for request, group in zip(requests, together, strict=True):
        for seed, completion in zip(request.seeds, group, strict=True):
            [alone] = sampled(PlainEngine(model), [replace(request, seeds=(seed,))], SAMPLING)
            assert alone == completion


def test_the_models_own_generation_settings_change_nothing_and_stay_as_they_were():
    model = tiny_model(2)
    requests = requests_of(CHOICES)
    expected = sampled(PlainEngine(model), requests, SAMPLING)
    own = GenerationConfig(
        repetition_penalty=3.0,
        no_repeat_ngram_size=1,
        suppress_tokens=[80, MARKER],
        min_new_tokens=9,
        max_length=3,
        forced_eos_token_id=END,
        do_sample=True,
        temperature=0.1,
        num_beams=2,
        pad_token_id=requests[2].prompt_ids[3],
        eos_token_id=[END, 77, *(each.token_ids[0] for each in expected)],
    )
    model.network.generation_config = own
    settings = own.to_dict()
    assert sampled(PlainEngine(model), requests, SAMPLING) == expected
    assert model.network.generation_config is own
    assert own.to_dict() == settings


def test_nothing_is_computed_after_the_end_of_a_response():
    model = tiny_model()
    passes: list[None] = []
    model.network.register_forward_hook(lambda *_: passes.append(None))
    completions = sampled(PlainEngine(model), requests_of(CHOICES), SAMPLING)
    assert {each.stop_reason for each in completions} == {"stop"}
    # Nor for what is forced at its end, behind the last token that had an alternative.
    decided = [
        max(i for i, allowed in enumerate(each.allowed) if len(allowed) != 1)
        for each in completions
    ]
    assert len(passes) == sum(last + 1 for last in decided)


def test_changed_weights_are_used():
    model = tiny_sliding_model(1)
    engine, requests = PlainEngine(model), requests_of(None)
    engine.generate(requests, SAMPLING)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.mul_(1.1)
    engine.sync_weights()
    assert furthest(model, sampled(engine, requests, SAMPLING), SAMPLING.temperature) < 1e-4


def test_it_computes_in_the_type_the_model_asks_for():
    exact = tiny_model(2, scale=0.2)
    model = LanguageModel(exact.network, exact.tokenizer, torch.bfloat16)
    types: set[torch.dtype] = set()
    exact.network.model.layers[0].mlp.down_proj.register_forward_hook(
        lambda _module, _inputs, output: types.add(output.dtype)
    )
    completions = sampled(PlainEngine(model), requests_of(None), SAMPLING)
    assert types == {torch.bfloat16}
    # Eight bits of a number remain; all of float32's would agree to 1e-5.
    assert 1e-3 < furthest(exact, completions, SAMPLING.temperature) < 0.3


def test_no_requests_give_no_completions(frozen_model):
    assert PlainEngine(frozen_model).generate([], SAMPLING) == []


def test_a_cache_that_computes_something_else_is_not_used():
    model, plain = tiny_recurrent_model(), tiny_recurrent_model()
    assert model.own_cache_works
    plain.own_cache_works = False
    requests = [Request((20, 30, 40), (1, 2))]
    [with_cache], [without] = (
        PlainEngine(each).generate(requests, Sampling(1.0, 6)) for each in (model, plain)
    )
    for one, other in zip(with_cache, without, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
