"""Tasks: a page, a seed, parameters, and the sentence that the page then asks for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict

from rlanything.domains.base import DomainError
from rlanything.domains.miniwob.environment import EpisodeSpec
from rlanything.domains.miniwob.pages import OOD, PAGES, TRAIN, Page, page_parameters
from rlanything.domains.miniwob.rewriting import PageSetting
from rlanything.records import Task
from rlanything.seeds import dealt, derive

SPLITS: Mapping[str, tuple[Page, ...]] = {
    "train": TRAIN,
    "tune": TRAIN,
    "in_domain": TRAIN,
    "ood": OOD,
}
"""`in_domain`: the pages of `train` with seeds of its own; `ood`: pages held out."""


def episode_specs(
    split: str, count: int, seed: int, splits: Mapping[str, tuple[Page, ...]] = SPLITS
) -> list[EpisodeSpec]:
    """Returns `count` episodes, every page of the split as often as the others. Raises
    `DomainError` for an unknown split."""
    if split not in splits:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(splits)}")
    pages = dealt(splits[split], count, random.Random(derive(seed, "miniwob", split)))
    return [
        EpisodeSpec(page.name, derive(seed, "miniwob", split, number) % 2**32)
        for number, page in enumerate(pages)
    ]


def make_task(task_id: str, spec: EpisodeSpec, utterance: str, hint: str = "") -> Task:
    """Returns the task of an episode whose page asks for `utterance`; `hint`: empty for none."""
    data = {"start": asdict(spec), "utterance": utterance, "hint": hint}
    instruction = f"{utterance} Hint: {hint}" if hint else utterance
    return Task(task_id, instruction, spec.page, data)


def spec_of_task(task: Task) -> EpisodeSpec:
    """Returns the episode that a task describes."""
    return EpisodeSpec(**task.data["start"])


def page_of(task: Task) -> Page:
    """Returns the page that a task is about."""
    return PAGES[task.data["start"]["page"]]


def changed_spec(root: Task, setting: PageSetting) -> EpisodeSpec:
    """Returns an episode of the root's seed with another setting."""
    spec = spec_of_task(root)
    parameters = page_parameters(setting.page, setting.values)
    return EpisodeSpec(setting.page.name, spec.seed, spec.mode, parameters)
