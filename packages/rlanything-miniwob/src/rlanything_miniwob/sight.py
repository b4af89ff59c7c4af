"""The elements behind screenshots: the target of a click at a point, and their positions.

A vision model clicks at points, and experts know elements. The page itself provides the mapping:
the episode's actions are repeated on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlanything.domains.base import EpisodeError
from rlanything.records import Step, Task
from rlanything_miniwob.actions import Click, ClickAt, parse_action
from rlanything_miniwob.browser import Browser, BrowserDied
from rlanything_miniwob.environment import PageEpisode, first_line, open_episode
from rlanything_miniwob.experts import right_actions
from rlanything_miniwob.screen import text_of
from rlanything_miniwob.tasks import spec_of_task

GRAIN = 5
"""The expert's coordinates are multiples of this many pixels if the element allows it: a small
model has fewer numbers to learn."""


@dataclass(frozen=True, slots=True)
class Replay:
    """An episode of screenshots, converted to an episode of text."""

    steps: tuple[Step, ...]
    """Steps with the screens as text, and clicks on elements instead of points."""
    episode: PageEpisode
    screen: str
    """The text of the screen after the last step."""

    def right(self, task: Task) -> str | None:
        """Returns the expert's next action on an element, or None if it is lost."""
        return next(iter(right_actions(task, self.screen, self.steps)), None)

    def pointed(self, action: str | None) -> str | None:
        """Returns a click on an element as a click at one of its points, or None if it has none;
        any other action unchanged."""
        parsed = None if action is None else parse_action(action)
        if not isinstance(parsed, Click):
            return action
        point = self.episode.place(parsed.number, GRAIN)
        return point and f"click {point[0]} {point[1]}"


def replayed(browser: Browser, task: Task, steps: Sequence[Step]) -> Replay:
    """Returns the given episode as text. Raises `EpisodeError` if its page cannot be started or the
    browser dies."""
    episode, state = open_episode(browser, task.id, spec_of_task(task))
    read: list[Step] = []
    for step in steps:
        before = text_of(state.elements)
        action = step.action
        if step.valid and step.action is not None:
            try:
                action = _on_element(episode, step.action)
                state = episode.act(parse_action(step.action))
            except BrowserDied as fault:
                raise EpisodeError(task.id, f"the browser died ({first_line(fault)})") from fault
        after = text_of(state.elements)
        read.append(replace(step, observation=before, action=action, next_observation=after))
    return Replay(tuple(read), episode, text_of(state.elements))


def _on_element(episode: PageEpisode, action: str) -> str:
    """Returns a click at a point as a click on the element there; anything else unchanged."""
    parsed = parse_action(action)
    number = episode.element_at(parsed.x, parsed.y) if isinstance(parsed, ClickAt) else None
    return action if number is None else f"click [{number}]"
