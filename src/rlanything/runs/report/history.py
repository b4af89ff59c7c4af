"""Counts of judges' scores in every episode; iterations never change, so each is read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.runs.store.store import Store

_EPISODES = """
WITH verdicts AS (
  SELECT t.number, s.label, t.outcome,
    (SELECT SUM(score) FROM judgements j WHERE j.trajectory = s.trajectory AND j.step = s.step
      AND (?2 IS NULL OR j.role = ?2)) AS total
  FROM trajectories t JOIN steps s ON s.trajectory = t.number AND s.role = ?3
  WHERE t.iteration = ?1),
counted AS (
  SELECT number, COUNT(total) AS judged, SUM(total * outcome > 0) AS agrees,
    SUM(total * outcome < 0) AS differs,
    SUM(total * outcome < 0 AND label <> 0) AS labelled,
    SUM(total * outcome < 0 AND label * total > 0) AS sided,
    SUM(label = 1 AND total IS NOT NULL) AS good, SUM(label = 1 AND total > 0) AS good_seen,
    SUM(label = -1 AND total IS NOT NULL) AS bad, SUM(label = -1 AND total < 0) AS bad_seen
  FROM verdicts GROUP BY number)
SELECT t.number, t.id, t.iteration, t.task, t.outcome, t.reward, t.steps,
  judged, agrees, differs, labelled, sided, good, good_seen, bad, bad_seen
FROM trajectories t LEFT JOIN counted c ON c.number = t.number WHERE t.iteration = ?1
ORDER BY t.number
"""


@dataclass(frozen=True, slots=True)
class Episode:
    """A trajectory in numbers; all fields after the first seven count steps, by the majority of
    scores."""

    number: int
    """Row number in the store."""
    id: str
    iteration: int
    task: str
    outcome: int
    reward: float | None
    steps: int
    judged: int
    agrees: int
    """Number of steps on which the majority agrees with the outcome."""
    differs: int
    """Number of steps on which the majority contradicts the outcome; a majority of 0 counts in
    neither."""
    labelled: int
    """Number of steps in `differs` that the oracle labels."""
    sided: int
    """Number of steps in `labelled` on which the oracle agrees with the judge."""
    good: int
    good_seen: int
    bad: int
    bad_seen: int

    @property
    def disagreement(self) -> float:
        """Share of its judged steps on which judge and outcome contradict each other."""
        return self.differs / self.judged if self.judged else 0.0


class History:
    """The episodes of a run, by iteration; reads each iteration once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._acting = store.acting
        self._several = list(store.roles().values()).count("scores") > 1
        self._read: dict[tuple[int, str | None], list[Episode]] = {}

    def episodes(self, iteration: int, judge: str | None = None) -> list[Episode]:
        """Returns an iteration's episodes in the order of the store, with counts of one judge's
        scores, or (None) of all judges together."""
        judge = judge if self._several else None
        if (iteration, judge) not in self._read:
            self._read[iteration, judge] = [
                Episode(*row[:7], *(count or 0 for count in row[7:]))
                for row in self.store.query(_EPISODES, iteration, judge, self._acting)
            ]
        return self._read[iteration, judge]

    def counts(self, iteration: int, judge: str) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns a judge's counts in the rollouts, by task and measure: hits and total."""
        groups: dict[str, list[Episode]] = defaultdict(list)
        for episode in self.episodes(iteration, judge):
            groups[episode.task].append(episode)
        return {task: _counts(members) for task, members in groups.items()}


def _counts(members: Sequence[Episode]) -> dict[str, tuple[int, int]]:
    counts = {
        AGREEING: (sum(e.agrees for e in members), sum(e.judged for e in members)),
        GOOD: (sum(e.good_seen for e in members), sum(e.good for e in members)),
        BAD: (sum(e.bad_seen for e in members), sum(e.bad for e in members)),
    }
    return {measure: (hits, total) for measure, (hits, total) in counts.items() if total}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Judge against outcome over some episodes; all fields after the first count steps."""

    episodes: int
    won_approved: int
    """Steps of won episodes that the judge's majority scores as good."""
    won_rejected: int
    won_undecided: int
    lost_approved: int
    lost_rejected: int
    lost_undecided: int
    labelled: int
    """Steps on which judge and outcome differ and that the oracle labels."""
    sided: int
    """Steps in `labelled` on which the oracle agrees with the judge."""


def disagreement(episodes: Sequence[Episode]) -> Disagreement:
    """Counts disagreements over the episodes' steps."""
    won, lost = ([e for e in episodes if e.outcome == outcome] for outcome in (1, -1))
    return Disagreement(
        episodes=len(episodes),
        won_approved=sum(e.agrees for e in won),
        won_rejected=sum(e.differs for e in won),
        won_undecided=sum(e.judged - e.agrees - e.differs for e in won),
        lost_approved=sum(e.differs for e in lost),
        lost_rejected=sum(e.agrees for e in lost),
        lost_undecided=sum(e.judged - e.agrees - e.differs for e in lost),
        labelled=sum(e.labelled for e in episodes),
        sided=sum(e.sided for e in episodes),
    )
