"""Curves with their intervals in braille characters, eight dots a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from rlanything.runs.report.curves import Point

MARGIN = 5
"""Columns of the labels on the left."""
FEWEST_COLUMNS = 8
"""Columns of the curves in a narrow terminal, which cuts them off on the right."""
MOST_WHISKERS = 10
"""Number of whiskers of a curve, evenly spread and with the last one."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot of a braille character, by row and column."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A curve, its name and its colour."""

    name: str
    points: tuple[Point, ...]
    color: str


def draw(lines: Sequence[ChartLine], width: int, height: int) -> list[Content]:
    """Returns `height` rows of `width` columns: curves numbered at their right end, intervals as
    dotted whiskers, shares on the left and iterations below."""
    canvas = _Canvas(lines, max(width - MARGIN - len(lines), FEWEST_COLUMNS), height - 1)
    for line in lines:
        canvas.whiskers(line)
    for line in lines:
        canvas.curve(line)
    rows = [
        Content.assemble(canvas.label(row), canvas.row(row), *canvas.ends(row))
        for row in range(height - 1)
    ]
    return [*rows, Content.styled(canvas.below(), "dim")]


class _Canvas:
    """Dots of a chart; a cell has the style of what was drawn into it last."""

    def __init__(self, lines: Sequence[ChartLine], columns: int, rows: int) -> None:
        self.columns, self.rows, self._lines = columns, rows, lines
        self._cells: dict[tuple[int, int], tuple[int, str]] = {}
        points = [point for line in lines for point in line.points]
        bounds = [
            bound
            for point in points
            for bound in (point.estimate, point.low, point.high)
            if bound is not None
        ]
        self.bottom = math.floor(min(bounds, default=0.0) * 10 + 1e-9) / 10
        self.top = max(math.ceil(max(bounds, default=1.0) * 10 - 1e-9) / 10, self.bottom + 0.1)
        self.first = min((point.iteration for point in points), default=0)
        self.last = max((point.iteration for point in points), default=0)

    def whiskers(self, line: ChartLine) -> None:
        apart = math.ceil(len(line.points) / MOST_WHISKERS)
        for point in line.points[::-1][:: max(apart, 1)]:
            if point.low is not None and point.high is not None:
                x = self._x(point.iteration)
                for y in range(self._y(point.high), self._y(point.low) + 1, 2):
                    self._dot(x, y, f"{line.color} 60%")

    def curve(self, line: ChartLine) -> None:
        places = [(self._x(point.iteration), self._y(point.estimate)) for point in line.points]
        for (x, y), (to_x, to_y) in zip(places, [*places[1:], *places[-1:]], strict=True):
            steps = max(abs(to_x - x), abs(to_y - y), 1)
            for i in range(steps + 1):
                share = i / steps
                self._dot(round(x + (to_x - x) * share), round(y + (to_y - y) * share), line.color)

    def row(self, row: int) -> Content:
        cells = [self._cells.get((column, row), (0, "")) for column in range(self.columns)]
        return Content.assemble(
            *((chr(0x2800 + bits) if bits else " ", style) for bits, style in cells)
        )

    def ends(self, row: int) -> list[tuple[str, str]]:
        """Returns the numbers of the curves that end in a row."""
        return [
            (str(number), line.color)
            for number, line in enumerate(self._lines, 1)
            if line.points and self._y(line.points[-1].estimate) // len(DOTS) == row
        ]

    def label(self, row: int) -> tuple[str, str]:
        share = {0: self.top, self.rows - 1: self.bottom}.get(row)
        return (" " * MARGIN if share is None else f"{share:4.0%} ", "dim")

    def below(self) -> str:
        """Returns the line of iterations."""
        first, last = f"iteration {self.first}", str(self.last)
        if self.first == self.last:
            return " " * MARGIN + first
        return f"{' ' * MARGIN}{first}{last:>{max(1, self.columns - len(first))}}"

    def _dot(self, x: int, y: int, style: str) -> None:
        cell = x // 2, y // len(DOTS)
        self._cells[cell] = (self._cells.get(cell, (0, ""))[0] | DOTS[y % len(DOTS)][x % 2], style)

    def _x(self, iteration: int) -> int:
        span = self.last - self.first
        return round((iteration - self.first) / span * (2 * self.columns - 1)) if span else 0

    def _y(self, share: float) -> int:
        inside = (self.top - share) / (self.top - self.bottom)
        return round(min(max(inside, 0.0), 1.0) * (len(DOTS) * self.rows - 1))
