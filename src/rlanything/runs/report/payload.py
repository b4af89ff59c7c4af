"""The contents of a page: the facts of its runs, their lineage and episodes, within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from rlanything.evaluation.intervals import Interval
from rlanything.runs.lineage import read_lineage
from rlanything.runs.metrics.measuring import find_metric
from rlanything.runs.report.episode_index import Pages, Rewards, index_episodes
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.pointing import Units, pointer_size
from rlanything.runs.report.sampling import Shown, choose, reasons, size_of
from rlanything.runs.summary import paired

TEXT_BYTES = 2_600_000
"""Budget for the compressed texts of all runs on a page, in bytes. Base64 adds a third; with
lineage, images and the page itself a file stays below 5 MB."""
IMAGES_BYTES = 500_000
LINEAGES = 1500
"""Largest number of slots shown with their history; slots with an accepted candidate come first."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Facts in JSON form, and the pages they refer to."""

    facts: dict[str, Any]
    pages: Pages


def build(readers: Sequence[Reader]) -> Payload:
    """Builds the contents of one run's page, or of a comparison of several runs, which share the
    budget evenly."""
    pages = Pages(image_budget=IMAGES_BYTES)
    runs = [_run(reader, TEXT_BYTES // len(readers), pages) for reader in readers]
    meanings = _meanings({name for run in runs for name in run["metrics"]})
    facts = {"runs": runs, "against": _against_first(readers), "meanings": meanings}
    return Payload(facts, pages)


def _meanings(names: Iterable[str]) -> dict[str, str]:
    """Returns the meaning and unit of each metric, except those of missing plug-ins."""
    meanings: dict[str, str] = {}
    for name in names:
        with suppress(KeyError):
            metric = find_metric(name)
            meanings[name] = f"{metric.meaning} ({metric.unit})"
    return meanings


def _run(reader: Reader, budget: int, pages: Pages) -> dict[str, Any]:
    with reader.store.understanding():
        recipe = reader.recipe()
        feedback, roles = recipe.get("feedback", {}), recipe.get("roles", {})
        weights = {name: role["weight"] for name, role in roles.items() if "weight" in role}
        lambdas = {
            i: {name: value for name in weights if (value := row.get(f"{name}/lambda")) is not None}
            for i, row in reader.store.history().items()
        }
        # Scores of judges of value are no part of R_i, and others do not mix with them.
        graded = any(r.get("does") == "scores" and r.get("name") == "value" for r in roles.values())
        rewards = Rewards(
            0.0 if graded else feedback.get("policy_lambda", 1.0),
            feedback.get("policy_reward", "integrated"),
            feedback.get("unreadable", "missing"),
            weights,
            {iteration: own for iteration, own in lambdas.items() if own},
        )
        facts = asdict(reader.facts())
    changed = [slot for slot in read_lineage(reader.store) if slot["history"]]
    changed.sort(key=lambda slot: (-_accepted(slot), -slot["history"][-1]["iteration"]))
    lineage = pages.add([_without_data(slot) for slot in changed[:LINEAGES]])
    units = {label: pointer_size(name) for label, name in reader.domains().items()}
    shown = _fitting(reader, rewards, budget, units)
    return {
        **facts,
        "rewards": asdict(rewards),
        "lineage": lineage,
        "lineage_shown": len(changed[:LINEAGES]),
        "lineage_total": len(changed),
        "shown": len(shown),
        "reasons": reasons(shown),
        "index": index_episodes(reader.store, reader.directory, shown, rewards, pages, units),
    }


def _without_data(slot: dict[str, Any]) -> dict[str, Any]:
    """Returns a slot for the page without its tasks' data, which may be long."""
    events = [{key: event[key] for key in event if key != "data"} for event in slot["history"]]
    shown = {key: slot[key] for key in slot if key not in ("root_data", "data")}
    return {**shown, "history": events}


def _fitting(reader: Reader, rewards: Rewards, budget: int, units: Units) -> tuple[Shown, ...]:
    """Returns episodes that take about `budget` bytes in the page.

    On a page the episodes of a group are compressed together, better than in the store; the ratio
    is estimated from a tenth of the budget."""
    store, iterations = reader.store, reader.iterations()
    few = choose(store, reader.history, iterations, budget / 10)
    trial = Pages(image_budget=0)
    index_episodes(store, reader.directory, few, rewards, trial, units)
    as_stored = sum(size_of(store, shown.episode) for shown in few)
    as_packed = sum(map(len, trial.chunks))
    scale = max(1.0, as_stored / as_packed) if as_packed else 1.0
    return choose(store, reader.history, iterations, budget * scale)


def _accepted(slot: dict[str, Any]) -> int:
    return sum(event["event"] == "accepted" for event in slot["history"])


def _against_first(readers: Sequence[Reader]) -> list[list[dict[str, Any]]]:
    """Returns for each further run, by split, the latest evaluation's success minus the first
    run's, over the held-out tasks that both played."""
    latest = [_latest(reader) for reader in readers]
    comparisons: list[list[dict[str, Any]]] = []
    for other in latest[1:]:
        changes: list[tuple[str, Interval | None]] = [
            (split, paired(latest[0][split], other[split])) for split in latest[0] if split in other
        ]
        comparisons.append([{"split": s, "change": asdict(c)} for s, c in changes if c is not None])
    return comparisons


def _latest(reader: Reader) -> dict[str, list[tuple[str, int]]]:
    store, evaluated_iterations = reader.store, reader.store.evaluated_iterations()
    if not evaluated_iterations:
        return {}
    splits = store.query("SELECT DISTINCT split FROM evaluations ORDER BY 1")
    return {split: store.outcomes(evaluated_iterations[-1], split) for (split,) in splits}
