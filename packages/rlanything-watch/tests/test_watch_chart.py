"""Charts in braille characters."""

from __future__ import annotations

from rlanything.runs.report.curves import Point
from rlanything_watch.chart import ChartLine, draw


def drawn(*lines: ChartLine, width: int = 26, height: int = 5) -> list[str]:
    return [row.plain.rstrip() for row in draw(lines, width, height)]


def line(
    *points: tuple[int, float], low: float | None = None, high: float | None = None
) -> ChartLine:
    return ChartLine("success", tuple(Point(t, share, low, high) for t, share in points), "red")


def test_a_curve_goes_from_corner_to_corner() -> None:
    assert drawn(line((0, 0.0), (10, 1.0))) == [
        "100%                ⣀⡠⠤⠒⠉1",
        "               ⣀⡠⠔⠒⠉",
        "          ⣀⠤⠔⠊⠉",
        "  0% ⣀⠤⠒⠊⠉",
        "     iteration 0       10",
    ]


def test_the_scale_is_the_tenths_around_curves_and_intervals() -> None:
    assert [row[:4] for row in drawn(line((0, 0.52), (9, 0.58)))][::3] == [" 60%", " 50%"]
    wide = drawn(line((0, 0.52), (9, 0.58), low=0.31, high=0.79))
    assert [row[:4] for row in wide][::3] == [" 80%", " 30%"]


def test_one_point_is_a_dot_with_its_interval() -> None:
    rows = drawn(line((3, 0.5), low=0.0, high=1.0))
    assert all(row[5:6].strip() for row in rows[:4])
    assert [row.endswith(" 1") for row in rows[:4]].count(True) == 1
    assert rows[-1].strip() == "iteration 3"


def test_curves_that_end_in_one_row_are_both_numbered() -> None:
    rows = drawn(line((0, 0.0), (4, 1.0)), line((0, 0.2), (4, 1.0)))
    assert rows[0].endswith("12")


def test_long_curves_have_few_whiskers_and_one_at_the_end() -> None:
    points = tuple(Point(t, 0.5, 0.0, 1.0) for t in range(1000))
    top = drawn(ChartLine("success", points, "red"), width=106)[0]
    assert 5 <= sum(not cell.isspace() for cell in top[5:]) <= 12
    assert not top[-1].isspace()
