"""What the report knows of web pages."""

from __future__ import annotations

from rlanything.runs.report.pointing import PAGES
from rlanything_miniwob.browser import HEIGHT, WIDTH


def test_pages_are_as_large_as_the_report_takes_them_for() -> None:
    assert PAGES["miniwob"] == (WIDTH, HEIGHT)
