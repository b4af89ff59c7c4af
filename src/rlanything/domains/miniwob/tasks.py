"""Tasks: a page, a seed, parameters, and the sentence that the page then asks for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict

from rlanything.domains.base import DomainError
from rlanything.domains.miniwob.environment import Start
from rlanything.domains.miniwob.pages import OOD, PAGES, TRAIN, Page, told
from rlanything.domains.miniwob.rewriting import Setting
from rlanything.records import Task
from rlanything.seeds import derive

SPLITS: Mapping[str, tuple[Page, ...]] = {
    "train": TRAIN,
    "tune": TRAIN,
    "in_domain": TRAIN,
    "ood": OOD,
}
"""`in_domain`: the pages of `train` with seeds of its own; `ood`: pages held out."""


def starts(split: str, count: int, seed: int) -> list[Start]:
    """Every page of the split as often as the others. Raises `DomainError` for an unknown split."""
    if split not in SPLITS:
        raise DomainError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    pages = SPLITS[split]
    rng = random.Random(derive(seed, "miniwob", split))
    order = [page for _ in range(-(-count // len(pages))) for page in rng.sample(pages, len(pages))]
    return [
        Start(page.name, derive(seed, "miniwob", split, number) % 2**32)
        for number, page in enumerate(order[:count])
    ]


def make_task(task_id: str, start: Start, utterance: str, hint: str = "") -> Task:
    data = {"start": asdict(start), "utterance": utterance, "hint": hint}
    instruction = f"{utterance} Hint: {hint}" if hint else utterance
    return Task(task_id, instruction, start.page, data)


def start_of(task: Task) -> Start:
    return Start(**task.data["start"])


def page_of(task: Task) -> Page:
    return PAGES[task.data["start"]["page"]]


def changed(root: Task, setting: Setting) -> Start:
    """The root's seed with another setting."""
    start = start_of(root)
    return Start(setting.page.name, start.seed, start.mode, told(setting.page, setting.values))
