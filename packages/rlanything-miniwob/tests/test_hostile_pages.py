"""An action that takes a page away loses its episode, and the next episode finds the page whole.

No page of the package does such things when it is clicked; these are made to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.chromium import require_chromium
from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_miniwob import browser as browser_module
from rlanything_miniwob.browser import Browser
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.environment import EpisodeSpec, MiniWobEnvironment
from rlanything_miniwob.tasks import make_task

HARM = {
    "click-test": "location.href = 'about:blank'",
    "click-test-2": "location.href = 'http://elsewhere/'",
    "click-link": "location.reload()",
    "focus-text": "document.body.remove()",
    "enter-text": "window.miniwob = null",
    "click-tab": "setTimeout(function again() { setTimeout(again, 0) }, 0)",
    "click-dialog": "for (;;) {}",
    "click-option": "for (;;) alert('again')",
}
STUCK = ("click-tab", "click-dialog", "click-option")
SCRIPT = f"""
const harm = {{{", ".join(f"'{name}': () => {{ {body} }}" for name, body in HARM.items())}}};
addEventListener("mousedown", harm[location.pathname.split("/").pop().replace(".html", "")]);
"""


class HostileBrowser(Browser):
    """A browser every page of which does harm where it is clicked."""

    def _running(self):
        fresh = self._context is None
        context = super()._running()
        if fresh:
            context.add_init_script(SCRIPT)
        return context


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileBrowser]:
    require_chromium()
    browser = HostileBrowser()
    yield browser
    browser.close()


def task_on(browser: Browser, page: str) -> Task:
    spec = EpisodeSpec(page, 1)
    environment = MiniWobEnvironment(browser)
    with pytest.raises(EpisodeError, match="the page asks for") as refused:
        environment.reset(make_task("t", spec, "", ""))
    utterance = refused.value.reason.removeprefix("the page asks for ").split(", the task for")[0]
    return make_task("t", spec, utterance[1:-1], "")


def clicks(environment: MiniWobEnvironment) -> None:
    """More than once: a page may need a moment to be gone."""
    for _ in range(4):
        environment.step("> click 80 100")


def check_that_a_click_loses(browser: HostileBrowser, page: str) -> None:
    task = task_on(browser, page)
    environment = MiniWobEnvironment(browser)
    first = environment.reset(task)
    with pytest.raises(EpisodeError, match="at 'click 80 100'") as lost:
        clicks(environment)
    assert lost.value.lost
    assert not lost.value.deadly
    assert MiniWobEnvironment(browser).reset(task) == first


@pytest.mark.parametrize("page", [page for page in HARM if page not in STUCK])
def test_a_page_that_an_action_takes_away_loses_the_episode(
    hostile: HostileBrowser, page: str
) -> None:
    check_that_a_click_loses(hostile, page)


def test_a_page_that_was_closed_once_loses_nothing(browser: Browser) -> None:
    task = task_on(browser, "enter-password")
    environment = MiniWobEnvironment(browser)
    first = environment.reset(task)
    typed = environment.step("> type [2] mine").observation.text
    episode = environment._episode
    assert episode is not None
    browser.call(lambda: browser.page("enter-password", episode)[0].close())
    assert environment.step("> scroll down").observation.text == typed
    browser.call(lambda: browser.page("enter-password", episode)[0].close())
    assert environment.reset(task) == first


@pytest.fixture
def mortal() -> Iterator[MiniWob]:
    """A domain whose browser the test may kill."""
    require_chromium()
    domain = MiniWob()
    yield domain
    domain.browser.close()


def test_a_browser_that_is_killed_in_the_middle_changes_nothing(mortal: MiniWob) -> None:
    task = task_on(mortal.browser, "enter-password")
    played: list[list[object]] = []
    for killed in (False, True):
        with EnvironmentPool(mortal, {}, 0, 60.0) as pool:
            seen: list[object] = [*pool.reset([task])]
            for response in ("> type [2] mine", "> type [4] mine", "> click [5]"):
                seen.append(pool.step({0: response}))
                if killed:
                    mortal.browser._kill()
        played.append(seen)
    assert played[0] == played[1]
    assert mortal.browser.launches > 1


def test_a_browser_that_starts_no_more_masks_its_episode(
    mortal: MiniWob, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_on(mortal.browser, "enter-password")
    with EnvironmentPool(mortal, {}, 0, 60.0) as pool:
        pool.reset([task])
        assert isinstance(pool.step({0: "> type [2] mine"})[0], StepResult)
        with monkeypatch.context() as machine:
            machine.setenv("RLANYTHING_CHROMIUM", "/bin/false")
            mortal.browser._kill()
            failed = pool.step({0: "> type [4] mine"})[0]
        assert isinstance(failed, EpisodeError)
        assert not failed.lost
        assert isinstance(pool.reset([task])[0], Observation), "the next episode finds a browser"


@pytest.mark.slow
@pytest.mark.parametrize("page", STUCK)
def test_a_page_that_an_action_makes_hang_loses_the_episode(
    hostile: HostileBrowser, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_module, "STUCK_SECONDS", 10.0)
    check_that_a_click_loses(hostile, page)
