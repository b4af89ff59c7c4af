"""Scripted experts for pages of MiniWoB++, which read the screen like an agent."""

from collections.abc import Sequence

from rlanything.domains.base import DomainError
from rlanything.records import Step, Task
from rlanything_miniwob.experts import (
    choosing,
    clicking,
    colors,
    dates,
    drawings,
    filling,
    mail,
    ordering,
    posts,
    searching,
    sliders,
)
from rlanything_miniwob.experts.base import Expert
from rlanything_miniwob.screen import read

_THEMES = (
    choosing,
    clicking,
    colors,
    dates,
    drawings,
    filling,
    mail,
    ordering,
    posts,
    searching,
    sliders,
)
EXPERTS: dict[str, Expert] = {
    page: expert for theme in _THEMES for page, expert in sorted(theme.EXPERTS.items())
}
"""Experts by page."""


def right_actions(task: Task, screen: str, steps: Sequence[Step]) -> list[str]:
    """Returns the right next actions on a screen's text, the best one first; [] if the expert is
    lost.

    Raises `DomainError` for a task on a page without an expert."""
    page = task.data["start"]["page"]
    if page not in EXPERTS:
        raise DomainError(f"page {page} has no expert: use one of {', '.join(sorted(EXPERTS))}")
    done = [step.action for step in steps if step.valid and step.action is not None]
    return EXPERTS[page](task.data["utterance"], read(screen), done)


__all__ = ["EXPERTS", "Expert", "right_actions"]
