"""MiniWoB++'s episodes: reads an action from a response and carries it out on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page

from rlanything.domains.base import EpisodeError, Image, Observation, StepResult
from rlanything.domains.screens import LOOK
from rlanything.records import Task
from rlanything_miniwob.actions import (
    ACTION_MARKER,
    CLIPBOARD_KEYS,
    USAGE,
    USAGE_BY_SIGHT,
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
from rlanything_miniwob.browser import HEIGHT, WIDTH, Browser, BrowserDied
from rlanything_miniwob.screen import Element, elements_of, text_of

NO_ACTION = f"No action was found: end the response with `{ACTION_MARKER} ` and one of: "
SETTLE_MS = 1000
"""Time in milliseconds that passes on the page's own clock after each action: longer than any
animation or delay."""
FORGET_MS = 1100
"""Time in milliseconds that passes on the browser's clock after typing in a list: text typed within
a second would extend the earlier text."""
MOST_DEATHS = 3
"""Consecutive deaths of the browser at one step after which an episode is given up."""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """The page, seed and parameters that determine how an episode begins."""

    page: str
    seed: int
    mode: str = "train"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """`variables`: values by the names of the page's variables. `ranges`: other ranges for whole
    numbers that the page draws, `{"2,7": [5, 6]}`, without the end."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of an element in pixels."""

    point: tuple[int, int]
    """An uncovered point of it, in multiples of a grain if possible."""
    box: tuple[float, float, float, float]
    """Its left, top, right and bottom."""


@dataclass(frozen=True, slots=True)
class PageState:
    """The state of a page after an action."""

    elements: tuple[Element, ...]
    done: bool
    reward: float
    """Raw reward, without the package's discount for time."""
    utterance: str = ""
    """The sentence with the page's request; empty after the first state of an episode."""


class PageEpisode:
    """A page and the actions carried out on it so far.

    If another episode took the page, or the browser died, the episode is restored by repeating its
    actions."""

    def __init__(self, browser: Browser, spec: EpisodeSpec) -> None:
        self._browser = browser
        self._spec = spec
        self._done: list[Action] = []
        self.began = False
        """Whether the last browser started the page, before any action."""
        self.ended = False
        """Whether others may have its page: this episode no longer needs it."""

    def begin(self) -> PageState:
        """Starts the episode from the beginning and returns the first state."""
        self._done.clear()
        return self._browser_call(lambda: _reset_page(self._acquire_page()[0], self._spec))

    def act(self, action: Action) -> PageState:
        """Carries out an action and returns the state after it. Raises `InvalidAction`; the action
        then does not count as part of the episode."""
        state = self._browser_call(lambda: _carry_out(self._restored_page(action), action))
        self._done.append(action)
        self.ended = state.done
        return state

    def screenshot(self) -> bytes:
        """Returns a PNG of 160 x 210 pixels times the browser's scale."""
        return self._browser_call(lambda: self._restored_page().screenshot())

    def element_at(self, x: int, y: int) -> int | None:
        """Returns the number of the element that a click at a point hits, or None."""
        asked = "([x, y]) => miniwob.at(x, y)"
        number = self._browser_call(lambda: self._restored_page().evaluate(asked, [x, y]))
        return number or None

    def place(self, number: int, grain: int) -> tuple[int, int] | None:
        """Returns a point of an element, in whole pixels, in multiples of `grain` if possible; None
        if no part of it can be clicked."""
        try:
            x, y = self._browser_call(lambda: _point(self._restored_page(), number))
        except InvalidAction:
            return None
        rounded = (round(x / grain) * grain, round(y / grain) * grain)
        return rounded if self.element_at(*rounded) == number else (int(x), int(y))

    def places(self, grain: int) -> list[Place | None]:
        """Returns the position of every element; None for an element that cannot be clicked."""
        listed = self._browser_call(lambda: self._restored_page().evaluate("miniwob.places()"))
        rounded = [
            point and tuple(round(each / grain) * grain for each in point) for point, _ in listed
        ]
        asked = "points => points.map((point) => point && miniwob.at(...point))"
        there = self._browser_call(lambda: self._restored_page().evaluate(asked, rounded))
        return [
            point and Place(near if at == number else (int(point[0]), int(point[1])), tuple(box))
            for number, ((point, box), near, at) in enumerate(
                zip(listed, rounded, there, strict=True), start=1
            )
        ]

    def _browser_call(self, work: Any) -> Any:
        for death in range(1, MOST_DEATHS + 1):
            try:
                return self._browser.call(work)
            except BrowserDied:
                if death == MOST_DEATHS:
                    raise

    def _restored_page(self, action: Action | None = None) -> Page:
        """Returns the page in the state in which the episode left it, including the clipboard if
        the episode is about to use it."""
        self.began = False
        page, kept = self._acquire_page()
        used = any(map(_uses_clipboard, self._done))
        uses = action is not None and _uses_clipboard(action)
        if uses and used and not self._browser.used_clipboard_last(self):
            kept = False
        if (uses and not used) or (used and not kept):
            self._browser.empty_clipboard(self)
        if not kept:
            _reset_page(page, self._spec)
            self.began = True
            for done in self._done:
                _carry_out(page, done)
        self.began = True
        return page

    def _acquire_page(self) -> tuple[Page, bool]:
        """Returns a browser page for this episode, and whether it still has the episode's state."""
        return self._browser.page(self._spec.page, self)


def _uses_clipboard(action: Action) -> bool:
    return isinstance(action, Press) and action.key in CLIPBOARD_KEYS


