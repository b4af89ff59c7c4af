"""Tasks: a page, a seed, parameters, and the resulting sentence with the page's request."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rlanything.domains.base import DomainError
from rlanything.records import Task
from rlanything.seeds import dealt, derive
from rlanything_miniwob.environment import EpisodeSpec
from rlanything_miniwob.experts import EXPERTS
from rlanything_miniwob.pages import OOD, TRAIN, Page, page_named, page_parameters
from rlanything_miniwob.rewriting import PageSetting

Splits = Mapping[str, tuple[Page, ...]]
"""Pages of each split."""


def splits_of(pages: Sequence[Page], held_out: Sequence[Page]) -> Splits:
    """Returns the splits. `tune`, `in_domain`: the pages of `train` with their own seeds; `ood`:
    the held-out pages."""
    shared = dict.fromkeys(("train", "tune", "in_domain"), tuple(pages))
    return {**shared, "ood": tuple(held_out)}


SPLITS = splits_of(TRAIN, OOD)


def chosen_splits(
    splits: Splits, pages: Sequence[str] | None, held_out: Sequence[str] | None
) -> Splits:
    """Returns the splits with other training pages or other held-out pages; None keeps those of
    `splits`. Raises `DomainError` for a page without an expert, and for a page on both sides."""
    train = splits["train"] if pages is None else _named("pages", pages)
    ood = splits["ood"] if held_out is None else _named("held_out", held_out)
    if both := [page.name for page in train if page in ood]:
        raise DomainError(
            f"page {both[0]} is among `pages` and among those held out: leave it out of `pages`, "
            "or choose other pages with `held_out`"
        )
    return splits_of(train, ood)


def _named(option: str, names: Sequence[str]) -> tuple[Page, ...]:
    listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    if not listed or not names or len(set(names)) < len(names):
        raise DomainError(f"{option} is {names!r:.80}: give a list of pages, each once")
    if unknown := [name for name in names if name not in EXPERTS]:
        raise DomainError(
            f"{option}: no expert plays a page called {unknown[0]!r:.80}; "
            f"one plays {', '.join(sorted(EXPERTS))}"
        )
    return tuple(page_named(name) for name in names)


def episode_specs(split: str, count: int, seed: int, splits: Splits = SPLITS) -> list[EpisodeSpec]:
    """Returns `count` episodes, with every page of the split equally often. Raises `DomainError`
    for an unknown split."""
    if split not in splits:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(splits)}")
    pages = dealt(splits[split], count, random.Random(derive(seed, "miniwob", split)))
    return [
        EpisodeSpec(page.name, derive(seed, "miniwob", split, number) % 2**32)
        for number, page in enumerate(pages)
    ]


def make_task(task_id: str, spec: EpisodeSpec, utterance: str, hint: str = "") -> Task:
    """Returns the task of an episode with the page's request `utterance`; `hint`: empty for
    none."""
    data = {"start": asdict(spec), "utterance": utterance, "hint": hint}
    instruction = f"{utterance} Hint: {hint}" if hint else utterance
    return Task(task_id, instruction, spec.page, data)


def spec_of_task(task: Task) -> EpisodeSpec:
    """Returns the episode that a task describes."""
    return EpisodeSpec(**task.data["start"])


def page_of(task: Task) -> Page:
    """Returns the task's page."""
    return page_named(task.data["start"]["page"])


def changed_spec(root: Task, setting: PageSetting) -> EpisodeSpec:
    """Returns an episode with the root's seed and another setting."""
    spec = spec_of_task(root)
    parameters = page_parameters(setting.page, setting.values)
    return EpisodeSpec(setting.page.name, spec.seed, spec.mode, parameters)
