"""Real pages in a real Chromium: repeatable, cut off from everything else, and replaceable."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest
from playwright.sync_api import Page

from helpers.chromium import require_chromium
from rlanything.domains.base import DomainError, EpisodeError
from rlanything_miniwob import browser as browser_module
from rlanything_miniwob.actions import Click, InvalidAction, Select, Type
from rlanything_miniwob.browser import (
    OPEN_PAGES,
    PACKAGE,
    Browser,
    BrowserDied,
    executable,
)
from rlanything_miniwob.environment import EpisodeSpec, MiniWobEnvironment, PageEpisode
from rlanything_miniwob.screen import Element
from rlanything_miniwob.tasks import make_task

PASSWORD = EpisodeSpec("enter-password", 1)


def found(elements: tuple[Element, ...], role: str, text: str) -> Element:
    return next(each for each in elements if each.role == role and each.text == text)


def chromium_processes() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # renderers end with their pages
            found += [each] if "chrom" in each.name() else []
    return found


def test_a_seed_decides_how_a_page_begins(browser: Browser) -> None:
    looks = [PageEpisode(browser, EpisodeSpec("click-option", seed)).begin() for seed in (3, 3, 4)]
    assert looks[0] == looks[1] != looks[2]
    assert looks[0].utterance.startswith("Select ")


def test_a_task_is_won_and_lost_by_trusted_clicks(browser: Browser) -> None:
    for right in (True, False):
        episode = PageEpisode(browser, EpisodeSpec("click-test-2", 5))
        look = episode.begin()
        wanted = look.utterance.removeprefix("Click button ").removesuffix(".")
        [number] = [e.number for e in look.elements if (e.text == wanted) == right]
        look = episode.act(Click(number))
        assert (look.done, look.reward) == (True, 1 if right else -1)


def test_two_episodes_of_one_page_do_not_disturb_each_other(browser: Browser) -> None:
    one, two = (
        PageEpisode(browser, PASSWORD),
        PageEpisode(browser, EpisodeSpec("enter-password", 2)),
    )
    one.begin()
    one.act(Type(2, "mine"))
    two.begin()
    two.act(Type(2, "other"))
    values = [each.value for each in one.act(Type(4, "also")).elements if each.role == "textbox"]
    assert values == ["mine", "also"]


@pytest.fixture
def fresh(browser: Browser) -> Iterator[Browser]:
    """A browser in which no page is open, where the common one may be full."""
    del browser  # asked for, so that a machine without Chromium skips
    with closing(Browser()) as other:
        yield other


def test_episodes_of_one_page_have_each_its_own_until_they_end(fresh: Browser) -> None:
    def page_of(episode: PageEpisode) -> tuple[Page, bool]:
        return fresh.call(lambda: fresh.page("click-test-transfer", episode))

    one, two, three, four = (
        PageEpisode(fresh, EpisodeSpec("click-test-transfer", seed)) for seed in range(4)
    )
    one.begin()
    two.begin()
    page, others = page_of(one)[0], page_of(two)[0]
    assert page is not others
    assert page_of(one) == (page, True)  # nothing has to be played again
    assert one.act(Click(1)).done
    assert page_of(three) == (page, False)
    two.ended = True
    assert page_of(four) == (others, False)


def test_a_page_that_was_closed_for_others_is_played_again(browser: Browser) -> None:
    episode = PageEpisode(browser, PASSWORD)
    episode.begin()
    episode.act(Type(2, "mine"))
    for path in sorted((PACKAGE / "miniwob").glob("click-*.html"))[: OPEN_PAGES + 1]:
        PageEpisode(browser, EpisodeSpec(path.stem, 0)).begin()
    values = [each.value for each in episode.act(Click(4)).elements if each.role == "textbox"]
    assert values == ["mine", ""]


def test_a_killed_browser_is_replaced_and_the_episode_goes_on(browser: Browser) -> None:
    episode = PageEpisode(browser, PASSWORD)
    episode.begin()
    episode.act(Type(2, "mine"))
    before = browser.launches
    for process in chromium_processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # some end with the first
            process.send_signal(signal.SIGKILL)
    values = [
        each.value for each in episode.act(Type(4, "also")).elements if each.role == "textbox"
    ]
    assert values == ["mine", "also"]
    assert browser.launches == before + 1


def test_what_cannot_be_done_is_said_and_changes_nothing(browser: Browser) -> None:
    episode = PageEpisode(browser, EpisodeSpec("choose-list", 3))
    first = episode.begin()
    for action, said in (
        (Click(99), "no element 99"),
        (Click(0), "no element 0"),
        (Select(1, "Atlantis"), "no list with the option 'Atlantis'"),
        (Select(2, "Submit"), "no list"),
    ):
        with pytest.raises(InvalidAction, match=said):
            episode.act(action)
    assert found(first.elements, "select", "").value != "Andorra"
    chosen = episode.act(Select(1, "Andorra")).elements
    assert found(chosen, "select", "").value == "Andorra"


def test_several_options_of_an_open_list_are_chosen_one_by_one(browser: Browser) -> None:
    episode = PageEpisode(browser, EpisodeSpec("click-scroll-list", 3))
    options = found(episode.begin().elements, "select", "").options
    episode.act(Select(1, options[0]))
    value = found(episode.act(Select(1, options[-1])).elements, "select", "").value
    assert value == f"{options[0]}, {options[-1]}"


def test_delays_pass_at_once_on_the_pages_own_clock(browser: Browser) -> None:
    episode = PageEpisode(browser, EpisodeSpec("use-autocomplete", 3))
    episode.begin()
    said = [each.text for each in episode.act(Type(2, "Spai")).elements]
    assert "Spain" in said


def test_changed_numbers_hold_for_their_episode_only(browser: Browser) -> None:
    def boxes(**parameters: object) -> int:
        look = PageEpisode(browser, EpisodeSpec("click-checkboxes", 3, "train", parameters)).begin()
        return sum(each.role == "checkbox" for each in look.elements)

    usual = boxes()
    assert [boxes(ranges={"2,7": [n, n + 1]}) for n in (2, 6)] == [2, 6]
    assert boxes() == usual
    start = EpisodeSpec("click-color", 3, "train", {"variables": {"MAX_COLORS": 7}})
    assert len(PageEpisode(browser, start).begin().elements) == 7
    assert len(PageEpisode(browser, EpisodeSpec("click-color", 3)).begin().elements) == 4
    with pytest.raises(BrowserDied, match="the page has no SPEED"):
        boxes(variables={"SPEED": 1})


def test_nothing_outside_the_package_can_be_reached(browser: Browser, tmp_path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    PageEpisode(browser, PASSWORD).begin()
    tries = """async urls => {
        const got = [];
        for (const url of urls) {
            try { got.push(await (await fetch(url)).text()) } catch (error) { got.push("refused") }
        }
        return got;
    }"""
    urls = [
        secret.as_uri(),
        "http://example.com/",
        "https://127.0.0.1:1/",
        "http://miniwob/../../../../../../../etc/passwd",
        "http://miniwob/%2e%2e/%2e%2e/__init__.py",
        "ws://example.com/",
    ]
    blocked = len(browser.blocked)
    page = browser.call(lambda: browser.page("enter-password", Tenant())[0])
    assert browser.call(lambda: page.evaluate(tries, urls)) == ["refused"] * len(urls)
    assert len(browser.blocked) > blocked
    browser.blocked.clear()


class Tenant:
    ended = False


def test_the_instruction_must_be_the_pages_own(browser: Browser) -> None:
    start = EpisodeSpec("click-test-2", 5)
    environment = MiniWobEnvironment(browser)
    environment.reset(make_task("t", start, PageEpisode(browser, start).begin().utterance))
    with pytest.raises(EpisodeError, match="the page asks for 'Click button"):
        environment.reset(make_task("t", start, "Click button THREE."))


def test_a_screenshot_is_a_png_of_the_page(browser: Browser) -> None:
    episode = PageEpisode(browser, PASSWORD)
    episode.begin()
    image = episode.screenshot()
    assert image.startswith(b"\x89PNG")
    assert int.from_bytes(image[16:20]) == 160


def test_no_chromium_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "NAMES", ("no-such-browser",))
    monkeypatch.delenv("RLANYTHING_CHROMIUM", raising=False)
    with pytest.raises(
        DomainError, match=r"^no Chromium found: install .*RLANYTHING_CHROMIUM=PATH$"
    ):
        executable()
    monkeypatch.setenv("RLANYTHING_CHROMIUM", "/no/such/program")
    with pytest.raises(DomainError, match="/no/such/program is no program"):
        executable()


def test_what_is_named_but_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLANYTHING_CHROMIUM", "/bin/false")
    browser = Browser()
    with pytest.raises(DomainError, match=r"^/bin/false does not start") as refusal:
        browser.version()
    assert "\n" not in str(refusal.value)
    browser.close()


def test_closing_leaves_no_process() -> None:
    require_chromium()
    before = {each.pid for each in chromium_processes()}
    browser = Browser()
    browser.version()
    ours = {each.pid for each in chromium_processes()} - before
    assert ours
    browser.close()
    deadline = time.monotonic() + 5
    while (left := [pid for pid in ours if _alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
