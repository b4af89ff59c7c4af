"""Drills that continue while a model learns to answer.

Trained on answers alone, a tiny model forgets how to look: it learns the usual places of things
sooner than their meaning. So a vision model keeps answering where named things are, as in
`looking.pretrain_reading`, on real screenshots instead of lists. A model that has learned to find a
task's names continues its exercises.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlanything.engines.hf.model import LanguageModel
from rlanything_nano.looking import FURTHEST, QUESTIONS, ThingCode, Told, question_tokens
from rlanything_nano.sft import Renaming, SFTBatch
from rlanything_nano.teaching import SeenScene
from rlanything_nano.tokenizer import IMAGE_MARKS

SCREENSHOTS = 4
"""Screenshots per update."""


class Drill:
    """Randomly drawn exercises, worded differently every time."""

    def __init__(self, exercises: Sequence[SFTBatch], renaming: Renaming, seed: int) -> None:
        self._exercises = exercises
        self._renaming = renaming
        self._rng = np.random.default_rng(seed)

    def draw(self) -> list[SFTBatch]:
        """Returns the exercises of the next update, one batch."""
        batch = self._exercises[int(self._rng.integers(len(self._exercises)))]
        names = self._renaming.draw(self._rng)
        return [replace(batch, ids=names[batch.ids], tokens=names[batch.tokens])]


class Rehearsal:
    """Questions about the points of named things, on randomly drawn screenshots."""

    def __init__(
        self, model: LanguageModel, scenes: Sequence[SeenScene], link: str, seed: int
    ) -> None:
        """`link`: text between the words for a thing and its point. The model's book keeps the
        screenshots. Other models may rehearse too if they share its tokenizer and its book."""
        assert model.vision is not None
        self._vision = model.vision
        self._link = model.encode(link)
        tokenizer: Any = model.tokenizer
        self._start, self._end = tokenizer.convert_tokens_to_ids([*IMAGE_MARKS[2:]])
        code = ThingCode(model)
        book = model.vision.book
        told = [[code.told(thing) for thing in scene.things] for scene in scenes]
        self._scenes = [
            (book.add(scene.image.data), called)
            for scene, things in zip(scenes, told, strict=True)
            if (called := [thing for thing in things if thing.words])
        ]
        self._rng = random.Random(seed)

    def draw(self) -> list[SFTBatch]:
        """Returns the questions of the next update, one batch per screenshot."""
        count = min(SCREENSHOTS, len(self._scenes))
        return [self._asked(*scene) for scene in self._rng.sample(self._scenes, count)]

    def _asked(self, name: str, things: Sequence[Told]) -> SFTBatch:
        asked = question_tokens(things, self._link, self._rng)
        ids = np.array([self._start, *self._vision.virtual(name), self._end, *asked])
        places = self._vision.positions(ids).astype(np.int32)
        # The number of words before the question varies between prompts.
        places[:, -len(asked) :] += self._rng.randint(0, FURTHEST)
        wanted = np.arange(len(ids) - len(asked), len(ids)).reshape(QUESTIONS, -1)[:, -2:].ravel()
        ends = np.full(len(ids), len(ids), dtype=np.int32)
        nodes = (wanted - 1).astype(np.int32)
        return SFTBatch(ids, places, ends, nodes, ids[wanted].astype(np.int32))
