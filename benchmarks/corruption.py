"""Warnings, judges and theorems in runs whose judge was shown corrupted steps: writes
benchmarks/corruption-signals.md.

    python benchmarks/corruption.py ARM [ARM ...] [--out PAGE]

ARM: a folder of runs of one arm, `seed-0`, `seed-1` and so on, as `rlanything ablate` leaves them;
the first is the one without corruption. Reads only their stores.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean

from few import mean_of_few

from rlanything.runs.results import Numbers
from rlanything.runs.store.store import Store
from rlanything.runs.warnings import Warned, find_warnings

OWN_PAGE = Path(__file__).with_name("corruption-signals.md")
SPAN = 5
"""Iterations at the beginning and at the end that are averaged."""
MEASURES = {
    "balanced_process_accuracy": "balanced Process Acc",
    "p_plus": "p+",
    "p_minus": "p-",
    "mu": "mu",
    "weight_ratio": "weight ratio",
}

HELD_OUT = {
    "evaluation/in_domain/success": "success in domain",
    "evaluation/judge/balanced_process_accuracy": "judge, balanced Process Acc",
    "evaluation/judge/outcome_accuracy": "judge, Outcome Acc",
}


def measured(run: Path) -> tuple[Mapping[int, Numbers], list[Warned]]:
    """Returns a run's metrics by iteration, and its warnings."""
    with closing(Store(run / "run.sqlite")) as store:
        history = store.history()
        return history, find_warnings(history, store.roles())


def over_time(history: Mapping[int, Numbers], name: str) -> tuple[float, float] | None:
    """Returns the mean of a metric in the first and in the last iterations."""
    values = [
        value
        for iteration in sorted(history)
        if iteration and isinstance(value := history[iteration].get(name), (int, float))
    ]
    return (fmean(values[:SPAN]), fmean(values[-SPAN:])) if len(values) >= 2 * SPAN else None


def first_fall(history: Mapping[int, Numbers]) -> int | None:
    """Returns the first evaluation after which held-out success is never again above the one before
    training; None without."""
    name = "evaluation/in_domain/success"
    known = {i: value for i in sorted(history) if (value := history[i].get(name)) is not None}
    start = known.pop(0)
    above = [i for i, value in known.items() if value > start]
    return next((i for i in known if i > max(above, default=0)), None)


def page(arms: Sequence[Path], command: str) -> str:
    heads = ["arm", "seeds", *(f"{said}, first -> last" for said in MEASURES.values())]
    lines = [
        "# Corrupted steps: the judge on its own rollouts, and the warnings",
        "",
        f"`{command}`. Means over the first and the last {SPAN} iterations and over seeds; labels "
        "are those of the true steps.",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
    ]
    warned = ["", "## Warnings", "", "| arm | warning | runs | first iteration, by run |"]
    warned += ["|---|---|---|---|"]
    falls: list[str] = []
    for arm in arms:
        runs = [measured(store.parent) for store in sorted(arm.glob("seed-*/run.sqlite"))]
        cells = [arm.name, str(len(runs))]
        for name in MEASURES:
            pairs = [pair for history, _ in runs if (pair := over_time(history, f"judge/{name}"))]
            cells.append(change(pairs))
        lines.append(f"| {' | '.join(cells)} |")
        by_name: dict[str, list[int]] = {}
        for _, warnings in runs:
            for each in warnings:
                by_name.setdefault(each.name, []).append(each.iteration)
        for name, iterations in sorted(by_name.items(), key=lambda item: min(item[1])):
            said = ", ".join(map(str, sorted(iterations)))
            warned.append(f"| {arm.name} | {name} | {len(iterations)} of {len(runs)} | {said} |")
        if not by_name:
            warned.append(f"| {arm.name} | none | | |")
        fell = [i for history, _ in runs if (i := first_fall(history)) is not None]
        falls.append(f"- {arm.name}: held-out success fell for good in {len(fell)} of {len(runs)}.")
    against = ["", f"## Against {arms[0].name}", ""]
    against += [
        "After the last iteration, points, paired by seed, with Student's 95% interval.",
        "",
    ]
    return "\n".join([*lines, *against, *against_first(arms), *warned, "", *falls]) + "\n"


def against_first(arms: Sequence[Path]) -> list[str]:
    """Returns a table of what the last evaluation of each arm differs by from the first arm's, run
    by run."""
    heads = ("arm", *HELD_OUT.values())
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    control, *others = (last_evaluations(arm) for arm in arms)
    for arm, own in zip(arms[1:], others, strict=True):
        cells = [arm.name]
        for name in HELD_OUT:
            both = own.keys() & control
            differences = [100 * (own[run][name] - control[run][name]) for run in both]
            mean = mean_of_few(differences)
            cells.append(
                f"{mean.estimate:+.1f} [{mean.low:+.1f}, {mean.high:+.1f}]" if mean else "-"
            )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def last_evaluations(arm: Path) -> dict[str, dict[str, float]]:
    """Returns the last value of each held-out measure, by run."""
    found: dict[str, dict[str, float]] = {}
    for store in sorted(arm.glob("seed-*/run.sqlite")):
        history, _ = measured(store.parent)
        rows = [history[i] for i in sorted(history)]
        found[store.parent.name] = {
            name: [value for row in rows if (value := row.get(name)) is not None][-1]
            for name in HELD_OUT
        }
    return found


def change(pairs: Sequence[tuple[float, float]]) -> str:
    """Returns the mean of the first and of the last values, with the interval of the change."""
    if not pairs:
        return "-"
    first, last = (fmean(each) for each in zip(*pairs, strict=True))
    moved = mean_of_few([last - first for first, last in pairs])
    interval = f" ({moved.estimate:+.2f} [{moved.low:+.2f}, {moved.high:+.2f}])" if moved else ""
    return f"{first:.2f} -> {last:.2f}{interval}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the page of judges and warnings.")
    parser.add_argument("arms", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=OWN_PAGE)
    given = parser.parse_args()
    if empty := [arm for arm in given.arms if not any(arm.glob("seed-*/run.sqlite"))]:
        parser.error(f"{empty[0]} holds no run: name folders that `rlanything ablate` has written")
    command = f"python benchmarks/corruption.py {' '.join(map(str, given.arms))}"
    given.out.write_text(page(given.arms, command), encoding="utf-8")
    print(given.out)


if __name__ == "__main__":
    main()
