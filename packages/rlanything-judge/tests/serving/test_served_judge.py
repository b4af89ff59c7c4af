"""`rlanything serve` as users start it, and the rewards that other trainers take from it."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.paths import ROOT
from helpers.tiny import tiny_model
from rlanything.cli import app
from rlanything_judge.commands.serve import ServeError, serve
from rlanything_judge.rollouts.formats import LineFormat
from rlanything_judge.rollouts.lines import open_rollouts, read_texts

SERVE = (sys.executable, "-m", "rlanything", "serve", "--port", "0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Address of a server with the shipped judge."""
    command = [*SERVE, "--judge", "nano-guess", "threads=1", "judge.max_tokens=32"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        while "/judge" not in (told := told + process.stderr.readline()):
            assert process.poll() is None, told
        found = re.search(r"http://127\.0\.0\.1:\d+", told)
        assert found is not None
        yield found[0]
        process.terminate()
    assert process.returncode is not None


@pytest.fixture
def rewards(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("rewards", ROOT / "examples/judge_rewards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("RLANYTHING_JUDGE", url)
    return module


def test_an_address_that_is_taken_is_said_before_a_judge_is_loaded() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(ServeError, match="Address already in use; choose another port"):
        serve("nano-guess", port=taken.getsockname()[1])
    with pytest.raises(ServeError, match=r"--host 300\.1\.1\.1 --port 8000: "):
        serve("nano-guess", host="300.1.1.1")


def test_a_reward_function_reads_whatever_a_turn_holds(rewards: Any) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    parts = [{"type": "text", "text": "Two"}, {"type": "text", "text": "parts."}]
    turns = [{"content": None, "tool_calls": [call]}, {"content": parts}, {"content": "Done."}]
    assert rewards._text(turns) == f"{json.dumps(call)}\nTwo\nparts.\nDone."
    assert (rewards._text("As it is."), rewards._text(None)) == ("As it is.", "")


def test_a_reward_function_sends_the_key_of_the_server(
    rewards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str | None] = []

    def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
        del timeout
        sent.append(request.get_header("Authorization"))
        return io.BytesIO(b'{"trajectories": [{"steps": [{"reward": 1.0}]}]}')

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert rewards.scores(["q"], ["a"]) == [1.0]
    monkeypatch.setenv("RLANYTHING_JUDGE_KEY", "secret")
    assert rewards.scores(["q"], ["a"]) == [1.0]
    assert sent == [None, "Bearer secret"]


def asked(url: str, given: Any = None) -> Any:
    body = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_the_judge_that_ships_scores_steps_over_http(url: str) -> None:
    step = {"observation": "You see a drawer 1.", "response": "> open drawer 1"}
    steps = [{**step, "next_observation": "In it, you see a mug 2."}]
    episode = {"task": "t", "instruction": "put a mug in shelf.", "steps": steps}
    given = {"trajectories": [episode], "seed": 3}
    answer = asked(f"{url}/judge", given)
    [judged] = answer["trajectories"][0]["steps"]
    assert len(judged["scores"]) == len(judged["judgements"]) == 3
    assert answer == asked(f"{url}/judge", given)
    assert asked(f"{url}/health")["judgements"] == 6


def test_verl_gets_a_number_for_an_answer(rewards: Any) -> None:
    score = rewards.compute_score("any", "> open drawer 1", None, {"question": "A drawer 1."})
    assert -1 <= score <= 1


@pytest.mark.slow
def test_trl_trains_on_the_judges_scores(rewards: Any, tmp_path: Path) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny_model().save(tmp_path / "model")
    given: list[list[float]] = []

    def reward(**columns: Any) -> list[float]:
        given.append(rewards.trl_reward(**columns))
        return given[-1]

    trainer = trl.GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(tmp_path / "model"),
        reward_funcs=reward,
        args=trl.GRPOConfig(
            **{"output_dir": str(tmp_path / "out"), "max_steps": 1, "num_generations": 4},
            **{"per_device_train_batch_size": 4, "max_completion_length": 8},
            **{"use_cpu": True, "report_to": "none", "save_strategy": "no"},
            **{"log_completions": True, "logging_steps": 1},
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a drawer 1", "a shelf 1"]}),
        processing_class=AutoTokenizer.from_pretrained(tmp_path / "model"),
    )
    trainer.train()
    assert [len(each) for each in given] == [4]
    assert trainer.state.log_history[0]["reward"] == pytest.approx(sum(given[0]) / 4, abs=1e-4)
    # What it keeps of its completions, `rlanything judge --format trl` reads.
    [kept] = (tmp_path / "out" / "completions").glob("*.parquet")
    with open_rollouts(kept) as (file, *_):
        lines = list(read_texts(kept, file, lambda done: None, 0.0, LineFormat("trl")))
    assert [entry["reward"] for _, entry, _ in lines] == pytest.approx(given[0])
    assert {len(trajectory.steps) for *_, trajectory in lines} == {1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--judge", "nano-guess", "--domain", "helpers.at_least:AtLeast"],
            "judges of this domain write tests",
        ),
        (
            ["--judge", "nano-guess", "--key-variable", "NO_KEY"],
            "NO_KEY is empty: set it to the key",
        ),
    ],
)
def test_a_judge_that_cannot_be_served_is_one_line(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["serve", *words])
    assert done.exit_code != 0
    assert said in str(done.exception)
