"""Whatever a model, a file or a program says, the terminal shows it and obeys none of it."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import rich.console
from rich.console import Console
from rich.table import Table

from rlanything.progress import Progress, RunWarning, progress_of
from rlanything.terminal import (
    Terminal,
    literal,
    one_line,
    visible,
    write,
    write_json,
    write_line,
    write_traceback,
)

# By what is said, what is to be seen.
SAID = {
    "[/INST] Try again.": "[/INST] Try again.",
    "uses a[i] and b[j] wrongly": "uses a[i] and b[j] wrongly",
    "[link=http://evil]here[/link] [red]": "[link=http://evil]here[/link] [red]",
    ":smile: 1234 'quoted' \\[b]": ":smile: 1234 'quoted' \\[b]",
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "\x1b[2J\x1b[H \x9b31m": r"\x1b[2J\x1b[H \x9b31m",
    "progress\r\b\x7f\x00\x0b\x0c\x85": r"progress\r\x08\x7f\x00\x0b\x0c\x85",
    "\u202egnp.exe\u2066\u2069\u200f": r"\u202egnp.exe\u2066\u2069\u200f",
    "one\u2028two\u2029": r"one\u2028two\u2029",
    "\u200b\ufeff\U000e0041": r"\u200b\ufeff\U000e0041",
    "half \ud83d of it": r"half \ud83d of it",
    "grüße 日本 👩\u200d🚀 می\u200cخواهم": "grüße 日本 👩\u200d🚀 می\u200cخواهم",
}


@pytest.mark.parametrize(("said", "seen"), SAID.items(), ids=range(len(SAID)))
def test_text_is_seen_as_it_was_said_wherever_it_stands(
    said: str, seen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert visible(visible(said)) == seen
    table = Table(title=said, caption=said)
    table.add_column(said)
    table.add_row(said)
    file = io.StringIO()
    console = Terminal(file=file, width=80)
    console.print(said)
    console.print(table)
    assert file.getvalue().count(seen) == 5
    assert visible(file.getvalue()) == file.getvalue()
    write_line(said)
    write(said, stderr=True)
    assert capsys.readouterr() == (f"{seen}\n", seen)


@pytest.mark.parametrize("console_type", [Terminal, Console])
@pytest.mark.parametrize(("said", "seen"), SAID.items(), ids=range(len(SAID)))
def test_the_lines_of_a_run_are_safe_on_any_console(
    said: str, seen: str, console_type: type[Console]
) -> None:
    file = io.StringIO()
    progress = Progress(console_type(file=file, width=200))
    progress.log(said)
    progress.warn(f"{said}\nnot a line of its own")
    assert file.getvalue() == f"{seen}\n{seen}\\nnot a line of its own\n"


def test_bars_take_no_markup_from_the_names_of_phases() -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=120, force_terminal=True, color_system=None)
    progress = Progress(console)
    with progress.live(), progress.phase("[/q]\x1b]0;t\x07", 2, "[b]units") as advance:
        advance(1)
        progress._bars.refresh()
    assert r"[/q]\x1b]0;t\x07" in file.getvalue()
    assert "[b]units" in file.getvalue()
    assert "\x07" not in file.getvalue()


def test_without_a_terminal_a_long_phase_says_every_minute_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("rlanything.progress.time.perf_counter", lambda: now)
    file = io.StringIO()
    progress = Progress(Console(file=file, width=20))
    with progress.live(), progress.phase("judged", 10, "judgements") as advance:
        for _ in range(10):
            now += 15
            advance(1)
    with progress.phase("iterations", 2, "iterations") as advance:
        for number in (1, 2):
            now += 61
            progress.log(f"iteration {number}")
            advance(1)
    with progress.bytes_phase("read") as show:
        now += 21
        show(1 << 20, 1 << 22)
    with progress.phase("short", 1, "page") as advance:
        now += 19
        advance(1)
    now += 50
    with progress.phase("report", 1, "page"):
        pass
    assert file.getvalue().splitlines() == [
        "judged: 2 of 10 judgements in 30 s, 0.067/s",
        "judged: 7 of 10 judgements in 105 s, 0.067/s",
        "judged: 10 judgements in 150 s",
        "iteration 1",
        "iteration 2",
        "iterations: 2 iterations in 122 s",
        "read: 1048576 of 4194304 bytes in 21 s, 49932/s",
        "read: 1048576 bytes in 21 s",
        "report: begins, 1 page",
    ]


def test_lines_of_a_text_stay_lines_and_a_line_stays_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert visible("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == "a\\n\tb"
    write("a\n\tb")
    write_line("a\nerror: b" + "c" * 200)
    assert capsys.readouterr().out == "a\n\tba\\nerror: b" + "c" * 200 + "\n"


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"said": "\x1b]0;t\x07 [/q] \u202e \ud83d"})
    assert capsys.readouterr().out == '{"said": "\\u001b]0;t\\u0007 [/q] \\u202e \\ud83d"}\n'


def test_markup_is_shown_where_typer_reads_it() -> None:
    assert literal("\x1b [/q]") == "\\x1b \\[/q]"


def test_a_fault_of_the_program_shows_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("\x1b]0;title\x07")
    except RuntimeError:
        kind, error, trace = sys.exc_info()
    assert kind is not None
    assert error is not None
    write_traceback(kind, error, trace)
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("RuntimeError: \\x1b]0;title\\x07\n")


def test_a_warning_of_a_run_that_shows_nothing_is_one_of_python() -> None:
    with pytest.warns(RunWarning, match=r"KL of 262 nats\\n a token"):
        Progress(Console(quiet=True)).warn("KL of 262 nats\n a token")


def test_lines_in_a_notebook_are_plain_text(monkeypatch, capsys) -> None:
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    shown = progress_of(True)
    shown.warn("large updates")
    with shown.live(), shown.phase("rollouts", 1, "episodes"):
        shown.log("[one]")
    assert capsys.readouterr().out == "large updates\n[one]\n"


def test_warnings_of_damaged_data_are_lines_and_others_as_python_shows_them() -> None:
    code = (
        "import warnings; from rlanything.terminal import warn_of_damage, warnings_as_lines;"
        "warnings_as_lines(); warn_of_damage('a.json is cut\\x1b off'); warnings.warn('other')"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *rest = shown.stderr.splitlines()
    assert first == r"warning: a.json is cut\x1b off"
    assert "UserWarning: other" in rest[0]
