"""The learner at a service, against the learner of this process: the same samples, the same
weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.tinker_service import TinkerService, load, own_model, role
from helpers.tiny import plain_logprobs, sample_of
from rlanything.algorithm.losses import LossInputs, LossOutputs, with_kl
from rlanything.cluster.models import RoleSource
from rlanything.engines.base import DivergedError, ModelError
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.records import Sample
from rlanything_tinker import learner
from rlanything_tinker import service as session
from rlanything_tinker.model import STATE
from rlanything_tinker.service import ServiceError

Serving = tuple[TinkerService, str]


def infinite(inputs: LossInputs) -> LossOutputs:
    """A loss that is not finite."""
    return with_kl(inputs, inputs.new_logprobs / 0)


def narrow(inputs: LossInputs) -> LossOutputs:
    """A loss of another shape."""
    return replace(with_kl(inputs, inputs.new_logprobs), loss=inputs.new_logprobs.sum())


def adapters(model: LanguageModel) -> dict[str, torch.Tensor]:
    named = model.network.named_parameters()
    return {name: weight.detach() for name, weight in named if weight.requires_grad}


@pytest.fixture(scope="module")
def samples() -> list[tuple[str, Sample]]:
    """Samples of four tasks: prompts alike and of several lengths, log-probs near the model's, some
    with an advantage for each token."""
    rng, model = np.random.default_rng(0), own_model()
    drawn: list[tuple[str, Sample]] = []
    for number in range(8):
        prompt = rng.integers(5, 40, 4 + number % 3).tolist()
        response = rng.integers(5, 40, 1 + number % 4).tolist()
        each = rng.choice((-1, 1)) * rng.uniform(0.2, 2, len(response))
        sample = sample_of(prompt, response, float(each[0]), None, None, f"{number}/0")
        own = plain_logprobs(model, sample.completion).detach().numpy()
        noisy = tuple((own + rng.normal(0, 0.3, len(own))).tolist())
        completion = replace(sample.completion, logprobs=noisy)
        advantage = tuple(each.tolist()) if number % 2 else sample.advantage
        drawn.append(
            (f"task {number // 2}", replace(sample, completion=completion, advantage=advantage))
        )
    return drawn


SETTINGS: dict[str, dict[str, Any]] = {
    "clipped, two epochs": {"epochs": 2, "kl_weight": 0.1},
    "norm and weights cut": {"max_grad_norm": 0.05, "weight_decay": 0.1},
    "by sample": {"loss": "gspo", "minibatches": 1},
    "recomputed": {"old_logprobs": "recomputed", "importance_cap": 1.2, "epochs": 2},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_updates_are_those_of_the_own_learner(
    serving: Serving, samples: list[tuple[str, Sample]], settings: Mapping[str, Any]
) -> None:
    service, url = serving
    there = load(url, **settings)
    here = own_model()
    config = role(url, **settings)
    learner = Learner(here, config)
    reported: list[int] = []
    for seed in range(2):
        own = learner.update(samples, seed)
        other = there.learner.update(samples, seed, reported.append)
        assert other.keys() == own.keys()
        assert {name for name in own if other[name] is None} == {"entropy", "computed_tokens"}
        assert {n: v for n, v in other.items() if v is not None} == pytest.approx(
            {n: v for n, v in own.items() if other[n] is not None}, rel=1e-5, abs=1e-5
        )
    training = service.trainings[there.weights.client.model_id]
    weights, start = adapters(here), adapters(own_model())
    assert weights.keys() == training.adapters.keys()
    moved = max(float((weights[name] - start[name]).abs().max()) for name in weights)
    assert moved > 1e-4
    for name, weight in training.adapters.items():
        torch.testing.assert_close(weight.detach(), weights[name], atol=1e-5, rtol=0)
    assert sum(reported) == 2 * config.epochs * len(samples)
    assert there.weights.updates == 2 * config.epochs * config.minibatches


def test_a_saved_state_goes_on_as_if_it_had_never_stopped(
    serving: Serving, samples: list[tuple[str, Sample]], tmp_path: Path
) -> None:
    service, url = serving
    model = load(url)
    model.learner.update(samples, 0)
    (tmp_path / "policy").mkdir()
    model.snapshot(tmp_path / "policy")()
    unbroken = model.learner.update(samples, 1)
    config = role(url)
    assert config.learner is not None
    resumed = config.learner.load(RoleSource("policy", config, tmp_path / "policy"))
    resumed.load_state(tmp_path / "policy")
    assert resumed.weights.updates == 2
    assert resumed.learner.update(samples, 1) == unbroken
    both = [service.trainings[one.weights.client.model_id] for one in (model, resumed)]
    for name, weight in both[0].adapters.items():
        assert torch.equal(weight, both[1].adapters[name])
    # Only the weights, as the model of another run, whose AdamW starts from zero.
    other = load(url, model=str(tmp_path / "policy"))
    training = service.trainings[other.weights.client.model_id]
    assert not training.optimizer.state
    assert other.weights.updates == 0
    assert other.model.name == "tiny/guess-policy"


def test_a_loss_that_is_not_finite_is_skipped_until_there_are_too_many(
    serving: Serving, samples: list[tuple[str, Sample]]
) -> None:
    service, url = serving
    name = f"{__name__}:infinite"
    model = load(url, loss=name, max_skipped_updates=3)
    training = service.trainings[model.weights.client.model_id]
    before = training.copied()
    statistics = model.learner.update(samples, 0)
    assert (statistics["updates"], statistics["skipped_updates"]) == (0, 2)
    assert all(
        not weight.grad.any() for weight in training.adapters.values() if weight.grad is not None
    )
    with pytest.raises(DivergedError, match="the loss of 3 updates in a row was not finite"):
        model.learner.update(samples, 1)
    assert all(torch.equal(weight, before[name]) for name, weight in training.adapters.items())


def test_weights_that_are_not_numbers_end_the_run_before_a_step(
    serving: Serving, samples: list[tuple[str, Sample]]
) -> None:
    service, url = serving
    model = load(url)
    training = service.trainings[model.weights.client.model_id]
    for weight in training.adapters.values():
        weight.data.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"model 'policy': the service's log-probs are not"):
        model.learner.update(samples, 0)
    assert model.weights.updates == 0
    assert not training.optimizer.state


def test_a_wrong_loss_is_named_and_not_the_service(
    serving: Serving, samples: list[tuple[str, Sample]]
) -> None:
    model = load(serving[1], loss=f"{__name__}:narrow")
    with pytest.raises(ValueError, match="return one number a token"):
        model.learner.update(samples, 0)


def test_an_unknown_norm_of_the_gradient_is_left_out(
    serving: Serving, samples: list[tuple[str, Sample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, url = serving
    monkeypatch.setattr(service, "reports_norm", False)
    statistics = load(url).learner.update(samples, 0)
    assert statistics["grad_norm"] is None
    assert statistics["updates"] == 2


def test_a_failure_of_the_service_is_one_line_that_names_the_request(
    serving: Serving, samples: list[tuple[str, Sample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, url = serving
    model = load(url)
    monkeypatch.setattr(service, "broken_step", "out of memory")
    with pytest.raises(ServiceError) as failed:
        model.learner.update(samples, 0)
    assert "policy.learner: taking an optimizer step, the service failed: " in str(failed.value)
    assert "out of memory" in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_request_without_an_answer_ends_after_its_time(
    serving: Serving, samples: list[tuple[str, Sample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(serving[1])
    for module in (learner, session):
        monkeypatch.setattr(module, "MOST_SECONDS", 0.0)
    with pytest.raises(ServiceError, match="the service failed: no answer within 0 s"):
        model.learner.update(samples, 0)


@pytest.mark.parametrize(
    "error", [json.JSONDecodeError("cut", "{", 1), KeyError("logprobs"), AssertionError()]
)
def test_an_answer_that_the_sdk_cannot_read_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(ServiceError, match=r"^policy\.learner: reading, the service failed: "),
        session.asking("policy", "reading"),
    ):
        raise error
    with pytest.raises(ModelError), session.asking("policy", "reading"):
        raise ModelError("ours")


def test_adapters_of_another_rank_are_refused(serving: Serving, tmp_path: Path) -> None:
    load(serving[1]).snapshot(tmp_path)()
    assert load(serving[1], model=str(tmp_path)).weights.role == "policy"
    with pytest.raises(ModelError, match=r"policy.lora.rank: 64, but .* have rank 4; set it"):
        load(serving[1], model=str(tmp_path), lora={"rank": 64})


@pytest.mark.parametrize(
    "text", ["{}", '{"path": "/etc", "updates": 1, "skipped_in_a_row": 0}', "[", '{"path": 1}']
)
def test_a_damaged_state_is_one_line_that_names_the_folder(
    serving: Serving, tmp_path: Path, text: str
) -> None:
    (tmp_path / STATE).write_text(text)
    with pytest.raises(ValueError, match=f"cannot go on from {tmp_path}"):
        load(serving[1], model=str(tmp_path))
