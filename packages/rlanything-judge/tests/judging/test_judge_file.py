"""A judge on rollouts made elsewhere: scores beside texts, in order, none lost, none twice."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from helpers.fake_endpoint import MODEL, FakeEndpoint
from helpers.tiny import tiny_model
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.cli import app
from rlanything.config.recipe import RecipeError
from rlanything.progress import Progress
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.llm import LLMJudge
from rlanything_judge.file import JudgeFileArgs, run_judge_file
from rlanything_judge.rollouts.lines import RolloutsError
from rlanything_judge.rollouts.signals import write_signals
from rlanything_judge.source import JudgeSource

QUIET = Progress(Console(quiet=True))
SAID = "You open the drawer 1. In it, you see a mug 2."


def line(task: str, number: int, **changes: Any) -> dict[str, Any]:
    step = {
        "observation": "You are in the middle of a room. You see a drawer 1 and a shelf 1.",
        "response": "a new place. > open drawer 1",
        "next_observation": SAID,
    }
    entry = {"task": task, "trajectory": f"{number}", "instruction": "put a mug in shelf."}
    return {**entry, "outcome": 1 - 2 * (number % 2), "steps": [step] * (1 + number), **changes}


LINES = [line(task, number) for task in "ab" for number in range(3)]


def request(folder: Path, lines: Sequence[Any] = LINES, **changes: Any) -> JudgeFileArgs:
    rollouts = folder / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    out = changes.pop("out", folder / "scored.jsonl")
    settings: dict[str, Any] = {
        "name": "nano-guess",
        "overrides": ("threads=1", "judge.max_tokens=32"),
    }
    return JudgeFileArgs(rollouts, JudgeSource(**{**settings, **changes}), out)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lines, judged by the judge that ships."""
    asked = request(tmp_path_factory.mktemp("scored"))
    result = run_judge_file(asked, QUIET)
    assert (result.trajectories, result.steps, result.judgements) == (6, 12, 36)
    assert result.earlier == 0
    assert not asked.partial.exists()
    return asked.out


def test_every_line_comes_back_in_its_place_with_m_scores_and_reasons_a_step(
    scored: Path,
) -> None:
    lines = read(scored)
    for given, back in zip(LINES, lines, strict=True):
        assert {**back, "steps": None} == {**given, "steps": None}
        for step in back["steps"]:
            assert step["next_observation"] == SAID
            assert len(step["scores"]) == len(step["judgements"]) == 3
            assert set(step["scores"]) <= {1, -1, 0}
    # It reasons: what it was taught to say of any step.
    said = " ".join(text for each in lines for step in each["steps"] for text in step["judgements"])
    assert "boxed" in said


def test_what_was_judged_is_what_feedback_reads(scored: Path, tmp_path: Path) -> None:
    out = tmp_path / "signals.jsonl"
    summary = write_signals(scored, out, FeedbackSettings(), lambda done, total: None)
    assert (summary.trajectories, summary.tasks, summary.judgements) == (6, 2, 36)
    assert summary.policy_samples > 0


def test_interrupted_it_goes_on_and_ends_with_the_same_bytes(
    scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, judge = request(tmp_path), LLMJudge.judge
    seen: list[int] = []

    def dying(
        self: LLMJudge, trajectories: Sequence[Trajectory], *more: Any
    ) -> list[JudgedTrajectory]:
        seen.append(len(trajectories))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return judge(self, trajectories, *more)

    monkeypatch.setattr("rlanything_judge.file.TOGETHER", 2)
    monkeypatch.setattr(LLMJudge, "judge", dying)
    with pytest.raises(KeyboardInterrupt):
        run_judge_file(asked, QUIET)
    assert not asked.out.exists()
    with asked.partial.open("ab") as file:
        file.write(b'{"task": "b", "half')
    result = run_judge_file(asked, QUIET)
    assert seen == [2, 2, 2, 2]
    assert (result.trajectories, result.earlier, result.judgements) == (6, 4, 36)
    assert asked.out.read_bytes() == scored.read_bytes()


def test_lines_that_a_stop_may_cut_are_not_written_to_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RolloutsError, match="--out -: these lines go to a file"):
        run_judge_file(replace(request(tmp_path), out=Path("-")), QUIET)
    assert not Path("-").exists()


def test_other_rollouts_under_the_same_name_are_not_taken_for_those_judged(tmp_path: Path) -> None:
    asked = request(tmp_path)
    asked.partial.write_text(json.dumps(line("z", 0)) + "\n")
    with pytest.raises(RolloutsError, match="line 1: not the trajectory that was judged before"):
        run_judge_file(asked, QUIET)
    # Nor are other texts of the same trajectory.
    asked.partial.write_text(json.dumps(line("a", 0, instruction="put a pen in shelf.")) + "\n")
    with pytest.raises(RolloutsError, match="line 1: not the trajectory that was judged before"):
        run_judge_file(asked, QUIET)


def test_rollouts_that_were_taken_out_after_a_stop_do_not_stay_in_the_output(
    scored: Path, tmp_path: Path
) -> None:
    asked = request(tmp_path, LINES[:4])
    asked.partial.write_bytes(scored.read_bytes())
    with pytest.raises(RolloutsError, match=r"fewer trajectories than were judged.*; remove .*all"):
        run_judge_file(asked, QUIET)
    assert asked.partial.read_bytes() == scored.read_bytes()


