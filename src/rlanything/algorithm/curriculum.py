"""Task curriculum: harder tasks where the policy wins, easier ones where it loses.

Every original task owns a `Slot`. A candidate proposed in one iteration is rolled out in the next
and accepted or rejected by its accuracy there. The rules are pure functions, the records are
immutable; only `Pool` changes. acc(q) is the accuracy of the task a candidate was proposed from,
acc(q') the candidate's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import floor
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.records import Direction, JudgedTrajectory, Task

_FORMAT = 3
"""The version of the pool's JSON; raise it when a change makes old checkpoints unreadable."""


def direction(accuracy: float, alpha_low: float, alpha_high: float) -> Direction | None:
    """Returns the direction in which a task of this accuracy should move; None between the bounds.

    Strict, as in Algorithm 1: a task exactly at a bound stays as it is."""
    if accuracy > alpha_high:
        return "harder"
    if accuracy < alpha_low:
        return "easier"
    return None


def rejection(
    direction: Direction,
    parent_accuracy: float,
    candidate_accuracy: float,
    alpha_low: float,
    alpha_high: float,
) -> str | None:
    """Returns why a candidate is rejected, in words; None: it is accepted.

    Harder needs alpha_low < acc(q') < acc(q), easier acc(q) < acc(q') < alpha_high."""
    if candidate_accuracy == 0:
        return "nobody solved it, so it is not known to be solvable"
    if direction == "harder":
        if candidate_accuracy >= parent_accuracy:
            return "it is not harder than the task it came from"
        if candidate_accuracy <= alpha_low:
            return f"it is too hard: alpha_low is {alpha_low:g}"
        return None
    if candidate_accuracy <= parent_accuracy:
        return "it is not easier than the task it came from"
    if candidate_accuracy >= alpha_high:
        return f"it is too easy: alpha_high is {alpha_high:g}"
    return None


def accepts(
    direction: Direction,
    parent_accuracy: float,
    candidate_accuracy: float,
    alpha_low: float,
    alpha_high: float,
) -> bool:
    """Returns whether a candidate becomes its slot's active task."""
    return rejection(direction, parent_accuracy, candidate_accuracy, alpha_low, alpha_high) is None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rewritten task that waits for its first rollouts."""

    task: Task
    """The task, rewritten from the slot's root task; its id is new to the slot."""
    direction: Direction
    parent_accuracy: float
    """acc(q) of the slot's active task when the candidate was proposed."""
    critics: tuple[str, ...]
    """The critics' texts that the adapter read: reasons why rollouts failed."""
    proposed_iteration: int


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a slot's history."""

    kind: Literal["proposed", "accepted", "rejected"]
    iteration: int
    task_id: str
    instruction: str
    direction: Direction
    parent_accuracy: float
    candidate_accuracy: float | None
    """acc(q'); None if the candidate was only proposed or could not be played."""
    reason: str


