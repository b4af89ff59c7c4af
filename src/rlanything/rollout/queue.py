"""Rollout groups that may outlast the iteration in which they began, so that no update waits for
the slowest episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlanything.rollout.episodes import AttemptEnd, LiveEpisodes, RolloutRequest, Rollouts, results
from rlanything.rollout.groups import ScheduledTask


@dataclass(slots=True)
class _Group:
    scheduled: ScheduledTask
    attempts: Sequence[RolloutRequest]
    ended: dict[int, AttemptEnd] = field(default_factory=dict)
    """The attempts that have ended, by their place in `attempts`."""

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.attempts)


@dataclass(slots=True)
class GroupQueue:
    """Groups under way, and those that have ended but were not taken."""

    episodes: LiveEpisodes
    _groups: list[_Group] = field(default_factory=list)
    _places: dict[int, tuple[_Group, int]] = field(default_factory=dict)
    """Group and place there of every attempt under way, by its number."""

    def begin(self, scheduled: ScheduledTask, attempts: Sequence[RolloutRequest]) -> None:
        """Begins the rollouts of a task."""
        group = _Group(scheduled, attempts)
        self._groups.append(group)
        for place, number in enumerate(self.episodes.begin(attempts)):
            self._places[number] = group, place

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
        attempts = [attempt for group in taken for attempt in group.attempts]
        ended = [group.ended[i] for group in taken for i in range(len(group.attempts))]
        return [group.scheduled for group in taken], results(attempts, ended)

    def finish(self) -> None:
        """Plays all groups to their end; they can still be taken."""
        while self.episodes.under_way:
            self._turn()

    def _turn(self) -> int:
        """Returns the number of groups that ended."""
        complete = 0
        for number, ended in self.episodes.turn().items():
            group, place = self._places.pop(number)
            group.ended[place] = ended
            complete += group.complete
        return complete

    def _ready(self, wanted: int, oldest: int) -> list[_Group] | None:
        """Returns the groups to take; None if too few have ended."""
        due = [group for group in self._groups if group.scheduled.begun <= oldest]
        new = [group for group in self._groups if group.scheduled.candidate and group.complete]
        active = [group for group in self._groups if not group.scheduled.candidate]
        ended = [group for group in active if group.complete and group not in due]
        missing = max(0, min(wanted, len(active)) - sum(group in due for group in active))
        if not all(group.complete for group in due) or len(ended) < missing:
            return None
        return [g for g in self._groups if g in due or g in new or g in ended[:missing]]
