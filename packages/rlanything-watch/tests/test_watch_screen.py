"""The screen of a watched run, driven by keys as over ssh: 80 columns, 24 rows."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from textual.pilot import Pilot

from helpers.command import refused
from helpers.report_runs import make_run
from helpers.results import evaluation_record
from rlanything.runs.directory import run_lock
from rlanything.runs.store.store import Store
from rlanything_watch import app as screen
from rlanything_watch.app import WatchApp, Watched
from rlanything_watch.source import RunSource

Keys = Callable[[Pilot[None], WatchApp], Awaitable[None]]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "EVERY_SECONDS", 0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "alpha", 12)


def watched(runs: Sequence[Path], keys: Keys, size: tuple[int, int] = (80, 24)) -> None:
    """Opens the screen and hands it over once every run was read."""

    async def drive() -> None:
        app = WatchApp([RunSource(run) for run in runs])
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: all(run.view or run.problem for run in app.runs))
            await keys(pilot, app)

    asyncio.run(drive())


async def until(pilot: Pilot[None], holds: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came about"
        await pilot.pause(0.02)
    await pilot.pause()


def shows_its_choice(run: Watched) -> bool:
    """Whether the episode that was asked for, or else the newest, was read."""
    view = run.view
    if view is None or view.chosen is None:
        return True
    return view.episodes[view.chosen].id == (run.episode or view.episodes[-1].id)


def text(app: WatchApp) -> str:
    """Returns the text on the screen, without colours."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def after(runs: Sequence[Path], *pressed: str, size: tuple[int, int] = (80, 24)) -> str:
    """Returns the text on the screen after some keys."""
    shown: list[str] = []

    async def keys(pilot: Pilot[None], app: WatchApp) -> None:
        for key in pressed:
            await pilot.press(key)
            await until(pilot, lambda: all(map(shows_its_choice, app.runs)))
        shown.append(text(app))

    watched(runs, keys, size)
    return shown[0]


CURVES = """\
alpha finished · iteration 12 of 12 · 188 episodes · made up · kept 2026-01-01 …
 1 Curves   2 Episode   3 Pool   4 Warnings   5 Throughput
success: in_domain improved, ood improved
100%                                      ⢀    1 in_domain
           ⠄     ⠠      ⠄     ⠄     ⡆    ⣀⣰12    80.0% [63.9, 90.4]
           ⠅     ⠨      ⠅     ⠅⣀⣀⠤⠤⠒⡗⠒⠉⠉⠉ ⢸    2 ood
           ⠅     ⠨     ⣀⣅⠤⠤⠒⠒⠉⠍     ⡇     ⠨      80.0% [63.9, 90.4]
     ⠄  ⠒⠒⠒⠗⠒⠒⢒⣒⡲⠾⠖⠒⠚⠛⠛⠒⠗⠒⠒⠒⠒⠒⠗⠒⠒⠒⠒⠒⠗⠒⠒⠒⠒⠒⠺3   3 rollouts
     ⠅⢀⣀⡠⠤⠔⠗⠊⠉⠁  ⠨      ⠅     ⠅     ⠅     ⠨      50.0% [16.7, 83.3]
     ⠍⠁    ⠅     ⠨      ⠅     ⠅     ⠅     ⠨
 10% ⠁     ⠁     ⠈      ⠁     ⠁     ⠁     ⠈
     iteration 0                         12
judge: balanced Process Acc improved
 90%              ⡀                        ⢐   1 balanced Process Acc
           ⢐      ⡂     ⠅     ⠠      ⡇⣀⡠⠤⠔⠒⢙1    80.0% [71.4, 86.6]
           ⢐      ⡂     ⠅     ⣨⣀⠤⠤⠒⠒⠉⡏     ⢐   2 Outcome Acc, rollouts
        ⠒⠤⣀⢐   ⢀⡠⠔⡢⠤⡀⢀⣀⡠⠥⠔⣒⠮⣉⠉⠨      ⠅     ⢐     39.6% [14.4, 70.9]
           ⢙⢉⣉⣉⠥⠤⠒⡒⠉⠉⠉⠉⠒⠗⠉   ⠑⠪⢄⣀⡀⢀⡠⠒⠍⠉⠒⠒⠤⢄⢐
     ⣅⡠⠤⠔⠒⠊⢙⠁     ⡂     ⠅     ⠨  ⠈⠁  ⠅     ⢙2
     ⠅     ⠐      ⠂     ⠅     ⠨      ⠅     ⢐
 10%                    ⠁     ⠈            ⠐
     iteration 0                          12

 ↑/↓ Scroll  tab Pane  q Quit"""


