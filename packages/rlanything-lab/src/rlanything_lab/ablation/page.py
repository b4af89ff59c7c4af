"""A Markdown page with the results and how they were measured, and the curves as CSV.

The command writes both: there is nothing to fill in by hand.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from rlanything.runs.store.store import Store
from rlanything.version import __version__
from rlanything_lab.ablation.arms import Arm
from rlanything_lab.ablation.curves import curve_names, mean_curve, write_curves
from rlanything_lab.ablation.grid import Cell
from rlanything_lab.ablation.results import Results
from rlanything_lab.ablation.table import difference_lines, gain_lines, markdown, value_lines

SECTION = "\n## "


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of a grid."""

    command: str
    seconds: float
    """Total seconds of all processes, including interrupted ones."""
    parallel: int


def write_page(
    path: Path,
    results: Results,
    arms: Sequence[Arm],
    cells: Sequence[Cell],
    stores: Mapping[tuple[str, str], Store],
    how: Circumstances,
    figure: Path | None = None,
) -> Path:
    """Writes the page, and the curves next to it as CSV; returns the path of the curves. `stores`:
    by arm and seed; `figure`: shown on the page. The page keeps its `sections_of`."""
    curves = path.with_suffix(".csv")
    splits = cells[0].recipe.splits
    write_curves(curves, stores, ["arm", "seed"], splits)
    lines = _lines(results, arms, cells, how)
    if figure is not None:
        lines += ["", f"![Gains and curves of every arm]({_beside(path, figure)})"]
    lines += _along(arms, stores, splits)
    lines += ["", f"Every iteration of every run: [{curves.name}]({curves.name}).", ""]
    path.write_text("\n".join(lines) + sections_of(path), encoding="utf-8")
    return curves


def sections_of(path: Path) -> str:
    """Returns a page from its first heading of the second level on, such as a plan fixed before the
    runs, or sections that other benchmarks added; empty without one. Pages of runs write none."""
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, heading, rest = page.partition(SECTION)
    return heading + rest


def _beside(page: Path, figure: Path) -> str:
    """Returns the path of a file relative to the page's folder."""
    return Path(os.path.relpath(figure, page.parent)).as_posix()


def _lines(
    results: Results, arms: Sequence[Arm], cells: Sequence[Cell], how: Circumstances
) -> list[str]:
    recipe = cells[0].recipe
    seeds = sorted({cell.seed for cell in cells})
    threads = recipe.threads or os.cpu_count()
    lines = [
        f"# {recipe.name}, arm by arm",
        "",
        f"`{how.command}`, rlanything {__version__}, python {platform.python_version()}, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, {platform.machine()}, "
        f"{os.cpu_count()} cores, {how.parallel} runs at once of {threads} thread(s) each. "
        f"{len(cells)} runs took {how.seconds / 3600:.1f} hours together, evaluation included.",
        "",
        f"Seeds {seeds[0]} to {seeds[-1]}: all arms of a seed begin with the same models, train on "
        "the same task pool, and are measured on the same held-out tasks "
        f"({recipe.evaluation.episodes} of each split) and the same recorded episodes "
        f"({recipe.evaluation.judged_episodes}, of the policy before training, for the judge).",
        "",
        "Intervals are 95%, over held-out tasks (for the judge's columns: the tasks of its "
        "evaluation) and over seeds: both variances are measured, and the quantile is "
        "Student's with the degrees of freedom of this number of seeds. Differences are paired, "
        "the same seeds on the same tasks.",
        "",
        *markdown(value_lines(results)),
        "",
        "Paired differences:",
        "",
        *markdown(difference_lines(results)),
        "",
        "Against the models before optimization, paired:",
        "",
        *markdown(gain_lines(results)),
    ]
    if results.begins_apart:
        lines += [
            "",
            f"Did not begin with the models of the first row: {', '.join(results.begins_apart)}; "
            "their gains are against their own.",
        ]
    lines += ["", "What each arm overrides in the recipe:", ""]
    return lines + [
        f"- {arm.name}: `{' '.join(arm.overrides)}`"
        + (f", the judge that {arm.judge_of} trained" if arm.judge_of else "")
        for arm in arms
    ]


def _along(
    arms: Sequence[Arm], stores: Mapping[tuple[str, str], Store], splits: Sequence[str]
) -> list[str]:
    """Returns the means over seeds of the evaluations during training, if there were any."""
    names = [name for name in curve_names(splits) if name.startswith("evaluation/")]
    rows: list[list[str]] = []
    for arm in arms:
        own = [store for (name, _), store in stores.items() if name == arm.name]
        curves = [mean_curve(own, name) for name in names]
        for iteration in sorted(set[int]().union(*curves)):
            values = [curve.get(iteration) for curve in curves]
            cells = ["-" if value is None else f"{value:.1%}" for value in values]
            rows.append([arm.name, str(iteration), *cells])
    if len(rows) <= 2 * len(arms):
        return []
    kept = [i for i in range(len(names)) if any(row[2 + i] != "-" for row in rows)]
    heads = ["", "iteration", *(names[i].removeprefix("evaluation/") for i in kept)]
    shown = [[*row[:2], *(row[2 + i] for i in kept)] for row in rows]
    return ["", "During training, means over seeds:", "", *markdown([heads, *shown])]
