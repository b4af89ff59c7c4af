"""Images in tries, caches and updates against transformers' own computation from pixels, for a tiny
random model of each family."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import PIL.Image
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.tiny import sample_of, tiny_model
from helpers.vision import (
    KINDS,
    MARKS,
    plain_seen_logprobs,
    plain_states,
    tokens_of,
    vision_model,
    vision_network,
    vision_processor,
    vision_tokenizer,
)
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.base import Choices, ModelError, Request, Sampling
from rlanything.engines.hf.attention import ATTENTION
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.hf.plain import PlainEngine
from rlanything.engines.hf.probing import vision_problems
from rlanything.engines.hf.vision_spec import ImageTokens, VisionSpec, find_vision
from rlanything.engines.hf.vision_tower import Kept, tower_weights
from rlanything.engines.images import ImageBook, noise_png
from rlanything.learning.learner import Learner
from rlanything.learning.packing import pack
from rlanything.learning.padding import pad
from rlanything.records import Completion, Sample

SAMPLING = Sampling(1.0, 6)
WORDS = range(10, 300)
IN_GRID = [kind for kind in KINDS if kind.startswith("qwen")]


@cache
def frozen(kind: str) -> tuple[LanguageModel, list[str]]:
    """A model for all tests that leave its weights alone."""
    return vision_model(kind)


def conversations(model: LanguageModel, names: Sequence[str], seed: int = 0) -> list[list[int]]:
    """Token ids of sequences with two images in history; in one of them another image of the same
    size stands in the place of the first."""
    rng = np.random.default_rng(seed)

    def text(count: int) -> list[int]:
        return rng.choice(WORDS, count).tolist()

    a, b, c = text(7), text(5), text(6)
    trunk = [a, names[0], b, names[1], c]
    told = [
        *([*trunk, text(6)], [*trunk, text(4)], [*trunk, text(3), names[2], text(5)]),
        *([a, names[2], b, names[1], c, text(6)], [a, names[0], text(9)]),
    ]
    return [tokens_of(model, parts) for parts in told]


def samples_of(sequences: Sequence[Sequence[int]]) -> list[Sample]:
    """Samples of which the last three tokens are responses."""
    return [
        sample_of(ids[:-3], ids[-3:], 0.5 + number, source=f"trajectory/{number}")
        for number, ids in enumerate(sequences)
    ]


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest of two [tokens, vocab] of log-probs, which may hold -inf in the same places."""
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    finite = ~theirs.isneginf()
    # Not `max`, for which a NaN may be no more than 0.
    return (ours[finite] - theirs[finite]).norm(float("inf")).item()


