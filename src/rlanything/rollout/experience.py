"""Rollout groups that may outlast the iteration in which they began, so that no update waits for
the slowest episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlanything.rollout.episodes import Ended, Episodes, RolloutRequest, Rollouts, results
from rlanything.rollout.groups import ScheduledTask


@dataclass(slots=True)
class _Group:
    scheduled: ScheduledTask
    attempts: Sequence[RolloutRequest]
    ended: dict[int, Ended] = field(default_factory=dict)
    """The attempts that have ended, by their place in `attempts`."""

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.attempts)


class Experience:
    """Groups under way, and those that have ended but were not taken."""

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        self._groups: list[_Group] = []
        self._places: dict[int, tuple[_Group, int]] = {}
        """Group and place there of every attempt under way, by its number."""

    def begin(self, scheduled: ScheduledTask, attempts: Sequence[RolloutRequest]) -> None:
        """Begins the rollouts of a task."""
        group = _Group(scheduled, attempts)
        self._groups.append(group)
        for place, number in enumerate(self._episodes.begin(attempts)):
            self._places[number] = group, place

    def take(
        self, wanted: int, oldest: int, on_groups: Callable[[int], None]
    ) -> tuple[list[ScheduledTask], Rollouts]:
        """Waits until `wanted` groups of active tasks have ended and all that began in iteration
        `oldest` or before. Returns these, oldest first, and all candidates that have ended; fewer
        than `wanted` if there are no more. `on_groups` is called with the number of groups that
        ended meanwhile."""
        taken = self._ready(wanted, oldest)
        while taken is None:
            on_groups(self._turn())
            taken = self._ready(wanted, oldest)
        self._groups = [group for group in self._groups if group not in taken]
        attempts = [attempt for group in taken for attempt in group.attempts]
        ended = [group.ended[i] for group in taken for i in range(len(group.attempts))]
        return [group.scheduled for group in taken], results(attempts, ended)

    def finish(self) -> None:
        """Plays all groups to their end; they can still be taken."""
        while self._episodes.under_way:
            self._turn()

    def _turn(self) -> int:
        """Returns the number of groups that ended."""
        complete = 0
        for number, ended in self._episodes.turn().items():
            group, place = self._places.pop(number)
            group.ended[place] = ended
            complete += group.complete
        return complete

    def _ready(self, wanted: int, oldest: int) -> list[_Group] | None:
        """Returns the groups to take; None if too few have ended."""
        due = [group for group in self._groups if group.scheduled.begun <= oldest]
        active = [group for group in self._groups if not group.scheduled.candidate]
        ended = [group for group in self._groups if group.complete]
        chosen = [group for group in ended if group in due or group.scheduled.candidate]
        missing = min(wanted, len(active)) - sum(not g.scheduled.candidate for g in chosen)
        others = [group for group in ended if group not in chosen]
        if not all(group.complete for group in due) or len(others) < missing:
            return None
        chosen += others[: max(missing, 0)]
        return [group for group in self._groups if group in chosen]
