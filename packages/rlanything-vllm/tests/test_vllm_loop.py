"""The closed loop on vLLM: what was sampled is stored and trained; a run survives its engines."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from helpers.paths import TINY
from rlanything.learning.learner import Learner
from rlanything.progress import Progress
from rlanything.records import Completion
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_vllm.engine import VLLMEngine

ON_VLLM = (
    *(
        "policy.engine={name: vllm, memory_gib: 0.25}",
        "judge.engine={name: vllm, memory_gib: 0.25}",
    ),
    *("policy.minibatches=1", "policy.timeout_seconds=30", "judge.timeout_seconds=30"),
    *("loop.max_steps=8", "evaluation.episodes=2", "evaluation.judged_episodes=2"),
)
QUIET = Progress(Console(quiet=True))


def fingerprint(run: Path) -> dict[str, str]:
    """Of the last weights, and of the store's rows but times."""
    last = sorted((run / "checkpoints").glob("iter-*"))[-1]
    found = {
        file.relative_to(last).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in last.glob("*/model.safetensors")
    }
    store = Store(run / "run.sqlite")
    found["store"] = hashlib.sha256("\n".join(store.dump()).encode()).hexdigest()
    store.close()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    """A finished run, with everything that vLLM sampled and that learners trained on."""
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    sampled: list[Completion] = []
    trained: dict[str, Completion] = {}
    generate, update = VLLMEngine.generate, Learner.update

    def sampling(engine, requests, *rest):
        groups = generate(engine, requests, *rest)
        sampled.extend(each for group in groups for each in group)
        return groups

    def training(learner, samples, *more):
        trained.update({sample.source: sample.completion for _, sample in samples})
        return update(learner, samples, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VLLMEngine, "generate", sampling)
        patch.setattr(Learner, "update", training)
        Trainer(TINY, overrides=[f"run_dir={directory}", *ON_VLLM], progress=QUIET).train()
    return directory, sampled, trained


def test_tokens_trained_are_tokens_sampled_and_tokens_stored(undisturbed) -> None:
    directory, sampled, trained = undisturbed
    drawn = {(each.prompt_ids, each.token_ids, each.logprobs, each.allowed) for each in sampled}
    store = Store(directory / "run.sqlite")
    sources = dict(store.query("SELECT source, role FROM samples"))
    assert sources.keys() == trained.keys()
    assert set(sources.values()) == {"policy", "judge"}
    for source, role in sources.items():
        learned = trained[source]
        assert (learned.prompt_ids, learned.token_ids, learned.logprobs, learned.allowed) in drawn
        episode, *numbers = source.rsplit("/", 1 if role == "policy" else 2)
        step = store.trajectory(episode).steps[int(numbers[0])]
        stored = (
            step.completion if role == "policy" else step.judgements[int(numbers[1])].completion
        )
        assert tuple(stored.token_ids) == learned.token_ids
        assert stored.logprobs == pytest.approx(learned.logprobs, abs=1e-5)
        assert stored.text == learned.text
    store.close()


def test_the_learner_finds_the_probabilities_that_vllm_drew_from(undisturbed) -> None:
    directory, _, _ = undisturbed
    store = Store(directory / "run.sqlite")
    rows = store.query(
        "SELECT iteration, value FROM metrics WHERE name = 'policy/ratio_mean' ORDER BY iteration"
    )
    store.close()
    # One update an iteration: before it, the weights are those that sampled.
    assert [iteration for iteration, _ in rows] == [1, 2]
    assert [value for _, value in rows] == pytest.approx([1.0, 1.0], abs=1e-4)


def worker_of(run: subprocess.Popen) -> int:
    """The policy's vLLM, which is started first; numbers of processes can begin again."""
    started: dict[int, int] = {}
    for process in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        try:
            stat = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            command = Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            continue
        if int(stat[1]) == run.pid and "vllm.worker" in command:
            started[process] = int(stat[19])
    return min(started, key=started.__getitem__)


def strike(directory: Path, number: signal.Signals) -> subprocess.Popen:
    """A run whose policy's vLLM gets a signal after the first iteration."""
    command = [sys.executable, "-m", "rlanything.cli", "train", str(TINY), f"run_dir={directory}"]
    run = subprocess.Popen([*command, *ON_VLLM], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not (directory / "checkpoints" / "iter-00001").exists():
        assert run.poll() is None, run.stderr and run.stderr.read()
        time.sleep(0.05)
    os.kill(worker_of(run), number)
    return run


def test_a_run_whose_vllm_is_killed_goes_on(tmp_path: Path) -> None:
    run = strike(tmp_path / "run", signal.SIGKILL)
    _, complaint = run.communicate(timeout=300)
    assert run.returncode == 0, complaint
    store = Store(tmp_path / "run" / "run.sqlite")
    last = store.last_iteration()
    store.close()
    assert last is not None
    assert last[0] == 2


def test_a_run_whose_vllm_hangs_stops_with_one_line_and_resumes_to_the_same_end(
    undisturbed, tmp_path: Path
) -> None:
    run = strike(tmp_path / "run", signal.SIGSTOP)
    worker = worker_of(run)
    _, complaint = run.communicate(timeout=300)
    assert run.returncode == 2
    [line] = complaint.decode().strip().splitlines()
    assert "policy: " in line
    assert "vLLM was silent for 30 s" in line
    assert f"continue with `rlanything resume {tmp_path / 'run'}`" in line
    assert not Path(f"/proc/{worker}").exists()
    Trainer.resume(tmp_path / "run", progress=QUIET).train()
    assert fingerprint(tmp_path / "run") == fingerprint(undisturbed[0])
