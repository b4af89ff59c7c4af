"""Measurements of a new nano model, for its card."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from rlanything.domains.base import Domain, DomainError, InvalidTask, RewriteRequest
from rlanything.domains.several import Several
from rlanything.engines.base import Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.images import ImageBook, blank_png, png_size
from rlanything.evaluation.intervals import wilson
from rlanything.evaluation.success import evaluate
from rlanything.progress import Progress
from rlanything.records import Direction, Task
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive
from rlanything_nano.making import DIRECTIONS


def fresh_tasks(domain: Domain, split: str, count: int, seed: int) -> tuple[str, Sequence[Task]]:
    """Returns the name of a split with tasks of it. A domain without `tune` is measured on new
    tasks of its training split. A domain without `ood` gets no tasks for it."""
    try:
        return split, domain.tasks(split, count, seed)
    except DomainError:
        train = f"{split.removesuffix('tune')}train"
        return (train, domain.tasks(train, count, seed)) if split.endswith("tune") else (split, ())


class BlankBook(ImageBook):
    """A book whose images are all white, to measure what a vision model does without looking."""

    def __init__(self, book: ImageBook) -> None:
        super().__init__()
        self._book = book

    def data(self, name: str) -> bytes:
        return blank_png(*png_size(self._book.data(name), name))


def blindfolded(model: LanguageModel) -> LanguageModel:
    """Returns a copy of a vision model to which all images are blank."""
    blind = copy.deepcopy(model)
    assert model.vision is not None
    assert blind.vision is not None
    blind.vision.book = BlankBook(model.vision.book)
    return blind


def measure_policy(
    agent_at: Callable[[float], Agent],
    domain: Domain,
    pool: EnvironmentPool,
    *,
    episodes: int,
    max_steps: int,
    seed: int,
    progress: Progress,
    parallel_episodes: int = 128,
    lockstep: bool = True,
) -> dict[str, Any]:
    """Returns the success rate with its 95% interval, by split and temperature; with several worlds
    of each."""
    measured: dict[str, Any] = {}
    worlds = [f"{label}/" for label in domain.worlds] if isinstance(domain, Several) else [""]
    for world, (kind, temperature) in product(worlds, (("tune", 1.0), ("tune", 0.5), ("ood", 1.0))):
        wanted = f"{world}{kind}"
        split, tasks = fresh_tasks(domain, wanted, episodes, derive(seed, "measure"))
        if not tasks:
            continue
        result = evaluate(
            agent_at(temperature),
            pool,
            tasks,
            split,
            max_steps=max_steps,
            parallel_episodes=parallel_episodes,
            seed=seed,
            progress=progress,
            lockstep=lockstep,
        )
        name = f"{split} success at temperature {temperature}"
        measured[name] = asdict(result.success) if result.success else None
        progress.log(f"policy: {name}: {measured[name]}")
    return measured


def sample_critics(critics: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """Returns none, one or two of the critics: as many as the adapter sees in the loop."""
    return tuple(rng.sample(critics, min(rng.randint(0, 2), len(critics))))


def measure_adapter(
    adapter: LanguageModel,
    domain: Domain,
    roots: Sequence[Task],
    *,
    critics: Sequence[str],
    max_tokens: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Returns the share of single answers that are valid candidates, in both directions for every
    root."""
    rng = random.Random(derive(seed, "critics shown"))
    pairs: list[tuple[Task, Direction]] = [
        (root, direction) for root in roots for direction in DIRECTIONS
    ]
    requests = [
        ChatRequest(
            domain.adapter_prompt(RewriteRequest.of(root, direction, sample_critics(critics, rng))),
            (derive(seed, root.id, direction),),
        )
        for root, direction in pairs
    ]
    chat_model = LocalChatModel(adapter, embedded_engine(adapter))
    answers = chat_model.answer(requests, Sampling(0.7, max_tokens))
    reasons = Counter[str]()
    for (root, _), (answer,) in zip(pairs, answers, strict=True):
        try:
            domain.parse_candidate(root, "check", answer.text)
        except InvalidTask as reason:
            reasons[str(reason)[:60]] += 1
    result = wilson(len(pairs) - reasons.total(), len(pairs))
    progress.log(f"adapter: valid answers {result}; refused most: {reasons.most_common(5)}")
    return {"valid answers at temperature 0.7": asdict(result) if result else None}
