"""A speedrun: its budget, its rules, and what is noticed of an entry that was changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.command import call, printed, refused
from helpers.paths import ROOT
from rlanything.progress import Progress
from rlanything.terminal import Terminal
from rlanything_lab.speedrun import challenge as board
from rlanything_lab.speedrun import speedrun as running
from rlanything_lab.speedrun.budget import run_within
from rlanything_lab.speedrun.challenge import (
    BOARD,
    Challenge,
    SpeedrunError,
    games_digest,
    models_digest,
)
from rlanything_lab.speedrun.entry import Entry, content_digest, read_entry, sign, write_entry
from rlanything_lab.speedrun.speedrun import SpeedrunRequest, speedrun
from rlanything_lab.speedrun.table import BEGIN, END, read_entries, table, write_table
from rlanything_lab.speedrun.verify import check_entry

BUDGET = 30.0
"""CPU seconds in which a tiny model ends a few iterations of a guessing game, even where other
programs slow it down."""
SMALL = ("loop.tasks=4", "loop.tasks_per_iteration=2", "loop.rollouts_per_task=2")
SMALL = (*SMALL, "policy.minibatches=1", "judge.minibatches=1", "adapter.tries=1")
QUIET = Progress(Terminal(quiet=True))
NEEDS_SSH = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")


def tiny_challenge() -> Challenge:
    """A challenge of the same kind whose games need no files."""
    task = Challenge(
        recipe="guess",
        models="nano-guess",
        models_sha256=models_digest("nano-guess"),
        split="in_domain",
        games=6,
        training_games=4,
        games_sha256="",
        max_steps=4,
        temperature=1.0,
        seeds=(0,),
        cores=2,
        cpu_seconds=BUDGET,
    )
    return task.model_copy(update={"games_sha256": games_digest(task)})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> SpeedrunRequest:
    """A speedrun that was run, with its entry."""
    out = tmp_path_factory.mktemp("speedrun") / "out"
    request = SpeedrunRequest(tiny_challenge(), SMALL, "as it is", out)
    speedrun(request, QUIET)
    return request


@pytest.fixture
def copied(
    done: SpeedrunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SpeedrunRequest:
    """The same in a folder that a test may spoil, where its challenge is the board's."""
    monkeypatch.setattr(board, "BOARD", done.challenge)
    out = tmp_path / "out"
    shutil.copytree(done.out, out)
    return SpeedrunRequest(done.challenge, done.changes, done.name, out)


def test_training_is_killed_at_the_budget_and_its_last_checkpoint_plays(
    done: SpeedrunRequest,
) -> None:
    entry = read_entry(done.entry)
    [run] = entry.runs
    assert BUDGET <= run.cpu_seconds <= BUDGET + 2
    assert run.iterations >= 1
    last = max((done.out / "seed-0" / "checkpoints").glob("iter-*"))
    assert last.name == f"iter-{run.iterations:05d}"
    assert len(run.games) == 6
    assert entry.success[0] == pytest.approx(run.games.count("+") / 6)


