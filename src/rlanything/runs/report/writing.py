"""Report files, written atomically and updated during a run at limited cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from rlanything.files import replace_file
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.page import render
from rlanything.runs.report.payload import build
from rlanything.runs.store.store import Store

NAME, COMPARISON = "report.html", "comparison.html"
SHARE = 0.03
"""Largest share of a run's time that its reports may take."""


class ReportError(ValueError):
    """A report cannot be written; the message is one line with the remedy."""


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Writes the report of a run, or a comparison of several, from their stores' current content.

    Raises `StoreError` for a directory that is not a run's, and `ReportError` if `out` cannot be
    written."""
    with ExitStack() as stack:
        readers = list[Reader]()
        for run in runs:
            store = stack.enter_context(closing(Store(run / "run.sqlite")))
            stack.enter_context(store.snapshot())
            store.check_values()
            readers.append(Reader(store, run))
        _write(readers, out)


def _write(readers: Sequence[Reader], out: Path) -> None:
    text = render(build(readers))
    try:
        replace_file(out, text.encode("utf-8"))
    except OSError as error:
        raise ReportError(
            f"{out}: cannot be written ({error.strerror}); free space there, or choose another "
            "place with --out FILE"
        ) from None


class Reporter:
    """Keeps the report of a run up to date while it trains."""

    def __init__(self, store: Store, directory: Path, say: Callable[[str], None]) -> None:
        self._reader, self._say = Reader(store, directory), say
        self._out = directory / NAME
        self._cost = 0.0
        self._written = -float("inf")

    def update(self) -> None:
        """Writes the report, unless the last one was too slow to repeat so soon."""
        if self._cost <= SHARE * (time.perf_counter() - self._written):
            self.write()

    def write(self) -> None:
        """Writes the report. Never raises: a failure is logged as one line and does not stop the
        run."""
        if sys.is_finalizing():  # an iterator left open at exit, when imports no longer work
            return
        begun = time.perf_counter()
        try:
            _write([self._reader], self._out)
        except Exception as error:
            self._say(f"no report: {type(error).__name__}: {error}")
        self._written = time.perf_counter()
        self._cost = self._written - begun