def _reset_page(page: Page, spec: EpisodeSpec) -> PageState:
    values = [spec.seed, spec.mode, dict(spec.parameters)]

    def begun_page() -> Any:
        # Otherwise the hovered element and the scroll target would depend on earlier actions.
        page.mouse.click(0, 0, button="right")
        begin = "([seed, mode, parameters]) => miniwob.reset(seed, mode, parameters)"
        return page.evaluate(begin, values)

    state = begun_page()
    if state is None:
        page.goto(page.url.partition("#")[0])
        state = begun_page()
    return _page_state(state)


def _carry_out(page: Page, action: Action) -> PageState:
    match action:
        case Click(number):
            page.mouse.click(*_point(page, number))
        case ClickAt(x, y):
            if not (x < WIDTH and y < HEIGHT):
                raise InvalidAction(f"The page ends at {WIDTH} {HEIGHT}.")
            page.mouse.click(x, y)
        case Type(number, text):
            page.mouse.click(*_point(page, number))
            takes = page.evaluate("number => miniwob.typing(number - 1)", number)
            if takes == "parts":
                text = _parts(text)
            else:
                page.keyboard.press("Control+a")
                page.keyboard.press("Delete")
            page.keyboard.type(text)
            if takes == "list" and text:
                page.wait_for_timeout(FORGET_MS)
        case Select(number, option):
            _select(page, number, option)
        case Press(key):
            page.keyboard.press(key)
        case Scroll(down):
            page.mouse.move(WIDTH // 2, HEIGHT * 2 // 3)
            page.mouse.wheel(0, HEIGHT // 2 if down else -HEIGHT // 2)
    settle = "([time, wheel]) => miniwob.settle(time, wheel)"
    return _page_state(page.evaluate(settle, [SETTLE_MS, isinstance(action, Scroll)]))


def _parts(text: str) -> str:
    """Returns a date or time in the form to type, in which every complete part leads to the next:
    `0609PM` for `6:09 PM`."""
    return "".join(part.zfill(2) for part in re.findall(r"\d+|[^\W\d_]+", text))


def _select(page: Page, number: int, option: str) -> None:
    choice = page.evaluate("([number, text]) => miniwob.choose(number - 1, text)", [number, option])
    if choice is None:
        raise InvalidAction(f"Element {number} is no list with the option {option!r}.")
    # By keyboard: an open list is not part of the page, so nothing in it can be clicked. In a list
    # with several choices, Control keeps the selection, and Space toggles an option.
    held = "Control+" if choice["several"] else ""
    page.keyboard.press(f"{held}Home")
    for _ in range(choice["at"]):
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


def _page_state(raw: Mapping[str, Any]) -> PageState:
    return PageState(
        elements_of(raw["elements"]),
        raw["done"],
        raw["reward"],
        raw.get("utterance", ""),
    )


def open_episode(
    browser: Browser, task_id: str, spec: EpisodeSpec
) -> tuple[PageEpisode, PageState]:
    """Returns a started episode with its first state. Raises `EpisodeError` if the page cannot be
    started or is done before it begins."""
    episode = PageEpisode(browser, spec)
    try:
        state = episode.begin()
    except BrowserDied as fault:
        reason = f"the page cannot be started ({first_line(fault)})"
        raise EpisodeError(task_id, reason, deadly=True) from fault
    if state.done:
        raise EpisodeError(task_id, "the page is done before it begins")
    return episode, state


class MiniWobEnvironment:
    """Plays one page at a time. An episode is won with the page's full reward, and lost
    otherwise."""

    def __init__(self, browser: Browser, screenshots: bool = False, text: bool = True) -> None:
        """`screenshots`: take screenshots. `text`: describe the screen in the observation."""
        self._browser = browser
        self._screenshots = screenshots
        self._says = text
        self._task: Task
        self._episode: PageEpisode | None = None
        self._text = ""

    def close(self) -> None:
        """Ends the current episode."""
        if self._episode is not None:
            self._episode.ended = True

    def reset(self, task: Task) -> Observation:
        self.close()
        self._task = task
        self._episode, state = open_episode(
            self._browser, task.id, EpisodeSpec(**task.data["start"])
        )
        if state.utterance != task.data["utterance"]:
            raise EpisodeError(
                task.id,
                f"the page asks for {state.utterance!r}, the task for {task.data['utterance']!r}",
            )
        return self._observe(state)

    def step(self, response: str) -> StepResult:
        text = find_action(response)
        if text is None:
            usage = USAGE if self._says else USAGE_BY_SIGHT
            return self._invalid_step(None, f"{NO_ACTION}{usage}.")
        assert self._episode is not None, "reset first"
        try:
            state = self._episode.act(parse_action(text))
        except InvalidAction as reason:
            return self._invalid_step(text, str(reason))
        except BrowserDied as fault:
            # It also fails in new browsers. Actions reach nothing but the page, so they are to
            # blame if it could be started.
            reason = f"the page failed at {text!r} ({first_line(fault)})"
            raise EpisodeError(self._task.id, reason, lost=self._episode.began) from fault
        if state.done:
            outcome = 1 if state.reward == 1 else -1
            ending = Observation("The task is over.")
            return StepResult(ending, text, valid=True, outcome=outcome, reward=None)
        return StepResult(self._observe(state), text, valid=True)

    def _observe(self, state: PageState) -> Observation:
        self._text = LOOK
        if self._says:
            self._text = text_of(state.elements) or "The page is empty."
        return self._observation(self._text)

    def _observation(self, text: str) -> Observation:
        if not self._screenshots:
            return Observation(text)
        assert self._episode is not None, "reset first"
        return Observation(text, image=Image(self._episode.screenshot()))

    def _invalid_step(self, action: str | None, reason: str) -> StepResult:
        return StepResult(self._observation(f"{reason}\n{self._text}"), action, valid=False)


def first_line(fault: Exception) -> str:
    """Returns the first line of an error's message, or its type if the message is empty."""
    return next(iter(str(fault).splitlines()), type(fault).__name__)