def test_an_entry_verifies_from_its_file_its_runs_and_its_games(
    copied: SpeedrunRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (str(copied.entry), str(copied.out))
    assert call(monkeypatch, "speedrun", "verify", *files, "--replay") == 0
    lines = [line for line in printed(capsys).splitlines() if line.startswith(("ok", "FAILED"))]
    assert [line for line in lines if line.startswith("FAILED")] == []
    assert lines[-1] == "ok: seed 0, games played again"
    assert len(lines) == 8


def test_finished_seeds_are_kept_and_interrupted_ones_refused(copied: SpeedrunRequest) -> None:
    before = read_entry(copied.entry)
    assert speedrun(copied, QUIET) == before
    other = SpeedrunRequest(copied.challenge, ("policy.epochs=2",), copied.name, copied.out)
    with pytest.raises(SpeedrunError, match="another recipe_sha256; choose another --out"):
        speedrun(other, QUIET)
    (copied.out / "seed-0.json").unlink()
    with pytest.raises(SpeedrunError, match="interrupted: delete it"):
        speedrun(copied, QUIET)


def a_game_won(entry: dict[str, Any]) -> None:
    run = entry["runs"][0]
    run["games"] = "+" * len(run["games"]) if "-" in run["games"] else "-" + run["games"][1:]


def a_longer_run(entry: dict[str, Any]) -> None:
    entry["runs"][0]["cpu_seconds"] = entry["cpu_seconds"] = BUDGET * 2


def another_budget(entry: dict[str, Any]) -> None:
    entry["challenge"]["cpu_seconds"] = BUDGET * 2


def another_start(entry: dict[str, Any]) -> None:
    entry["recipe"]["roles"]["policy"]["model"] = "/home/me/trained-elsewhere"


def no_roles(entry: dict[str, Any]) -> None:
    entry["recipe"]["roles"] = [1]


TAMPERED = {
    a_game_won: "figures follow from the games: success is not that of its games",
    a_longer_run: f"seed 0 trained for {BUDGET * 2:g} CPU seconds",
    another_budget: f"challenge is the board's: cpu_seconds is {BUDGET * 2}, not {BUDGET}",
    another_start: "policy.model is fixed: every role begins with nano-guess",
    no_roles: "rules: the recipe is not one",
}


@pytest.mark.parametrize(("change", "fault"), TAMPERED.items(), ids=lambda each: str(each)[:12])
def test_a_changed_entry_is_noticed_with_its_digest_and_without(
    change: Callable[[dict[str, Any]], None],
    fault: str,
    copied: SpeedrunRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = json.loads(copied.entry.read_text())
    change(content)
    copied.entry.write_text(json.dumps(content))
    assert call(monkeypatch, "speedrun", "verify", str(copied.entry)) == 1
    assert "FAILED: digest of the entry: something was changed" in printed(capsys)
    write_entry(Entry.model_validate(content), copied.entry)
    assert call(monkeypatch, "speedrun", "verify", str(copied.entry)) == 1
    said = printed(capsys)
    assert "ok: digest of the entry" in said
    assert fault in said


def test_games_that_were_not_won_are_noticed_when_they_are_played_again(
    copied: SpeedrunRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(copied.entry.read_text())
    a_game_won(content)
    share = content["runs"][0]["games"].count("+") / 6
    content["success"] = [share, *content["success"][1:]]
    write_entry(Entry.model_validate(content), copied.entry)
    arguments = ("speedrun", "verify", str(copied.entry), str(copied.out), "--replay")
    assert call(monkeypatch, *arguments) == 1
    assert "FAILED: seed 0, games played again:" in printed(capsys)


def test_other_runs_are_noticed(
    copied: SpeedrunRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied.out / "seed-0"
    for checkpoint in (run / "checkpoints").glob("iter-*"):
        manifest = checkpoint / "manifest.json"
        manifest.write_text(manifest.read_text() + " ")
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("tasks: 4", "tasks: 5"))
    files = (str(copied.entry), str(copied.out))
    assert call(monkeypatch, "speedrun", "verify", *files) == 1
    said = printed(capsys)
    assert "FAILED: seed 0, recipe: loop.tasks differs" in said
    assert "FAILED: seed 0, last checkpoint" in said
    assert "ok: seed 0, results of training" in said


@NEEDS_SSH
def test_a_signature_names_its_key_and_breaks_with_the_file(
    copied: SpeedrunRequest, tmp_path: Path
) -> None:
    def signature() -> str:
        return str([*check_entry(copied.entry, copied.challenge)][1])

    for name in ("mine", "theirs"):
        key = ("-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
        subprocess.run(["ssh-keygen", *key], check=True)
    sign(copied.entry, tmp_path / "mine")
    assert signature().startswith("ok: signature by the unknown key SHA256:")
    signers = copied.out / "allowed_signers"
    signers.write_text(f"me@example.org {(tmp_path / 'mine.pub').read_text()}")
    assert signature().startswith("ok: signature by me@example.org with the key SHA256:")
    sign(copied.entry, tmp_path / "theirs")
    assert signature().startswith("FAILED: signature: ssh-keygen -Y find-principals: No principal")
    sign(copied.entry, tmp_path / "mine")
    copied.entry.write_text(copied.entry.read_text() + "\n")
    assert signature().startswith("FAILED: signature: ssh-keygen -Y verify: Signature verification")


BROKEN = {
    "domain.options.idle_actions=false": "domain.options",
    "evaluation.temperature=0.1": "evaluation.temperature is fixed",
    "policy.model=nano": "policy.model is fixed: every role begins with nano-published",
    "judge.model=someone/model": "judge.model is fixed",
    "adapter.device=cuda": "adapter.device is fixed: the budget counts CPU seconds",
    "name=mine": "name is fixed: leave it as alfworld-published has it",
}


@pytest.mark.parametrize(("change", "line"), BROKEN.items())
def test_what_is_fixed_may_not_be_changed(
    change: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert line in refused(monkeypatch, capsys, "speedrun", change, "--out", str(out))
    assert not out.exists()


def test_no_other_machine_computes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = ("judge.engine={name: openai, url: 'https://example.org/v1'}", "judge.train=false")
    assert "judge: no other machine computes" in refused(monkeypatch, capsys, "speedrun", *engine)


def test_other_games_are_refused(copied: SpeedrunRequest) -> None:
    task = copied.challenge.model_copy(update={"training_games": 3})
    request = SpeedrunRequest(task, SMALL, "other games", copied.out / "other")
    with pytest.raises(SpeedrunError, match="not those of the challenge"):
        speedrun(request, QUIET)


def test_a_run_that_fails_says_why_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = (sys.executable, "-c", "import sys; sys.exit('error: it is broken')")
    monkeypatch.setattr(running, "COMMAND", fails)
    request = SpeedrunRequest(tiny_challenge(), SMALL, "broken", tmp_path / "out")
    with pytest.raises(SpeedrunError, match="seed 0 failed: error: it is broken; delete"):
        speedrun(request, QUIET)
    assert not request.entry.exists()


BURN = (
    "import sys, time\n"
    "until = time.process_time() + 1.5\n"
    "while time.process_time() < until: sum(range(1000))\n"
    "open(sys.argv[1], 'w')\n"
)


def test_cpu_seconds_of_children_and_of_orphans_count(tmp_path: Path) -> None:
    # Its parent ends at once, and it leaves the session.
    burn = f"[sys.executable, '-c', {BURN!r}, sys.argv[1]]"
    orphan = f"import subprocess, sys; subprocess.Popen({burn}, start_new_session=True)"
    code = (
        "import pathlib, subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {orphan!r}, 'orphan'])\n"
        f"subprocess.run([sys.executable, '-c', {BURN!r}, 'child'])\n"
        "while not pathlib.Path('orphan').exists(): time.sleep(0.1)\n"
    )
    command = ["env", "-C", str(tmp_path), sys.executable, "-c", code]
    spent = run_within(60, command, tmp_path / "log", os.environ)
    assert spent.exit_code == 0, (tmp_path / "log").read_text()
    assert 3.0 <= spent.cpu_seconds < 6.0


def test_a_command_over_its_budget_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    orphan = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {orphan!r}], start_new_session=True)\n"
        "while True: pass"
    )
    spent = run_within(3.0, [sys.executable, "-c", code], tmp_path / "log", os.environ)
    assert spent.exit_code is None
    assert 3.0 <= spent.cpu_seconds < 5.0
    pid = int((tmp_path / "log").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_the_table_has_the_best_first_and_gains_paired_by_game(
    done: SpeedrunRequest, tmp_path: Path
) -> None:
    entry = read_entry(done.entry)
    [run] = entry.runs
    for name, games, changes in (("plain", "+-----", ()), ("better", "+++++-", ("loop.tasks=4",))):
        runs = (run.model_copy(update={"games": games}),)
        success = (games.count("+") / 6, 0.0, 1.0)
        update = {"name": name, "runs": runs, "changes": changes, "success": success}
        write_entry(entry.model_copy(update=update), tmp_path / f"{name}.json")
    lines = table(read_entries(tmp_path)).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| better", "| plain"]
    assert "+66.7 points" in lines[2]
    assert lines[2].split(" | ")[1].startswith("83.3%")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(page, read_entries(tmp_path))
    assert page.read_text() == f"before\n{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}\nafter\n"


def test_the_page_has_the_entries_of_the_repository_and_they_verify() -> None:
    page = (ROOT / "docs/speedrun.md").read_text(encoding="utf-8")
    folder = ROOT / "benchmarks/speedrun"
    written = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert written == table(read_entries(folder)), "rlanything speedrun table FOLDER --page PAGE"
    faults = [
        f"{path.name}: {check}"
        for path in sorted(folder.glob("*.json"))
        for check in check_entry(path, BOARD)
        if check.fault is not None
    ]
    assert faults == []


def test_the_rules_fit_on_twenty_five_lines() -> None:
    page = (ROOT / "docs/speedrun.md").read_text(encoding="utf-8")
    rules = page.partition("## Rules\n")[2].partition("\n## ")[0]
    assert 0 < len(rules.strip().splitlines()) <= 25


def test_the_board_is_played_with_the_models_that_ship() -> None:
    assert models_digest(BOARD.models) == BOARD.models_sha256


@pytest.mark.skipif("RLANYTHING_ALFWORLD_DATA" not in os.environ, reason="published games only")
def test_the_board_is_played_with_the_published_games() -> None:
    assert games_digest(BOARD) == BOARD.games_sha256


def test_a_digest_is_of_the_content_and_not_of_its_spelling(copied: SpeedrunRequest) -> None:
    entry = read_entry(copied.entry)
    copied.entry.write_text(json.dumps(json.loads(copied.entry.read_text()), sort_keys=True))
    assert content_digest(read_entry(copied.entry)) == entry.sha256
