"""vLLM with images against the learner: the same pixels, log-probs and tokens that may be drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from helpers.starts import engine_of
from helpers.vision import plain_seen_logprobs, tokens_of, vision_model
from rlanything.config.roles import LoraSettings
from rlanything.engines.base import Choices, ModelError, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.records import Completion
from rlanything_vllm.engine import EngineLost, VLLMEngine
from rlanything_vllm.prompts import SERVED

TOLERANCE = 1e-4
HEAD = 32
"""The smallest heads that vLLM's attention on CPUs knows."""
Seen = tuple[LanguageModel, list[str], VLLMEngine]


@pytest.fixture(scope="module", params=SERVED)
def seen(request: pytest.FixtureRequest) -> Seen:
    """A model of each family, images in its book, and an engine for all tests of this file."""
    model, names = vision_model(request.param, head=HEAD)
    return model, names, engine_of(model)


def prompts_of(model: LanguageModel, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Text alone; one image; two images and, behind the same words, the first and another one."""
    parts = [
        [[10, 11, 12]],
        [[20], names[1], [21, 22]],
        [range(30, 50), names[0], [13, 14], names[1], [15]],
        [range(30, 50), names[0], [13, 14], names[3], [15]],
        [names[0], names[0], [16]],
    ]
    return [tuple(tokens_of(model, each)) for each in parts]


def flat(groups: Sequence[Sequence[Completion]]) -> list[Completion]:
    return [each for group in groups for each in group]


@torch.no_grad()
def difference(model: LanguageModel, completions: Sequence[Completion]) -> float:
    """The largest between the engine's log-probs and what transformers computes from pixels."""
    return max(
        max(
            abs(float(logprobs[token]) - given)
            for logprobs, token, given in zip(
                plain_seen_logprobs(model, each.tokens)[len(each.prompt_ids) - 1 :],
                each.token_ids,
                each.logprobs,
                strict=False,
            )
        )
        for each in completions
    )


def test_logprobs_are_those_of_the_learner_from_pixels(seen: Seen) -> None:
    model, names, engine = seen
    prompts = prompts_of(model, names)
    drawn = flat(engine.generate([Request(each, (1, 2)) for each in prompts], Sampling(1.0, 10)))
    assert [each.prompt_ids for each in drawn[::2]] == prompts
    assert difference(model, drawn) < TOLERANCE
    assert len({each.logprobs for each in drawn}) == len(drawn)


def test_without_chance_vllm_writes_what_the_embedded_engine_writes(seen: Seen) -> None:
    model, names, engine = seen
    choices = Choices(69, ((80, 81, 1), (80, 82, 83, 1), (90, 1)), free_tokens=3)
    requests = [Request(each, (0,)) for each in prompts_of(model, names)]
    requests += [Request(each, (0,), choices) for each in prompts_of(model, names)]
    ours, theirs = (e.generate(requests, Sampling(0.0, 10)) for e in (HFEngine(model), engine))
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert (a.token_ids, a.allowed, a.stop_reason) == (b.token_ids, b.allowed, b.stop_reason)


def test_no_response_holds_a_placeholder(seen: Seen) -> None:
    model, names, engine = seen
    assert model.vision is not None
    request = Request(prompts_of(model, names)[1], tuple(range(100)))
    drawn = flat(engine.generate([request], Sampling(2.0, 10)))
    tokens = [token for each in drawn for token in each.token_ids]
    # One of this many would be one of these by chance: it would be seen with near certainty.
    assert len(tokens) * len(model.vision.closed) / model.network.config.text_config.vocab_size > 5
    assert not set(tokens) & set(model.vision.closed)


def test_prompts_share_what_lies_before_the_image_that_differs(seen: Seen) -> None:
    model, names, engine = seen
    words = list(range(30, 90))
    same = tokens_of(model, [words, names[0], [13]])
    other = tokens_of(model, [words, names[2], [13]])  # as large, and another image
    assert len(same) == len(other)
    assert len(words) // 32 * 32 == 32 < 64 < len(same)
    engine.sync_weights()
    before = engine.reused_tokens
    for ids, reused in ((same, 0), (same, 64), (other, 32)):
        engine.generate([Request(tuple(ids), (1,))], Sampling(1.0, 4))
        assert engine.reused_tokens - before == reused
        before = engine.reused_tokens


def test_new_weights_also_of_the_tower_are_used_for_images_seen_before(seen: Seen) -> None:
    model, names, engine = seen
    requests = [Request(each, (1, 2)) for each in prompts_of(model, names)]
    sampling = Sampling(1.0, 10)
    engine.generate(requests, sampling)
    with torch.no_grad():
        for name, weights in model.network.named_parameters():
            if "visual" in name:
                weights.add_(torch.randn_like(weights) * 0.1)
    assert difference(model, flat(engine.generate(requests, sampling))[2:]) > 0.01
    engine.sync_weights()
    assert difference(model, flat(engine.generate(requests, sampling))) < TOLERANCE


def test_a_tower_that_does_not_arrive_is_found_out_by_the_first_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, names = vision_model("qwen2_5_vl", head=HEAD)
    whole, lost = nn.Module.state_dict, "model.visual.patch_embed.proj.weight"
    assert lost in model.network.state_dict()

    def incomplete(module: nn.Module, *args: object, **keywords: object) -> dict[str, torch.Tensor]:
        return {k: v for k, v in whole(module, *args, **keywords).items() if k != lost}

    with monkeypatch.context() as patch:
        patch.setattr(type(model.network), "state_dict", incomplete)
        engine = engine_of(model)
        text, image, *_ = prompts_of(model, names)
        engine.generate([Request(text, (1,))], Sampling(1.0, 8))
        with pytest.raises(EngineLost, match=r"policy: .* log-probs differ .*name: embedded"):
            engine.generate([Request(image, (1,))], Sampling(1.0, 8))


def test_adapters_of_a_model_that_sees_are_handed_over(tmp_path, monkeypatch) -> None:
    whole, names = vision_model("qwen3_vl", head=HEAD)
    whole.save(tmp_path / "base")
    model = load_model(tmp_path / "base", "float32")
    assert model.vision is not None
    assert whole.vision is not None
    model.vision.book = whole.vision.book
    add_adapters(model, LoraSettings(rank=4), seed=1)
    engine = engine_of(model)
    requests = [Request(each, (1, 2)) for each in prompts_of(model, names)]
    engine.generate(requests, Sampling(1.0, 8))
    with torch.no_grad():
        for name, weights in model.network.named_parameters():
            if ".lora_" in name:
                weights.add_(torch.randn_like(weights) * 0.1)
    engine.sync_weights()
    assert difference(model, flat(engine.generate(requests, Sampling(1.0, 8)))) < TOLERANCE


def test_a_family_that_vllm_is_not_taught_is_refused_in_one_line() -> None:
    model, _ = vision_model("llava")
    with pytest.raises(ModelError, match=r"policy\.engine: .*type llava; .*name: embedded") as e:
        engine_of(model)
    assert "\n" not in str(e.value)
