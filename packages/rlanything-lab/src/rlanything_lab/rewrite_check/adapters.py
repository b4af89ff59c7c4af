"""Adapters without a model, as controls of one that has a model."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from rlanything.domains.base import Domain, InvalidTask, RewriteRequest
from rlanything.plugins import PluginError
from rlanything.records import Direction, Task
from rlanything.roles.adapter import Proposal

TRIES = 8
"""Answers tried for each request, as with a model."""


class SameTask:
    """The null control: proposes the slot's active task under a new id. A rule that accepts it
    accepts tasks that did not change."""

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        del seed
        return [
            Proposal(r.slot, replace(r.active, id=f"{r.slot}@{iteration}"), (), ())
            for r in requests
        ]


def has_rewrites(domain: Domain) -> bool:
    """Whether a domain lists a task's rewrites, as the rules need."""
    return callable(getattr(domain, "rewrites", None))


class RuleAdapter:
    """Proposes the domain's own `rewrites` by a rule that reads no critic.

    `by: any` takes one rewrite in any direction, `direction` one in the wanted direction, and
    `accuracy` two of different parameters, the larger the further the accuracy is from a half. A
    parameter is a rewrite without its number, its values are listed nearest first, and the domain
    reads two rewrites joined by a comma."""

    def __init__(self, domain: Domain, by: Literal["any", "direction", "accuracy"]) -> None:
        """Raises `PluginError` for another rule, and for a domain without `rewrites`."""
        if by not in ("any", "direction", "accuracy"):
            raise PluginError(f"adapter.options.by: no rule {by!r}: any, direction or accuracy")
        if not has_rewrites(domain):
            raise PluginError(
                f"domain {type(domain).__name__} has no rewrites(root, direction): choose the "
                "adapter null-rewrite or llm"
            )
        self._domain = domain
        self._by = by

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        return [
            Proposal(r.slot, self._task(r, iteration, random.Random(f"{seed}/{r.slot}")), (), ())
            for r in requests
        ]

    def _task(self, request: RewriteRequest, iteration: int, rng: random.Random) -> Task | None:
        for _ in range(TRIES):
            answer = self._answer(request, rng)
            try:
                task = self._domain.parse_candidate(
                    request.root, f"{request.slot}@{iteration}", answer
                )
            except InvalidTask:
                continue
            if task.instruction != request.active.instruction:
                return task
        return None

    def _answer(self, request: RewriteRequest, rng: random.Random) -> str:
        direction: Direction = request.direction
        if self._by == "any":
            direction = rng.choice(("harder", "easier"))
        changes = self._changes(request.root, direction)
        if not changes:
            return ""
        names = rng.sample(sorted(changes), min(len(changes), 1 + (self._by == "accuracy")))
        if self._by != "accuracy":
            return rng.choice(changes[names[0]])
        won = [one.trajectory.outcome == 1 for one in request.rollouts]
        away = abs(sum(won) / len(won) - 0.5) * 2 if won else 1.0
        return ", ".join(
            changes[name][min(len(changes[name]), max(1, round(3 * away))) - 1] for name in names
        )

    def _changes(self, root: Task, direction: Direction) -> Mapping[str, list[str]]:
        """Returns the domain's rewrites by parameter."""
        by_parameter: dict[str, list[str]] = {}
        rewrites: Sequence[str] = getattr(self._domain, "rewrites")(root, direction)  # noqa: B009
        for answer in rewrites:
            by_parameter.setdefault(re.sub(r"-?\d+", "", answer).strip(), []).append(answer)
        return by_parameter
