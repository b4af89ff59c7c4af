"""MiniWoB++'s episodes: reads an action from a response and carries it out in the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page

from rlanything.domains.base import EpisodeError, Image, Observation, StepResult
from rlanything.domains.miniwob.actions import (
    ACTION_MARKER,
    USAGE,
    Action,
    Click,
    ClickAt,
    InvalidAction,
    Press,
    Scroll,
    Select,
    Type,
    find_action,
    parse_action,
)
from rlanything.domains.miniwob.browser import HEIGHT, WIDTH, Browser, BrowserDied
from rlanything.domains.miniwob.screen import Element, elements_of, text_of
from rlanything.records import Task

NO_ACTION = f"No action was found: end the response with `{ACTION_MARKER} ` and one of: {USAGE}."
SETTLE_MS = 1000
"""How far a page's own clock moves after each action: longer than any animation or delay."""
MOST_DEATHS = 3
"""Of the browser, in a row, at one step."""


@dataclass(frozen=True, slots=True)
class Start:
    """What decides how an episode of a page begins."""

    page: str
    seed: int
    mode: str = "train"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """`variables`: values by the names of the page's own; `ranges`: other ranges for those from
    which the page draws whole numbers, `{"2,7": [5, 6]}`, ends left out."""


@dataclass(frozen=True, slots=True)
class Look:
    """A page, read."""

    elements: tuple[Element, ...]
    done: bool
    reward: float
    """Raw: without the package's discount for time."""
    utterance: str = ""
    """What the page asks for; of the first look only."""


class Episode:
    """A page from its start through some actions; plays itself again where its page was taken."""

    def __init__(self, browser: Browser, start: Start) -> None:
        self._browser, self._start = browser, start
        self._done: list[Action] = []

    def begin(self) -> Look:
        self._done.clear()
        return self._browser_call(lambda: _begin(self._taken()[0], self._start))

    def act(self, action: Action) -> Look:
        """Raises `InvalidAction`, which changes nothing that the episode knows of."""
        look = self._browser_call(lambda: _carry_out(self._page(), action))
        self._done.append(action)
        return look

    def screenshot(self) -> bytes:
        """PNG, 160 x 210 times the browser's scale."""
        return self._browser_call(lambda: self._page().screenshot())

    def _browser_call(self, work: Any) -> Any:
        for death in range(1, MOST_DEATHS + 1):
            try:
                return self._browser.call(work)
            except BrowserDied:
                if death == MOST_DEATHS:
                    raise

    def _page(self) -> Page:
        """Where the episode left it."""
        page, was_mine = self._taken()
        if not was_mine:
            _begin(page, self._start)
            for action in self._done:
                _carry_out(page, action)
        return page

    def _taken(self) -> tuple[Page, bool]:
        return self._browser.page(self._start.page, self)


def _begin(page: Page, start: Start) -> Look:
    page.mouse.move(0, 0)  # else what it points at differs by what was done before
    reset = "([seed, mode, parameters]) => miniwob.reset(seed, mode, parameters)"
    values = [start.seed, start.mode, dict(start.parameters)]
    found = page.evaluate(reset, values)
    if found is None:
        page.goto(page.url.partition("#")[0])
        found = page.evaluate(reset, values)
    return _look(found)