def test_two_processes_do_not_write_the_same_lines(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with asked.partial.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RolloutsError, match="another process judges the same into it; wait"):
            run_judge_file(asked, QUIET)
        assert asked.partial.exists(), "the other one goes on"


def test_any_model_is_asked_in_plain_words_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    asked = request(tmp_path, name=str(tmp_path / "model"))
    words = ["judge", str(asked.rollouts), "--judge", asked.judge.name, "--out", str(asked.out)]
    done = CliRunner().invoke(app, [*words, *asked.judge.overrides])
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert "6 trajectories, 12 steps, 36 judgements" in told
    scores = [
        score for each in read(asked.out) for step in each["steps"] for score in step["scores"]
    ]
    unread = scores.count(0)
    assert unread > 30  # its weights are random
    assert f"no readable score (0) in {unread} of 36 judgements" in told


def test_an_endpoint_judges_too(tmp_path: Path, fake: FakeEndpoint) -> None:
    fake.say = lambda body: "It opens what is closed. \\boxed{1}"
    engine = f"judge.engine={{name: openai, url: {fake.url}, key_variable: MY_KEY}}"
    asked = request(tmp_path, [line("a", 0)], name=MODEL, overrides=(engine,))
    run_judge_file(asked, QUIET)
    [step] = read(asked.out)[0]["steps"]
    assert step["scores"] == [1, 1, 1]
    [message] = fake.bodies[0]["messages"]
    assert SAID in message["content"]
    assert "put a mug in shelf." in message["content"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"instruction": None}, "line 1: 'instruction' is no text; write it as"),
        ({"steps": [{"observation": "", "response": ""}]}, "step 1: 'next_observation' is no text"),
        ({"steps": [3]}, "step 1 is 3, not an object"),
        ({"outcome": 0.5}, "'outcome' is 0.5; give 1"),
    ],
)
def test_a_bad_line_is_named_and_what_was_judged_is_kept(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(RolloutsError, match=said):
        run_judge_file(request(tmp_path, [line("a", 0, **changed)]), QUIET)
    assert not list(tmp_path.glob(".*"))  # of this nothing was


def test_a_dump_of_verl_becomes_what_feedback_reads(tmp_path: Path) -> None:
    dump = [
        {"input": f"{n % 2}+1?", "output": "> two", "gts": "", "score": n / 4, "step": 1}
        for n in range(4)
    ]
    asked = request(tmp_path, dump, domain="text")
    with pytest.raises(RolloutsError, match=r"rollout of verl with reward 0\.0; say with --win-at"):
        run_judge_file(asked, QUIET)
    asked = replace(asked, win_at=0.5)
    assert run_judge_file(asked, QUIET).judgements == 12
    scored = read(asked.out)
    assert [each["outcome"] for each in scored] == [-1, -1, 1, 1]
    assert {len(each["steps"][0]["scores"]) for each in scored} == {3}
    write_signals(asked.out, tmp_path / "signals.jsonl", FeedbackSettings(), lambda *done: None)
    assert len({each["task"] for each in read(tmp_path / "signals.jsonl")}) == 2


def test_prompts_of_a_domain_that_one_names_are_code_that_one_trusts() -> None:
    assert JudgeSource("nano-guess", domain="my_domain:Words").recipe().code == ["my_domain:Words"]


def test_requests_that_cannot_be_met_are_one_line(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with pytest.raises(RolloutsError, match="there is no such file"):
        run_judge_file(JudgeFileArgs(tmp_path / "no", asked.judge, asked.out), QUIET)
    with pytest.raises(RolloutsError, match="its folder does not exist"):
        run_judge_file(request(tmp_path, out=tmp_path / "no" / "out"), QUIET)
    with pytest.raises(RecipeError, match="judges of this domain write tests"):
        run_judge_file(request(tmp_path, domain="helpers.at_least:AtLeast"), QUIET)
    with pytest.raises(RecipeError, match=r"policy\.max_tokens: a judge alone does not read it"):
        run_judge_file(request(tmp_path, overrides=("policy.max_tokens=9",)), QUIET)
    with pytest.raises(RecipeError, match="--domain: a run and a recipe have their own"):
        run_judge_file(request(tmp_path, name="guess", domain="text"), QUIET)
    with pytest.raises(RecipeError, match="there is no such run, recipe or folder"):
        run_judge_file(request(tmp_path, name="runs/nothing"), QUIET)
    for name, said in (("verl", "'input' is missing"), ("x", "use one of auto, rlanything, p")):
        with pytest.raises(RolloutsError, match=said):
            run_judge_file(replace(asked, line_format=name), QUIET)
    for name in ("auto", "rlanything"):
        other = replace(asked, line_format=name, win_at=1.0, rewards=("won",))
        with pytest.raises(RolloutsError, match="--reward"):
            run_judge_file(other, QUIET)
    with pytest.raises(RolloutsError, match="the file is empty"):
        run_judge_file(request(tmp_path, []), QUIET)
    with pytest.raises(RolloutsError, match=r"choose a name without \.gz"):
        run_judge_file(request(tmp_path, out=tmp_path / "out.jsonl.gz"), QUIET)
    asked.out.touch()
    with pytest.raises(RolloutsError, match="exists already"):
        run_judge_file(asked, QUIET)
