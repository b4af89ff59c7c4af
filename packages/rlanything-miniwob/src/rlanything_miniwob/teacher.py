"""Teaches the nano models of MiniWoB++ before the loop begins: examples for the three roles.

The demonstrator uses the pages' experts and makes mistakes, so that reinforcement learning has
something to improve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything.domains.base import Episode
from rlanything.records import Direction, Step, Task
from rlanything_miniwob.actions import (
    ACTION_MARKER,
    Click,
    InvalidAction,
    Select,
    Type,
    parse_action,
)
from rlanything_miniwob.experts import right_actions
from rlanything_miniwob.pages import Page
from rlanything_miniwob.rewriting import family
from rlanything_miniwob.screen import Element, read
from rlanything_miniwob.tasks import page_of
from rlanything_nano.teaching import Demonstrator, StepPlan

LOST = "nothing"
"""Target of an action without one."""


class MiniWobDemonstrator(Demonstrator):
    """Acts like an expert; with probability `slip` it takes another possible action."""

    def answer(self, episode: Episode, rng: random.Random) -> str:
        screen = episode.observation.text
        right = right_actions(episode.task, screen, episode.steps)
        action = right[0] if right else ""
        if not right or rng.random() < self._slip:
            action = slip(read(screen), action, rng)
        return f"{target(screen, action)} {ACTION_MARKER} {action}"


def slip(elements: Sequence[Element], action: str, rng: random.Random) -> str:
    """Returns another action, preferably on another element of the same role."""
    if not elements:
        return "press Enter"
    meant = element_meant(elements, action)
    alike = [each for each in elements if meant and each.role == meant.role and each != meant]
    other = rng.choice(alike or list(elements))
    head, bracket, rest = action.partition("]")
    if meant is not None and bracket and rng.random() < 0.8:
        return f"{head.partition('[')[0]}[{other.number}]{rest}"
    return f"click [{other.number}]"


def target(screen: str, action: str | None) -> str:
    """Returns the target element of an action, as the screen shows it. A small model first learns
    to find equal text by looking back."""
    element = element_meant(read(screen), action or "")
    if element is None:
        return LOST
    return f'{element.role} "{element.text}" [{element.number}]'


def element_meant(elements: Sequence[Element], action: str) -> Element | None:
    """Returns the element that an action names, or None."""
    try:
        parsed = parse_action(action)
    except InvalidAction:
        return None
    if not isinstance(parsed, (Click, Type, Select)) or not 1 <= parsed.number <= len(elements):
        return None
    return elements[parsed.number - 1]


class MiniWobTeacher:
    """The teacher of MiniWoB++'s nano models (a `StepTeacher`)."""

    plan = StepPlan(
        decoding="free",
        response_tokens=48,
        judgement_tokens=48,
        max_steps=10,
        games=8000,
        demonstrations_per_game=1,
        together=3,
        copying_updates=4000,
        policy_epochs=3,
        spaces_apart=True,
        slip=0.2,
        judged_games=1500,
        label_noise=0.15,
        adapter_games=2000,
    )

    def demonstrator(self, slip: float) -> Demonstrator:
        return MiniWobDemonstrator(slip)

    def interchangeable(self) -> list[list[str]]:
        return []  # the pages already draw their words at random

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        """Names the expert's target, which the score depends on."""
        wanted = self._wanted(task, steps, len(steps) - 1)
        said = "a right step" if score == 1 else "a wrong step"
        return f"{wanted} is next: {said}. \\boxed{{{score}}}"

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        at = rejected[0] if rejected else len(steps) - 1
        chosen = self._chosen(steps[at])
        return f"It did not go on with {self._wanted(task, steps, at)}. It chose {chosen}."

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        """Proposes a later page of the family or a larger number as harder; an earlier page, a
        smaller number or a hint as easier."""
        options = _changes(page_of(root), direction, rng)
        return rng.choice(options) if options else None

    def _wanted(self, task: Task, steps: Sequence[Step], at: int) -> str:
        """Returns the expert's target at a step."""
        screen = steps[at].observation
        right = right_actions(task, screen, steps[:at])
        return target(screen, right[0]) if right else LOST

    def _chosen(self, step: Step) -> str:
        """Returns the target of a step."""
        return target(step.observation, step.action)


def _changes(page: Page, direction: Direction, rng: random.Random) -> list[str]:
    pages = sorted(family(page), key=lambda member: member.rank)
    harder = direction == "harder"
    others = [p for p in pages if (p.rank > page.rank if harder else p.rank < page.rank)]
    changes = [f"page: {each.name}\nhint: none" for each in others]
    for knob in page.knobs:
        middle = (knob.least + knob.most) // 2
        value = rng.randint(middle + 1, knob.most) if harder else rng.randint(knob.least, middle)
        changes.append(f"page: {page.name}\n{knob.name}: {value}\nhint: none")
    if not harder:
        changes.append(f"page: {page.name}\nhint: {page.hint}")
    return changes
