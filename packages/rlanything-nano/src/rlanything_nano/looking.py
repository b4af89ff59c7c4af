"""Drills that teach a model to look, before it learns any task.

To find the red circle, a model must see what is red and round, say where it is, and attend to what
is named, all at once. A tiny model that only gets the final answer learns none of the three. So
each thing is first encoded in the decoder's own vocabulary: the sum of the embeddings of its words
and of its coordinates, each through its own matrix. The decoder learns to read lists of such things
(`pretrain_reading`), and the tower to produce them from a screenshot (`pretrain_tower`).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlanything.domains.base import Domain
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.vision_tower import opened, pixels
from rlanything.progress import Progress
from rlanything.seeds import derive
from rlanything_nano.seeing import PATCH
from rlanything_nano.teaching import SeeingTeacher, SeenScene, SeenThing, StepPlan
from rlanything_nano.updates import decaying_rates, run_updates

LEARNING_RATE = 2e-3
DIRECT = 0.4
"""Share of the reading updates in which a point follows the words directly."""
LISTS, MOST_THINGS = 64, 12
"""Lists per reading update, and number of things in the longest list."""
EMPTY, NOISE = 20, 0.3
"""Empty places in a list, and standard deviation of the noise: a tower writes nothing in most
places, and is exact nowhere."""
QUESTIONS = 8
"""Number of things asked about after a list."""
SCREENS = 16
"""Screenshots per tower update."""
GRAIN = 5
"""Coordinates that are multiples of this many pixels have their own tokens."""
SHARE = 0.3
"""Smallest share of a patch, or of the thing itself, that must overlap for the patch to encode the
thing."""
FURTHEST = 40
"""Largest extra distance in positions between a list and its questions: as long as prompts."""


def told_texts(scenes: Sequence[SeenScene]) -> list[str]:
    """Returns the texts about the scenes' things, for a tokenizer: repeated often enough that every
    word and coordinate becomes one token."""
    things = [thing for scene in scenes for thing in scene.things]
    words = sorted({word for thing in things for word in thing.words})
    coordinates = sorted({each for thing in things for each in thing.point if each % GRAIN == 0})
    return [f" {each} {each}" for each in (*words, *coordinates)] * 50


def drawn_scenes(
    teacher: SeeingTeacher, domain: Domain, plan: StepPlan, progress: Progress
) -> list[SeenScene]:
    """Returns the screens on which a vision model learns to look."""
    tasks = domain.tasks("train", plan.scenes, derive(plan.seed, "scenes")) if plan.scenes else ()
    rng = random.Random(derive(plan.seed, "asked"))
    scenes: list[SeenScene] = []
    with progress.phase("scenes", len(tasks), "scenes") as advance:
        # In the order of pages: the browser opens every page once.
        for task in sorted(tasks, key=lambda task: task.kind):
            scenes.append(teacher.scene(task, rng))
            advance(1)
    return scenes


def pretrain_looking(
    model: LanguageModel,
    teacher: SeeingTeacher,
    scenes: Sequence[SeenScene],
    plan: StepPlan,
    progress: Progress,
) -> None:
    """Teaches a model to look, by both drills; does nothing without scenes."""
    if not scenes:
        return
    code = ThingCode(model)
    seed = derive(plan.seed, "looking")
    things = [code.told(thing) for scene in scenes for thing in scene.things]
    link = model.encode(teacher.link)
    with progress.phase("reading", plan.reading_updates, "updates") as advance:
        settings = (plan.reading_updates, LEARNING_RATE, seed, advance)
        loss = pretrain_reading(model, code, things, link, *settings)
    progress.log(f"reading: loss {loss:.3f} a coordinate")
    with progress.phase("tower", plan.tower_updates, "updates") as advance:
        settings = (plan.tower_updates, LEARNING_RATE, seed, advance)
        error = pretrain_tower(model, code, scenes, *settings)
    progress.log(f"tower: error {error:.3f} of the variance of things")


@dataclass(frozen=True, slots=True)
class Told:
    """A thing as token ids."""

    words: tuple[int, ...]
    across: int
    down: int
    cell: tuple[int, int]
    """Row and column of the patch that contains its point."""


class ThingCode(nn.Module):
    """The vectors that encode things."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self._model = (model,)  # in a tuple, so that it is not registered as a submodule
        embedded: Any = model.network.get_input_embeddings()
        hidden: int = embedded.embedding_dim
        self.across = nn.Linear(hidden, hidden, bias=False)
        self.down = nn.Linear(hidden, hidden, bias=False)
        self.nothing = nn.Parameter(torch.randn(hidden) / 4)
        """[hidden], the encoding of an empty place; not zeros, because normalization would amplify
        them arbitrarily."""
        self._numbers = {
            number: ids[0] for number in range(256) if len(ids := model.encode(f" {number}")) == 1
        }

    def told(self, thing: SeenThing) -> Told:
        """Returns a thing as token ids. Words that are not single tokens are omitted; such
        coordinates are replaced by the nearest ones that are."""
        spelled = [self._model[0].encode(f" {word}") for word in thing.words]
        x, y = thing.point
        return Told(
            tuple(ids[0] for ids in spelled if len(ids) == 1),
            self._number(x),
            self._number(y),
            (y // PATCH, x // PATCH),
        )

    def _number(self, value: int) -> int:
        known = sorted(self._numbers)
        at = bisect_left(known, value)
        near = min(known[max(0, at - 1) : at + 1], key=lambda number: abs(number - value))
        return self._numbers[near]

    def forward(self, things: Sequence[Told]) -> Tensor:
        """Returns the vectors [things, hidden]."""
        embedded: Any = self._model[0].network.get_input_embeddings()
        counts = torch.tensor([len(thing.words) for thing in things])
        words = torch.tensor([word for thing in things for word in thing.words], dtype=torch.long)
        rows = torch.repeat_interleave(torch.arange(len(things)), counts)
        called = torch.zeros(len(things), embedded.embedding_dim)
        called = called.index_add(0, rows, embedded(words))
        across = self.across(embedded(torch.tensor([thing.across for thing in things])))
        return called + across + self.down(embedded(torch.tensor([thing.down for thing in things])))


def pretrain_reading(
    model: LanguageModel,
    code: ThingCode,
    things: Sequence[Told],
    link: Sequence[int],
    updates: int,
    learning_rate: float,
    seed: int,
    on_update: Callable[[int], None],
) -> float:
    """Trains the decoder, and the code, to name the point of a thing in a list after two of its
    words. `link`: the tokens that later stand between the words and the point. Lists get longer:
    with a single thing a model learns to say where it is, before it must distinguish it from
    others.

    Returns the mean loss per coordinate, in nats, over the last tenth of the updates. `on_update`
    is called with 1 after every update."""
    rng = random.Random(seed)
    called = [thing for thing in things if thing.words]
    rates = decaying_rates(learning_rate, updates)

    def losses(update: int) -> tuple[Tensor, Tensor]:
        most = 1 + int(min(1.0, 1.6 * update / updates) * (MOST_THINGS - 1))
        count = rng.randint(1, most)
        lists = [rng.sample(called, count) for _ in range(LISTS)]
        linked = link if update > DIRECT * updates else ()
        loss = _reading_loss(model, code, lists, linked, rng)
        return loss, loss

    both = nn.ModuleList([model.network, code])
    return run_updates(both, rates, losses, lambda update: on_update(1))


def _reading_loss(
    model: LanguageModel,
    code: ThingCode,
    lists: Sequence[Sequence[Told]],
    link: Sequence[int],
    rng: random.Random,
) -> Tensor:
    """Returns the mean cross-entropy (scalar) of the requested coordinates."""
    count = len(lists[0])
    ids = torch.tensor([question_tokens(things, link, rng) for things in lists])
    vectors = code([thing for things in lists for thing in things]).unflatten(0, (len(lists), -1))
    empty = code.nothing.expand(len(lists), EMPTY, -1)
    told = torch.cat([empty, vectors], 1)
    told = told + NOISE * vectors.detach().std() * torch.randn(told.shape)
    embedded = model.network.get_input_embeddings()(ids)
    hidden = model.decoder(
        inputs_embeds=torch.cat([told, embedded], 1),
        position_ids=_places(lists, ids.shape[1], rng),
    ).last_hidden_state[:, EMPTY + count - 1 : -1]
    asked = ids.shape[1] // QUESTIONS
    wanted = torch.arange(ids.shape[1]) % asked >= asked - 2
    logits = model.logits(hidden[:, wanted])
    return nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, wanted])


