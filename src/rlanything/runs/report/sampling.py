"""Deterministic selection of episodes for a report that cannot show all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rlanything.runs.report.history import Episode, History
from rlanything.runs.store.store import Store

ITERATIONS = 24
"""Largest number of iterations that episodes are taken from, so that a long run's report takes no
longer than a short one's: the first, the latest third of this number, and others evenly between."""
ENTRY_BYTES = 220
"""Upper bound of an episode's compressed bytes besides its texts: scores, advantages, actions."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An episode that the report shows, and the reason."""

    episode: Episode
    reason: str
    """`latest`, `first`, `disagreement`, `rewritten` or `spread`."""


def choose(
    store: Store, history: History, iterations: Sequence[int], budget: float
) -> tuple[Shown, ...]:
    """Returns episodes whose texts are still there, up to `budget` bytes as the store keeps them:
    in turn one from the latest iteration, from the first, from those where judge and outcome differ
    most, from rewritten tasks, and from all, spread evenly. In the order of the store."""
    looked_at = spread(iterations, ITERATIONS)
    sizes = {
        number: length + ENTRY_BYTES
        for t in looked_at
        for number, length in store.query(
            "SELECT trajectory, LENGTH(texts) FROM transcripts JOIN trajectories"
            " ON number = trajectory WHERE iteration = ?",
            t,
        )
    }
    by_iteration = {
        t: kept
        for t in looked_at
        if (kept := [e for e in history.episodes(t) if e.number in sizes])
    }
    rewritten = {
        task for (task,) in store.query("SELECT DISTINCT task FROM groups WHERE task <> slot")
    }
    taken: dict[int, Shown] = {}
    spent = 0
    for shown in _alternately(_queues(by_iteration, rewritten)):
        number = shown.episode.number
        if number in taken or spent + sizes[number] > budget:
            continue
        taken[number] = shown
        spent += sizes[number]
    return tuple(taken[number] for number in sorted(taken))


def size_of(store: Store, episode: Episode) -> int:
    """Returns the bytes that `choose` counts for an episode."""
    query = "SELECT LENGTH(texts) FROM transcripts WHERE trajectory = ?"
    return store.query(query, episode.number)[0][0] + ENTRY_BYTES


def spread(iterations: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` iterations: the first, the latest third of `count`, others evenly
    between."""
    if len(iterations) <= count:
        return list(iterations)
    latest = count // 3
    early = iterations[:-latest]
    places = count - latest
    chosen = {early[i * (len(early) - 1) // (places - 1)] for i in range(places)}
    return [*sorted(chosen), *iterations[-latest:]]


def _queues(
    by_iteration: Mapping[int, Sequence[Episode]], rewritten: Collection[str]
) -> dict[str, list[Episode]]:
    if not by_iteration:
        return {}
    order = sorted(by_iteration)
    every = [each for t in order for each in by_iteration[t]]
    by_attempt = {t: _task_by_task(by_iteration[t]) for t in order}
    return {
        "latest": by_attempt[order[-1]],
        "first": by_attempt[order[0]],
        "disagreement": sorted(
            (e for e in every if e.differs), key=lambda e: (-e.disagreement, -e.number)
        ),
        "rewritten": [e for t in reversed(order) for e in by_attempt[t] if e.task in rewritten],
        "spread": _interleaved(by_attempt.values()),
    }


def _task_by_task(episodes: Iterable[Episode]) -> list[Episode]:
    """Returns the first attempt at every task, then the second at each, and so on."""
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[episode.task].append(episode)
    return _interleaved(groups.values())


def _interleaved(rows: Iterable[Sequence[Episode]]) -> list[Episode]:
    return [each for column in zip_longest(*rows) for each in column if each is not None]


def _alternately(queues: Mapping[str, Sequence[Episode]]) -> Iterable[Shown]:
    for column in zip_longest(*queues.values()):
        for reason, episode in zip(queues, column, strict=True):
            if episode is not None:
                yield Shown(episode, reason)


def reasons(shown: Sequence[Shown]) -> dict[str, int]:
    """Returns the number of episodes shown for each reason."""
    return dict(Counter(each.reason for each in shown))