@dataclass(frozen=True, slots=True)
class Slot:
    """An original task, its active version and its history. Its id is the root task's."""

    root: Task
    active: Task
    """The root, or the latest accepted candidate."""
    pending: Candidate | None = None
    accuracy: float | None = None
    """Accuracy of the active task in its latest rollouts; None before the first."""
    history: tuple[Event, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Reasons by id of tasks of this slot that must not be played again."""

    @property
    def id(self) -> str:
        return self.root.id

    @property
    def tried(self) -> tuple[str, ...]:
        """Returns the instructions of all candidates so far; the latest last."""
        return tuple(event.instruction for event in self.history if event.kind == "proposed")

    @property
    def usable(self) -> bool:
        """Returns whether the active task may be rolled out."""
        return self.active.id not in self.quarantined


@dataclass(frozen=True, slots=True)
class _Saved:
    """A pool as saved in a checkpoint."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: int
    alpha_low: float
    alpha_high: float
    slots: tuple[Slot, ...]
    under_way: Mapping[str, int]


_SAVED = TypeAdapter(_Saved)


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """Settings of one of several worlds whose tasks share a pool. The ids of its tasks begin with
    its label and `/`."""

    weight: float
    """Share of the sampled tasks, relative to the other worlds' weights."""
    alpha_low: float
    alpha_high: float
    policy_window: tuple[float, float]
    """The policy trains on tasks of this world whose accuracy is in this interval."""


class PoolError(ValueError):
    """A pool cannot be used; the message is one line with the remedy."""


class Pool:
    """All slots. Methods that name a slot raise KeyError if no slot has that id."""

    def __init__(
        self,
        roots: Sequence[Task],
        alpha_low: float,
        alpha_high: float,
        worlds: Mapping[str, WorldSettings] = MappingProxyType({}),
    ) -> None:
        """Makes one slot per root task; `worlds`: several worlds by label, each with its own
        bounds. Raises ValueError without tasks, on an id that occurs twice, or unless
        0 <= alpha_low < alpha_high <= 1."""
        if not 0 <= alpha_low < alpha_high <= 1:
            raise ValueError(
                f"alpha_low {alpha_low:g}, alpha_high {alpha_high:g}: "
                "give 0 <= alpha_low < alpha_high <= 1"
            )
        if not roots:
            raise PoolError("a pool needs at least one task")
        self.alpha_low = alpha_low
        self.alpha_high = alpha_high
        self.worlds = worlds
        self._slots: dict[str, Slot] = {}
        for root in roots:
            if root.id in self._slots:
                raise PoolError(f"task {root.id} occurs twice: give every task an id of its own")
            self._slots[root.id] = Slot(root, active=root)
        self.under_way: dict[str, int] = {}
        """Slots whose rollouts are under way across iterations (`loop.max_staleness`), and the
        iteration in which they began."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Returns all current slots, in the order of their root tasks."""
        return tuple(self._slots.values())

    def slot(self, slot_id: str) -> Slot:
        """Returns the current slot of this id."""
        return self._slots[slot_id]

    def world(self, task_id: str) -> WorldSettings | None:
        """Returns the settings of a task's world; None if there are not several."""
        return self.worlds.get(label_of(task_id))

    def feedback_by_world(
        self, settings: FeedbackSettings
    ) -> Callable[[Sequence[JudgedTrajectory]], FeedbackSettings]:
        """Returns a function that gives the settings for the trajectories of one task, whose world
        may have a window of its own."""

        def of_group(group: Sequence[JudgedTrajectory]) -> FeedbackSettings:
            world = self.world(group[0].trajectory.task.id)
            if world is None:
                return settings
            return settings.model_copy(update={"policy_window": world.policy_window})

        return of_group

    def bounds(self, slot_id: str) -> tuple[float, float]:
        """Returns alpha_low and alpha_high of a slot."""
        own = self.world(slot_id) or self
        return own.alpha_low, own.alpha_high

    def sample(self, count: int, rng: np.random.Generator) -> list[Slot]:
        """Returns `count` different slots to roll out, drawn uniformly; fewer if fewer are free.
        Slots with a pending candidate (Algorithm 2, line 5), quarantined slots and those whose
        rollouts are under way are not sampled.
        With several worlds each gets its share by weight; the others take what it has no free
        slots for.

        Raises ValueError if the pool has fewer, or if every slot is quarantined."""
        if not 0 <= count <= len(self._slots):
            raise ValueError(
                f"{count} tasks per iteration, but the pool has {len(self._slots)}: "
                "ask for fewer, or load more"
            )
        slots = [
            slot
            for slot in self._slots.values()
            if slot.usable and slot.pending is None and slot.id not in self.under_way
        ]
        if count and not slots and not self.pending() and not self.under_way:
            raise PoolError("every task is quarantined: fix the environment, then start again")
        count = min(count, len(slots))
        if not self.worlds:
            return [slots[i] for i in rng.choice(len(slots), size=count, replace=False)]
        free = {label: [s for s in slots if label_of(s.id) == label] for label in self.worlds}
        quotas = dict.fromkeys(free, 0)
        while left := count - sum(quotas.values()):
            room = {w: each.weight for w, each in self.worlds.items() if quotas[w] < len(free[w])}
            for label, share in shares(room, left, rng.random()).items():
                quotas[label] += min(share, len(free[label]) - quotas[label])
        return [
            free[label][i]
            for label, quota in quotas.items()
            for i in rng.choice(len(free[label]), size=quota, replace=False)
        ]

    def pending(self) -> list[Slot]:
        """Returns the slots with a candidate that waits for its rollouts."""
        return [slot for slot in self._slots.values() if slot.pending is not None]

    def record(self, slot_id: str, task_id: str, accuracy: float) -> None:
        """Records the accuracy of a slot's active task.

        Raises ValueError if the active task is another one: record before `settle` replaces it."""
        slot = self._slots[slot_id]
        if task_id != slot.active.id:
            raise ValueError(f"slot {slot_id}: {task_id} is not active, {slot.active.id} is")
        self._slots[slot_id] = replace(slot, accuracy=accuracy)

    def propose(self, slot_id: str, candidate: Candidate) -> None:
        """Gives a slot its candidate.

        Raises ValueError if one is pending already, or if its id was used in this slot before."""
        slot = self._slots[slot_id]
        if slot.pending is not None:
            raise ValueError(f"slot {slot_id}: {slot.pending.task.id} is pending, settle it first")
        if candidate.task.id in {slot.root.id, *(event.task_id for event in slot.history)}:
            raise ValueError(f"slot {slot_id}: the id {candidate.task.id} was used before")
        proposed = _event(
            candidate,
            "proposed",
            candidate.proposed_iteration,
            None,
            f"accuracy {candidate.parent_accuracy:.2f} calls for a task that is "
            f"{candidate.direction}",
        )
        self._slots[slot_id] = replace(slot, pending=candidate, history=(*slot.history, proposed))

    def settle(
        self,
        slot_id: str,
        candidate_accuracy: float,
        iteration: int,
        objection: str | None = None,
        highest: float | None = None,
    ) -> bool:
        """Accepts or rejects a slot's candidate by the accuracy of its rollouts; True: accepted. An
        `objection`, a defect that these rollouts revealed, rejects it at any accuracy. `highest`:
        the accuracy if its missing rollouts had been won, `candidate_accuracy` if they had been
        lost; only a candidate that both would accept is accepted.

        Raises ValueError if the slot has no candidate."""
        slot = self._slots[slot_id]
        candidate = slot.pending
        if candidate is None:
            raise ValueError(f"slot {slot_id}: there is no candidate to settle")
        reasons = [
            rejection(
                candidate.direction,
                candidate.parent_accuracy,
                accuracy,
                *self.bounds(slot_id),
            )
            for accuracy in (candidate_accuracy, candidate_accuracy if highest is None else highest)
        ]
        if any(reasons) and not all(reasons):
            reasons = ["rollouts are missing, and it depends on them"]
        reason = objection or reasons[0]
        if reason is not None:
            rejected = _event(candidate, "rejected", iteration, candidate_accuracy, reason)
            self._slots[slot_id] = replace(slot, pending=None, history=(*slot.history, rejected))
            return False
        reason = f"it is {candidate.direction} than the task it came from, and within bounds"
        accepted = _event(candidate, "accepted", iteration, candidate_accuracy, reason)
        self._slots[slot_id] = Slot(
            root=slot.root,
            active=candidate.task,
            pending=None,
            accuracy=candidate_accuracy,
            history=(*slot.history, accepted),
            quarantined=slot.quarantined,
        )
        return True

    def quarantine(self, slot_id: str, task_id: str, reason: str, iteration: int) -> None:
        """Excludes a task from all later rollouts. A candidate is rejected, a rewritten active task
        is replaced by its root, and a root disables its slot."""
        slot = self._slots[slot_id]
        banned = {**slot.quarantined, task_id: reason}
        if slot.pending is not None and slot.pending.task.id == task_id:
            event = _event(slot.pending, "rejected", iteration, None, f"quarantined: {reason}")
            slot = replace(slot, pending=None, history=(*slot.history, event))
        elif task_id == slot.active.id and slot.active != slot.root:
            slot = replace(slot, active=slot.root, accuracy=None)
        self._slots[slot_id] = replace(slot, quarantined=banned)

    def to_json(self) -> str:
        """Returns the pool as JSON for `from_json`."""
        saved = _Saved(_FORMAT, self.alpha_low, self.alpha_high, self.slots, self.under_way)
        return json.dumps(asdict(saved))

    @classmethod
    def from_json(cls, text: str) -> Pool:
        """Returns the pool of `to_json`. Raises `PoolError` if the text is damaged or has another
        format."""
        try:
            read = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(str(error)) from None
        written = read.get("format") if isinstance(read, dict) else None
        if isinstance(written, int) and written != _FORMAT:
            raise PoolError(
                f"the pool is saved in format {written}, this version reads {_FORMAT}: "
                "resume with the version that saved it"
            )
        try:
            saved = _SAVED.validate_python(read)
            pool = cls([slot.root for slot in saved.slots], saved.alpha_low, saved.alpha_high)
            pool._slots = {slot.id: slot for slot in saved.slots}
            pool.under_way = dict(saved.under_way)
            if unknown := pool.under_way.keys() - pool._slots.keys():
                raise ValueError(f"no slot is called {min(unknown)}")
            # Fields that validation filled in or converted were not written by `to_json`.
            if json.loads(pool.to_json()) != read:
                raise ValueError("something in it is missing, or of another kind")
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"]))
            raise _damaged(f"{place or 'all of it'!r}: {problem['msg']}") from None
        except (ValueError, RecursionError) as error:
            raise _damaged(str(error)) from None
        return pool


def label_of(task_id: str) -> str:
    """Returns the label of a task's world, if there are several."""
    return task_id.partition("/")[0]


def shares(weights: Mapping[str, float], count: int, offset: float = 0.5) -> dict[str, int]:
    """Returns how many of `count` tasks each world gets by its weight. `offset`, in [0, 1), decides
    how shares are rounded, none by a whole task: on average over offsets each world gets its own
    share."""
    total, upper, given = sum(weights.values()), 0.0, 0
    counts: dict[str, int] = {}
    for label, weight in weights.items():
        upper += count * weight / total
        until = min(floor(upper + offset), count)
        counts[label], given = until - given, until
    return counts


def _damaged(reason: str) -> PoolError:
    return PoolError(f"the pool is damaged ({reason}): go back to an earlier checkpoint")


def _event(
    candidate: Candidate,
    kind: Literal["proposed", "accepted", "rejected"],
    iteration: int,
    candidate_accuracy: float | None,
    reason: str,
) -> Event:
    return Event(
        kind=kind,
        iteration=iteration,
        task_id=candidate.task.id,
        instruction=candidate.task.instruction,
        direction=candidate.direction,
        parent_accuracy=candidate.parent_accuracy,
        candidate_accuracy=candidate_accuracy,
        reason=reason,
    )