def question_tokens(things: Sequence[Told], link: Sequence[int], rng: random.Random) -> list[int]:
    """Returns the tokens of `QUESTIONS` questions with their answers, each with two words, the link
    and two coordinates."""
    tokens: list[int] = []
    words: tuple[int, ...] = ()
    fitting: list[Told] = []
    for _ in range(QUESTIONS):
        for _ in range(5):
            asked = rng.choice(things)
            words = tuple(sorted(rng.choices(asked.words, k=2), key=asked.words.index))
            fitting = [thing for thing in things if set(words) <= set(thing.words)]
            if len(fitting) == 1:
                break
        answer = rng.choice(fitting)
        tokens += [*words, *link, answer.across, answer.down]
    return tokens


def _places(lists: Sequence[Sequence[Told]], tokens: int, rng: random.Random) -> Tensor:
    """Returns positions [3, lists, EMPTY + things + tokens], laid out like an image followed by
    text."""
    shown = [thing.cell for things in lists for thing in things]
    cells = torch.tensor(
        [
            [(0, *cell) for cell in (*rng.choices(shown, k=EMPTY), *(t.cell for t in things))]
            for things in lists
        ]
    )
    text = int(cells.max()) + 1 + rng.randint(0, FURTHEST) + torch.arange(tokens)
    return torch.cat([cells.permute(2, 0, 1), text.expand(3, len(lists), -1)], 2)


