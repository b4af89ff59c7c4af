"""Rollout groups that may outlast the iteration in which they began, so that no update waits for
the slowest episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlanything.rollout.episodes import AttemptEnd, LiveEpisodes, RolloutRequest, Rollouts, results
from rlanything.rollout.groups import ScheduledTask


@dataclass(slots=True, eq=False)
class _Group:
    scheduled: ScheduledTask
    attempts: dict[int, RolloutRequest]
    """The rollouts by their numbers among the live episodes."""
    ended: dict[int, AttemptEnd] = field(default_factory=dict)
    """How those that have ended did, by the same numbers."""

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.attempts)


@dataclass(slots=True)
class GroupQueue:
    """Groups under way, and those that have ended but were not taken."""

    episodes: LiveEpisodes
    _groups: list[_Group] = field(default_factory=list)
    """All of them, oldest first."""
    _playing: dict[int, _Group] = field(default_factory=dict)
    """Group of every attempt under way, by its number."""

    def begin(self, scheduled: ScheduledTask, attempts: Sequence[RolloutRequest]) -> None:
        """Begins the rollouts of a task."""
        numbers = self.episodes.begin(attempts)
        group = _Group(scheduled, dict(zip(numbers, attempts, strict=True)))
        self._groups.append(group)
        self._playing |= dict.fromkeys(numbers, group)

    def take(
        self, wanted: int, oldest: int, on_groups: Callable[[int], None]
    ) -> tuple[list[ScheduledTask], Rollouts]:
        """Waits until `wanted` groups of active tasks have ended and all that began in iteration
        `oldest` or before. Returns these, oldest first, and all candidates that have ended; fewer
        than `wanted` if there are no more. `on_groups` is called with the number of groups that
        ended meanwhile."""
        while (taken := self._ready(wanted, oldest)) is None:
            on_groups(self._turn())
        self._groups = [group for group in self._groups if group not in taken]
        attempts = [attempt for group in taken for attempt in group.attempts.values()]
        ended = [group.ended[number] for group in taken for number in group.attempts]
        return [group.scheduled for group in taken], results(attempts, ended)

    def finish(self) -> None:
        """Plays all groups to their end; they can still be taken."""
        while self.episodes.under_way:
            self._turn()

    def _turn(self) -> int:
        """Returns the number of groups that ended."""
        complete = 0
        for number, ended in self.episodes.turn().items():
            group = self._playing.pop(number)
            group.ended[number] = ended
            complete += group.complete
        return complete

    def _ready(self, wanted: int, oldest: int) -> list[_Group] | None:
        """Returns the groups to take; None if too few have ended."""
        due = [group for group in self._groups if group.scheduled.begun <= oldest]
        active = [group for group in self._groups if not group.scheduled.candidate]
        ended = [group for group in active if group.complete]
        count = max(min(wanted, len(active)), sum(group in due for group in active))
        if len(ended) < count or not all(group.complete for group in due):
            return None
        # The oldest that have ended, so all that are due.
        taken = ended[:count]
        return [g for g in self._groups if g in taken or (g.scheduled.candidate and g.complete)]
