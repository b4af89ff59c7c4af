"""An episode depends on its task and actions alone, whatever the browser was used for before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rlanything_miniwob.actions import (
    KEYS,
    Action,
    Click,
    ClickAt,
    InvalidAction,
    Press,
    Scroll,
    Select,
    Type,
)
from rlanything_miniwob.browser import Browser, BrowserDied
from rlanything_miniwob.environment import EpisodeSpec, PageEpisode
from rlanything_miniwob.pages import PAGES
from rlanything_miniwob.screen import Element

ENTER, PASSWORD = EpisodeSpec("enter-text", 1), EpisodeSpec("enter-password", 1)
COPY = (Press("Control+a"), Press("Control+c"))
NASTY_PAGES = ("copy-paste-2", "daily-calendar", "focus-text", "form-sequence-3", "simon-says")
HIDDEN = """() => [
    scrollX, scrollY, location.href, document.activeElement.id, String(getSelection()),
    [...document.querySelectorAll("*")].map(element => [element.scrollTop, element.scrollLeft]),
]"""


@pytest.fixture(scope="module")
def clean(browser: Browser) -> Iterator[Browser]:
    """A browser in which every page is opened anew."""
    del browser  # which skips where there is none
    clean = Browser()
    yield clean
    clean.close()


def nasty_action(rng: random.Random, elements: Sequence[Element]) -> Action:
    number = rng.randint(1, len(elements) or 1)
    lists = [element for element in elements if element.options]
    kind = rng.choice(("click", "click", "point", "type", "list", "key", "key", "key", "scroll"))
    if kind == "point":
        return ClickAt(rng.randrange(160), rng.randrange(50, 210))
    if kind == "type" and not lists:
        return Type(number, rng.choice(("leaked", "2020-01-02", "")))
    if kind == "list" and lists:
        chosen = rng.choice(lists)
        return Select(chosen.number, rng.choice(chosen.options))
    if kind == "key":
        return Press(rng.choice((*KEYS.values(), *("Tab", "Control+c", "Control+v") * 2)))
    return Scroll(rng.random() < 0.7) if kind == "scroll" else Click(number)


def play(browser: Browser, spec: EpisodeSpec, seed: int, steps: int = 8) -> list[Any]:
    """All that can be seen in an episode of nasty actions, and what of the page may show later."""
    rng, episode = random.Random(seed), PageEpisode(browser, spec)
    state, seen = episode.begin(), list[Any]()
    for _ in range(steps):
        seen += [state, inside(browser, episode, spec.page, HIDDEN)]
        if state.done:
            break
        try:
            state = episode.act(nasty_action(rng, state.elements))
        except InvalidAction as reason:
            seen.append(str(reason))
    return [*seen, state, episode.screenshot()]


def inside(browser: Browser, episode: PageEpisode, page: str, script: str) -> Any:
    return browser.call(lambda: browser.page(page, episode)[0].evaluate(script))


def alone(clean: Browser, spec: EpisodeSpec, seed: int) -> list[Any]:
    """Plays on a page that no episode has used."""

    def close() -> None:
        for used in [each for each in clean._pages if each.name == spec.page]:
            clean._pages.remove(used)
            used.page.close()

    clean.call(close)
    return play(clean, spec, seed)


def act(episode: PageEpisode, *actions: Action) -> list[str | None]:
    """The values of the page's fields after the actions."""
    state = None
    for action in actions:
        state = episode.act(action)
    assert state is not None
    return [element.value for element in state.elements if element.role == "textbox"]


def begun(browser: Browser, spec: EpisodeSpec) -> PageEpisode:
    episode = PageEpisode(browser, spec)
    episode.begin()
    return episode


@pytest.mark.parametrize("page", NASTY_PAGES)
def test_after_nasty_episodes_one_is_as_alone(browser: Browser, clean: Browser, page: str) -> None:
    compare(browser, clean, page, 1)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*NASTY_PAGES, *PAGES])
def test_after_many_nasty_episodes_one_is_as_alone(
    browser: Browser, clean: Browser, page: str
) -> None:
    for seed in range(2, 6):
        compare(browser, clean, page, seed)


def compare(browser: Browser, clean: Browser, page: str, seed: int) -> None:
    for before in range(10 * seed, 10 * seed + 3):
        play(browser, EpisodeSpec(page, before), before)
    spec = EpisodeSpec(page, seed)
    assert play(browser, spec, seed) == alone(clean, spec, seed)


