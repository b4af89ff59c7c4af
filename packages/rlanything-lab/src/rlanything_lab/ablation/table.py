"""The table of an ablation, for a terminal and for a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from rlanything.evaluation.intervals import Interval
from rlanything.runs.summary import percent, points
from rlanything_lab.ablation.results import Results

Lines = list[list[str]]
"""Cells, a list for each row; the first row has the headings."""


def value_lines(results: Results) -> Lines:
    """Returns a row for each arm, in the form of the paper's Table 1."""
    lines = [["", "seeds", *results.measures]]
    for row in results.rows:
        values = [percent(row.values[m]) if row.values[m] else "-" for m in results.measures]
        lines.append([row.name, str(len(row.seeds)), *values])
    return lines


def difference_lines(results: Results) -> Lines:
    """Returns each arm's difference to its comparison arm, in points."""
    rows = [
        [row.name, row.against or "", *_points(row.differences, results.measures)]
        for row in results.rows
        if row.differences is not None
    ]
    return [["", "compared with", *results.measures], *rows]


def gain_lines(results: Results) -> Lines:
    """Returns each arm's gain over its own models before training, in points."""
    rows = [
        [row.name, *_points(row.gains, results.measures)]
        for row in results.rows
        if row.gains is not None
    ]
    return [["", *results.measures], *rows]


def _points(changes: Mapping[str, Interval | None], measures: Sequence[str]) -> list[str]:
    return [points(change) if (change := changes[m]) is not None else "-" for m in measures]


def markdown(lines: Lines) -> list[str]:
    return [
        f"| {' | '.join(lines[0])} |",
        "|---" * len(lines[0]) + "|",
        *(f"| {' | '.join(cells)} |" for cells in lines[1:]),
    ]


def terminal(title: str, lines: Lines) -> Table:
    table = Table(title=title, title_justify="left")
    for i, head in enumerate(lines[0]):
        # Truncated, names of arms would look alike.
        table.add_column(head, no_wrap=i == 0, overflow="fold")
    for cells in lines[1:]:
        table.add_row(*cells)
    return table