def test_it_opens_with_the_curves_of_policy_and_judge(made: Path) -> None:
    assert after([made]) == CURVES


EPISODE = """\
alpha finished · iteration 12 of 12 · 188 episodes · made up · kept 2026-01-01 …
 1 Curves   2 Episode   3 Pool   4 Warnings   5 Throughput
find the key number 11
✓ won · iteration 12 · attempt 3 · root-11
episode 188 of 188, the newest

step 2 of 3 · advantage +1.00 · no valid action · oracle: good step · the judge
contradicts the outcome

observation
You see drawer 1 of attempt 3.

response
the key may be in drawer 1 > open drawer 1

action
open drawer 1

judgements -1 +1 -1
-1 judge, advantage -0.71: drawer 1: a new place, says 0.
+1 judge, advantage +1.41: drawer 1: a new place, says 1.
-1 judge, advantage -0.71: drawer 1: a new place, says 2.

 ↑/↓ Scroll  ←/→ Step  tab Pane  [ Older  ] Newer  n Newest  q Quit"""


def test_the_newest_episode_is_read_step_by_step_with_the_judges_words(made: Path) -> None:
    assert after([made], "2", "right") == EPISODE
    assert "step 3 of 3" in after([made], "2", "right", "right", "right")
    assert "step 1 of 3" in after([made], "2", "right", "left", "left")


def test_older_episodes_are_reached_and_the_newest_again(made: Path) -> None:
    older = after([made], "2", "left_square_bracket")
    assert "episode 187 of 188" in older
    assert "✗ lost · iteration 12 · attempt 2 · " in older
    back = after([made], "2", "left_square_bracket", "right_square_bracket")
    assert "episode 188 of 188, the newest" in back
    newest = after([made], "2", "left_square_bracket", "left_square_bracket", "n")
    assert "episode 188 of 188, the newest" in newest


def test_the_pool_shows_candidates_and_what_became_of_them(made: Path) -> None:
    shown = after([made], "3")
    assert "12 slots, " in shown
    assert "12 candidates: 11 accepted, 0 rejected, 1 pending; 0 tasks quarantined" in shown
    assert "proposed · harder than 90.0% won, pending" in shown
    assert "critic: The agent never opened the drawer." in shown


@pytest.mark.parametrize("value", ["9e999", "1e308", "-1e308"])
def test_numbers_that_no_run_writes_end_no_pane(made: Path, tmp_path: Path, value: str) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    with closing(Store(run / "run.sqlite")) as store, store._db.transaction() as db:
        db.execute(f"UPDATE metrics SET value = {value}")
    for pane in "12345":
        assert "alpha finished" in after([run], pane)


def test_the_throughput_says_where_the_time_went(made: Path) -> None:
    shown = after([made], "5")
    assert "iteration 12 took 3.0 s, the latest 10 on average 3.0 s" in shown
    assert "rollouts                    3.0 s     3.0 s 100% ████" in shown


def test_tab_goes_through_the_panes_and_the_footer_names_the_keys_that_work(made: Path) -> None:
    first, second = after([made], "tab"), after([made], "tab", "shift+tab")
    assert "observation" in first
    assert "←/→ Step" in first
    assert "[ Older" in first
    assert "success: " in second
    assert "Step" not in second
    for shown in (first, second):
        footer = shown.splitlines()[-1]
        assert "tab Pane" in footer
        assert footer.endswith("q Quit")
        assert "Run" not in footer
        assert "Overlay" not in footer


def test_arrows_scroll_a_pane_that_is_longer_than_the_screen(made: Path) -> None:
    assert "12 slots" in after([made], "3")
    assert "12 slots" not in after([made], "3", "down", "down")
    assert "12 slots" in after([made], "3", "down", "down", "up", "up")


def test_several_runs_are_shown_in_turn_or_their_curves_together(
    made: Path, tmp_path: Path
) -> None:
    runs = [made, make_run(tmp_path / "beta", 4)]
    first, second = after(runs).splitlines(), after(runs, "r").splitlines()
    assert first[0].startswith("1/2 alpha finished · iteration 12 of 12")
    assert second[0].startswith("2/2 beta finished · iteration 4 of 4")
    together = after(runs, "o", size=(80, 60))
    assert "success: in_domain\n" in together
    assert "judge: balanced Process Acc\n" in together
    assert " 1 alpha" in together
    assert " 2 beta" in together
    assert "o Overlay" in together.splitlines()[-1]


def test_runs_of_one_name_are_told_apart_by_their_directories(made: Path, tmp_path: Path) -> None:
    together = after([made, make_run(tmp_path / "alpha", 4)], "o", size=(120, 60))
    assert f"2 {tmp_path}"[:20] in together


