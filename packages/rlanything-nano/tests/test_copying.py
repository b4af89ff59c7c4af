"""The drill that teaches a tiny model to say again what it has read."""

from __future__ import annotations

import math

import numpy as np
import torch

from rlanything.engines.hf.model import LanguageModel
from rlanything_nano.copying import SPECIAL, pretrain_copying, sequences
from rlanything_nano.making import Shape, new_model
from rlanything_nano.tokenizer import train_tokenizer


def test_a_word_is_the_same_tokens_wherever_it_stands_once_spaces_are_apart() -> None:
    text = 'Type "ashlea" now: type [1] ashlea'
    for apart in (True, False):
        tokenizer = train_tokenizer([text] * 5, 320, apart)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        word = tokenizer.encode('"ashlea')[1:]
        assert (tokenizer.encode(" ashlea")[1:] == word) is apart


def untaught() -> LanguageModel:
    return new_model(Shape(32, 2, 2), train_tokenizer(["abc"], 300), 0)


def test_every_sequence_holds_a_string_twice_and_marks_what_can_be_known() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        ids, again = sequences(300, rng)
        assert ids.min() >= SPECIAL
        assert ids.max() < 300
        for row, marks in zip(ids, again, strict=True):
            known = np.flatnonzero(marks)
            assert 3 <= len(known) <= 22
            assert (np.diff(known) == 1).all()
            first = row[: len(known) + 1]
            assert (row[known[0] - 1 : known[-1] + 1] == first).all()
            assert known[0] > len(known)  # the second does not reach into the first


def test_a_drill_is_decided_by_its_seed_and_begins_at_chance() -> None:
    models = [untaught() for _ in range(3)]
    done: list[int] = []
    losses = [
        pretrain_copying(model, 4, 1e-3, seed, done.append)
        for model, seed in zip(models, (1, 1, 2), strict=True)
    ]
    assert done == [1] * 12
    assert losses[0] == losses[1] != losses[2]
    assert abs(losses[0] - math.log(len(models[0].tokenizer))) < 0.5
    one, two, other = (torch.cat([p.flatten() for p in m.network.parameters()]) for m in models)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
