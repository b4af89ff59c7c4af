"""Episodes on desktops that are made up: what is won, lost, or neither, and why."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.report_runs import make_run
from rlanything.domains.base import DomainError, EpisodeError, Observation, StepResult
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.report.writing import write_report
from rlanything_osworld import environment as module
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything_osworld.machine import DesktopLost, DesktopRefusal, Machine

TASK = Task("t", "Do it.", data={})
TREE = {
    "windows": [
        {
            "number": 1,
            "title": "A",
            "box": [0, 0, 99, 99],
            "active": True,
            "managed": True,
            "pid": 1,
        }
    ],
    "nodes": [
        [1, "application", "a", "", None, []],
        [2, "frame", "A", "", [0, 0, 99, 99], ["showing"]],
        [3, "push button", "OK", "", [0, 0, 20, 20], ["sensitive", "showing"]],
    ],
}
PNG = struct.pack(">8s4s4sII", b"\x89PNG\r\n\x1a\n", b"\0\0\0\r", b"IHDR", 1280, 800)


class Made:
    """A desktop that answers as it is told, and remembers."""

    made: list[Made]
    answers: Mapping[str, Callable[[], bytes]]

    def __init__(self, *arguments: object) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.closed = False
        Made.made.append(self)

    def ready(self) -> None:
        Made.answers.get("ready", bytes)()

    def request(self, method: str, path: str, body: Any = None, seconds: float = 1.0) -> bytes:
        self.asked.append((path, body))
        return Made.answers.get(path.partition("?")[0], lambda: b"{}")()

    def close(self) -> None:
        self.closed = True


class Tasks:
    """An evaluator that gives a score, or fails."""

    def __init__(self, score: float | Exception = 0.5) -> None:
        self.worth, self.last = score, None

    def setup(self, data: Mapping[str, Any], desktop: Machine) -> None:
        desktop.request("POST", "/setup")

    def score(self, data: Mapping[str, Any], desktop: Machine, last_action: str) -> float:
        self.last = last_action
        if isinstance(self.worth, Exception):
            raise self.worth
        return self.worth


@pytest.fixture(autouse=True)
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    Made.made = []
    Made.answers = {
        "/tree": lambda: json.dumps(TREE).encode(),
        "/screenshot": lambda: PNG,
        "/execute": lambda: json.dumps({"returncode": 0, "error": ""}).encode(),
    }
    monkeypatch.setattr(module, "Desktop", Made)


def answering(path: str, answer: bytes | Exception) -> None:
    """Makes machines answer so from now on."""

    def answered() -> bytes:
        if isinstance(answer, Exception):
            raise answer
        return answer

    Made.answers = {**Made.answers, path: answered}


def begun(tasks: Tasks | None = None, **options: Any) -> DesktopEnvironment:
    environment = DesktopEnvironment(tasks or Tasks(), DesktopOptions(**options))
    assert environment.reset(TASK).text == "== A (active)\n[1] button OK"
    return environment


def acts(machine: int = 0) -> list[Any]:
    return [body["calls"] for path, body in Made.made[machine].asked if path == "/act"]


def test_a_desktop_that_waited_for_long_makes_room_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    environment = begun()
    environment.reset(TASK)  # the second was made while the first was played
    now[0] += module.STALE_SECONDS + 1
    environment.reset(TASK)
    assert [each.closed for each in Made.made] == [True, True, True, False, False]
    environment.close()


def test_the_last_step_is_scored_when_the_screen_rests() -> None:
    environment = begun(max_steps=1)
    looks = len([path for path, _ in Made.made[0].asked if path.startswith("/tree")])
    environment.step("> press ctrl+s")
    assert len([p for p, _ in Made.made[0].asked if p.startswith("/tree")]) == looks + 1


def test_an_action_is_carried_out_and_the_screen_shown_again() -> None:
    result = begun().step("> click [1]")
    assert (result.valid, result.action, result.outcome) == (True, "click [1]", None)
    assert result.observation.text == "== A (active)\n[1] button OK"
    assert acts() == [(("click", 10, 10),)]


@pytest.mark.parametrize(("score", "outcome"), [(1.0, 1), (0.5, -1), (0.0, -1)])
def test_only_the_full_score_wins_and_every_score_is_kept(score: float, outcome: int) -> None:
    tasks = Tasks(score)
    result = begun(tasks).step("> done")
    assert (result.outcome, result.reward, tasks.last) == (outcome, score, "done")


def test_an_agent_that_gives_up_says_so_to_the_evaluator() -> None:
    tasks = Tasks(1.0)
    assert begun(tasks).step("> fail").outcome == 1  # where the task is impossible
    assert tasks.last == "fail"


@pytest.mark.parametrize("response", ["> wait", "> nonsense", "nothing"])
def test_after_the_last_step_the_state_is_scored_whatever_the_step_was(response: str) -> None:
    tasks = Tasks(1.0)
    environment = begun(tasks, max_steps=2)
    assert environment.step("> wait").outcome is None
    result = environment.step(response)
    assert (result.outcome, tasks.last, result.valid) == (1, "", response == "> wait")


@pytest.mark.parametrize("response", ["> click [9]", "> fly", "no action", "> press nokey"])
def test_an_impossible_action_is_invalid_says_why_and_does_nothing(response: str) -> None:
    result = begun().step(response)
    assert not result.valid
    assert result.outcome is None
    assert result.observation.text.endswith("\n== A (active)\n[1] button OK")
    assert acts() == []


def test_what_the_desktop_refuses_is_an_invalid_step() -> None:
    environment = begun()
    answering("/act", DesktopRefusal("/act: no such thing"))
    result = environment.step("> press a")
    assert not result.valid
    assert result.observation.text.startswith("That failed: /act: no such thing.")


def test_code_runs_in_the_desktop_and_its_error_is_told() -> None:
    environment = begun(notation="pyautogui")
    assert environment.step("```python\npyautogui.click(1, 2)\n```").valid
    path, body = Made.made[0].asked[-2]
    assert path == "/execute"
    assert body["command"][-1].endswith("\npyautogui.click(1, 2)")
    failed = {"returncode": 1, "error": "Traceback\nNameError: x"}
    answering("/execute", json.dumps(failed).encode())
    result = environment.step("```\nx\n```")
    assert (result.valid, result.observation.text.splitlines()[0]) == (
        False,
        "The code failed: NameError: x.",
    )


class MadeUp(OSWorld):
    """A domain whose desktops are made up."""

    def environment(self) -> DesktopEnvironment:
        return DesktopEnvironment(Tasks(), self._options)


@pytest.mark.parametrize(("path", "lost"), [("/act", True), ("/tree", False)])
def test_a_desktop_that_dies_at_an_action_loses_the_episode_unless_no_other_starts(
    path: str, lost: bool
) -> None:
    with EnvironmentPool(MadeUp(), {}, 0, 60.0) as pool:
        pool.reset([TASK])
        assert isinstance(pool.step({0: "> fly"})[0], StepResult)
        answering(path, DesktopLost("it died"))
        failed = pool.step({0: "> press a"})[0]
    assert isinstance(failed, EpisodeError)
    assert "it died" in failed.reason
    assert failed.lost is lost
    assert all(machine.closed for machine in Made.made)


@pytest.mark.parametrize("path", ["/act", "/tree", "/screenshot"])
def test_a_desktop_that_dies_once_is_replaced_and_its_episode_goes_on(path: str) -> None:
    with EnvironmentPool(MadeUp(observe="both"), {}, 0, 60.0) as pool:
        pool.reset([TASK])
        undisturbed = pool.step({0: "> press b"}), pool.step({0: "> done"})
        pool.reset([TASK])
        results = [pool.step({0: "> press b"})]
        usual = Made.answers.get(path, lambda: b"{}")

        def died() -> bytes:
            Made.answers = {**Made.answers, path: usual}
            raise DesktopLost("it died")

        Made.answers = {**Made.answers, path: died}
        pressed = pool.step({0: "> press a"})[0]
        assert isinstance(pressed, StepResult)
        assert pressed.valid
        [played] = [i for i, machine in enumerate(Made.made) if not machine.closed and acts(i)]
        assert len(acts(played)) == 2, "the first action is repeated on the new desktop"
        results.append(pool.step({0: "> done"}))
    assert (results[0], results[1]) == undisturbed


@pytest.mark.parametrize("answer", [b"{}", b"[", b"null", b'{"windows": [], "nodes": [[9]]}'])
def test_nonsense_of_a_server_is_a_desktop_that_is_lost(answer: bytes) -> None:
    environment = begun()
    answering("/tree", answer)
    with pytest.raises(DesktopLost, match="nonsense"):
        environment.step("> wait")


@pytest.mark.parametrize("image", [b"", b"GIF", PNG[:-4] + b"\0\1\0\0", PNG + bytes(2**24)])
def test_what_is_no_screenshot_of_its_size_is_never_kept(image: bytes) -> None:
    environment = begun(screenshots=True)
    answering("/screenshot", image)
    with pytest.raises(DesktopLost, match="no screenshot"):
        environment.step("> wait")


def test_screenshots_are_kept_in_the_run_and_shown_in_its_report(tmp_path: Path) -> None:
    with EnvironmentPool(MadeUp(observe="both"), {}, 0, 60.0, tmp_path / "images") as pool:
        (seen,) = pool.reset([TASK])
    assert isinstance(seen, Observation)
    assert seen.text == "== A (active)\n[1] button OK"
    assert seen.image is not None
    run = make_run(tmp_path / "run", 1, image=seen.image.name)
    (tmp_path / "images").rename(run / "images")
    write_report([run], run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f'data-image="{seen.image.name}"' in page
    assert base64.b64encode(PNG).decode() in page


def test_an_evaluator_that_fails_is_no_win_and_no_way_out_of_the_count() -> None:
    with pytest.raises(EpisodeError, match="KeyError: 'cell'") as caught:
        begun(Tasks(KeyError("cell"))).step("> done")
    assert caught.value.lost


def test_evaluators_that_do_not_start_are_not_the_policys_fault() -> None:
    with pytest.raises(DomainError, match="do not start"):
        begun(Tasks(DomainError("OSWorld's evaluators do not start"))).step("> done")


def test_an_evaluator_that_fails_on_a_dead_desktop_is_not_to_blame() -> None:
    environment = begun(Tasks(KeyError("cell")))
    answering("/tree", DesktopLost("it died"))
    with pytest.raises(DesktopLost, match="it died"):
        environment.step("> done")


def test_a_set_up_that_fails_is_tried_on_another_desktop_and_then_nobodys_loss() -> None:
    answering("/setup", DesktopRefusal("no such program"))
    with pytest.raises(EpisodeError, match="no such program") as caught:
        DesktopEnvironment(Tasks(), DesktopOptions()).reset(TASK)
    assert not caught.value.lost
    assert [machine.closed for machine in Made.made] == [True, True]


def test_the_next_desktop_starts_while_this_one_is_used_and_each_is_used_once() -> None:
    environment = begun()
    first, spare = Made.made
    assert (first.closed, spare.asked) == (False, [])
    environment.reset(TASK)
    assert first.closed
    assert spare.asked != []
    environment.close()
    assert [machine.closed for machine in Made.made] == [True, True, True]


def test_possible_actions_are_listed_where_elements_have_numbers_in_a_text() -> None:
    environment = begun()
    listed = environment.reset(TASK).choices
    assert listed is not None
    assert {"click [1]", "type Do"} <= set(listed)
    assert environment.step("> click [9]").observation.choices == listed  # an invalid step
    others: list[dict[str, Any]] = [{"notation": "pyautogui"}, {"text": False}]
    for options in others:
        other = DesktopEnvironment(Tasks(), DesktopOptions(**options))
        assert other.reset(TASK).choices is None
