"""The engine at a service, against the embedded one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from helpers.tinker_service import CONTEXT, TinkerService, load, own_model
from helpers.tiny import sample_of
from rlanything.engines.base import Choices, ModelError, PromptsTooLong, Request, Sampling
from rlanything.engines.deadline import GenerationTimeout
from rlanything.engines.hf.engine import HFEngine
from rlanything_tinker.model import TinkerModel

Serving = tuple[TinkerService, str]
PROMPTS = ((5, 6, 7), (9, 10, 11, 12), (30, 31))
REQUESTS = [Request(prompt, (3, 1000 + n)) for n, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def model(serving: Serving) -> TinkerModel:
    return load(serving[1])


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_samples_are_those_of_the_embedded_engine(model: TinkerModel, temperature: float) -> None:
    sampling = Sampling(temperature, 6)
    here = HFEngine(own_model()).generate(REQUESTS, sampling)
    there = model.engine.generate(REQUESTS, sampling)
    for group, others in zip(here, there, strict=True):
        for own, other in zip(group, others, strict=True):
            assert (own.token_ids, own.stop_reason, own.text, own.allowed) == (
                *(other.token_ids, other.stop_reason, other.text, other.allowed),
            )
            assert other.logprobs == pytest.approx(own.logprobs, abs=1e-5)
            assert other.prompt_ids == own.prompt_ids


def test_a_response_ends_with_the_end_of_the_turn_or_at_its_limit(model: TinkerModel) -> None:
    prompt = tuple(model.model.encode("<|user|>"))
    requests = [Request(prompt, tuple(range(16)))]
    [short] = model.engine.generate(requests, Sampling(1.0, 1))
    [long] = model.engine.generate(requests, Sampling(1.0, 60))
    assert {one.stop_reason for one in short if one.token_ids[-1] not in model.model.stop_ids} == {
        "length"
    }
    stopped = [one for one in long if one.stop_reason == "stop"]
    assert stopped
    for one in stopped:
        assert one.token_ids[-1] in model.model.stop_ids
        assert one.text == model.model.decode(one.token_ids[:-1])


def test_seeds_are_sent_in_31_bits(serving: Serving, model: TinkerModel) -> None:
    model.engine.generate([Request((5, 6), (2**62 + 5,))], Sampling(1.0, 1))
    assert serving[0].sampled[-1][1]["seed"] == 5


def test_new_weights_are_published_before_the_first_samples_after_an_update(
    serving: Serving,
) -> None:
    service, model = serving[0], load(serving[1])
    sampling, request = Sampling(1.0, 4), [Request((5, 6, 7), (1,))]
    before = model.engine.generate(request, sampling)
    model.engine.sync_weights()
    model.engine.generate(request, sampling)
    samplers = [name for name, _ in service.sampled[-2:]]
    assert samplers[0] == samplers[1]  # the weights are the same
    assert model.engine.version == 0
    sample = sample_of(before[0][0].prompt_ids, before[0][0].token_ids, 1.0, before[0][0].logprobs)
    statistics = model.learner.update([("task", sample)], 0)
    assert statistics["mismatch_max"] == pytest.approx(0, abs=1e-5)
    after = model.engine.generate(request, sampling)
    assert model.engine.version == model.weights.updates == 1
    assert service.sampled[-1][0] != samplers[0]
    # The service's own weights, by a plain forward.
    training = service.trainings[model.weights.client.model_id]
    again = HFEngine(training.model).generate(request, sampling)
    assert after[0][0].logprobs == pytest.approx(again[0][0].logprobs, abs=1e-5)
    assert after[0][0].logprobs != pytest.approx(before[0][0].logprobs, abs=1e-5)


def test_prompts_beyond_the_context_are_named(model: TinkerModel) -> None:
    requests = [Request((5, 6), (1,)), Request((5,) * CONTEXT, (1,))]
    with pytest.raises(
        PromptsTooLong, match=f"do not fit into the {CONTEXT} of tiny/guess"
    ) as long:
        model.engine.generate(requests, Sampling(1.0, 4))
    assert long.value.places == (1,)


def test_restricted_responses_are_refused(model: TinkerModel) -> None:
    request = Request((5, 6), (1,), Choices(7, ((8, 1),), 2))
    with pytest.raises(ModelError, match=r"policy: .*set decoding: free"):
        model.engine.generate([request], Sampling(1.0, 4))


@pytest.fixture
def stalled(serving: Serving) -> Iterator[None]:
    """The service computes nothing for as long as a test runs."""
    release = threading.Event()
    serving[0]._compute.submit(release.wait)
    yield
    release.set()


def test_generation_has_the_role_s_time_limit(
    serving: Serving, request: pytest.FixtureRequest
) -> None:
    model = load(serving[1], timeout_seconds=0.2)
    request.getfixturevalue("stalled")
    with pytest.raises(
        GenerationTimeout, match=r"no sample for 0.2 s; raise policy.timeout_seconds"
    ):
        model.engine.generate(REQUESTS, Sampling(1.0, 4))
