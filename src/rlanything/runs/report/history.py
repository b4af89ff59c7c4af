"""What the judge said of every episode, counted; an iteration never changes, and is read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlanything.evaluation.judge_exam import BAD, GOOD
from rlanything.runs.store import Store

OUTCOME_ACC = "Outcome Acc"

_EPISODES = """
WITH verdicts AS (
  SELECT t.number, s.label, t.outcome,
    (SELECT SUM(score) FROM judgements j
      WHERE j.trajectory = s.trajectory AND j.step = s.step) AS total
  FROM trajectories t JOIN steps s ON s.trajectory = t.number WHERE t.iteration = ?1),
counted AS (
  SELECT number, COUNT(total) AS judged, SUM(total * outcome > 0) AS agrees,
    SUM(total * outcome < 0) AS differs,
    SUM(total * outcome < 0 AND label <> 0) AS labelled,
    SUM(total * outcome < 0 AND label * total > 0) AS sided,
    SUM(total > 0) AS praised,
    SUM(label = 1 AND total IS NOT NULL) AS good, SUM(label = 1 AND total > 0) AS good_seen,
    SUM(label = -1 AND total IS NOT NULL) AS bad, SUM(label = -1 AND total < 0) AS bad_seen
  FROM verdicts GROUP BY number)
SELECT t.number, t.id, t.iteration, t.task, t.outcome, t.reward, t.steps,
  judged, agrees, differs, labelled, sided, praised, good, good_seen, bad, bad_seen
FROM trajectories t LEFT JOIN counted c ON c.number = t.number WHERE t.iteration = ?1
ORDER BY t.number
"""


@dataclass(frozen=True, slots=True)
class Episode:
    """A trajectory in numbers; all but the first seven count steps, by the judge's majority."""

    number: int
    """Its row in the store."""
    id: str
    iteration: int
    task: str
    outcome: int
    reward: float | None
    steps: int
    judged: int
    agrees: int
    """Where it says what the outcome says."""
    differs: int
    """Where it says the opposite; a majority of 0 does neither."""
    labelled: int
    """Those of `differs` on which the oracle has a word,"""
    sided: int
    """and where that is the judge's."""
    praised: int
    """Where it is +1."""
    good: int
    good_seen: int
    bad: int
    bad_seen: int

    @property
    def disagreement(self) -> float:
        """The share of its judged steps on which judge and outcome say the opposite."""
        return self.differs / self.judged if self.judged else 0.0


class History:
    """The episodes of a run, by iteration; reads each iteration once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[int, list[Episode]] = {}

    def episodes(self, iteration: int) -> list[Episode]:
        """In the order of the store."""
        if iteration not in self._read:
            self._read[iteration] = [
                Episode(*row[:7], *(count or 0 for count in row[7:]))
                for row in self._store.query(_EPISODES, iteration)
            ]
        return self._read[iteration]

    def counts(self, iteration: int) -> dict[str, dict[str, tuple[int, int]]]:
        """What the judge got right in the rollouts, by task and measure: hits and of how many."""
        groups: dict[str, list[Episode]] = defaultdict(list)
        for each in self.episodes(iteration):
            groups[each.task].append(each)
        return {task: _counts(members) for task, members in groups.items()}


def _counts(members: Sequence[Episode]) -> dict[str, tuple[int, int]]:
    found = {
        OUTCOME_ACC: (sum(e.agrees for e in members), sum(e.judged for e in members)),
        GOOD: (sum(e.good_seen for e in members), sum(e.good for e in members)),
        BAD: (sum(e.bad_seen for e in members), sum(e.bad for e in members)),
    }
    return {measure: counts for measure, counts in found.items() if counts[1]}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Judge against outcome, over some episodes; all but the first count steps."""

    episodes: int
    won_praised: int
    """Steps of won episodes that the judge's majority calls good,"""
    won_condemned: int
    won_undecided: int
    lost_praised: int
    lost_condemned: int
    lost_undecided: int
    labelled: int
    """Steps on which judge and outcome differ and the oracle has a word,"""
    sided: int
    """and where that is the judge's."""


def disagreement(episodes: Sequence[Episode]) -> Disagreement:
    """Counts over the episodes' steps."""
    rows: Mapping[int, list[int]] = {
        outcome: [
            sum(e.praised for e in episodes if e.outcome == outcome),
            sum(e.agrees + e.differs - e.praised for e in episodes if e.outcome == outcome),
            sum(e.judged - e.agrees - e.differs for e in episodes if e.outcome == outcome),
        ]
        for outcome in (1, -1)
    }
    sides = sum(e.labelled for e in episodes), sum(e.sided for e in episodes)
    return Disagreement(len(episodes), *rows[1], *rows[-1], *sides)
