"""The facts of a report: everything about a run except texts, read from the store once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rlanything.config.worlds import domains_by_label
from rlanything.runs.directory import find_holder
from rlanything.runs.report.curves import Curve, Curves
from rlanything.runs.report.history import Disagreement, History, disagreement
from rlanything.runs.results import Numbers
from rlanything.runs.store.store import Store
from rlanything.runs.summary import (
    Gain,
    first_and_last,
    judge_fault,
    judge_gains,
    policy_gains,
    positive_rate,
)
from rlanything.runs.warnings import Warned, find_warnings


@dataclass(frozen=True, slots=True)
class Verdict:
    """A measure before and after, with an explanation in words."""

    gain: Gain
    verdict: str

    @classmethod
    def of(cls, gain: Gain, alone: bool) -> Self:
        """Returns the verdict; `alone`: there is only one evaluation, so nothing to compare
        with."""
        gain = replace(gain, change=None) if alone else gain
        return cls(gain, gain.verdict)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Counts of the tasks of a run by their state."""

    slots: int
    rewritten: int
    """Number of slots whose active task is a rewritten one."""
    proposed: int
    accepted: int
    rejected: int
    pending: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Disagreements:
    """A judge compared with the outcomes, in the rollouts of an iteration."""

    iteration: int
    counts: Disagreement


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """Measurements of the role that acts."""

    name: str
    verdicts: tuple[Verdict, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class JudgeFacts:
    """Measurements of a role that scores."""

    name: str
    verdicts: tuple[Verdict, ...]
    curves: tuple[Curve, ...]
    positive_rate: tuple[float | None, float | None]
    """Share of steps that it scores as good, at the first and the latest evaluation."""
    fault: str
    """Reason why it does not discriminate at the latest evaluation; "" if it does."""
    disagreements: tuple[Disagreements, ...]
    """Disagreements in the first and in the latest iteration."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A run up to now."""

    name: str
    directory: str
    version: str
    domain: str
    begun: str | None
    updated: str | None
    """Time at which the last iteration was kept."""
    state: str
    """`finished`, `running` or `stopped`."""
    iterations: int
    """Number of iterations kept."""
    planned: int | None
    evaluated_iterations: tuple[int, ...]
    """Iterations after which policy and judge were evaluated."""
    roles: tuple[str, ...]
    policy: PolicyFacts
    judges: tuple[JudgeFacts, ...]
    tasks: TaskCounts
    metric_iterations: tuple[int, ...]
    metrics: Mapping[str, Sequence[float | None]]
    """Metrics by name, one value for each of `metric_iterations`."""
    warnings: tuple[Warned, ...]
    episodes: int
    """Number of episodes played in training, shown or not."""
    forgotten: int
    """Number of those episodes whose texts were deleted."""


class Reader:
    """Reads a run's facts; later reads only fetch new data."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store, self.directory = store, directory
        self.history = History(store)
        self._curves = Curves(store, self.history)
        self._kept: list[tuple[Any, ...]] = []
        """Iterations at the last read, with the times at which they were kept."""

    def reopen(self, store: Store) -> None:
        """Reads from another connection to the same run from now on, and only new data."""
        self.store = self.history.store = self._curves.store = store

    def iterations(self) -> list[int]:
        """Returns the iterations that are kept; forgets what was read if some were repeated since,
        after the loss of a seat."""
        kept = self.store.query("SELECT iteration, finished FROM iterations ORDER BY 1")
        if kept[: len(self._kept)] != self._kept:
            self.history = History(self.store)
            self._curves = Curves(self.store, self.history)
        self._kept = kept
        return [iteration for iteration, _ in kept]

    def described(self) -> dict[str, str]:
        return dict(self.store.query("SELECT key, value FROM run"))

    def recipe(self) -> dict[str, Any]:
        return json.loads(self.described().get("recipe", "{}"))

    def domains(self) -> dict[str, str]:
        """The names of the run's domains, by world."""
        domain = self.recipe().get("domain", {})
        return domains_by_label(domain.get("name", ""), domain.get("options", {}))

    def facts(self) -> Facts:
        store, described, recipe = self.store, self.described(), self.recipe()
        iterations, evaluated_iterations = self.iterations(), store.evaluated_iterations()
        planned = recipe.get("loop", {}).get("iterations")
        splits = [s for (s,) in store.query("SELECT DISTINCT split FROM evaluations ORDER BY 1")]
        alone = len(evaluated_iterations) == 1
        history = store.history()
        before, after = (history.get(t, {}) for t in first_and_last(store) or (0, 0))
        roles = store.roles()
        episodes, kept = (
            store.query(f"SELECT COUNT(*) FROM {table}")[0][0]
            for table in ("trajectories", "transcripts")
        )
        names = sorted({name for metrics in history.values() for name in metrics})
        return Facts(
            name=recipe.get("name", self.directory.name),
            directory=str(self.directory),
            version=described.get("version", ""),
            domain=" + ".join(self.domains().values()),
            begun=described.get("begun"),
            updated=next(
                (
                    when
                    for (when,) in store.query(
                        "SELECT finished FROM iterations ORDER BY iteration DESC LIMIT 1"
                    )
                ),
                None,
            ),
            state=self._state(described, len(iterations), planned),
            iterations=iterations[-1] if iterations else 0,
            planned=planned,
            evaluated_iterations=tuple(evaluated_iterations),
            roles=tuple(roles),
            policy=PolicyFacts(
                name=store.acting,
                verdicts=tuple(Verdict.of(gain, alone) for gain in policy_gains(store, splits)),
                curves=tuple(self._curves.policy(splits, iterations)),
            ),
            judges=tuple(
                self._judge(name, alone, before, after, iterations)
                for name, does in roles.items()
                if does == "scores"
            ),
            tasks=self._tasks(),
            metric_iterations=tuple(sorted(history)),
            metrics={name: [history[t].get(name) for t in sorted(history)] for name in names},
            warnings=tuple(find_warnings(history, roles)),
            episodes=episodes,
            forgotten=episodes - kept,
        )

    def _judge(
        self,
        name: str,
        alone: bool,
        before: Numbers,
        after: Numbers,
        iterations: Sequence[int],
    ) -> JudgeFacts:
        ends = dict.fromkeys((*iterations[:1], *iterations[-1:]))
        return JudgeFacts(
            name=name,
            verdicts=tuple(Verdict.of(gain, alone) for gain in judge_gains(self.store, name)),
            curves=tuple(self._curves.judge(name, iterations)),
            positive_rate=(positive_rate(before, name), positive_rate(after, name)),
            fault=judge_fault(after, name),
            disagreements=tuple(
                Disagreements(t, disagreement(self.history.episodes(t, name))) for t in ends
            ),
        )

    def _state(self, described: Mapping[str, str], iterations: int, planned: int | None) -> str:
        holder = find_holder(self.directory)
        if "finished" in described and (planned is None or iterations >= planned):
            return "finished"
        return "running" if holder is not None and holder.at_work else "stopped"

    def _tasks(self) -> TaskCounts:
        query = self.store.query
        events = Counter(dict(query("SELECT kind, COUNT(*) FROM slot_events GROUP BY kind")))
        slots, rewritten, pending = query(
            "SELECT COUNT(*), COALESCE(SUM(active <> slot), 0), COUNT(pending) FROM slots"
        )[0]
        return TaskCounts(
            slots=slots,
            rewritten=rewritten,
            proposed=events["proposed"],
            accepted=events["accepted"],
            rejected=events["rejected"],
            pending=pending,
            quarantined=query("SELECT COUNT(*) FROM quarantine")[0][0],
        )
