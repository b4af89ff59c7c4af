"""`rlanything serve-policy`: what it refuses, and that it goes on with the same weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from helpers.agents import Bridge
from helpers.command import refused
from helpers.paths import ROOT
from rlanything.config.recipe import RecipeError
from rlanything.engines.shipped import NAMES
from rlanything.evaluation.intervals import paired_difference
from rlanything.progress import progress_of
from rlanything.runs.recovery import last_position
from rlanything.runs.trainer import Trainer
from rlanything_agent.serving.app import Keys, PolicyApi
from rlanything_agent.serving.journal import Journal
from rlanything_agent.serving.run_command import JOURNAL, PolicySource, open_policy
from rlanything_agent.serving.service import PolicyService, ServiceSettings

SETTINGS = ("threads=1", "feedback.policy_reward=outcome", "judge.train=false")
SETTINGS += ("checkpoints.keep=9",)
ADAPTIVE = "feedback.policy_lambda_control=adaptive"
BY_JUDGE = "feedback.policy_reward=judge"
EVERY = 4
SAME_KEYS = ("guess", "--learn", "--out", "x", "--key-variable", "ASK")
SAME_KEYS += ("--outcome-key-variable", "ASK")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    while STARTED:
        STARTED.pop().kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["guess", "--learn"], "--learn: name the directory that is to keep what it learns"),
        (["guess", "--out", "x"], "--out: only for --learn"),
        (["guess", "--idle-seconds", "9"], "--idle-seconds: only for --learn"),
        (["guess", "--host", "0.0.0.0"], "anybody who reaches this address could use the policy"),
        (["guess", "--learn", "--out", "x", "--host", "0.0.0.0"], "choose a key"),
        (["guess", "--learn", "--out", "x", "--key-variable", "ASK"], "--learn: give both keys"),
        (["guess", "--outcome-key-variable", "TEACH"], "--outcome-key-variable: only for"),
        ([*SAME_KEYS], "it is the key of all clients"),
        (["guess", "--key-variable", "NO_KEY"], "NO_KEY is empty"),
        (["nano-guess"], "nano-guess is no run and no recipe"),
        (["guess", "--learn", "--out", "."], "exists and is no served policy"),
        (["coding-nano", "--learn", "--out", "x"], "judges of coding write tests"),
        (["guess", "--learn", "--out", "x", ADAPTIVE], "set feedback.policy_lambda_control=fixed"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASK", "one")
    monkeypatch.setenv("TEACH", "two")
    assert said in refused(monkeypatch, capsys, "serve-policy", *arguments, "--port", "0")
    assert list(tmp_path.iterdir()) == []


def weights(directory: Path, number: int) -> str:
    [file] = (directory / "checkpoints" / f"iter-{number:05d}" / "policy").glob("*.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def served(
    name: str, out: Path, *settings: str, replay: Path | None = None, judged_alone: bool = False
) -> Iterator[PolicyService]:
    chosen = () if name == str(out) else (*SETTINGS, *settings)
    source = PolicySource(name, chosen, judged_alone=judged_alone)
    with open_policy(source, out, replay, progress_of(False)) as (policy, version):
        assert policy.reads_calls
        with closing(Journal(out / JOURNAL)) as journal:
            serving = ServiceSettings(policy.recipe.seed, EVERY)
            service = PolicyService(policy, journal, version, serving, print)
            service.catch_up()
            thread = threading.Thread(target=service.run, daemon=True)
            thread.start()
            yield service
            service.stop()
            thread.join(60)


def play(service: PolicyService, secrets: list[int], first: int = 0) -> None:
    """Plays games through OpenAI's client, from the `first` on, and waits for the last update."""
    import guess_client
    import openai
    from starlette.testclient import TestClient

    local = TestClient(PolicyApi(service, Keys(), local=False).app)
    client = openai.OpenAI(
        base_url="http://testserver/v1", api_key="none", http_client=Bridge(local)
    )
    for number in range(first, len(secrets)):
        last, _ = guess_client.play(client, secrets[number], 2)
        outcome = {"id": last, "outcome": 1 if number % 2 else -1}
        assert local.post("/outcomes", json={"outcomes": [outcome]}).status_code == 200
    while service.health()["updates_due"]:
        threading.Event().wait(0.05)


def test_it_learns_goes_on_and_repeats_bit_for_bit(tmp_path: Path) -> None:
    whole, parts, again = tmp_path / "whole", tmp_path / "parts", tmp_path / "again"
    secrets = [3, 7, 1, 5, 2, 8, 6, 4]
    with served("guess", whole) as service:
        play(service, secrets)
        assert service.version == 2
    assert len({weights(whole, number) for number in range(3)}) == 3
    with served("guess", parts) as service:
        play(service, secrets[:3])
    with served("guess", parts) as service:  # the same command
        assert service.version == 0
        assert service.health()["ended_episodes"] == 3
        play(service, secrets, 3)
    with served(str(parts), parts) as service:  # or by the directory alone
        assert service.version == 2
    assert [weights(parts, number) for number in range(3)] == [
        weights(whole, number) for number in range(3)
    ]
    with served("guess", again, replay=whole) as service:
        assert service.version == 2
    assert weights(again, 2) == weights(whole, 2)
    # The same conversations without their outcomes: judges alone score them.
    events = [json.loads(line) for line in (whole / JOURNAL).read_text().splitlines()]
    unknown = [each | {"outcome": None} if each["kind"] == "ended" else each for each in events]
    (whole / JOURNAL).write_text("".join(f"{json.dumps(each)}\n" for each in unknown))
    judged = tmp_path / "judged"
    with served("guess", judged, BY_JUDGE, replay=whole, judged_alone=True) as service:
        assert service.version == 2
    assert weights(judged, 2) not in (weights(judged, 0), weights(whole, 2))
    with (
        pytest.raises(RecipeError, match="was begun with other settings of `roles`"),
        served("guess", parts, "policy.learning_rate=1e-5"),
    ):
        pass
    with pytest.raises(RecipeError, match="go on with `rlanything serve-policy"):
        Trainer.resume(parts)