def pretrain_tower(
    model: LanguageModel,
    code: ThingCode,
    scenes: Sequence[SeenScene],
    updates: int,
    learning_rate: float,
    seed: int,
    on_update: Callable[[int], None],
) -> float:
    """Trains the tower to write, in the token of every patch, the thing that covers it, or nothing.
    Returns the mean squared error of things, as a share of their variance, over the last tenth of
    the updates. `on_update` is called with 1 after every update."""
    sight = model.vision
    body: Any = model.network.base_model
    assert sight is not None
    names = [sight.book.add(scene.image.data) for scene in scenes]
    with torch.no_grad():
        vectors = [code([code.told(thing) for thing in scene.things]) for scene in scenes]
    spread = torch.cat(vectors).var(0).sum()
    rng = random.Random(seed)

    def losses(update: int) -> tuple[Tensor, Tensor]:
        chosen = rng.sample(range(len(scenes)), min(SCREENS, len(scenes)))
        seen = pixels(sight, [opened(sight, names[i]) for i in chosen])
        rows = torch.cat([*body.get_image_features(**seen, return_dict=True).pooler_output])
        grids = seen["image_grid_thw"].tolist()
        there = [
            _things_there(scenes[i], (h, w)) for i, (_, h, w) in zip(chosen, grids, strict=True)
        ]
        wanted = torch.cat(
            [
                _told_there(vectors[i], code.nothing.detach(), things)
                for i, things in zip(chosen, there, strict=True)
            ]
        )
        errors = (rows - wanted).square().sum(1) / spread
        shares = torch.from_numpy(np.concatenate([_shares(things) for things in there]))
        on_things = (errors * shares).sum() / shares.sum()
        return on_things + errors[shares == 0].mean(), on_things.detach()

    tower: Any = body.visual
    rates = decaying_rates(learning_rate, updates)
    return run_updates(tower, rates, losses, lambda update: on_update(1))


def _told_there(vectors: Tensor, nothing: Tensor, there: np.ndarray) -> Tensor:
    """Returns the vectors [patches, hidden] of the things [patches] there; `nothing`: [hidden]."""
    return torch.cat([vectors, nothing[None]])[torch.from_numpy(there)]


def _shares(there: np.ndarray) -> np.ndarray:
    """Returns the weights [patches] of the things [patches] there: small things count as much as
    large ones, empty patches do not count."""
    _, which, counts = np.unique(there, return_inverse=True, return_counts=True)
    return np.where(there >= 0, 1 / counts[which], 0.0).astype(np.float32)


def _things_there(scene: SeenScene, grid: tuple[int, int]) -> np.ndarray:
    """Returns for every patch of a grid (rows, columns) the number of the thing that covers most of
    it; -1 if none covers enough."""
    best, there = np.full(grid, 0.0), np.full(grid, -1)
    for number, thing in enumerate(scene.things):
        left, top, right, bottom = thing.box
        down, across = _overlap(top, bottom, grid[0]), _overlap(left, right, grid[1])
        covered = np.outer(down, across)
        enough = covered >= SHARE * min(PATCH * PATCH, (right - left) * (bottom - top))
        more = enough & (covered > best)
        best[more], there[more] = covered[more], number
    return there.ravel()


def _overlap(start: float, end: float, patches: int) -> np.ndarray:
    """Returns how many pixels from `start` to `end` are in each patch [patches]."""
    edges = np.arange(patches) * PATCH
    return np.clip(np.minimum(end, edges + PATCH) - np.maximum(start, edges), 0, None)