def test_nothing_is_pasted_that_another_episode_copied(browser: Browser) -> None:
    act(begun(browser, ENTER), Type(1, "LEAKED"), *COPY)
    assert act(begun(browser, PASSWORD), Click(2), Press("Control+v")) == ["", ""]
    act(begun(browser, ENTER), Type(1, "LEAKED"), *COPY)
    nothing = (Click(2), Press("Control+c"), Press("Control+v"))
    assert act(begun(browser, PASSWORD), *nothing) == ["", ""]
    again = begun(browser, ENTER)
    act(again, Type(1, "LEAKED"), *COPY)
    again.begin()
    assert act(again, Click(1), Press("Control+v")) == [""]


def test_episodes_in_turns_have_each_its_own_clipboard(browser: Browser) -> None:
    one, two = begun(browser, ENTER), begun(browser, PASSWORD)
    act(one, Type(1, "mine"), *COPY)
    act(two, Click(2), Press("Control+v"))
    assert act(one, Press("End"), Press("Control+v")) == ["minemine"]
    act(begun(browser, EpisodeSpec("read-table", 2)), Press("Control+a"), Press("Control+c"))
    assert act(two, Press("Control+v")) == ["", ""]
    assert act(one, Press("Control+v")) == ["mineminemine"]


def test_tab_begins_at_the_first_field_wherever_another_episode_was(browser: Browser) -> None:
    for action in (Click(2), Click(5), ClickAt(80, 200), Press("Tab")):
        begun(browser, PASSWORD).act(action)
        state = begun(browser, PASSWORD).act(Press("Tab"))
        assert ["focused" in element.state for element in state.elements] == [
            element.number == 2 for element in state.elements
        ]


def test_a_page_tells_nothing_of_the_episodes_before(browser: Browser) -> None:
    def told() -> str:
        show = "() => document.getElementById('reward-display').innerText"
        return inside(browser, begun(browser, ENTER), ENTER.page, show)

    before = told()
    for _ in range(2):
        begun(browser, ENTER).act(Click(2))
    assert told() == before


def test_a_scroll_is_over_when_the_agent_looks(browser: Browser) -> None:
    tops = "() => [scrollX, scrollY, document.getElementById('area').scrollTop]"

    def scrolled() -> list[Any]:
        episode, places = begun(browser, EpisodeSpec("social-media", 1)), []
        for action in (Scroll(True), Scroll(True), Scroll(False), Press("ArrowRight")):
            episode.act(action)
            places.append(inside(browser, episode, "social-media", tops))
        return places

    first = scrolled()
    assert [top for _, _, top in first[:3]] == [105, 210, 105]
    assert first[3][0] > 0
    assert [scrolled() for _ in range(3)] == [first] * 3


def test_what_is_disabled_has_lost_the_focus_when_the_agent_looks(browser: Browser) -> None:
    spec = EpisodeSpec("login-user-popup", 102)
    states = [begun(browser, spec).act(Click(4)) for _ in range(10)]
    assert "disabled" in states[0].elements[3].state
    assert [state for state in states if "focused" in state.elements[3].state] == []


def test_a_list_forgets_at_once_what_was_typed_at_it(browser: Browser) -> None:
    episode = begun(browser, EpisodeSpec("choose-list", 3))
    values = [episode.act(Type(1, text)).elements[0].value for text in ("A", "N", "Sw", "A")]
    assert values[-1] == "Andorra"


def test_a_page_in_which_something_failed_serves_nobody_again(browser: Browser) -> None:
    episode = begun(browser, ENTER)
    before = browser.call(lambda: browser.page(ENTER.page, episode)[0])
    impossible = EpisodeSpec(ENTER.page, 1, "train", {"variables": {"SPEED": 1}})
    with pytest.raises(BrowserDied, match="the page has no SPEED"):
        begun(browser, impossible)
    assert act(episode, Type(1, "on")) == ["on"]
    assert browser.call(lambda: browser.page(ENTER.page, episode)[0]) is not before
    assert before.is_closed()


def test_what_cannot_be_clicked_is_not_scrolled_to(browser: Browser) -> None:
    top = "() => document.getElementById('area').scrollTop"
    episode = begun(browser, EpisodeSpec("daily-calendar", 4))
    for covered in (20, 21, 23):
        with pytest.raises(InvalidAction, match="covered by another"):
            episode.act(Click(covered))
        assert inside(browser, episode, "daily-calendar", top) == 0