def test_a_policy_that_learns_elsewhere_is_served_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tinker")
    from helpers.tinker_service import KEY, tinker_service

    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    out, models = tmp_path / "out", {"tiny/policy": NAMES["nano-guess"] / "policy"}
    with tinker_service(models) as (_, url):
        monkeypatch.setenv("RLANYTHING_KEYS", "TINKER_API_KEY@127.0.0.1")
        learner = f"policy.learner={{name: tinker, url: '{url}'}}"
        there = (learner, "policy.model=tiny/policy", "policy.lora={rank: 4}")
        there += ("policy.decoding=free", "policy.temperature=1.0")
        with served("guess", out, *there) as service:
            assert not service._policy.exact  # its caches and seeds are the service's
            play(service, [3, 7, 1, 5])
            assert service.version == 1
        with served(str(out), out) as service:
            play(service, [3, 7, 1, 5, 2, 8, 6, 4], 4)
            assert service.version == 2
    saved = [out / f"checkpoints/iter-0000{n}/policy/tinker.json" for n in range(3)]
    assert [json.loads(file.read_text())["updates"] for file in saved] == [0, 4, 8]  # minibatches


class Process:
    """A server of its own, at a free port."""

    def __init__(self, *arguments: str, port: str = "0") -> None:
        words = [sys.executable, "-m", "rlanything.cli", "serve-policy", *arguments]
        self.process = subprocess.Popen(
            [*words, "--port", port], stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        STARTED.append(self.process)
        assert self.process.stderr is not None
        self.said = ""
        while not (found := re.search(r"http://127.0.0.1:\d+", self.said)):
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        self.address = found[0]
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self, how: int = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.process.wait(60)


def guessed(address: str, count: int, seed: int, learns: bool) -> list[bool]:
    import guess_client

    return guess_client.main(address, count, seed, learns)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_game_changes_no_weights(tmp_path: Path) -> None:
    command = ["guess", *SETTINGS, "--learn", "--learn-every", "4", "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    server = Process(*command, str(whole))
    won = guessed(server.address, 12, 7, learns=True)
    server.end()
    server = Process(*command, str(killed))
    port = server.address.rpartition(":")[2]
    playing = Played(server.address)
    playing.start()
    for answers in (5, 11, 17):
        while playing.answers(server.address) < answers:
            assert playing.is_alive()
            threading.Event().wait(0.01)
        server.end(signal.SIGKILL)
        server = Process(*command, str(killed), port=port)
    playing.join(300)
    server.end()
    assert playing.won == won
    last = last_position(whole, print).iteration
    assert [weights(killed, n) for n in range(last + 1)] == [
        weights(whole, n) for n in range(last + 1)
    ]


class Played(threading.Thread):
    """A client that plays on, whatever becomes of its server."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.won: list[bool] = []

    def run(self) -> None:
        self.won = guessed(self.address, 12, 7, learns=True)

    @staticmethod
    def answers(address: str) -> int:
        return httpx2.get(f"{address}/health").json()["answers"]


@pytest.mark.slow
def test_it_improves_over_200_games_of_a_client_that_knows_nothing_of_it(tmp_path: Path) -> None:
    served = tmp_path / "served"
    learning = ["--learn", "--learn-every", "20", "--out", str(served)]
    server = Process("guess", *SETTINGS, *learning)
    guessed(server.address, 200, 7, learns=True)
    while httpx2.get(f"{server.address}/health").json()["updates_due"]:
        threading.Event().wait(0.1)
    server.end()
    results: list[list[bool]] = []
    for name in ("guess", str(served)):  # on other numbers, before and after
        server = Process(name, "threads=1")
        results.append(guessed(server.address, 200, 8, learns=False))
        server.end()
    before, after = results
    print(f"won {sum(before)} of 200 before, {sum(after)} after")
    gain = paired_difference(before, after)
    print(gain)
    assert gain is not None
    assert gain.low > 0


def test_half_a_line_that_a_signal_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: int) -> None:
        raise KeyboardInterrupt

    with closing(Journal(tmp_path / "journal")) as journal:
        journal.write({"kind": "first"})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                journal.write({"kind": "a long one", "text": "x" * 99})
        journal.write({"kind": "last"})
        assert [event["kind"] for event in journal.events()] == ["first", "last"]
