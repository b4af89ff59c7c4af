"""A served judge that learns from outcomes, and goes on where it was stopped."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from rlanything.cli import app
from rlanything.config.recipe import RecipeError
from rlanything.progress import progress_of
from rlanything.runs.directory import LockedError
from rlanything.runs.recovery import last_position
from rlanything.runs.trainer import Trainer
from rlanything_judge.learning import open_learning_judge
from rlanything_judge.serving import learning as remembering
from rlanything_judge.serving.app import judge_app
from rlanything_judge.serving.batching import BatchingJudge
from rlanything_judge.serving.learning import LearningJudge
from rlanything_judge.source import JudgeSource

WRITES_TESTS = ("--domain", "helpers.at_least:AtLeast")
SETTINGS = ("threads=1", "judge.samples_per_step=4", "checkpoints.keep=2")


class Service:
    """A served judge that learns, as its callers have it."""

    def __init__(self, client: TestClient, lines: list[str]) -> None:
        self.client, self.lines = client, lines

    def judge(self, round: int) -> list[tuple[str, str]]:
        """Has two tasks of four episodes judged, and returns their names."""
        episodes = [episode(f"{round}.{n // 4}", f"{n % 4}") for n in range(8)]
        answer = self.client.post("/judge", json={"trajectories": episodes, "seed": round})
        assert answer.status_code == 200, answer.text
        return [(each["task"], each["trajectory"]) for each in episodes]

    def end(self, names: list[tuple[str, str]]) -> Any:
        """Reports that every second episode was won."""
        outcomes = [
            {"task": task, "trajectory": trajectory, "outcome": 1 if int(trajectory) % 2 else -1}
            for task, trajectory in names
        ]
        answer = self.client.post("/outcomes", json={"outcomes": outcomes})
        assert answer.status_code == 200, answer.text
        return answer.json()


def episode(task: str, trajectory: str) -> dict[str, Any]:
    steps = [
        {"observation": seen, "response": f"1 to 8 > {number}", "next_observation": "Higher."}
        for seen, number in (("You have 4 tries.", 1 + int(trajectory)), ("Higher.", 5))
    ]
    return {
        **{"task": task, "trajectory": trajectory, "steps": steps},
        "instruction": "Guess a number between 1 and 8 in 4 tries.",
    }


@contextmanager
def service(judge: str, out: Path | None, every: int = 8) -> Iterator[Service]:
    lines: list[str] = []
    settings = SETTINGS if out else ()
    source = JudgeSource(judge, settings)
    with open_learning_judge(source, out, progress_of(False)) as run:
        learning = LearningJudge(run, every, lines.append)
        with BatchingJudge(learning, 64) as batching:
            yield Service(TestClient(judge_app("mine", batching, None, learning)), lines)


def weights(directory: Path) -> str:
    checkpoint = last_position(directory, print).checkpoint
    assert checkpoint is not None
    [file] = (checkpoint / "judge").glob("*.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_outcomes_move_the_judge_and_a_stop_changes_nothing(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with service("nano-guess", whole) as served:
        before = weights(whole)
        assert served.end(served.judge(1)) == {"unknown": [], "waiting": 0, "updates": 1}
        assert weights(whole) != before
        names = served.judge(2)
        assert served.end(names[:5])["waiting"] == 5
        assert served.end(names[5:])["updates"] == 2
        assert served.client.get("/health").json()["updates"] == 2
        assert "8 episodes of 2 tasks, 4 won" in served.lines[0]
    with service("nano-guess", parts) as served:
        served.end(served.judge(1))
    with service(str(parts), None) as served:
        assert served.end(served.judge(2))["updates"] == 2
    assert weights(parts) == weights(whole)
    assert sorted(path.name for path in (parts / "checkpoints").iterdir()) == [
        *("iter-00001", "iter-00002")
    ]
    # Whatever reads the judge of a run reads this one; no run goes on there.
    assert JudgeSource(str(parts)).open(progress_of(False)).samples == 4
    with pytest.raises(RecipeError, match="rlanything serve --judge"):
        Trainer.resume(parts)
    with (
        pytest.raises(RecipeError, match="exists already; go on with `rlanything serve --judge"),
        service("nano-guess", parts),
    ):
        pass


def test_a_judge_of_which_nothing_was_kept_does_not_begin_anew_unsaid(tmp_path: Path) -> None:
    with service("nano-guess", tmp_path / "out"):
        pass
    shutil.rmtree(tmp_path / "out" / "checkpoints")
    with (
        pytest.raises(
            RecipeError, match=r"no intact checkpoint of its judge: .*serve nano-guess with"
        ),
        service(str(tmp_path / "out"), None),
    ):
        pass


def test_only_what_was_judged_here_has_an_outcome_and_only_once(tmp_path: Path) -> None:
    with service("nano-guess", tmp_path / "out", every=99) as served:
        names = served.judge(1)
        assert served.end([*names[:1], ("x", "3")]) == {
            **{"unknown": ["x/3"], "waiting": 1, "updates": 0}
        }
        assert served.end(names[:1])["unknown"] == ["1.0/0"]


def test_what_waits_too_long_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST_REMEMBERED", 3)
    with service("nano-guess", tmp_path / "out", every=99) as served:
        names = served.judge(1)
        assert served.end(names)["unknown"] == ["/".join(name) for name in names[:5]]


def test_an_update_that_cannot_be_kept_is_said_and_the_judge_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service("nano-guess", tmp_path / "out", every=1) as served:
        names = served.judge(1)
        with monkeypatch.context() as context:
            context.setattr("rlanything.runs.checkpoint.os.replace", full)
            outcome = {"task": names[0][0], "trajectory": names[0][1], "outcome": 1}
            answer = served.client.post("/outcomes", json={"outcomes": [outcome]})
        assert answer.status_code == 500
        assert "No space left" in answer.json()["detail"]
        assert served.end(names[1:])["waiting"] == 0
        served.judge(2)


def full(*names: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("outcome", [0, 2, 0.5, None, "won"])
def test_an_outcome_is_won_or_lost(tmp_path: Path, outcome: Any) -> None:
    with BatchingJudge(
        JudgeSource("nano-guess", ("threads=1",)).open(progress_of(False)), 8
    ) as batching:
        client = TestClient(judge_app("mine", batching, None))
        given = {"outcomes": [{"task": "t", "outcome": outcome}]}
        assert client.post("/outcomes", json=given).status_code == 422
        given = {"outcomes": [{"task": "t", "outcome": 1}]}
        answer = client.post("/outcomes", json=given)
        assert (answer.status_code, "--learn" in answer.json()["detail"]) == (409, True)


def test_one_process_serves_a_directory(tmp_path: Path) -> None:
    with service("nano-guess", tmp_path / "out"):
        again = JudgeSource(str(tmp_path / "out"))
        with pytest.raises(LockedError), open_learning_judge(again, None, progress_of(False)):
            pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judge", "nano-guess", "--learn"], "name the new directory"),
        (["--judge", "nano-guess", "--out", "x"], "add --learn"),
        (["--judge", "nano-guess", "--learn", "--out", "x", "judge.train=false"], "does not learn"),
        (["--judge", "nano-guess", *WRITES_TESTS, "--learn", "--out", "x"], "write tests"),
    ],
)
def test_a_judge_that_cannot_learn_is_one_line(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["serve", *words])
    assert done.exit_code != 0
    assert said in str(done.exception)
