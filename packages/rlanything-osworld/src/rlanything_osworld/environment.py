"""Episodes on a desktop: each gets a fresh one, set up and scored by an evaluator."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rlanything.domains.base import DomainError, EpisodeError, Image, Observation, StepResult
from rlanything.domains.rounding import as_good
from rlanything.domains.screens import LOOK
from rlanything.records import Task
from rlanything_osworld.actions import (
    ACTION_MARKER,
    USAGE,
    DesktopAction,
    ImpossibleAction,
    Notation,
    find_action,
    listed_actions,
    parse_action,
)
from rlanything_osworld.dataset import UNPLAYABLE
from rlanything_osworld.desktop import Desktop
from rlanything_osworld.machine import DesktopLost, DesktopRefusal, Machine
from rlanything_osworld.screen import Screen, read_screen
from rlanything_osworld.watchdog import DesktopLimits

STALE_SECONDS = 600.0
"""Age in seconds after which a waiting desktop is replaced, because a desktop's life is limited."""
QUIET_SECONDS = 20.0
"""Longest wait in seconds, after an action, until the screen is stable."""
SETUP_SECONDS = 60.0
"""Longest wait in seconds for a stable screen after the set-up, when applications start."""
CODE_SECONDS = 30.0
"""Time limit in seconds for the code of one action."""
ANSWER_SECONDS = 60.0
"""Seconds beyond a wait after which the server counts as hung."""
LONGEST_SCREEN = 12_000
"""Longest observation in characters."""
LARGEST_SCREENSHOT = 16 * 2**20
MOST_STARTS = 2
"""Number of desktops to try for the start of an episode."""


class DesktopTasks(Protocol):
    """How tasks begin and how they are scored; `data` is the task's own."""

    def setup(self, data: Mapping[str, Any], desktop: Machine) -> None:
        """Brings a fresh desktop into the initial state of the task. Raises an exception if it
        cannot."""
        ...

    def score(self, data: Mapping[str, Any], desktop: Machine, last_action: str) -> float:
        """Returns the score of the desktop's state, from 0 to 1.

        `last_action`: "done", "fail", or "" if the steps ran out. Raises an exception if scoring is
        impossible."""
        ...


@dataclass(frozen=True, slots=True)
class DesktopOptions:
    """Options of episodes."""

    notation: Notation = "numbered"
    text: bool = True
    """Whether the observation describes the screen in words; otherwise only a screenshot does."""
    screenshots: bool = False
    max_steps: int = 30
    """Number of steps after which the state is scored; less than the loop's own limit, which scores
    nothing."""
    size: tuple[int, int] = (1280, 800)
    home: Path | None = None
    """A folder whose files are in every desktop's home folder."""
    limits: DesktopLimits = field(default_factory=DesktopLimits)


class Desktops(Protocol):
    """Source of an environment's desktops, one for each episode."""

    def prepare(self) -> None:
        """Begins to prepare the next desktop, if that is possible while another one is in use."""
        ...

    def take(self) -> Machine:
        """Returns a fresh, started desktop; the caller closes it. Raises `DomainError` and
        `DesktopLost`."""
        ...

    def close(self) -> None:
        """Ends the waiting desktop."""
        ...


class FreshDesktops:
    """Fresh desktops: the next one starts while another is in use."""

    def __init__(self, options: DesktopOptions) -> None:
        self._options = options
        self._next: Desktop | None = None
        self._since = 0.0

    def prepare(self) -> None:
        """Begins to start the next desktop, unless one is starting already."""
        if self._next is None:
            options = self._options
            self._next = Desktop(options.size, options.home, options.limits)
            self._since = time.monotonic()

    def take(self) -> Desktop:
        """Returns a started desktop; the caller closes it. Raises `DesktopUnavailable` and
        `DesktopLost`."""
        if time.monotonic() - self._since > STALE_SECONDS:
            self.close()  # most of its life may be over
        self.prepare()
        assert self._next is not None
        desktop = self._next
        self._next = None
        try:
            desktop.ready()
        except BaseException:
            desktop.close()
            raise
        return desktop

    def close(self) -> None:
        """Ends the waiting desktop."""
        if self._next is not None:
            self._next.close()
            self._next = None


