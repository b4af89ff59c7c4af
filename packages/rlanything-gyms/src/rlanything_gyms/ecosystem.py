"""Environments of other libraries as domains: the common parts.

A task is a seed, and every split has its own seeds. An `OutsideGame` wraps a library's episode.
`EcosystemEnvironment` reads actions for it, sums its rewards and decides the outcome.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np
from pydantic import Field

from rlanything.domains.base import (
    DomainError,
    DomainOptions,
    EpisodeError,
    Observation,
    StepResult,
)
from rlanything.domains.text import TextDomain
from rlanything.records import Task
from rlanything.seeds import derive
from rlanything_gyms.winning import BadReward, EpisodeEnd, RewardRange, WinRule, reward_of

SPLITS = ("train", "tune", "in_domain", "ood")
SEEDS_PER_SPLIT = 2**24
"""Seeds per split. All splits together stay below 2**32, NumPy's limit for a seed."""
NO_ACTION = f"There is no action in this: write {TextDomain.action_marker} and one action."


@dataclass(frozen=True, slots=True)
class GameTurn:
    """The state of a game to show, after its beginning or after an action."""

    text: str
    choices: tuple[str, ...] | None = None
    """The actions that are possible now; None: any text."""
    reward: Any = 0.0
    """The library's reward, not yet checked."""
    over: bool = False
    terminated: bool = True
    """Whether it ended by its own rules, and was not cut off."""
    info: Mapping[str, Any] = field(default_factory=dict)
    valid: bool = True
    """Whether the action was possible."""
    player: str = ""
    """Role that acts next; "" for the first."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """At the end, the rewards of the other roles."""


class OutsideGame(Protocol):
    """Successive episodes of another library's environment. An exception in it loses only the
    episode."""

    def begin(self, task: Task) -> GameTurn:
        """Starts the episode of a task; the task's data contain its `seed`."""
        ...

    def play(self, action: str) -> GameTurn:
        """Plays an action. An impossible action is no error: the turn reports it."""
        ...

    def close(self) -> None:
        """Releases its resources: processes, connections, windows."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """Rules for the end of an episode and its outcome."""

    win: WinRule
    rewards: RewardRange = RewardRange()  # noqa: RUF009 - it is frozen
    horizon: int | None = None
    """Number of steps after which an episode is cut off and scored in its current state. None: the
    environment's own limit, and `loop.max_steps`, at which the episode is lost."""

    @classmethod
    def read(cls, win: WinRule, reward_range: Any, horizon: int | None) -> EpisodeRules:
        """Returns the rules in a recipe. Raises `DomainError`."""
        return cls(win, RewardRange.read(reward_range), horizon)


class EcosystemEnvironment:
    """Plays the episodes of a game."""

    def __init__(self, game: OutsideGame, rules: EpisodeRules) -> None:
        self._game = game
        self._rules = rules
        self._task = Task("", "")
        self._steps = 0
        self._total = 0.0
        self._choices: tuple[str, ...] | None = None
        self._player = ""
        self._info: Mapping[str, Any] = {}
        self._randomness = OwnRandomness()

    def reset(self, task: Task) -> Observation:
        self._task = task
        self._steps = 0
        self._total = 0.0
        self._randomness.seed(int(task.data["seed"]))
        with self._randomness.used():
            turn = self._game.begin(task)
        if turn.over:
            raise EpisodeError(task.id, "its episode is over before it began: fix the environment")
        self._choices, self._player = turn.choices, turn.player
        self._info = turn.info
        return Observation(turn.text, turn.choices, player=turn.player)

    def step(self, response: str) -> StepResult:
        self._steps += 1
        action = self.action_in(response)
        turn = self._turn(action)
        self._choices, self._player = turn.choices, turn.player
        # otherwise nothing was done, and the last turn is still current
        if turn.valid or turn.info:
            self._info = turn.info
        try:
            reward = reward_of(turn.reward)
            self._total += reward
            outcome = self._outcome(turn, reward, self._total)
            others = {role: self._outcome(turn, r, r) for role, r in turn.others.items()}
        except BadReward as fault:  # a response may have caused it
            raise EpisodeError(self._task.id, str(fault), lost=True) from None
        seen = Observation(turn.text, turn.choices, player=turn.player)
        # The total so far: if `loop.max_steps` cuts the episode off, this is the last one.
        ends = {role: ended for role, ended in others.items() if ended is not None}
        return StepResult(seen, action, turn.valid, outcome, self._total, ends)

    def action_in(self, response: str) -> str | None:
        """Returns the action in a response, or None."""
        return TextDomain.action_in(response)

    def close(self) -> None:
        self._game.close()

    def _turn(self, action: str | None) -> GameTurn:
        if action is None:
            return GameTurn(NO_ACTION, self._choices, valid=False, player=self._player)
        with self._randomness.used():
            return self._game.play(action)

    def _outcome(self, turn: GameTurn, reward: Any, total: Any) -> int | None:
        """Returns +1 or -1 once the episode is over, None before. `total`: sum of the rewards."""
        if not turn.over and self._steps != self._rules.horizon:
            return None
        reward, total = reward_of(reward), reward_of(total)
        self._rules.rewards.check(total)
        ended = turn.over and turn.terminated
        end = EpisodeEnd(total, reward, self._steps, ended, self._info)
        return 1 if self._rules.win.holds(end) else -1


