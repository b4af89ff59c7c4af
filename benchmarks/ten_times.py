"""Growth, validity and drift of rewritten tasks in long runs: writes benchmarks/ten-times.md.

    python benchmarks/ten_times.py FOLDER [--page PAGE]

FOLDER: arms as `rlanything ablate` leaves them, `ARM/seed-N`. The stores are read, and accepted
tasks are played again: once by the expert, 16 times by the policy after training. The page's plan
is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
from few import mean_of_few
from scipy import optimize, signal, stats

from rlanything.evaluation.trends import trend
from rlanything.progress import Progress
from rlanything.records import Task
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything.runs.lineage import accepted_tasks
from rlanything.runs.results import Numbers
from rlanything.runs.store.store import Store
from rlanything.terminal import Terminal
from rlanything_lab.ablation.table import markdown
from rlanything_physics.catalogue import FAMILIES

Floats = npt.NDArray[np.float64]
OWN_PAGE = Path(__file__).with_name("ten-times.md")
PLAN = "## Fixed before the runs"
SPAN = 28
"""Iterations of the paper's runs, and between two evaluations here."""
ATTEMPTS = 16
SERIES = {"rollouts/success": "training success", "tasks/active_accuracy": "accuracy of the pool"}
SURROGATES = 2000
HELD_OUT = "evaluation/in_domain/success"


@dataclass(frozen=True)
class LongRun:
    """Metrics, tasks and events of one run, from its store."""

    folder: Path
    history: Mapping[int, Numbers]
    events: Sequence[tuple[int, str, str, str]]
    """Iteration, slot, kind and task of every event, in order."""
    tasks: Mapping[str, Floats]
    """Parameters of every task, each as a share of its range."""
    texts: Mapping[str, str]
    accepted: Sequence[Task]

    @property
    def iterations(self) -> int:
        return max(self.history)

    def count(self, kind: str, after: int, until: int) -> int:
        return sum(k == kind and after < i <= until for i, _, k, _ in self.events)

    def spans(self) -> list[tuple[int, int]]:
        return [(start, start + SPAN) for start in range(0, self.iterations, SPAN)]

    @cached_property
    def repeats(self) -> list[tuple[int, bool]]:
        """The iteration of each proposal, and whether its slot had proposed the same before."""
        seen: set[tuple[str, str]] = set()
        found: list[tuple[int, bool]] = []
        for iteration, slot, kind, task in self.events:
            if kind == "proposed":
                key = (slot, self.texts[task])
                found.append((iteration, key in seen))
                seen.add(key)
        return found

    def repeated(self, after: int, until: int) -> float:
        return fmean([again for i, again in self.repeats if after < i <= until] or [0.0])

    def drift(self, iteration: int) -> float:
        """Returns the mean distance between active and original tasks, over all slots."""
        active = {
            slot: task
            for i, slot, kind, task in self.events
            if kind == "accepted" and i <= iteration
        }
        roots = sum("@" not in task for task in self.tasks)
        moved = [distance(self.tasks[slot], self.tasks[task]) for slot, task in active.items()]
        return sum(moved) / roots

    def series(self, name: str) -> Floats:
        values = [self.history[i].get(name) for i in range(1, self.iterations + 1)]
        return np.array([value for value in values if value is not None], np.float64)


def read(folder: Path) -> LongRun:
    with closing(Store(folder / "run.sqlite")) as store:
        events = store.query(
            "SELECT iteration, slot, kind, task FROM slot_events ORDER BY iteration, slot, number"
        )
        rows = store.query("SELECT id, kind, data, instruction FROM tasks")
        return LongRun(
            folder,
            store.history(),
            [tuple(row) for row in events],
            {task: shares(kind, json.loads(data)) for task, kind, data, _ in rows},
            {task: text for task, _, _, text in rows},
            accepted_tasks(store),
        )


def shares(family: str, data: Mapping[str, Mapping[str, int]]) -> Floats:
    values = data["parameters"]
    return np.array(
        [(values[p.name] - p.least) / (p.most - p.least) for p in FAMILIES[family].parameters]
    )


def distance(one: Floats, other: Floats) -> float:
    """Returns the mean difference of two tasks' parameters, as a share of their ranges."""
    return float(np.abs(one - other).mean())