@torch.no_grad()
def packed_differences(model: LanguageModel, sequences: Sequence[Sequence[int]]) -> list[float]:
    samples = samples_of(sequences)
    [together] = pack(samples, 4096)
    assert len(together.ids) < sum(len(ids) for ids in sequences)
    states = together.hidden_states(model)
    return [
        difference(
            model.logits(states[torch.from_numpy(path)]).log_softmax(-1),
            plain_seen_logprobs(model, sample.completion.tokens),
        )
        for sample, path in zip(together.samples, together.paths, strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_with_images_computes_what_each_sequence_computes_alone(kind: str) -> None:
    model, names = frozen(kind)
    assert (model.sharing_problem, model.vision is None) == (None, False)
    sequences = conversations(model, names)
    assert max(packed_differences(model, sequences)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_in_double_precision_nothing_differs(kind: str) -> None:
    model, names = vision_model(kind, seed=1, dtype=torch.float64)
    sequences = conversations(model, names, seed=1)
    assert max(packed_differences(model, sequences)) < 1e-10
    with torch.inference_mode():
        [rows] = pad(samples_of(sequences), 4096)
        states = rows.hidden_states(model)
        for sample, path in zip(rows.samples, rows.paths, strict=True):
            ours = model.logits(states[torch.from_numpy(path)]).log_softmax(-1)
            theirs = plain_seen_logprobs(model, sample.completion.tokens)
            assert difference(ours, theirs) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_the_comparison_is_not_of_certainties_and_images_matter(kind: str) -> None:
    model, names = frozen(kind)
    with torch.no_grad():
        first, *_, other, _ = (
            plain_seen_logprobs(model, ids) for ids in conversations(model, names)
        )
    # Log-probs near -5: where every token is certain all differences are 0.
    assert -8 < first[~first.isneginf()].mean() < -5
    assert difference(first[-7:], other[-7:]) > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_step_by_step_has_the_log_probs_of_a_plain_forward(kind: str) -> None:
    model, names = frozen(kind)
    engine = HFEngine(model)
    prompts = [tuple(ids) for ids in conversations(model, names)]
    rng = np.random.default_rng(3)
    for turn in range(3):
        seeds = (turn, turn + 9) if turn == 2 else (turn,)
        requests = [Request(ids, seeds, conversation=str(i)) for i, ids in enumerate(prompts)]
        groups = engine.generate(requests, SAMPLING)
        for completion in (each for group in groups for each in group):
            assert_as_plain(model, completion)
        prompts = [
            (*group[0].tokens, *tokens_of(model, [rng.choice(WORDS, 3).tolist(), names[turn]]), 9)
            for group in groups
        ]


def assert_as_plain(model: LanguageModel, completion: Completion) -> None:
    """The log-probs of what was drawn are those of a plain forward pass from pixels."""
    with torch.no_grad():
        logits = model.logits(plain_states(model, completion.tokens))
    logits = logits[len(completion.prompt_ids) - 1 : -1]
    logprobs = restricted_logprobs(logits, completion.allowed, SAMPLING.temperature)
    theirs = logprobs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(completion.logprobs), theirs, atol=1e-5, rtol=0)


def test_answers_that_end_early_leave_the_others_their_positions() -> None:
    model, names = frozen("qwen3_vl")
    end = model.stop_ids[0]
    short = Choices(40, ((50, end), (51, 52, end)), free_tokens=0)
    requests = [
        Request(tuple(tokens_of(model, [[20 + i], *names[:i], [30, 31]])), (i,), choices)
        for i, choices in enumerate((short, None, short, short, None))
    ]
    for [completion] in HFEngine(model).generate(requests, SAMPLING):
        assert_as_plain(model, completion)


def test_the_tower_keeps_its_own_attention() -> None:
    network: Any = frozen("qwen3_vl")[0].network
    assert network.config.text_config._attn_implementation == ATTENTION
    assert network.base_model.visual.config._attn_implementation != ATTENTION


def test_nothing_is_kept_of_an_image_that_others_of_its_size_do_not_have() -> None:
    model, names = frozen("qwen3_vl")
    assert model.vision is not None
    assert model.vision.image_tokens(names[0]) is model.vision.image_tokens(names[2])
    assert model.vision.image_tokens(names[0]) is not model.vision.image_tokens(names[1])


def test_an_image_that_was_seen_is_neither_encoded_nor_prefilled_again() -> None:
    model, names = vision_model("qwen3_vl")
    for weights in tower_weights(model.network).values():
        weights.requires_grad_(False)
    encoded: list[int] = []
    body: Any = model.network.base_model
    body.visual.register_forward_hook(lambda *_: encoded.append(1))
    engine = HFEngine(model)
    prompts = conversations(model, names)
    engine.generate([Request(tuple(ids), (0,)) for ids in prompts], SAMPLING)
    assert len(encoded) == 3
    [together] = pack(samples_of(prompts), 4096)
    with torch.no_grad():
        together.hidden_states(model)
    assert len(encoded) == 3
    engine.sync_weights()
    engine.generate([Request(tuple(prompts[0]), (0,))], SAMPLING)
    assert len(encoded) == 5


# transformers computes norms in float32 whatever the weights are, and sums them in another order.
def gradients(
    model: LanguageModel, logprobs: Sequence[Tensor], sequences: Any
) -> dict[str, Tensor]:
    """Of the sum of all log-probs of responses, by the name of the weights."""
    model.network.zero_grad()
    loss = torch.zeros((), dtype=torch.float64)
    for rows, ids in zip(logprobs, sequences, strict=True):
        loss = loss + rows[-4:-1].gather(-1, torch.tensor(ids[-3:])[:, None]).sum()
    loss.backward()
    named = model.network.named_parameters()
    return {name: weights.grad.clone() for name, weights in named if weights.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_pack_are_those_of_separate_sequences_through_the_tower_too(
    kind: str,
) -> None:
    model, names = vision_model(kind, dtype=torch.float64)
    sequences = conversations(model, names)
    [together] = pack(samples_of(sequences), 4096)
    ordered = [sample.completion.tokens for sample in together.samples]
    theirs = gradients(model, [plain_seen_logprobs(model, ids) for ids in ordered], ordered)
    states = together.hidden_states(model)
    logprobs = [model.logits(states[torch.from_numpy(p)]).log_softmax(-1) for p in together.paths]
    ours = gradients(model, logprobs, ordered)
    tower = tower_weights(model.network)
    assert ours.keys() == theirs.keys()
    assert any(gradient.norm() > 1e-3 for name, gradient in ours.items() if name in tower)
    for name, gradient in ours.items():
        assert (gradient - theirs[name]).norm() <= 1e-6 * theirs[name].norm() + 1e-10, name


@pytest.mark.parametrize("kind", ["qwen3_vl", "llava"])
def test_a_frozen_tower_gets_no_gradients_and_leaves_the_text_its_own(
    kind: str, tmp_path: Path
) -> None:
    model, names = vision_model(kind, dtype=torch.float64)
    for weights in tower_weights(model.network).values():
        weights.requires_grad_(False)
    sequences = conversations(model, names)
    HFEngine(model).generate([Request(tuple(sequences[0]), (0,))], SAMPLING)
    [together] = pack(samples_of(sequences), 4096)
    ordered = [sample.completion.tokens for sample in together.samples]
    states = together.hidden_states(model)
    logprobs = [model.logits(states[torch.from_numpy(p)]).log_softmax(-1) for p in together.paths]
    ours = gradients(model, logprobs, ordered)
    theirs = gradients(model, [plain_seen_logprobs(model, ids) for ids in ordered], ordered)
    assert not ours.keys() & tower_weights(model.network).keys()
    for name, gradient in ours.items():
        assert (gradient - theirs[name]).norm() <= 1e-6 * theirs[name].norm() + 1e-10, name


@pytest.mark.parametrize("kind", ["qwen3_vl", "smolvlm"])
def test_layers_computed_again_and_packs_cut_in_two_give_the_same_gradients(kind: str) -> None:
    model, names = vision_model(kind)
    samples = [("task", sample) for sample in samples_of(conversations(model, names))]
    found: list[dict[str, Tensor]] = []
    settings = {"learning_rate": 0.0, "max_grad_norm": 1e9, "train_vision": True}
    for more in ({}, {"gradient_checkpointing": True}, {"max_pack_tokens": 40}):
        role = TrainedRoleConfig.model_validate(settings | more)
        Learner(model, role).update(samples, 0)
        named = model.network.named_parameters()
        found.append({name: w.grad.clone() for name, w in named if w.grad is not None})
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, gradient in found[0].items():
            assert (gradient - other[name]).norm() <= 1e-4 * gradient.norm() + 1e-6, name


@pytest.mark.parametrize("packing", ["shared", "padded"])
@pytest.mark.parametrize("trains", [False, True])
def test_updates_move_the_tower_only_where_they_are_asked_to(packing: Any, trains: bool) -> None:
    model, names = vision_model("qwen3_vl")
    tower = tower_weights(model.network)
    for weights in tower.values():
        weights.requires_grad_(trains)
    before = {name: weights.detach().clone() for name, weights in model.network.named_parameters()}
    chosen = TrainedRoleConfig(packing=packing, learning_rate=1e-2, train_vision=trains)
    samples = [("task", sample) for sample in samples_of(conversations(model, names))]
    statistics = Learner(model, chosen).update(samples, 0)
    assert np.isfinite(statistics["loss"] or np.nan)
    moved = {n for n, weights in model.network.named_parameters() if not weights.equal(before[n])}
    assert moved - tower.keys()
    assert bool(moved & tower.keys()) is trains


def test_a_tower_that_moved_sees_otherwise_in_the_sampler() -> None:
    model, names = vision_model("qwen3_vl")
    engine, prompt = HFEngine(model), tuple(conversations(model, names)[0])
    [[before]] = engine.generate([Request(prompt, (0,))], SAMPLING)
    with torch.no_grad():
        for weights in tower_weights(model.network).values():
            weights.mul_(1.5)
    engine.sync_weights()
    [[after]] = engine.generate([Request(prompt, (0,))], SAMPLING)
    assert before.logprobs != after.logprobs
    assert_as_plain(model, after)


@settings(max_examples=25)
@given(st.data())
def test_any_interleaving_of_text_and_images_is_exact(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["qwen2_5_vl", "qwen3_vl", "smolvlm"]))
    model, names = frozen(kind)
    text = st.lists(st.sampled_from([10, 11, 12]), min_size=1, max_size=3)
    part = st.one_of(text, st.sampled_from(names))
    told = data.draw(st.lists(st.lists(part, max_size=4), min_size=2, max_size=4))
    sequences = [tokens_of(model, [[5], *parts, [13, 14, 15, 16]]) for parts in told]
    samples = samples_of(sequences)
    with torch.no_grad():
        for batch in pack(samples, 200):
            states = batch.hidden_states(model)
            for sample, path in zip(batch.samples, batch.paths, strict=True):
                ours = states[torch.from_numpy(path)]
                theirs = plain_states(model, sample.completion.tokens)
                torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    engine = HFEngine(model)
    requests = [Request(tuple(ids), (0,)) for ids in sequences]
    for [completion] in engine.generate(requests, SAMPLING):
        assert_as_plain(model, completion)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_stands_in_a_chat_as_transformers_own_processors_write_it(kind: str) -> None:
    model, _ = frozen(kind)
    assert model.vision is not None
    spec, vision = model.vision, model.network.config.vision_config
    own: Any = SimpleNamespace(
        image_processor=spec.processor,
        image_token=spec.token,
        image_seq_len=4,
        image_seq_length=4,
        fake_image_token="<fake_token_around_image>",
        global_image_token="<global-img>",
        global_image_tag="<global-img>",
        start_image_token="<img>",
        end_image_token="</img>",
        patch_size=vision.patch_size,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
    )
    [written] = [
        getattr(tf, name).replace_image_token
        for name in (f"{type(model.network).__name__.split('ForC')[0]}Processor",)
    ]
    for number, size in enumerate(((16, 16), (64, 64), (20, 90), (90, 20), (33, 47), (200, 10))):
        name = spec.book.add(noise_png(number, *size))
        asked = {"return_row_col_info": True} if kind in ("smolvlm", "idefics3") else {}
        with PIL.Image.open(io.BytesIO(spec.book.data(name))) as image:
            inputs = spec.processor(
                [image.convert("RGB")], return_tensors="np", **asked, **spec.family.asked
            )
        picture = spec.image_tokens(name)
        assert picture.text == written(own, inputs, 0), size
        assert picture.text.count(spec.token) == picture.tokens


@pytest.mark.parametrize("kind", IN_GRID)
def test_positions_are_those_that_transformers_counts(kind: str) -> None:
    model, names = frozen(kind)
    ids = conversations(model, names)[2]
    tokens, pixels = model.plain_inputs(ids)
    body: Any = model.network.base_model
    asked = {key: pixels[key] for key in ("image_grid_thw", "mm_token_type_ids")}
    theirs, shift = body.get_rope_index(tokens, **asked)
    assert torch.equal(model.positions(ids), theirs[:, 0])
    assert model.shift(ids) == int(shift)
    assert not torch.equal(theirs[0, 0], torch.arange(len(ids)))


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava"])
def test_the_plain_engine_sees_what_the_other_sees(kind: str) -> None:
    model, names = frozen(kind)
    prompts = [*conversations(model, names)[:2], list(range(20, 30))]
    requests = [Request(tuple(ids), (3,)) for ids in prompts]
    for [ours], [theirs] in zip(
        HFEngine(model).generate(requests, SAMPLING),
        PlainEngine(model).generate(requests, SAMPLING),
        strict=True,
    ):
        assert ours.token_ids == theirs.token_ids
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-5)


@pytest.mark.parametrize("engine", [HFEngine, PlainEngine])
def test_a_placeholder_is_never_sampled_however_likely_it_is(engine: Any) -> None:
    model, names = vision_model("qwen2_vl")
    assert model.vision is not None
    closed, head = [*model.vision.closed], cast(Any, model.head)
    assert set(model.tokenizer.convert_ids_to_tokens(closed)) == set(MARKS[:4])
    with torch.no_grad():
        # Every hidden state has a large part along the placeholders' embeddings.
        head.weight[closed] += 50 * head.weight[5]
    ids = tuple(conversations(model, names)[0])
    raw = model.raw_logits(plain_states(model, ids))
    assert torch.isin(raw.argmax(-1), torch.tensor(closed)).any()
    [group] = engine(model).generate([Request(ids, tuple(range(8)))], SAMPLING)
    assert not {token for each in group for token in each.token_ids} & {*closed}
    [together] = pack([Sample("t/0", group[0], 1.0)], 4096)
    logits = model.logits(together.hidden_states(model))
    assert logits[:, closed].isneginf().all()
    assert logits.log_softmax(-1).isfinite().sum() == logits.isfinite().sum()


def test_a_placeholder_without_an_image_is_refused_in_one_line() -> None:
    model, _ = frozen("qwen3_vl")
    assert model.vision is not None
    forged = (20, 21, model.vision.placeholder, 22)
    with pytest.raises(ModelError, match=r"placeholder.*without an image") as caught:
        HFEngine(model).generate([Request(forged, (0,))], SAMPLING)
    assert "\n" not in str(caught.value)


def test_adapters_stay_out_of_the_tower() -> None:
    pytest.importorskip("peft")
    for kind, targets in (("qwen2_5_vl", ["q_proj", "v_proj"]), ("llava", "all-linear")):
        model, names = vision_model(kind)
        add_adapters(model, LoraSettings(rank=2, alpha=4, targets=targets), 0)  # type: ignore
        named = dict(model.network.named_parameters())
        adapters = [name for name in named if ".lora_" in name]
        assert adapters
        assert all("language_model." in name for name in adapters)
        assert max(packed_differences(model, conversations(model, names))) < 1e-5


def saved(kind: str, folder: Path) -> tuple[LanguageModel, list[str]]:
    model, names = vision_model(kind)
    model.save(folder / "model")
    (folder / "images").mkdir()
    assert model.vision is not None
    for name in names:
        (folder / "images" / name).write_bytes(model.vision.book.data(name))
    return model, names


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl", "smolvlm", "llava", "internvl"])
def test_a_checkpoint_opens_with_from_pretrained_and_sees_the_same(
    kind: str, tmp_path: Path
) -> None:
    model, names = saved(kind, tmp_path)
    folder = tmp_path / "model"
    opened = load_model(folder, "float32", images=(tmp_path / "images",))
    ids = conversations(model, names)[2]
    with torch.no_grad():
        assert difference(plain_seen_logprobs(opened, ids), plain_seen_logprobs(model, ids)) == 0
    trained = {name for name, w in opened.network.named_parameters() if w.requires_grad}
    assert trained == dict(opened.network.named_parameters()).keys() - tower_weights(opened.network)
    network: Any = tf.AutoModelForImageTextToText.from_pretrained(str(folder))
    processor: Any = tf.AutoImageProcessor.from_pretrained(str(folder))
    assert model.vision is not None
    assert type(network) is type(model.network)
    assert processor.to_dict() == model.vision.processor.to_dict()


def test_the_tower_trains_where_the_role_says_so(tmp_path: Path) -> None:
    saved("qwen3_vl", tmp_path)
    opened = load_model(tmp_path / "model", "float32", train_vision=True)
    assert all(weights.requires_grad for weights in opened.network.parameters())
    text = tmp_path / "text"
    tiny_model().save(text)
    with pytest.raises(ModelError, match=r"no vision tower.*leave train_vision out"):
        load_model(text, "float32", train_vision=True)


def test_a_model_without_its_processor_is_blind_and_says_why(tmp_path: Path) -> None:
    model, _ = saved("qwen3_vl", tmp_path)
    (tmp_path / "model" / "preprocessor_config.json").unlink()
    opened = load_model(tmp_path / "model", "float32")
    assert opened.vision is None
    assert "image processor" in opened.no_vision_reason
    prompt = (20, 21, 22)
    [[said]] = HFEngine(opened).generate([Request(prompt, (0,))], SAMPLING)
    [[theirs]] = HFEngine(model).generate([Request(prompt, (0,))], SAMPLING)
    assert len(said.token_ids) == len(theirs.token_ids)


def test_families_whose_images_look_both_ways_are_shown_none() -> None:
    config = tf.Gemma3Config()
    spec, why = find_vision(config, vision_tokenizer("llava"), lambda: None, ImageBook())
    assert spec is None
    assert why == "images are not supported for models of type gemma3"
    text = find_vision(tiny_model().network.config, vision_tokenizer("llava"), dict, ImageBook())
    assert text == (None, "it is a text-only model")


def measured(monkeypatch: pytest.MonkeyPatch, kind: str, part: Any, name: str, wrong: Any) -> Any:
    """A model that is measured while something in it is wrong."""
    tokenizer = vision_tokenizer(kind)
    network = vision_network(kind, tokenizer)
    spec = VisionSpec(network.config, tokenizer, vision_processor(kind), ImageBook())
    monkeypatch.setattr(part, name, wrong)
    return LanguageModel(network, tokenizer, vision=spec)


def test_positions_that_are_wrong_are_found_out_before_any_image_is_shown(monkeypatch) -> None:
    def depths(self: VisionSpec, ids: Sequence[int]) -> np.ndarray:
        return np.tile(np.arange(len(ids)), (3, 1))

    model = measured(monkeypatch, "qwen3_vl", VisionSpec, "positions", depths)
    assert model.vision is None
    assert model.sharing_problem is None
    assert "images its states are different" in model.no_vision_reason


def test_a_trie_in_which_images_compute_something_else_is_found_out(monkeypatch) -> None:
    real = LanguageModel.trie_hidden_states

    def wrong(self: LanguageModel, ids: Tensor, positions: Tensor, ends: np.ndarray) -> Tensor:
        return real(self, ids, positions + (ids < 0), ends)

    model = measured(monkeypatch, "qwen3_vl", LanguageModel, "trie_hidden_states", wrong)
    assert "images as a trie" in (model.sharing_problem or "")
    assert model.vision is not None


def test_measuring_leaves_nothing_behind() -> None:
    model, names = frozen("qwen2_vl")
    assert model.vision is not None
    book, autocast = model.vision.book, model.autocast
    assert vision_problems(model, model.vision, True) == (None, None)
    assert (model.vision.book, model.autocast) == (book, autocast)
    assert book.data(names[0])


def test_results_are_kept_by_bytes_the_latest_used() -> None:
    kept: Kept[str] = Kept(10)
    made: list[str] = []

    def make(name: str, size: int = 4) -> str:
        return kept.get(name, lambda: (made.append(name) or name, size))

    for name in "abacab":
        make(name)
    assert made == ["a", "b", "c", "b"]
    assert kept.bytes == 8
    assert make("large", 11) == "large"
    assert kept.bytes == 0


def test_features_that_are_too_many_or_too_few_name_the_image() -> None:
    model, _ = vision_model("qwen2_vl")
    assert model.vision is not None
    name = model.vision.book.add(noise_png(99, 16, 16))
    model.vision._by_size[16, 16] = ImageTokens("", 3, (1, 3))
    ids = [5, *model.vision.virtual(name), 6]
    with pytest.raises(ModelError, match=rf"image {name} has 3 tokens but 4 features"):
        model.hidden_states(torch.tensor([ids]), model.positions(ids)[None], None)


def test_a_run_of_text_needs_no_library_of_images(tmp_path: Path) -> None:
    tiny_model().save(tmp_path)
    # transformers imports Pillow wherever it is there; where it is not, nothing here asks for it.
    code = (
        "import sys; sys.modules |= {'PIL': None, 'torchvision': None}; "
        "from rlanything.engines.hf.model import load_model; "
        f"load_model({str(tmp_path)!r}, 'float32'); "
        "print(*(name for name in sys.modules if 'image_proc' in name))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == ""


def test_without_pillow_a_model_is_blind_and_names_the_extra(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = frozen("llava")[0].network.config
    spec, why = find_vision(config, vision_tokenizer("llava"), dict, ImageBook())
    assert spec is None
    assert "pip install 'rlanything[vision]'" in why


def test_what_another_process_is_sent_sees_the_same_files(tmp_path: Path) -> None:
    _, names = saved("qwen2_5_vl", tmp_path)
    opened = load_model(tmp_path / "model", "float32", images=(tmp_path / "images",))
    text, outline = pickle.loads(pickle.dumps((opened.text, opened.outline())))
    assert text.vision.virtual(names[0]) == opened.vision.virtual(names[0])  # type: ignore
    copied = outline.empty("cpu")
    with torch.no_grad():
        theirs = (*opened.network.parameters(), *opened.network.buffers())
        for own, weights in zip(
            (*copied.network.parameters(), *copied.network.buffers()), theirs, strict=True
        ):
            own.copy_(weights)
    # Nothing but ids travels with a prompt: the copy has never heard of these images.
    prompt = tuple(conversations(opened, names)[2])
    [[one]], [[two]] = (
        HFEngine(model).generate([Request(prompt, (0,))], SAMPLING) for model in (opened, copied)
    )
    assert one == two


def test_the_hash_of_a_prompt_tells_images_apart() -> None:
    from rlanything.runs.store.codec import prompt_hash

    model, names = frozen("qwen2_vl")
    ids = conversations(model, names)
    assert len({prompt_hash(each) for each in ids}) == len(ids)
