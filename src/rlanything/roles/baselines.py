"""Agents without a model: upper and lower bounds of an evaluation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything.domains.base import Domain, DomainError, Episode
from rlanything.records import Completion


class _Forgetful:
    def release_cache(self) -> None:
        """Does nothing: there is no cache."""


class RandomAgent(_Forgetful):
    """Plays uniformly random admissible actions."""

    def __init__(self, domain: Domain) -> None:
        self._marker = domain.action_marker

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        answers: list[Completion] = []
        for episode, seed in zip(episodes, seeds, strict=True):
            if not episode.observation.choices:
                raise DomainError(
                    "this domain does not list its actions, so there is no random agent; evaluate "
                    "a model"
                )
            action = random.Random(seed).choice(episode.observation.choices)
            answers.append(Completion.unsampled(f"{self._marker} {action}"))
        return answers


class ExpertAgent(_Forgetful):
    """The domain's expert, which knows the full state."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        del seeds  # experts are deterministic
        answers: list[Completion] = []
        for episode in episodes:
            response = self._domain.expert(episode.task, episode.steps)
            if response is None:
                raise DomainError("this domain has no expert; evaluate a model or `random`")
            answers.append(Completion.unsampled(response))
        return answers