def told_apart(run: LongRun, rng: np.random.Generator) -> float:
    """Returns the cross-validated area under the curve with which a logistic regression on
    parameters and their squares tells accepted tasks from originals."""
    originals = [values for task, values in run.tasks.items() if "@" not in task]
    x = np.array([*originals, *(run.tasks[task.id] for task in run.accepted)])
    x = np.hstack([x, x**2, np.ones((len(x), 1))])
    y = np.arange(len(x)) >= len(originals)
    weight = np.where(y, 1 / y.sum(), 1 / (~y).sum())
    folds = rng.permutation(len(x)) % 5
    scores = np.empty(len(x))
    for fold in range(5):
        at = folds != fold

        def loss(w: Floats, at: npt.NDArray[np.bool_] = at) -> float:
            margin = (x[at] @ w) * np.where(y[at], 1, -1)
            return float((weight[at] * np.logaddexp(0, -margin)).sum() + 1e-2 * (w[:-1] ** 2).sum())

        scores[folds == fold] = x[folds == fold] @ optimize.minimize(loss, np.zeros(x.shape[1])).x
    return float(stats.mannwhitneyu(scores[y], scores[~y]).statistic / (y.sum() * (~y).sum()))


def strongest(series: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Returns the period of the strongest peak of a detrended series over the spectrum of an AR(1)
    process with its lag-1 correlation, and the share of such processes with as strong a peak."""
    x = signal.detrend(series)
    rho = float(np.corrcoef(x[:-1], x[1:])[0, 1])
    surrogates = rng.normal(size=(SURROGATES, len(x)))
    for t in range(1, len(x)):
        surrogates[:, t] += rho * surrogates[:, t - 1]
    surrogates = signal.detrend(surrogates, axis=1)
    power = np.abs(np.fft.rfft(np.vstack([x, surrogates]), axis=1))[:, 1:] ** 2
    power /= power.sum(axis=1, keepdims=True)
    peaks = power / power[1:].mean(axis=0)
    largest = peaks.max(axis=1)
    return len(x) / (int(peaks[0].argmax()) + 1), float((largest[1:] >= largest[0]).mean())


def said(values: Sequence[float], digits: int = 1) -> str:
    """Returns a mean over seeds, with Student's interval where there is one."""
    interval = mean_of_few(values)
    if interval is None:
        return f"{fmean(values):.{digits}f}"
    mean, low, high = (f"{x:.{digits}f}" for x in (interval.estimate, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def along(arms: Mapping[str, Sequence[LongRun]]) -> list[str]:
    """Returns the tables of what changes from span to span."""
    lines = ["## Over time", "", f"Means over seeds, by {SPAN} iterations.", ""]
    for arm, runs in arms.items():
        rows = []
        for after, until in runs[0].spans():
            proposed = [run.count("proposed", after, until) for run in runs]
            accepted = [run.count("accepted", after, until) for run in runs]
            held_out = [run.history[until].get(HELD_OUT) or 0.0 for run in runs]
            rows.append(
                [
                    f"{after + 1} to {until}",
                    f"{fmean(proposed):.0f}",
                    f"{fmean([run.repeated(after, until) for run in runs]):.0%}",
                    f"{fmean(accepted):.1f}",
                    f"{sum(accepted) / max(sum(proposed), 1):.0%}",
                    f"{100 * fmean([run.drift(until) for run in runs]):.1f}%",
                    f"{100 * fmean(held_out):.1f}%",
                ]
            )
        heads = ("iterations", "proposed", "repeats", "accepted", "acceptance", "drift at the end")
        lines += [f"### {arm}", "", *markdown([[*heads, "success in domain"], *rows]), ""]
    return lines


def decisions(arms: Mapping[str, Sequence[LongRun]]) -> list[str]:
    """Returns one row for each measure, with a column for each arm and for their difference."""
    rng = np.random.default_rng(0)
    half = SPAN * 5
    last = next(iter(arms.values()))[0].iterations

    def by_time(run: LongRun) -> float:
        return run.count("accepted", last - half, last) - run.count("accepted", 0, half)

    def pairs(run: LongRun) -> float:
        values = np.array([run.tasks[task.id] for task in run.accepted])
        return float(np.abs(values[:, None] - values[None]).mean()) * 100

    def moves(run: LongRun) -> float:
        return trend([run.drift(until) for _, until in run.spans()])

    def memory(run: LongRun) -> float:
        start, end = (run.history[i]["memory/peak"] or 0.0 for i in (SPAN, run.iterations))
        return 100 * (end / start - 1)

    def reports(run: LongRun) -> float:
        written = run.series("seconds/report")
        return float(written[-SPAN:].mean() / written[SPAN : 2 * SPAN].mean())

    measures: dict[str, tuple[Callable[[LongRun], float], int]] = {
        "accepted tasks": (lambda run: run.count("accepted", 0, run.iterations), 0),
        f"... of the last {half} iterations less the first {half}": (by_time, 0),
        "repeats, % of proposals": (lambda run: 100 * run.repeated(0, run.iterations), 1),
        "distinct accepted tasks, %": (
            lambda run: 100 * len({t.instruction for t in run.accepted}) / len(run.accepted),
            1,
        ),
        "distance of two accepted tasks, % of ranges": (pairs, 1),
        "drift of active tasks at the end, % of ranges": (
            lambda run: 100 * run.drift(run.iterations),
            1,
        ),
        "... its trend (Mann-Kendall, standard deviations)": (moves, 1),
        "accepted told from originals (area under the curve)": (
            lambda run: told_apart(run, rng),
            2,
        ),
        f"peak memory, iteration {last} over {SPAN}, %": (memory, 1),
        f"seconds for the report, last {SPAN} iterations over the second {SPAN}": (reports, 2),
    }
    rows = []
    for name, (measure, digits) in measures.items():
        values = [[measure(run) for run in runs] for runs in arms.values()]
        differences = [b - a for a, b in zip(values[0], values[-1], strict=True)]
        rows.append([name, *(said(v, digits) for v in values), said(differences, digits)])
    names = [*arms]
    heads = ["mean over seeds", *names, f"{names[-1]} less {names[0]}"]
    return ["## Measures", "", *markdown([heads, *rows]), ""]


def together(arms: Mapping[str, Sequence[LongRun]]) -> list[str]:
    """Returns how drift goes with held-out success, and the cycles of both series."""
    lines = ["## Drift and success", ""]
    for arm, runs in arms.items():
        moved: list[tuple[float, float]] = []
        for run in runs:
            values = [(run.drift(u), run.history[u].get(HELD_OUT) or 0.0) for _, u in run.spans()]
            moved += [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(values)]
        r = float(np.corrcoef(np.array(moved).T)[0, 1])
        half = 1.96 / (len(moved) - 3) ** 0.5  # of Fisher's z
        low, high = (float(np.tanh(np.arctanh(r) + side)) for side in (-half, half))
        lines.append(
            f"- {arm}: changes of drift and of success in domain correlate by "
            f"{r:.2f} [{low:.2f}, {high:.2f}] over {len(moved)} pairs."
        )
    lines += ["", "## Cycles", "", "The strongest period, in iterations, against AR(1) noise."]
    rows = [["arm", "series", "period, by seed", "p, by seed"]]
    rng = np.random.default_rng(1)
    for arm, runs in arms.items():
        for name, title in SERIES.items():
            found = [strongest(run.series(name), rng) for run in runs]
            periods = ", ".join(f"{period:.0f}" for period, _ in found)
            chances = ", ".join(f"{chance:.2f}" for _, chance in found)
            rows.append([arm, title, periods, chances])
    return [*lines, "", *markdown(rows), ""]


def attempts(run: LongRun, player: str, rollouts: int, progress: Progress) -> list[list[bool]]:
    """Returns which attempts at each accepted task a player wins."""
    args = EvalArgs(
        target=player,
        split=None,
        episodes=len(run.accepted),
        domain=None,
        max_steps=None,
        temperature=None,
        seed=0,
        workers=None,
        accepted_of=str(run.folder),
        rollouts=rollouts,
    )
    evaluation = run_eval(args, progress).evaluation
    by_task: dict[str, list[bool]] = {}
    for task, outcome in zip(evaluation.tasks, evaluation.outcomes, strict=True):
        by_task.setdefault(task, []).append(outcome == 1)
    return [*by_task.values()]


def validity(arms: Mapping[str, Sequence[LongRun]]) -> list[str]:
    """Returns what the expert and the policy after training win of the accepted tasks."""
    progress = Progress(Terminal(stderr=True))
    rows = []
    for arm, runs in arms.items():
        for run in runs:
            won = attempts(run, "expert", 1, progress)
            tried = attempts(run, str(run.folder), ATTEMPTS, progress)
            cells = [fmean(map(any, won)), fmean(map(fmean, tried)), fmean(map(any, tried))]
            many = str(len(run.accepted))
            rows.append([f"{arm}, {run.folder.name}", many, *(f"{c:.1%}" for c in cells)])
    heads = ("run", "accepted", "expert wins", "policy wins, of all attempts")
    return ["## Validity", "", *markdown([[*heads, f"... once in {ATTEMPTS}"], *rows]), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path, default=OWN_PAGE)
    args = parser.parse_args()
    arms = {
        arm.name: [read(store.parent) for store in sorted(arm.glob("seed-*/run.sqlite"))]
        for arm in sorted(args.folder.iterdir())
        if arm.is_dir()
    }
    _, mark, kept = args.page.read_text(encoding="utf-8").partition(PLAN)
    seeds = len(next(iter(arms.values())))
    lines = [
        "# Ten times as long: what becomes of rewritten tasks",
        "",
        f"`make ten-times`. {seeds} seeds; intervals are Student's, 95%, over seeds.",
        "",
        *decisions(arms),
        *validity(arms),
        *along(arms),
        *together(arms),
    ]
    args.page.write_text("\n".join([*lines, mark + kept]), encoding="utf-8")


if __name__ == "__main__":
    main()
