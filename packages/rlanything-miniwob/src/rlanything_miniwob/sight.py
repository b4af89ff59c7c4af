"""The elements behind screenshots: on which of them a click at a point falls, and where they are.

Who only sees clicks at points, and experts know elements. The page itself is asked, in which an
episode's actions are carried out again.
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
"""The coordinates that an expert names are multiples of so many pixels where the element allows it:
a small model has fewer numbers to learn."""


@dataclass(frozen=True, slots=True)
class Replay:
    """An episode that was seen, as one that was read."""

    steps: tuple[Step, ...]
    """With the text of the screens, and clicks on elements in the place of those at points."""
    episode: PageEpisode
    screen: str
    """The text of the screen after the last step."""

    def right(self, task: Task) -> str | None:
        """Returns what an expert does next, on an element; None where it is lost."""
        return next(iter(right_actions(task, self.screen, self.steps)), None)

    def pointed(self, action: str | None) -> str | None:
        """Returns a click on an element as one at a point of it, None where it has none; any other
        action as it is."""
        parsed = None if action is None else parse_action(action)
        if not isinstance(parsed, Click):
            return action
        point = self.episode.place(parsed.number, GRAIN)
        return point and f"click {point[0]} {point[1]}"


def replayed(browser: Browser, task: Task, steps: Sequence[Step]) -> Replay:
    """Returns the episode whose steps are given, read. Raises `EpisodeError` where its page cannot
    be started, or the browser dies."""
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
    """Returns a click at a point as one on the element there; all else as it is."""
    parsed = parse_action(action)
    number = episode.element_at(parsed.x, parsed.y) if isinstance(parsed, ClickAt) else None
    return action if number is None else f"click [{number}]"
