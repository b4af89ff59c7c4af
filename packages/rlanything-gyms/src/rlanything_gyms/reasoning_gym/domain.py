"""The reasoning_gym domain: one question per episode, from any reasoning-gym dataset."""

# The package is an extra, so type checkers may lack it.
# pyright: reportMissingImports=false
from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any

import reasoning_gym
from pydantic import Field
from reasoning_gym.factory import DATASETS

from rlanything.alarm import raising_after
from rlanything.domains.base import DomainError, DomainOptions, EpisodeError
from rlanything.records import Step, Task
from rlanything_gyms.ecosystem import (
    EcosystemDomain,
    EcosystemEnvironment,
    EpisodeRules,
    GameTurn,
    action_names,
    silenced,
    split_seeds,
)
from rlanything_gyms.reasoning_gym.expressions import evaluates, is_huge, is_plain, limit_eval
from rlanything_gyms.winning import WinRule

_SHARES = MappingProxyType({"train": (0.0, 0.7), "tune": (0.7, 0.8), "in_domain": (0.8, 1.0)})
"""Split of a question, by its hash as a number from 0 to 1."""
_TRIES = 50
"""Seeds to try for each requested task, before a split counts as exhausted."""
_SECONDS = 10.0
"""Processor time to score an answer in."""
_OPENING = "The action is your answer."
_TAKEN = GameTurn("The answer was taken.")


class _TooLong(BaseException):
    """Not an Exception: the scoring of an answer catches those."""


