"""`rlanything feedback` on the command line: one line of signals per trajectory, or one error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command import call, refused


def rollouts_file(path: Path, *extra: str) -> Path:
    lines = [
        json.dumps(
            {
                "task": "t",
                "trajectory": str(i),
                "outcome": 1 if i % 2 else -1,
                "steps": [{"scores": [1, -1, 1 if i else -1]}],
            }
        )
        for i in range(4)
    ]
    path.write_text("\n".join([*lines, *extra]) + "\n")
    return path


def test_feedback_writes_one_line_of_signals_per_trajectory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, out = rollouts_file(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    assert call(monkeypatch, "feedback", str(source), "--out", str(out)) == 0
    signals = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["trajectory"] for each in signals] == ["0", "1", "2", "3"]
    assert all(each["accuracy"] == 0.5 for each in signals)
    assert signals[1]["policy"][0] > 0 > signals[0]["policy"][0]
    assert len(signals[0]["judge"][0]) == 3


def test_feedback_lambda_zero_leaves_the_outcome_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, out = rollouts_file(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    call(monkeypatch, "feedback", str(source), "--out", str(out), "policy_lambda=0")
    signals = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["policy"][0] for each in signals] == pytest.approx([-1, 1, -1, 1])


def test_an_adaptive_lambda_is_measured_over_all_tasks_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [(task, outcome) for task in "abc" for outcome in (1, -1)]
    for sign, said in ((1, "lambda of Eq. 1: 2, "), (-1, "lambda of Eq. 1: 0, ")):
        lines = [
            {"task": task, "trajectory": f"{o}", "outcome": o, "steps": [{"scores": [sign * o]}]}
            for task, o in members
        ]
        source, out = tmp_path / f"in{sign}.jsonl", tmp_path / f"out{sign}.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        settings = ["policy_lambda=2", "policy_lambda_control=adaptive", "advantage=leave_one_out"]
        assert call(monkeypatch, "feedback", str(source), "--out", str(out), *settings) == 0
        assert said in capsys.readouterr().err
        policy = [json.loads(line)["policy"] for line in out.read_text().splitlines()]
        assert policy == [[2 * o * (3 if sign == 1 else 1)] for _, o in members]


def test_a_window_without_the_accuracy_trains_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, out = rollouts_file(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    call(monkeypatch, "feedback", str(source), "--out", str(out), "policy_window=[0.6, 0.8]")
    signals = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(each["policy"] == [None] for each in signals)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"task": "t", "trajectory": "x", "outcome": 1', "line 5"),
        ('{"task": "t", "trajectory": "x", "outcome": 1, "steps": [{"scores": [2]}]}', "line 5"),
        ('{"task": "t", "trajectory": "x", "outcome": 0, "steps": []}', "outcome"),
    ],
)
def test_a_bad_rollouts_line_is_named_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    line: str,
    said: str,
) -> None:
    source, out = rollouts_file(tmp_path / "in.jsonl", line), tmp_path / "out.jsonl"
    assert said in refused(monkeypatch, capsys, "feedback", str(source), "--out", str(out))
    assert not out.exists()


def test_a_window_upside_down_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = rollouts_file(tmp_path / "in.jsonl")
    arguments = ["feedback", str(source), "--out", str(tmp_path / "o"), "judge_window=[1, 0]"]
    assert "feedback.judge_window: " in refused(monkeypatch, capsys, *arguments)
