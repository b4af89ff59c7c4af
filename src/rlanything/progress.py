"""Progress of a run: live bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from rlanything.terminal import Terminal, one_line

LONG_SECONDS = 20.0
"""Without a terminal, longer phases are logged as a line."""
EVERY_SECONDS = 60.0
"""Without a terminal, a phase that goes on is logged this often after `LONG_SECONDS`, and so is a
phase that begins this long after the last line. Lines about something else postpone it."""


class RunWarning(UserWarning):
    """A warning of a run whose progress is not shown."""


class Progress:
    """Shows a run's phases and messages, and measures the duration of each phase."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}
        """Seconds by phase since the last `pop_seconds`."""
        self._last_line = time.perf_counter()
        self._bars = bars.Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<16}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def live(self) -> Iterator[None]:
        """Draws bars inside this context."""
        with self._bars:
            yield

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Shows a phase of `total` units; yields a callback for each number of units done."""
        with self._counted(name, total, unit) as show:
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                show(done, total)

            yield advance

    @contextmanager
    def bytes_phase(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Shows a phase in bytes; yields a callback for (bytes done, total bytes)."""
        with self._counted(name, 0, "bytes") as show:
            yield show

    @contextmanager
    def _counted(self, name: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Yields a callback for (units done, total units; 0 if the total is unknown)."""
        begun = time.perf_counter()
        task = self._bars.add_task(one_line(name), total=total, unit=one_line(unit), rate="")
        reached, next_line = 0, begun + LONG_SECONDS
        if begun - self._last_line > EVERY_SECONDS and not self.console.is_terminal:
            self.log(f"{name}: begins{f', {total} {unit}' if total else ''}")

        def show(done: int, total: int) -> None:
            nonlocal reached, next_line
            reached, now = done, time.perf_counter()
            rate = done / max(now - begun, 1e-9)
            speed = f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
            self._bars.update(task, completed=done, total=total, rate=speed)
            silent = now - self._last_line > LONG_SECONDS
            if silent and now > next_line and done != total and not self.console.is_terminal:
                next_line = now + EVERY_SECONDS
                reach = f"{done} of {total}" if total else f"{done}"
                self.log(f"{name}: {reach} {unit} in {now - begun:.0f} s, {speed}")

        try:
            yield show
        finally:
            self._bars.remove_task(task)
            seconds = time.perf_counter() - begun
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            if seconds > LONG_SECONDS and not self.console.is_terminal:
                self.log(f"{name}: {reached} {unit} in {seconds:.0f} s")

    def log(self, line: str) -> None:
        """Prints a permanent line."""
        self._print(line, None)

    def warn(self, line: str) -> None:
        """Prints a warning; a quiet console raises a Python warning instead."""
        if self.console.quiet:
            warnings.warn(one_line(line), RunWarning, stacklevel=2)
        else:
            self._print(line, "bold yellow")

    def _print(self, line: str, style: str | None) -> None:
        # Literal on any console: a line may quote a model, a task or a file name.
        # Whole in a file, where a reader may search for it.
        kept = not self.console.is_terminal
        text = one_line(line)
        self.console.print(
            text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=kept
        )
        self._last_line = time.perf_counter()

    def pop_seconds(self) -> dict[str, float]:
        """Returns the seconds by phase since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds


def progress_of(wanted: bool | Progress | None) -> Progress:
    """Returns a run's progress display: True: on stdout; False: nowhere; None: on stdout if that is
    a terminal. In a notebook its lines are plain text."""
    if isinstance(wanted, Progress):
        return wanted
    quiet = not (sys.stdout.isatty() if wanted is None else wanted)
    if not Terminal().is_jupyter:
        return Progress(Terminal(quiet=quiet))
    plain = Terminal(quiet=quiet, force_jupyter=False, force_terminal=False, color_system=None)
    return Progress(plain)