def _carry_out(page: Page, action: Action) -> Look:
    match action:
        case Click(number):
            page.mouse.click(*_point(page, number))
        case ClickAt(x, y):
            if not (x < WIDTH and y < HEIGHT):
                raise InvalidAction(f"The page ends at {WIDTH} {HEIGHT}.")
            page.mouse.click(x, y)
        case Type(number, text):
            page.mouse.click(*_point(page, number))
            if page.evaluate("number => miniwob.inParts(number - 1)", number):
                text = _parts(text)
            else:
                page.keyboard.press("Control+a")
                page.keyboard.press("Delete")
            page.keyboard.type(text)
        case Select(number, option):
            _select(page, number, option)
        case Press(key):
            page.keyboard.press(key)
        case Scroll(down):
            page.mouse.move(WIDTH // 2, HEIGHT * 2 // 3)
            page.mouse.wheel(0, HEIGHT // 2 if down else -HEIGHT // 2)
    return _look(page.evaluate("time => miniwob.settle(time)", SETTLE_MS))


def _parts(text: str) -> str:
    """A date or time as it is typed where every full part leads to the next: 6:09 PM is 0609PM."""
    return "".join(part.zfill(2) for part in re.findall(r"\d+|[^\W\d_]+", text))


def _select(page: Page, number: int, option: str) -> None:
    found = page.evaluate("([number, text]) => miniwob.choose(number - 1, text)", [number, option])
    if found is None:
        raise InvalidAction(f"Element {number} is no list with the option {option!r}.")
    # By keyboard: a list that opens is no part of the page, so nothing in it can be clicked. With
    # Control what is chosen in a list of several stays so, and Space chooses or gives up another.
    held = "Control+" if found["several"] else ""
    page.keyboard.press(f"{held}Home")
    for _ in range(found["at"]):
        page.keyboard.press(f"{held}ArrowDown")
    if held:
        page.keyboard.press("Control+Space")


def _point(page: Page, number: int) -> tuple[float, float]:
    known, point = page.evaluate("number => [miniwob.count(), miniwob.point(number - 1)]", number)
    if not 1 <= number <= known:
        raise InvalidAction(f"There is no element {number}.")
    if point is None:
        raise InvalidAction(f"Element {number} is gone or covered by another.")
    return point[0], point[1]


def _look(found: Mapping[str, Any]) -> Look:
    return Look(
        elements_of(found["elements"]),
        found["done"],
        found["reward"],
        found.get("utterance", ""),
    )


def opened(browser: Browser, task_id: str, start: Start) -> tuple[Episode, Look]:
    """An episode with its first look. Raises `EpisodeError` where there can be none."""
    episode = Episode(browser, start)
    try:
        look = episode.begin()
    except PlaywrightError as fault:
        raise EpisodeError(task_id, f"the page cannot be started ({_first(fault)})") from fault
    except BrowserDied as fault:
        raise EpisodeError(task_id, f"the browser died ({_first(fault)})", True) from fault
    if look.done:
        raise EpisodeError(task_id, "the page is done before it begins")
    return episode, look


class MiniWobEnvironment:
    """One page at a time. An episode is won with the page's full reward, and lost with less."""

    def __init__(self, browser: Browser, screenshots: bool = False) -> None:
        self._browser, self._screenshots = browser, screenshots
        self._task: Task
        self._episode: Episode
        self._text = ""

    def reset(self, task: Task) -> Observation:
        self._task = task
        self._episode, look = opened(self._browser, task.id, Start(**task.data["start"]))
        if look.utterance != task.data["utterance"]:
            raise EpisodeError(
                task.id,
                f"the page asks for {look.utterance!r}, the task for {task.data['utterance']!r}",
            )
        return self._seen(look)

    def step(self, response: str) -> StepResult:
        text = find_action(response)
        if text is None:
            return self._refused(None, NO_ACTION)
        try:
            look = self._episode.act(parse_action(text))
        except InvalidAction as reason:
            return self._refused(text, str(reason))
        except PlaywrightError as fault:
            reason = f"the page failed at {text!r} ({_first(fault)})"
            raise EpisodeError(self._task.id, reason) from fault
        except BrowserDied as fault:
            reason = f"the browser died at {text!r} ({_first(fault)})"
            raise EpisodeError(self._task.id, reason, deadly=True) from fault
        if look.done:
            outcome = 1 if look.reward == 1 else -1
            seen = Observation("The task is over.")
            return StepResult(seen, text, valid=True, outcome=outcome, reward=None)
        return StepResult(self._seen(look), text, valid=True)

    def _seen(self, look: Look) -> Observation:
        self._text = text_of(look.elements) or "The page is empty."
        return self._observed(self._text)

    def _observed(self, text: str) -> Observation:
        image = Image(self._episode.screenshot()) if self._screenshots else None
        return Observation(text, image=image)

    def _refused(self, action: str | None, reason: str) -> StepResult:
        return StepResult(self._observed(f"{reason}\n{self._text}"), action, valid=False)


def _first(fault: Exception) -> str:
    return next(iter(str(fault).splitlines()), type(fault).__name__)