class ReasoningGymDomain(EcosystemDomain):
    """Questions of a reasoning-gym dataset, answered in one step.

    No training question is in another split, for any seed. Raises `DomainError` for a dataset or
    settings that reasoning-gym does not have."""

    class Options(DomainOptions):
        dataset: str
        """Name of the dataset."""
        config: dict[str, Any] = Field(default_factory=dict)
        """Settings of the dataset."""
        win_at: Any = 1.0
        """Score from which an answer is right."""
        answers: Sequence[Any] | None = None
        """All possible answers, where there are few; None: any text."""
        ood: Annotated[Mapping[str, Any], Field(min_length=1)] | None = None
        """The config that differs in the split `ood`; None: it has no tasks."""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        dataset, ood = chosen.dataset, chosen.ood
        super().__init__(dataset, None, ood)
        if dataset not in DATASETS:
            near = [name for name in sorted(DATASETS) if name[:3] == dataset[:3]]
            raise DomainError(
                f"reasoning-gym has no dataset {dataset!r:.80}: use one of its {len(DATASETS)}, "
                f"such as {', '.join(near or sorted(DATASETS)[:5])}"
            )
        self._rules = EpisodeRules.read(WinRule.at(chosen.win_at), (0.0, 1.0), 1)
        self._config = chosen.config
        if own := {"seed", "size"} & {*self._config, *(ood or {})}:
            raise DomainError(f"config names {min(own)}, which tasks choose: leave it out")
        self._answers = None if chosen.answers is None else action_names(chosen.answers)
        for differs in (False, True):
            self._question(0, {"ood": differs})

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        if split == "ood":
            super().tasks(split, 0, seed)  # raises an error if there are no settings for the split
        tasks: dict[str, Task] = {}
        for number in split_seeds(split, _TRIES * count, seed):
            task = self.task(split, number)
            owner = _split_of(task.instruction)
            if owner == split or (split == "ood" and owner != "train"):
                tasks.setdefault(task.instruction, task)
            if len(tasks) == count:
                break
        if count and not tasks:
            raise DomainError(
                f"split {split!r} has no tasks: with this config {self._name} has too few "
                "different questions; widen domain.options.config"
            )
        return list(tasks.values())

    def task(self, split: str, seed: int) -> Task:
        data: dict[str, Any] = {"seed": seed, "ood": split == "ood"}
        _, entry = self._question(seed, data)
        if _as_json(entry):
            data["entry"] = entry
        return Task(f"{split}-{seed}", str(entry["question"]).strip(), self._name, data)

    def environment(self) -> EcosystemEnvironment:
        return AnswerEnvironment(ReasoningGymGame(self), self._rules)

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        """Returns +1 for a right answer."""
        return [1 if self._right(task, step.action) else -1 for step in steps]

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the dataset's own answer. None if a response cannot contain it, or if the dataset
        itself would not accept it."""
        _, entry = self.asked(task)
        answer = str(entry["answer"]).strip()
        if not answer or self.action_marker in answer:
            return None
        right = self._right(task, answer)
        return f"I know it {self.action_marker} {answer}" if right else None

    def score(self, task: Task, answer: str | None) -> float:
        """Returns reasoning-gym's score of an answer, from 0 to 1. 0 for a formula that would run
        as a program, and for an answer that takes seconds to score."""
        if answer is None:
            return 0.0
        made, entry = self.asked(task)
        if answer != str(entry["answer"]).strip():
            if is_huge(answer) or (evaluates(made, entry) and not is_plain(answer)):
                return 0.0
            limit_eval(made, entry)
        try:
            with silenced(), raising_after(_SECONDS, _TooLong(), signal.ITIMER_VIRTUAL):
                return made.score_answer(answer, entry)
        except _TooLong:
            return 0.0

    def asked(self, task: Task) -> tuple[Any, dict[str, Any]]:
        """Returns the dataset and the question of a task. Raises `EpisodeError` if this process
        generates another question. Some datasets depend on more than their seed; if JSON cannot
        represent such a question, only the process that generated it knows it."""
        made, entry = self._question(int(task.data["seed"]), task.data)
        if "entry" in task.data:
            return made, task.data["entry"]
        if str(entry["question"]).strip() != task.instruction:
            raise EpisodeError(
                task.id,
                f"{self._name} makes another question of its seed in every process, which JSON "
                "cannot hold: set environment.workers=0",
            )
        return made, entry

    def _right(self, task: Task, answer: str | None) -> bool:
        try:
            return self._rules.win.reached(self.score(task, answer))
        except Exception:  # a dataset may fail on an answer; the answer then loses the episode
            return False

    @property
    def answers(self) -> tuple[str, ...] | None:
        """All possible answers; None: any text."""
        return self._answers

    def _question(self, seed: int, data: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        settings = self.settings(data, self._config)
        try:
            return _generated(self._name, tuple(sorted(settings.items(), key=str)), seed)
        except TypeError:  # a setting that is a list
            return _generated.__wrapped__(self._name, tuple(settings.items()), seed)


class ReasoningGymGame:
    """One question, one answer."""

    def __init__(self, domain: ReasoningGymDomain) -> None:
        self._domain = domain
        self._task = Task("", "")

    def begin(self, task: Task) -> GameTurn:
        self._task = task
        self._domain.asked(task)
        return GameTurn(_OPENING, self._domain.answers)

    def play(self, action: str) -> GameTurn:
        reward = self._domain.score(self._task, action)
        return GameTurn(_TAKEN.text, None, reward, over=True)

    def close(self) -> None:
        """Does nothing: there are no resources to release."""


class AnswerEnvironment(EcosystemEnvironment):
    """An environment whose action is all text after the marker, even several lines."""

    def action_in(self, response: str) -> str | None:
        _, marker, answer = response.rpartition(ReasoningGymDomain.action_marker)
        return answer.strip() or None if marker else None


def _as_json(entry: Mapping[str, Any]) -> bool:
    """Returns whether JSON represents the question exactly."""
    try:
        return json.loads(json.dumps(entry)) == entry
    except (TypeError, ValueError):
        return False


@lru_cache(maxsize=4096)
def _generated(
    name: str, settings: tuple[tuple[str, Any], ...], seed: int
) -> tuple[Any, dict[str, Any]]:
    """Returns the dataset of the single question for a seed, and the question."""
    try:
        with silenced():
            made = reasoning_gym.create_dataset(name, **dict(settings), seed=seed, size=1)
            return made, made[0]
    except (TypeError, AssertionError, ValueError) as fault:
        raise DomainError(
            f"reasoning-gym's {name} refuses its config ({type(fault).__name__}: "
            f"{' '.join(str(fault).split())[:200]}): fix domain.options.config"
        ) from fault


def _split_of(question: str) -> str:
    digest = hashlib.sha256(question.encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return next(name for name, (start, end) in _SHARES.items() if start <= place < end)
