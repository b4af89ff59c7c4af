"""The drills that teach a tiny model to look."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlanything.domains.base import Image
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.vision_tower import tower_weights
from rlanything.engines.images import blank_png, noise_png
from rlanything_nano.looking import (
    EMPTY,
    QUESTIONS,
    ThingCode,
    Told,
    _places,
    _shares,
    _things_there,
    pretrain_reading,
    pretrain_tower,
    question_tokens,
    told_texts,
)
from rlanything_nano.making import Shape
from rlanything_nano.measuring import blindfolded
from rlanything_nano.rehearsing import Rehearsal
from rlanything_nano.seeing import new_seeing_model
from rlanything_nano.sft import Renaming, _loss, train_epochs
from rlanything_nano.teaching import SeenScene, SeenThing
from rlanything_nano.tokenizer import train_tokenizer

RED = SeenThing(("red", "circle"), (20, 40), (8.0, 30.0, 40.0, 50.0))
BLUE = SeenThing(("blue", "circle"), (33, 12), (31.0, 10.0, 37.0, 14.0))
SCENE = SeenScene(Image(noise_png(0, 64, 48)), (RED, BLUE), ())
ELSEWHERE = SeenScene(
    SCENE.image, (replace(RED, point=(50, 60)), replace(BLUE, point=(60, 50))), ()
)


def untaught(seed: int = 0) -> LanguageModel:
    tokenizer = train_tokenizer([*told_texts([SCENE, ELSEWHERE]), " the > click"], 320, False, True)
    return new_seeing_model(Shape(32, 2, 2), tokenizer, seed, ())


def test_a_thing_is_told_by_its_words_and_the_coordinates_next_to_its_point() -> None:
    model = untaught()
    code = ThingCode(model)
    told = code.told(BLUE)
    assert [model.decode([token]) for token in told.words] == [" blue", " circle"]
    assert told.cell == (0, 2)
    # 33 and 12 are no tokens of their own, 20 and 40 are.
    assert [model.decode([i]) for i in (told.across, told.down)] == [" 40", " 20"]
    assert code([told, code.told(RED)]).shape == (2, 32)
    nameless = Told((), told.across, told.down, told.cell)
    words = model.network.get_input_embeddings()(torch.tensor(told.words)).sum(0)
    assert torch.allclose(code([told]), code([nameless]) + words, atol=1e-6)


def test_questions_name_one_thing_wherever_two_words_can() -> None:
    code = ThingCode(untaught())
    things = [code.told(RED), code.told(BLUE)]
    for link in ((), (7, 8)):
        tokens = question_tokens(things, link, random.Random(0))
        asked = np.array(tokens).reshape(QUESTIONS, 4 + len(link))
        for *words, across, down in asked.tolist():
            fitting = [thing for thing in things if set(words[:2]) <= set(thing.words)]
            assert tuple(words[2:]) == link
            assert (across, down) in [(thing.across, thing.down) for thing in fitting]
    places = _places([things], 5, random.Random(0))
    assert places.shape == (3, 1, EMPTY + 2 + 5)
    assert places[:, 0, EMPTY].tolist() == [0, 2, 1]
    text = places[:, 0, EMPTY + 2 :]
    assert (text == text[0]).all()
    assert text[0].min() > 2


def test_a_patch_shows_what_covers_most_of_it() -> None:
    there = _things_there(SCENE, (4, 3)).reshape(4, 3)
    assert there.tolist() == [[-1, -1, 1], [-1, -1, -1], [0, 0, 0], [-1, -1, -1]]
    shares = _shares(there.ravel()).reshape(4, 3)
    assert shares[0, 2] == 1
    assert shares[2].tolist() == pytest.approx([1 / 3] * 3)
    assert shares.sum() == 2


def test_reading_and_writing_are_learned_and_decided_by_the_seed() -> None:
    results: list[tuple[float, ...]] = []
    for seed in (0, 0, 1):
        model = untaught(seed)
        code = ThingCode(model)
        things = [code.told(thing) for thing in SCENE.things]
        tower = next(iter(tower_weights(model.network).values())).clone()
        done: list[int] = []
        first = pretrain_reading(model, code, things * 6, (), 1, 1e-3, seed, done.append)
        read = pretrain_reading(model, code, things * 6, (), 40, 3e-3, seed, done.append)
        assert torch.equal(tower, next(iter(tower_weights(model.network).values())))
        wrote = pretrain_tower(model, code, [SCENE], 1, 1e-3, seed, done.append)
        writes = pretrain_tower(model, code, [SCENE], 40, 3e-3, seed, done.append)
        assert done == [1] * 82
        assert read < first / 2
        assert writes < wrote / 2
        results.append((first, read, wrote, writes))
    assert results[0] == results[1] != results[2]


def test_a_rehearsal_asks_for_points_of_what_a_screenshot_shows() -> None:
    model = untaught()
    assert model.vision is not None
    (batch,) = Rehearsal(model, [SCENE], " > click", 0).draw()
    name = model.vision.book.add(SCENE.image.data)
    shown = [*model.vision.virtual(name)]
    assert batch.ids[1 : 1 + len(shown)].tolist() == shown
    text = batch.ids[2 + len(shown) :].reshape(QUESTIONS, -1)
    told = [ThingCode(model).told(thing) for thing in (RED, BLUE)]
    for *asked, across, down in text.tolist():
        fitting = [thing for thing in told if {*asked[:2]} <= {*thing.words}]
        assert asked[2:] == model.encode(" > click")
        assert (across, down) in [(thing.across, thing.down) for thing in fitting]
    assert batch.tokens.tolist() == text[:, -2:].ravel().tolist()
    assert (batch.ids[batch.nodes + 1] == batch.tokens).all()
    # The grid of the image, then text in all axes further on.
    places = model.vision.positions(batch.ids)
    assert (batch.positions[:, : 2 + len(shown)] == places[:, : 2 + len(shown)]).all()
    behind = batch.positions[:, 2 + len(shown) :] - places[:, 2 + len(shown) :]
    assert (behind == behind[0, 0]).all()
    assert behind[0, 0] >= 0


def test_what_is_rehearsed_is_learned_beside_the_answers_and_decided_by_the_seed() -> None:
    def drilled(model: LanguageModel) -> float:
        asked = Rehearsal(model, [SCENE], " > click", 9)
        return float(_loss(model, asked.draw(), [unchanged(model)]).detach())

    def unchanged(model: LanguageModel) -> np.ndarray:
        return np.arange(len(model.tokenizer), dtype=np.int32)

    results: list[tuple[float, float]] = []
    for seed, rehearses in ((0, True), (0, True), (1, True), (0, False)):
        model = untaught(0)
        (answer,) = Rehearsal(model, [ELSEWHERE], " the", 4).draw()
        drawn = Rehearsal(model, [SCENE], " > click", seed).draw if rehearses else None
        same = Renaming([], len(model.tokenizer))
        loss = train_epochs(model, [answer] * 4, 40, 3e-3, 0, same, lambda done: None, drawn)
        results.append((loss, drilled(model)))
    assert results[0] == results[1] != results[2]
    assert max(loss for loss, _ in results) < 1.2
    assert results[0][1] < 2 < 4 < results[3][1]


def test_who_is_blindfolded_sees_white_and_who_lends_the_eyes_still_sees() -> None:
    model = untaught()
    assert model.vision is not None
    name = model.vision.book.add(SCENE.image.data)
    blind = blindfolded(model)
    assert blind.vision is not None
    ids = torch.tensor([[*model.vision.virtual(name)]])
    assert blind.vision.virtual(name) == model.vision.virtual(name)
    assert blind.vision.book.data(name) == blank_png(64, 48)
    positions = model.positions(ids[0].numpy())[:, None]
    seen, unseen = (each.hidden_states(ids, positions, None) for each in (model, blind))
    white = model.vision.book.add(blank_png(64, 48))
    whites = torch.tensor([[*model.vision.virtual(white)]])
    assert torch.equal(unseen, model.hidden_states(whites, positions, None))
    assert not torch.allclose(seen, unseen)
