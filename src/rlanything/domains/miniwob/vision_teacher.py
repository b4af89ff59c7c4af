"""Teaches the nano models that see: as `teacher` does, with points in the place of elements.

Demonstrator and teacher ask the page where things are; the models have to find them in pixels.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from rlanything.domains.base import Episode
from rlanything.domains.miniwob.actions import ACTION_MARKER
from rlanything.domains.miniwob.browser import Browser
from rlanything.domains.miniwob.screen import read
from rlanything.domains.miniwob.sight import replayed
from rlanything.domains.miniwob.teacher import LOST, MiniWobTeacher, slip
from rlanything.domains.teaching import Demonstrator, StepPlan
from rlanything.records import Step, Task


class MiniWobVisionDemonstrator(Demonstrator):
    """Clicks where an expert does; with probability `slip` on something else."""

    def __init__(self, slip: float, browser: Browser) -> None:
        super().__init__(slip)
        self._browser = browser

    def answer(self, episode: Episode, rng: random.Random) -> str:
        replay = replayed(self._browser, episode.task, episode.steps)
        action = replay.right(episode.task)
        if action is None or rng.random() < self._slip:
            action = slip(read(replay.screen), action or "", rng)
        return f"{ACTION_MARKER} {replay.pointed(action) or 'press Tab'}"


class MiniWobVisionTeacher(MiniWobTeacher):
    """The teacher of the nano models for pages that only looking solves (a `StepTeacher`)."""

    plan = StepPlan(
        decoding="free",
        response_tokens=16,
        judgement_tokens=32,
        max_steps=4,
        games=6000,
        demonstrations_per_game=1,
        together=5,
        policy_epochs=8,
        spaces_apart=True,
        slip=0.15,
        judged_games=1000,
        label_noise=0.15,
        judge_epochs=4,
        adapter_games=1000,
        sight=True,
    )

    @functools.cached_property
    def _browser(self) -> Browser:
        return Browser()

    def demonstrator(self, slip: float) -> Demonstrator:
        return MiniWobVisionDemonstrator(slip, self._browser)

    def _wanted(self, task: Task, steps: Sequence[Step], at: int) -> str:
        replay = replayed(self._browser, task, steps[:at])
        return replay.pointed(replay.right(task)) or LOST

    def _chosen(self, step: Step) -> str:
        return step.action or LOST
