"""Teaches the nano vision models: like `teacher`, with points instead of elements.

Demonstrator and teacher ask the page for positions; the models have to find them in pixels.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence

from rlanything.domains.base import Episode, Image
from rlanything.records import Step, Task
from rlanything_miniwob.actions import ACTION_MARKER, Click, parse_action
from rlanything_miniwob.asking import possible_tasks, words_of
from rlanything_miniwob.browser import Browser
from rlanything_miniwob.environment import open_episode
from rlanything_miniwob.experts import right_actions
from rlanything_miniwob.screen import read, text_of
from rlanything_miniwob.sight import GRAIN, replayed
from rlanything_miniwob.tasks import spec_of_task
from rlanything_miniwob.teacher import LOST, MiniWobTeacher, element_meant, slip
from rlanything_nano.teaching import Demonstrator, SeenScene, SeenThing, StepPlan


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
        element = element_meant(read(replay.screen), action)
        words = () if element is None else words_of(element)
        pointed = replay.pointed(action) or "press Tab"
        return f"{thought(episode.task, words)} {ACTION_MARKER} {pointed}"


def thought(task: Task, words: Sequence[str]) -> str:
    """Returns what to look for: the words of an element that the task mentions, or all words of a
    button. It must not reveal which element is right."""
    said = set(re.findall(r"\w+", task.instruction))
    named = words if "button" in words else [word for word in words if word in said]
    return " ".join(["the", *(named or words[:1])])


class MiniWobVisionTeacher(MiniWobTeacher):
    """The teacher of the nano vision models (a `StepTeacher`)."""

    plan = StepPlan(
        decoding="free",
        response_tokens=16,
        judgement_tokens=32,
        max_steps=2,
        games=300,
        demonstrations_per_game=1,
        policy_epochs=3,
        slip=0.1,
        judged_games=300,
        label_noise=0.15,
        judge_epochs=3,
        criticised_games=200,
        adapter_games=400,
        learning_rate=1e-3,
        sight=True,
        scenes=3000,
        reading_updates=300,
        tower_updates=800,
        episodes=210,
    )

    link = f" {ACTION_MARKER} click"

    @functools.cached_property
    def _browser(self) -> Browser:
        return Browser()

    def scene(self, task: Task, rng: random.Random) -> SeenScene:
        """Returns the initial page, and sentences that it could have asked (a `SeeingTeacher`)."""
        episode, state = open_episode(self._browser, task.id, spec_of_task(task))
        places = episode.places(GRAIN)
        things = {
            element.number: SeenThing(words_of(element), place.point, place.box)
            for element, place in zip(state.elements, places, strict=True)
            if place is not None
        }
        asked: list[tuple[Task, str]] = []
        for other in possible_tasks(task, state.elements, rng):
            right = right_actions(other, text_of(state.elements), ())
            clicked = [parse_action(action) for action in right]
            fitting = [
                things[click.number]
                for click in clicked
                if isinstance(click, Click) and click.number in things
            ]
            if fitting:
                thing = rng.choice(fitting)
                x, y = thing.point
                asked.append((other, f"{thought(other, thing.words)}{self.link} {x} {y}"))
        return SeenScene(Image(episode.screenshot()), tuple(things.values()), tuple(asked))

    def demonstrator(self, slip: float) -> Demonstrator:
        return MiniWobVisionDemonstrator(slip, self._browser)

    def _wanted(self, task: Task, steps: Sequence[Step], at: int) -> str:
        replay = replayed(self._browser, task, steps[:at])
        return replay.pointed(replay.right(task)) or LOST

    def _chosen(self, step: Step) -> str:
        return step.action or LOST
