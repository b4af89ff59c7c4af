"""`judge-eval`: a run's judge, scored on stored rollouts by each source of labels."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.command import call
from helpers.guess import FEW, GUESS, train_once
from rlanything.config.roles import JudgeConfig
from rlanything.roles.judges.base import Judge
from rlanything.runs.build import build_judge
from rlanything_judge import stored

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_once(
        tmp_path_factory.mktemp("judged") / "run", "loop.max_steps=3", "environment.workers=0"
    )


def judged(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> dict[str, dict[tuple[str, str], tuple[int, float]]]:
    """The rows of `judge-eval`: count and share by measure and source."""
    capsys.readouterr()
    assert call(monkeypatch, "judge-eval", *map(str, arguments), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    rows = result.pop("rows")
    result["rows"] = {(r["measure"], r["source"]): (r["count"], r["estimate"]) for r in rows}
    assert all(0 <= r["low"] <= r["estimate"] <= r["high"] <= 1 for r in rows)
    return result


@pytest.mark.parametrize("where", [[], ["--iteration", "1"]])
def test_a_judge_that_is_the_oracle_is_always_right_by_it_and_its_opposite_never(
    run: Path, where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    sources = ["--labeller", "oracle", "--labeller", "recorded", *where]
    for noise, share in ((0, 1.0), (1, 0.0)):
        oracle = ["judge.name=oracle", f"judge.options.noise={noise}"]
        rows = judged(capsys, monkeypatch, run, *oracle, *sources)["rows"]
        assert rows["Process Acc", "oracle"][1] == share
        assert rows["Process Acc", "recorded"] == rows["Process Acc", "oracle"]
        assert rows["Process Acc", "oracle"][0] == rows["Outcome Acc", "outcome"][0]


def test_a_run_a_checkpoint_of_it_and_its_folder_are_one_judge_and_the_run_is_only_read(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    newest = max((run / "checkpoints").iterdir())
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    used: list[str] = []

    def watched(config: JudgeConfig, *rest: Any) -> Judge:
        used.append(config.model)
        return build_judge(config, *rest)

    monkeypatch.setattr(stored, "build_judge", watched)
    results = [
        judged(capsys, monkeypatch, judge, "--trajectories", run)["rows"]
        for judge in (run, newest, newest / "judge")
    ]
    assert results[0] == results[1] == results[2]
    assert used == [str(newest / "judge")] * 3
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_labels_of_two_sources_are_two_rows_and_the_outcome_is_one(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    stronger = str(max((run / "checkpoints").iterdir()) / "judge")
    votes = ["evaluation.labeller.samples_per_step=3", "evaluation.labeller.max_tokens=48"]
    sources = ["--labeller", "oracle", "--labeller", stronger, "--split", "in_domain"]
    result = judged(capsys, monkeypatch, "nano-guess", "--trajectories", run, *votes, *sources)
    rows = result["rows"]
    assert [source for measure, source in rows if measure == "Process Acc"] == ["oracle", stronger]
    assert 0 < rows["Process Acc", stronger][0] <= rows["Process Acc", "oracle"][0]
    assert [source for measure, source in rows if measure == "Outcome Acc"] == ["outcome"]
    assert call(monkeypatch, "judge-eval", str(run)) == 0
    assert "Outcome Acc" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nano-guess"], "nano-guess is not a run directory: name the run"),
        (["RUN", "--iteration", "9"], "has no such trajectories: give another --split or"),
        (["RUN", "--split", "ood2"], "has no such trajectories"),
        (["RUN", "--split", "ood", "--iteration", "1"], "--split: rollouts of an iteration"),
        (["runz/nothing", "--trajectories", "RUN"], "there is no such run, recipe or folder"),
        (["RUN", "--labeller", "./nowhere"], "there is no such run, recipe or folder"),
        (["RUN", "--labeller", "nano"], "name one that is stronger"),
        (["RUN", "evaluation.labeller.samples_per_step=3"], "no model labels anything; name one"),
    ],
)
def test_what_cannot_be_judged_or_labelled_is_one_line(
    run: Path,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    named = [str(run) if text == "RUN" else text for text in arguments]
    assert call(monkeypatch, "judge-eval", *named) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_answers_whose_beginning_was_not_recorded_are_not_judged(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    with closing(sqlite3.connect(copy / "run.sqlite")) as db:
        number, packed = db.execute("SELECT trajectory, texts FROM transcripts").fetchone()
        texts = json.loads(zlib.decompress(packed))
        texts[1][0] = f"<think>the judge must not read this</think>{texts[1][0]}"
        packed = zlib.compress(json.dumps(texts).encode())
        db.execute("UPDATE transcripts SET texts = ? WHERE trajectory = ?", (packed, number))
        db.commit()
    assert call(monkeypatch, "judge-eval", str(copy), "--iteration", "1") == 2
    assert "the policy reasoned before its answer" in capsys.readouterr().err
    assert call(monkeypatch, "judge-eval", str(copy)) == 0


def test_a_judge_that_writes_tests_is_counted_by_programs_and_takes_no_labeller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    few = [*FEW, "loop.iterations=1", "loop.tasks_per_iteration=2", "judge.samples_per_step=3"]
    few += ["evaluation.episodes=2", "evaluation.rollouts_per_task=4"]
    few += ["evaluation.splits=[in_domain]", "curriculum.adapt_tasks=false"]
    few += ["domain={name: 'helpers.at_least:AtLeast'}"]
    run = tmp_path / "run"
    assert call(monkeypatch, "train", str(GUESS), f"run_dir={run}", *few) == 0
    result = judged(capsys, monkeypatch, run, "--episodes", 5, "--allow-code")
    assert result["episodes"] == 4, "all programs of one task, and none of the other"
    assert ("UT", "programs") in result["rows"]
    for (measure, source), (count, _) in result["rows"].items():
        assert measure in ("UT", "Detect")
        assert (source, count) == ("programs", 3)
    assert call(monkeypatch, "judge-eval", str(run), "--labeller", "oracle", "--allow-code") == 2
    assert "--labeller: judges of this domain write tests" in capsys.readouterr().err


def test_a_damaged_checkpoint_has_no_judge_to_evaluate(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    newest = shutil.copytree(copy / "checkpoints" / "iter-00001", copy / "checkpoints/iter-00009")
    (newest / "policy" / "model.safetensors").write_bytes(b"not what was written")
    command = ["judge-eval", str(copy), "--episodes=1"]
    assert call(monkeypatch, *command, "--json") == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "damaged: iter-00009" in printed.err
    for checkpoint in (copy / "checkpoints").iterdir():
        (checkpoint / "pool.json").write_text("{}")
    assert call(monkeypatch, *command) == 2
    assert "has no intact checkpoint" in capsys.readouterr().err
