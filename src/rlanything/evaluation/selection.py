"""The gain of choosing among several attempts at a task; best-of-n takes the judge's favourite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlanything.algorithm.feedback import mean_score
from rlanything.domains.base import Domain
from rlanything.evaluation.intervals import Interval, mean_over_tasks, paired_difference
from rlanything.evaluation.success import widened
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import Judge
from rlanything.rollout.episodes import Agent
from rlanything.rollout.workers import EnvironmentPool


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice compared with a random attempt. All intervals are 95%, over tasks."""

    single: Interval
    """Success of a random attempt."""
    chosen: Interval
    """Success of the choice."""
    gain: Interval
    """`chosen` minus `single`, paired by task."""
    possible: float
    """Share of tasks that some attempt won: the upper bound of a choice without repairs."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The answers that models were asked for, over all tasks."""

    attempts: int
    """Responses of the policy before anything is chosen: N for each task."""
    judgements: int
    """Answers of the judge: scores, or the tests that it wrote."""
    repairs: int = 0
    """Programs that the policy wrote again because they failed a test."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of a test-time method over all tasks."""

    outcomes: dict[str, int]
    """Outcome of the chosen response, by task."""
    unplayable: list[str]
    """Tasks whose chosen response could not be played."""
    judgements: int
    """Answers that the judge gave besides the first ones."""
    repairs: int
    """Responses that the policy gave besides the attempts."""


class Selector(Protocol):
    """A test-time method that chooses or repairs one of several attempts at a task: a plug-in of
    the group `rlanything.selections`, by the name that `rlanything eval --select` knows."""

    def objection(self, domain: Domain, judge: Judge) -> str:
        """Returns what the method lacks here; "" if it can be used."""
        ...

    def choose(
        self,
        judged: Sequence[JudgedTrajectory],
        domain: Domain,
        agent: Agent,
        judge: Judge,
        environments: EnvironmentPool,
        parallel_episodes: int,
        seed: int,
    ) -> Choice:
        """Chooses from judged attempts, without reading outcomes, and plays what is new."""
        ...


def judgements_of(judged: Sequence[JudgedTrajectory]) -> int:
    """Returns the number of answers of the judge; a test that programs share counts once."""
    return len(
        {id(each.completion) for attempt in judged for step in attempt.judgements for each in step}
    )


def best_of_n(
    judged: Sequence[JudgedTrajectory], unplayable: Sequence[str] = ()
) -> Selection | None:
    """Takes from each task's attempts the one with the highest mean score, the first of equals;
    None without attempts. `unplayable`: as in `selection_of`."""
    groups: dict[str, list[JudgedTrajectory]] = defaultdict(list)
    for attempt in judged:
        groups[attempt.trajectory.task.id].append(attempt)
    best = {task: max(group, key=_preference) for task, group in groups.items()}
    chosen = {task: attempt.trajectory.outcome for task, attempt in best.items()}
    return selection_of([attempt.trajectory for attempt in judged], chosen, unplayable)


def selection_of(
    attempts: Sequence[Trajectory], chosen: Mapping[str, int], unplayable: Sequence[str] = ()
) -> Selection | None:
    """Returns the figures of a choice, from the attempts and the outcome of each task's choice;
    None without attempts.

    `unplayable`: the task of every attempt, or choice, that could not be played. They are left out,
    and the intervals cover both extremes: all of them chosen and lost, or chosen and won."""
    groups: dict[str, list[int]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.task.id].append(attempt.outcome)
    played = {task: group for task, group in groups.items() if task in chosen}
    if not played:
        return None
    measured = _selection(played, chosen)
    for fate in (-1, 1) if unplayable else ():
        whole = {task: list(group) for task, group in groups.items()}
        for task in unplayable:
            whole.setdefault(task, []).append(fate)
        end = _selection(whole, {**chosen, **dict.fromkeys(unplayable, fate)})
        measured = Selection(
            widened(measured.single, end.single),
            widened(measured.chosen, end.chosen),
            widened(measured.gain, end.gain),
            measured.possible,
        )
    return measured


def _selection(groups: Mapping[str, Sequence[int]], chosen: Mapping[str, int]) -> Selection:
    """Returns the figures from the outcomes of attempts and of the choice, by task."""
    shares = [group.count(1) / len(group) for group in groups.values()]
    taken = [chosen[task] == 1 for task in groups]
    single, gain = mean_over_tasks(shares), paired_difference(shares, taken)
    best = mean_over_tasks(taken)
    assert single is not None
    assert gain is not None
    assert best is not None
    return Selection(single, best, gain, sum(share > 0 for share in shares) / len(shares))


def _preference(judged: JudgedTrajectory) -> float:
    scores = [mean_score(step) for step in judged.scores]
    return sum(scores) / len(scores) if scores else 0.0
