"""AlfWorld's episodes: reads an action from a response and plays it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.records import Task
from rlanything_alfworld.commands import (
    ANSWER_FORMS,
    Listing,
    find_command,
    with_commands,
)
from rlanything_alfworld.game_engine import NOTHING_HAPPENS, GameEngine, GameView
from rlanything_alfworld.tasks import load_game

InvalidRule: TypeAlias = Literal["refuse", "first"]

NOT_LISTED = f"{NOTHING_HAPPENS} The answer is none of the possible commands."
"""Reply to an unlisted answer if the commands are listed."""

_BANNER = "-= Welcome to TextWorld, ALFRED! =-"
_TASK_SENTENCE = "Your task is to:"
_IDLE = ("help", "inventory", "look", "examine")


class AlfWorldEnvironment:
    """Plays one game at a time. `idle_actions=False` removes the actions that change nothing.

    Removed actions are neither listed nor possible: a policy that may choose them learns to wait.
    `listing`: whether observations end with the possible commands, and in which form. `invalid`:
    whether a response without a possible command is refused, or plays the first of the list."""

    def __init__(
        self,
        idle_actions: bool = True,
        listing: Listing = "none",
        invalid: InvalidRule = "refuse",
    ) -> None:
        self._invalid = invalid
        self._left_out = _IDLE[:1] if idle_actions else _IDLE
        self._listing: Listing = listing
        self._engine = GameEngine()
        self._task: Task
        self._observation: Observation

    def reset(self, task: Task) -> Observation:
        """Returns the room as first seen. Only `task.instruction` contains the task sentence."""
        self._task = task
        try:
            self._engine.load(load_game(task.data).json())
            view = self._engine.reset()
        except Exception as fault:  # damaged data may raise anything; only this task fails
            raise EpisodeError(task.id, f"the game cannot be loaded ({fault!r})") from fault
        if view.won:
            raise EpisodeError(task.id, "the goal is already true at the start")
        room = view.text.removeprefix(_BANNER).partition(_TASK_SENTENCE)[0].strip()
        return self._observe(replace(view, text=room))

    def step(self, response: str) -> StepResult:
        choices = self._observation.choices or ()
        action = find_command(response, choices, self._listing)
        if self._invalid == "first" and action not in choices and choices:
            action = choices[0]
        if action is None:
            form = ANSWER_FORMS[self._listing]
            told = self._with_text(f"No action was found: end the response with {form}.", choices)
            return StepResult(told, None, valid=False)
        if action not in choices:
            refused = NOTHING_HAPPENS if self._listing == "none" else NOT_LISTED
            return StepResult(self._with_text(refused, choices), action, valid=False)
        try:
            view = self._engine.step(action)
        except Exception as fault:  # whatever the error, only this episode is lost
            reason = f"the engine failed at {action!r} ({fault!r})"
            raise EpisodeError(self._task.id, reason, lost=True) from fault
        return StepResult(self._observe(view), action, valid=True, outcome=1 if view.won else None)

    def _observe(self, view: GameView) -> Observation:
        choices = tuple(c for c in view.commands if c.split(" ", 1)[0] not in self._left_out)
        self._observation = self._with_text(view.text, choices)
        return self._observation

    def _with_text(self, text: str, choices: tuple[str, ...]) -> Observation:
        return Observation(with_commands(text, choices, self._listing), choices)