class DesktopEnvironment:
    """Plays one episode at a time. An episode is won with a score of 1; the score is its reward."""

    def __init__(
        self, tasks: DesktopTasks, options: DesktopOptions, desktops: Desktops | None = None
    ) -> None:
        """`desktops`: source of the desktops; None: namespaces of this machine."""
        self._tasks = tasks
        self._options = options
        self._fresh = desktops or FreshDesktops(options)
        self._desktop: Machine | None = None
        self._task: Task
        self._screen = Screen("", {})
        self._steps = 0

    def reset(self, task: Task) -> Observation:
        self._task = task
        self._steps = 0
        if UNPLAYABLE in task.data:
            raise EpisodeError(task.id, task.data[UNPLAYABLE])
        for start in range(MOST_STARTS):
            self._leave()
            try:
                self._desktop = self._fresh.take()
                self._tasks.setup(task.data, self._desktop)
                observation = self._observe(SETUP_SECONDS)
            except (DesktopLost, DesktopRefusal, OSError) as fault:
                self._leave()
                if start == MOST_STARTS - 1:
                    reason = f"the desktop cannot be set up ({_line(fault)})"
                    raise EpisodeError(task.id, reason) from fault
            else:
                self._fresh.prepare()  # start it while the policy generates
                return observation
        raise AssertionError

    def step(self, response: str) -> StepResult:
        """Plays a response. Raises `DesktopLost`, which a response or the machine may have caused;
        the same responses on a fresh desktop tell."""
        self._steps += 1
        notation = self._options.notation
        text = find_action(response, notation)
        try:
            return self._play(text)
        except ImpossibleAction as reason:
            return self._invalid(text, str(reason))

    def close(self) -> None:
        """Ends the desktops."""
        self._leave()
        self._fresh.close()

    def _play(self, text: str | None) -> StepResult:
        options = self._options
        if text is None:
            usage = USAGE[options.notation]
            marker = "" if options.notation == "pyautogui" else f"`{ACTION_MARKER} ` and "
            raise ImpossibleAction(f"No action was found: end the response with {marker}{usage}.")
        action = parse_action(text, options.notation, self._screen.places, options.size)
        if action.ending is not None:
            return self._over(text, action.ending)
        self._carry_out(action)
        # until then, programs may still be writing what is scored
        seen = self._observe(QUIET_SECONDS)
        if self._steps >= options.max_steps:
            return self._over(text, "")
        return StepResult(seen, text, valid=True)

    def _carry_out(self, action: DesktopAction) -> None:
        """Raises `ImpossibleAction` if the desktop refuses the action."""
        try:
            if action.calls:
                self._ask("POST", "/act", {"calls": action.calls})
            if action.code is not None:
                self._run(action.code)
        except DesktopRefusal as refusal:
            raise ImpossibleAction(f"That failed: {_line(refusal)}.") from refusal

    def _run(self, code: str) -> None:
        program = f"import pyautogui, time\npyautogui.FAILSAFE = False\n{code}"
        body = {"command": ["python", "-c", program], "timeout": CODE_SECONDS}
        answer = json.loads(self._ask("POST", "/execute", body))
        if answer["returncode"] != 0:
            lines = str(answer["error"]).strip().splitlines() or ["it ended with an error"]
            raise ImpossibleAction(f"The code failed: {lines[-1][:300]}.")

    def _over(self, text: str, last_action: str) -> StepResult:
        """Scores the desktop. A failure to score counts against the policy, which made what is
        scored, unless the desktop was lost."""
        assert self._desktop is not None
        try:
            score = self._tasks.score(self._task.data, self._desktop, last_action)
        except DomainError:  # the evaluators' process cannot be started
            raise
        except Exception as fault:  # evaluators fail on all kinds of files
            self._observe(0.0)  # raises DesktopLost if the desktop is gone
            reason = f"the evaluator failed ({type(fault).__name__}: {_line(fault)})"
            raise EpisodeError(self._task.id, reason, lost=True) from fault
        outcome = 1 if as_good(float(score), 1.0) >= 1 else -1
        ending = Observation("The task is over.")
        return StepResult(ending, text, valid=True, outcome=outcome, reward=score)

    def _invalid(self, text: str | None, reason: str) -> StepResult:
        if self._steps >= self._options.max_steps:
            over = self._over(text or "", "")
            return StepResult(over.observation, text, False, over.outcome, over.reward)
        seen = self._observe(QUIET_SECONDS)
        return StepResult(replace(seen, text=f"{reason}\n{seen.text}"), text, False)

    def _observe(self, seconds: float) -> Observation:
        answer = self._ask("GET", f"/tree?quiet={seconds:g}", seconds=seconds + ANSWER_SECONDS)
        try:
            self._screen = read_screen(json.loads(answer), self._options.size)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as fault:
            raise DesktopLost(f"the desktop's server answers nonsense ({_line(fault)})") from fault
        text = self._screen.text
        if len(text) > LONGEST_SCREEN:
            text = f"{text[:LONGEST_SCREEN]}\n(more is on the screen)"
        image = Image(self._screenshot()) if self._options.screenshots else None
        if not self._options.text:
            return Observation(LOOK, image=image)
        listed = None
        if self._options.notation == "numbered":
            listed = listed_actions(self._task.instruction, self._screen.places)
        return Observation(text, listed, image)

    def _screenshot(self) -> bytes:
        """Returns a PNG. Data from the desktop is accepted as an image only if it looks like
        one."""
        data = self._ask("GET", "/screenshot")
        header = struct.pack(
            ">8s4s4sII", b"\x89PNG\r\n\x1a\n", b"\0\0\0\r", b"IHDR", *self._options.size
        )
        if not data.startswith(header) or len(data) > LARGEST_SCREENSHOT:
            raise DesktopLost("the desktop's server answers with no screenshot of its size")
        return data

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> bytes:
        assert self._desktop is not None
        return self._desktop.request(method, path, body, seconds)

    def _leave(self) -> None:
        if self._desktop is not None:
            self._desktop.close()
            self._desktop = None


def _line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:300] or type(fault).__name__