class EcosystemOptions(DomainOptions):
    """Options that domains of other libraries share."""

    instruction: Annotated[str, Field(min_length=1)] | None = None
    """Text before the environment's own first observation; None: an instruction to play it."""
    horizon: Annotated[int, Field(ge=1)] | None = None
    """Steps after which an episode is cut off and scored as it stands; None: the environment's own
    limit, and `loop.max_steps`, at which it is lost."""
    ood: Annotated[Mapping[str, Any], Field(min_length=1)] | None = None
    """The settings that differ in the split `ood`; None: it has no tasks."""


class EcosystemDomain(TextDomain):
    """Tasks that are seeds of another library's environment. Subclass it and implement
    `environment`."""

    def __init__(self, name: str, instruction: str | None, ood: Mapping[str, Any] | None) -> None:
        """`name`: of the environment, used as the tasks' kind; `instruction`: the policy's;
        `ood`: the settings that differ in the split `ood`; None: that split has no tasks."""
        self._name, self._ood = name, ood
        self._instruction = instruction or f"Play {name}."

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        if split == "ood" and self._ood is None:
            raise DomainError(
                "split 'ood' has no tasks: name the settings that differ there in "
                "domain.options.ood, or set evaluation.splits=[in_domain]"
            )
        return [self.task(split, number) for number in split_seeds(split, count, seed)]

    def task(self, split: str, seed: int) -> Task:
        """Returns the task of a seed."""
        data = {"seed": seed, "ood": split == "ood"}
        return Task(f"{split}-{seed}", self._instruction, self._name, data)

    def settings(self, task_data: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings of a task: the usual ones, or those of `ood`."""
        return {**usual, **(self._ood or {})} if task_data.get("ood") else dict(usual)

    def all_settings(self, usual: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the usual settings and, if there are any, those of `ood`."""
        splits = (False, True) if self._ood else (False,)
        return [self.settings({"ood": ood}, usual) for ood in splits]


class OwnRandomness:
    """The global random numbers of Python and NumPy, with a separate state for each environment:
    random draws in one episode then do not affect another."""

    def __init__(self) -> None:
        self._states: tuple[Any, Any] = (random.getstate(), np.random.get_state())

    def seed(self, seed: int) -> None:
        """Restarts from a seed."""
        legacy = np.random.RandomState(seed % 2**32)
        self._states = (random.Random(seed).getstate(), legacy.get_state())

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Makes code inside draw from this state, and leaves the process's own state unchanged."""
        outer = (random.getstate(), np.random.get_state())
        _set_states(self._states)
        try:
            yield
        finally:
            self._states = (random.getstate(), np.random.get_state())
            _set_states(outer)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keeps prints and warnings of other libraries from the terminal."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _set_states(states: tuple[Any, Any]) -> None:
    of_python, of_numpy = states
    random.setstate(of_python)
    np.random.set_state(of_numpy)


def split_seeds(split: str, count: int, seed: int) -> list[int]:
    """Returns `count` seeds of a split, the same for the same `seed`. No two splits share one.
    Raises `DomainError` for an unknown split."""
    if split not in SPLITS:
        raise DomainError(f"split {split!r} has no tasks; use one of {', '.join(SPLITS)}")
    start = SPLITS.index(split) * SEEDS_PER_SPLIT
    numbers = range(start, start + SEEDS_PER_SPLIT)
    return random.Random(derive(seed, "ecosystem", split)).sample(numbers, min(count, len(numbers)))


def actions_line(names: Iterable[str]) -> str:
    """Returns the line of an instruction that lists the actions."""
    return f"Actions: {', '.join(names)}."


def action_names(actions: Any) -> tuple[str, ...]:
    """Returns the names of the actions in a recipe. Raises `DomainError` for anything but a list of
    different one-line texts."""
    names = tuple(actions) if isinstance(actions, Sequence | Mapping) else ()
    marker = TextDomain.action_marker
    if any(not isinstance(name, str) or name != name.strip() or marker in name for name in names):
        names = ()
    one_line = all(name and name.isprintable() for name in names)
    if isinstance(actions, str) or not names or not one_line or len(set(names)) < len(names):
        raise DomainError(
            f"actions is {actions!r:.80}: write a list of different names without {marker}, such "
            "as [left, right]; quote numbers, yes and no"
        )
    return names
