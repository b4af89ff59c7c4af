"""The library as a new user meets it: the first command, README's program, an agent, a file of
rollouts. `make test-oldest` and `make test-newest` run this with other versions of dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from helpers.neighbours import needs_plugin
from helpers.page import blocks
from helpers.paths import ROOT

FEW = ("loop.iterations=1", "evaluation.episodes=4", "evaluation.judged_episodes=2", "run_dir=run")


def python(folder: Path, *words: str) -> str:
    """Runs Python as a user would, in a folder of theirs; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FutureWarning" not in done.stderr
    return done.stdout + done.stderr


def test_the_first_command_trains(tmp_path: Path) -> None:
    assert "next: `rlanything report run --open` opens the report" in python(
        tmp_path, "-m", "rlanything", "train", "guess", *FEW
    ).replace("\n", " ")
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_program_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    found = blocks(ROOT / "README.md")
    program = next(block.code for block in found if block.language == "python")
    assert "rl.Trainer(" in program
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    assert "in_domain: success " in python(tmp_path, "program.py")


@needs_plugin("domain", "agent")
def test_an_agent_trains(tmp_path: Path) -> None:
    python(tmp_path, "-m", "rlanything", "train", "guess_agent", *FEW)


@needs_plugin("command", "judge")
def test_a_file_of_rollouts_is_judged_and_becomes_advantages(tmp_path: Path) -> None:
    step = {"observation": "A cup.", "response": "> take cup", "next_observation": "Taken."}
    task = {"task": "t", "instruction": "Take the cup.", "steps": [step]}
    lines = [task | {"trajectory": str(outcome), "outcome": outcome} for outcome in (1, -1)]
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    judge = ("judge", "rollouts.jsonl", "--judge", "nano-guess", "--domain", "text")
    python(tmp_path, "-m", "rlanything", *judge, "--out", "scores.jsonl")
    python(tmp_path, "-m", "rlanything", "feedback", "scores.jsonl", "--out", "signals.jsonl")
    signals = [json.loads(line) for line in (tmp_path / "signals.jsonl").read_text().splitlines()]
    assert [line["trajectory"] for line in signals] == ["1", "-1"]


def test_help_and_doctor_find_nothing_wrong(tmp_path: Path) -> None:
    for words in (("--help",), ("train", "--help"), ("doctor",)):
        python(tmp_path, "-m", "rlanything", *words)
