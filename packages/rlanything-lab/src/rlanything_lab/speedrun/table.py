"""The board: entries as a table of Markdown, best first, and the page that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlanything.evaluation.intervals import Interval
from rlanything.files import replace_file
from rlanything.runs.summary import percent, points
from rlanything_lab.ablation.table import markdown
from rlanything_lab.speedrun.challenge import SpeedrunError
from rlanything_lab.speedrun.entry import Entry, gain, read_entry

BEGIN, END = "<!-- entries -->", "<!-- end of entries -->"
"""Lines of a page around its table."""
NONE_YET = "No entry yet."


def read_entries(folder: Path) -> list[Entry]:
    """Returns the entries in a folder, best first; ties in the order of their files. Raises
    `SpeedrunError` for a file that is not one."""
    entries = [read_entry(path) for path in sorted(folder.glob("*.json"))]
    return sorted(entries, key=lambda entry: -entry.success[0])


def table(entries: Sequence[Entry]) -> str:
    """Returns the table. Gains are over the entry that changes nothing, paired by seed and game;
    `clear`: their 95% interval is above zero."""
    if not entries:
        return NONE_YET
    plain = next((entry for entry in entries if not entry.changes), None)
    lines = [
        ["entry", "held-out success", "gain over the recipe", "iterations", "CPU min", "machine"]
    ]
    for entry in entries:
        change = None if plain in (None, entry) else gain(plain, entry)
        iterations = ", ".join(str(run.iterations) for run in entry.runs)
        machine = f"{entry.machine.cpu}, {entry.machine.cores} cores"
        cells = (entry.name, percent(entry.interval), _gain(change), iterations)
        cells = (*cells, f"{entry.cpu_seconds / 60:.0f}", machine)
        lines.append([cell.replace("|", "\\|") for cell in cells])
    return "\n".join(markdown(lines))


def _gain(change: Interval | None) -> str:
    if change is None:
        return ""
    return points(change) + (", clear" if change.low > 0 else "")


def write_table(page: Path, entries: Sequence[Entry]) -> None:
    """Replaces the table between the two marks of a page. Raises `SpeedrunError` for a page without
    them."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise SpeedrunError(f"--page {page}: cannot be read ({error.strerror})") from None
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SpeedrunError(f"--page {page}: it needs the lines {BEGIN} and {END}")
    replace_file(page, f"{head}{BEGIN}\n\n{table(entries)}\n\n{END}{tail}".encode())