def test_a_running_run_is_followed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    with closing(Store(run / "run.sqlite")) as store:
        store.describe({"finished": None})

        async def keys(pilot: Pilot[None], app: WatchApp) -> None:
            assert " stopped · iteration 2 of 2" in text(app)
            with run_lock(run):
                await until(pilot, lambda: " running · iteration 2 of 2" in text(app))
                rows = [(f"held-{i}", "key", 1, 5) for i in range(40)]
                store.record_evaluation(evaluation_record(3, {"in_domain": rows}, {}, {}))
                await until(pilot, lambda: "100.0% [" in text(app))
                store.describe({"finished": "2026-01-01T01:00:00+00:00"})
                await until(pilot, lambda: " finished · " in text(app))

        watched([run], keys)


def test_the_newest_episode_is_followed_unless_another_was_chosen(
    tmp_path: Path, made: Path
) -> None:
    run = make_run(tmp_path / "alpha", 3)

    async def keys(pilot: Pilot[None], app: WatchApp) -> None:
        await pilot.press("2", "right")
        await until(pilot, lambda: "iteration 3 " in text(app))
        shutil.copy(made / "run.sqlite", tmp_path / "newer")
        os.replace(tmp_path / "newer", run / "run.sqlite")
        await until(pilot, lambda: "iteration 12 ·" in text(app))
        assert "step 1 of 3" in text(app)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "episode 187 of 188" in text(app))
        store = Store(run / "run.sqlite")
        store.describe({"begun": "2026-02-02T00:00:00+00:00"})
        store.close()
        await until(
            pilot, lambda: (view := app.runs[0].view) and (view.facts.begun or "")[5:7] == "02"
        )
        assert "episode 187 of 188" in text(app)

    watched([run], keys)


def test_a_run_that_cannot_be_read_for_a_while_is_one_line_above_what_was_read(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run", 2)
    whole = (run / "run.sqlite").read_bytes()

    async def keys(pilot: Pilot[None], app: WatchApp) -> None:
        (run / "run.sqlite").write_bytes(whole[: len(whole) // 2 + 100])
        malformed = "run.sqlite: database disk image is malformed"
        await until(pilot, lambda: malformed in app.runs[0].problem)
        assert text(app).splitlines()[1].startswith(str(run)[:40])
        assert "success: " in text(app)
        (run / "run.sqlite").unlink()
        await until(pilot, lambda: "it has no run.sqlite" in app.runs[0].problem)
        (run / "run.sqlite").write_bytes(whole)
        await until(pilot, lambda: not app.runs[0].problem)
        assert "cannot be read" not in text(app)

    watched([run], keys)


def test_a_run_that_has_done_nothing_yet_is_shown_as_such(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0, evaluated_iterations=False)
    assert "Nothing was measured yet." in after([run])
    assert "No episode is kept yet" in after([run], "2")
    assert "No task has been rewritten so far." in after([run], "3")
    assert "No warnings." in after([run], "4")
    assert "No iteration is kept yet." in after([run], "5")


def test_a_narrow_terminal_shows_what_fits(made: Path) -> None:
    for pressed in "12345":
        shown = after([made], pressed, size=(30, 8))
        assert max(map(len, shown.splitlines())) <= 30


def test_text_of_models_controls_no_terminal(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2, say=lambda said: f"\x1b[2J[b]{said}\u202e")
    shown = "".join(after([run], *pressed) for pressed in ("12", "2r", "3"))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert r"\x1b[2J[b]You see drawer 0" in shown


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough " * 99])
def test_what_is_no_run_is_refused_in_one_line(
    content: bytes | None,
    tmp_path: Path,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / "run.sqlite").write_bytes(content)
    line = refused(monkeypatch, capsys, "watch", str(made), str(tmp_path))
    assert str(tmp_path) in line
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"] * (content is not None)


def test_without_a_terminal_the_report_is_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "`rlanything report RUN`" in refused(monkeypatch, capsys, "watch", str(made))


def test_in_a_real_terminal_it_opens_answers_and_closes(made: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # the child: nothing of pytest may run on
        os.environ |= {"TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
        os.execv(sys.executable, [sys.executable, "-m", "rlanything", "watch", str(made)])
    written = b""
    try:
        while b"in_domain" not in written:
            written += os.read(terminal, 65536)
        os.write(terminal, b"q")
        while True:
            written += os.read(terminal, 65536)
    except OSError:  # Linux: the other end is closed
        pass
    assert os.waitpid(pid, 0)[1] == 0
    assert b"\x1b[?1049l" in written, "the terminal's own screen is back"
    assert b"\x1b[?1000h" not in written, "the mouse is the terminal's"
