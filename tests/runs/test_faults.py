"""Faults are contained: what each costs, and what is kept."""

from __future__ import annotations

import io
import math
import pickle
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from helpers.guess import FEW, GUESS
from helpers.paths import TESTS
from helpers.tiny import completion_of, tiny_model
from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.cli import _fixable
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.domains.base import EpisodeError, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.engines.base import (
    DivergedError,
    ModelError,
    PromptsTooLong,
    Request,
    Sampling,
)
from rlanything.engines.deadline import GenerationTimeout, TimedEngine
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.progress import Progress
from rlanything.records import Completion, Sample, Task
from rlanything.runs.checkpoint import CheckpointError
from rlanything.runs.directory import explain
from rlanything.runs.lineage import read_lineage
from rlanything.runs.metrics.measuring import read
from rlanything.runs.session import NothingPlayed
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

QUIET = Progress(Console(quiet=True))


def samples(count: int, logprob: float = -1.0) -> list[tuple[str, Sample]]:
    made = [completion_of((1, 2, i + 3), (4, 5), logprobs=(logprob, logprob)) for i in range(count)]
    return [(f"t{i}", Sample(f"t{i}/0", c, 1.0 - 2 * (i % 2))) for i, c in enumerate(made)]


def parameters(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.network.parameters()])


def plant_nan(model) -> None:
    with torch.no_grad():
        next(iter(model.network.parameters())).view(-1)[7] = math.nan


def test_a_nan_in_a_weight_skips_updates_and_stops_after_three_with_the_weights_kept():
    model = tiny_model()
    plant_nan(model)
    before = parameters(model)
    learner = Learner(model, TrainedRoleConfig(learning_rate=0.1, minibatches=2))
    assert learner.update(samples(4), 0)["skipped_updates"] == 2
    with pytest.raises(DivergedError, match="3 updates in a row was not finite"):
        learner.update(samples(4), 1)
    torch.testing.assert_close(parameters(model), before, rtol=0, atol=0, equal_nan=True)


def test_an_update_that_is_not_finite_is_left_out_and_the_others_are_made():
    # A log-prob of NaN makes the loss of its minibatch NaN, and that of no other.
    good, bad = samples(1), samples(2, logprob=math.nan)[1:]
    settings = TrainedRoleConfig(learning_rate=0.1, minibatches=2)
    mixed, alone = tiny_model(), tiny_model()
    statistics = Learner(mixed, settings).update([*good, *bad], 0)
    assert (statistics["updates"], statistics["skipped_updates"]) == (1, 1)
    assert math.isfinite(statistics["loss"] or math.nan)
    Learner(alone, TrainedRoleConfig(learning_rate=0.1)).update(good, 0)
    torch.testing.assert_close(parameters(mixed), parameters(alone), rtol=0, atol=0)


def test_a_good_update_starts_the_count_anew():
    model = tiny_model()
    learner = Learner(model, TrainedRoleConfig(learning_rate=0.1, max_skipped_updates=2))
    for seed in range(4):
        learner.update(samples(1, logprob=math.nan if seed % 2 == 0 else -1.0), seed)


def test_a_model_without_probabilities_is_named_instead_of_sampled():
    model = tiny_model()
    plant_nan(model)
    for temperature in (0.0, 1.0):
        with pytest.raises(ModelError, match="logits are not numbers"):
            HFEngine(model).generate([Request((7, 1, 2), (0,))], Sampling(temperature, 4))


def test_weights_that_diverged_are_called_so_and_not_resumed(tmp_path: Path) -> None:
    model = tiny_model()
    plant_nan(model)
    with pytest.raises(DivergedError, match="Begin a new run with a lower learning_rate"):
        LanguageModel(model.network, model.tokenizer)
    (tmp_path / "run.sqlite").touch()
    fault, diverged = ValueError("full"), DivergedError()
    for error in (fault, diverged):
        explain(error, tmp_path, load_recipe(GUESS, FEW))
    assert fault.__notes__ == [f"continue with `rlanything resume {tmp_path}`"]
    assert not hasattr(diverged, "__notes__")
    own = load_recipe({"name": "r", "domain": {"name": "mine:Own"}}, allow_code=True)
    explain(fault, tmp_path, own)
    assert fault.__notes__[-1] == f"continue with `rlanything resume {tmp_path} --allow-code`"
    assert str(pickle.loads(pickle.dumps(diverged))) == str(diverged)


class SleepingEngine:
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        time.sleep(self.seconds)
        return [[] for _ in requests]

    def sync_weights(self) -> None: ...

    def release_cache(self) -> None: ...


def test_a_generation_call_that_hangs_meets_its_time_out():
    before = signal.getsignal(signal.SIGALRM)
    begun = time.monotonic()
    with pytest.raises(GenerationTimeout, match=r"raise judge\.timeout_seconds"):
        TimedEngine(SleepingEngine(30), 0.2, "judge").generate([], Sampling(1.0, 1))
    assert time.monotonic() - begun < 5
    assert signal.getsignal(signal.SIGALRM) is before
    assert TimedEngine(SleepingEngine(0), 5, "judge").generate([], Sampling(1.0, 1)) == []


def test_the_alarm_of_whoever_calls_goes_on_after_a_generation_call():
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    left, _ = signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        TimedEngine(SleepingEngine(0.05), 5, "judge").generate([], Sampling(1.0, 1))
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 1.96
        time.sleep(2.5)
        assert heard == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)


def test_tasks_that_kill_or_stop_their_workers_are_quarantined_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TESTS / "helpers")
    run = tmp_path / "run"
    changes = [f"run_dir={run}", "domain={name: 'deadly:Deadly'}"]
    changes += ["environment.timeout_seconds=1", "loop.tasks=3", "loop.tasks_per_iteration=3"]
    changes += ["evaluation.episodes=0", "loop.iterations=2", "loop.rollouts_per_task=1"]
    changes += ["environment.workers=2"]
    Trainer(GUESS, overrides=[*FEW, *changes], progress=QUIET).train()
    store = Store(run / "run.sqlite")
    slots = {slot["slot"]: slot for slot in read_lineage(store)}
    reason = "its worker died or hung 3 times in a row"
    assert slots["train0"]["quarantined"] == slots["train1"]["quarantined"] == reason
    assert slots["train2"]["quarantined"] is None
    played = store.query("SELECT iteration, task FROM trajectories ORDER BY 1, 2")
    assert [row for row in played if row[0] == 2] == [(2, "train2")]
    store.close()


class Closed(TextDomain):
    """A game whose server does not answer before it is mended."""

    action_marker = ">"

    def __init__(self, mended: Path) -> None:
        self._mended = mended

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}{i}", "say go") for i in range(count)]

    def environment(self) -> Closed:
        return self

    def reset(self, task: Task) -> Observation:
        if self._mended.exists():
            return Observation("?", ("go", "stay"))
        raise EpisodeError(task.id, "the server does not answer")

    def step(self, response: str) -> StepResult:
        return StepResult(Observation("!", ("go", "stay")), response, True, 1)


@pytest.mark.parametrize(("iterations", "kept"), [(1, 0), (9, 2)])
def test_a_run_in_which_nothing_is_played_stops_and_goes_on_once_it_is_mended(
    iterations: int, kept: int, tmp_path: Path
) -> None:
    domain, run = Closed(tmp_path / "mended"), tmp_path / "run"
    changes = [f"run_dir={run}", f"loop.iterations={iterations}", "evaluation.episodes=0"]
    changes += ["environment.workers=0", "loop.tasks_per_iteration=2"]
    said = r"nothing was played in (this iteration|3 iterations in a row): .* does not answer; see"
    with pytest.raises(NothingPlayed, match=said) as stopped:
        Trainer(GUESS, domain=domain, overrides=[*FEW, *changes], progress=QUIET).train()
    assert _fixable(stopped.value)
    assert _fixable(EpisodeError("t", "the page cannot be started"))
    assert not _fixable(RuntimeError("a bug"))
    with pytest.raises(NothingPlayed, match=said):  # at once: it was not mended
        Trainer.resume(run, domain=domain, progress=QUIET).train()
    (tmp_path / "mended").touch()
    resumed = Trainer.resume(run, domain=domain, overrides=["loop.iterations=4"], progress=QUIET)
    assert [bool(record.groups) for record in resumed] == [True] * (4 - kept)


def candidate(name: str) -> Candidate:
    return Candidate(Task(name, name), "harder", 1.0, (), 1)


def test_quarantine_rejects_a_candidate_and_takes_back_a_rewrite():
    pool = Pool([Task("a", ""), Task("b", "")], 0.2, 0.8)
    pool.propose("a", candidate("a1"))
    pool.quarantine("a", "a1", "it kills", 2)
    slot = pool.slot("a")
    assert (slot.pending, slot.active.id, slot.usable) == (None, "a", True)
    assert slot.history[-1].kind == "rejected"
    pool.propose("a", candidate("a2"))
    assert pool.settle("a", 0.5, 3)
    pool.quarantine("a", "a2", "it kills", 4)
    assert (pool.slot("a").active.id, pool.slot("a").usable) == ("a", True)
    pool.quarantine("a", "a", "it kills", 5)
    assert not pool.slot("a").usable
    rng = np.random.default_rng(0)
    assert [slot.id for slot in pool.sample(2, rng)] == ["b"]
    assert Pool.from_json(pool.to_json()).slots == pool.slots
    pool.quarantine("b", "b", "it kills", 5)
    with pytest.raises(ValueError, match="every task is quarantined"):
        pool.sample(1, rng)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small disk needs the rights of root")
    yield place
    # Lazily: what a failed run left open closes when it is collected.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_stops_the_run_with_one_line_and_a_store_that_opens(small_disk: Path) -> None:
    run = small_disk / "run"
    changes = [f"run_dir={run}", "loop.iterations=3", "evaluation.episodes=0", "checkpoints.keep=9"]
    changes += ["loop.tasks_per_iteration=2", "loop.rollouts_per_task=2"]
    with pytest.raises((CheckpointError, StoreError)) as caught:
        Trainer(GUESS, overrides=[*FEW, *changes], progress=QUIET).train()
    assert "\n" not in str(caught.value)
    assert str(run) in str(caught.value)
    assert caught.value.__notes__ == [f"continue with `rlanything resume {run}`"]
    store = Store(run / "run.sqlite")
    assert store.last_iteration() is not None
    # The store knows an iteration before its checkpoint is whole, and names only whole ones.
    [(whole,)] = store.query("SELECT MAX(iteration) FROM iterations WHERE checkpoint != ''")
    assert store.check() == []
    store.close()
    assert whole < 3
    subprocess.run(["mount", "-o", "remount,size=400m", str(small_disk)], check=True)
    Trainer.resume(run, progress=QUIET).train()
    undisturbed = small_disk / "undisturbed"
    Trainer(
        load_recipe(GUESS, [*FEW, f"run_dir={undisturbed}", *changes[1:]]), progress=QUIET
    ).train()
    for role in ("policy", "judge"):
        name = f"checkpoints/iter-00003/{role}/model.safetensors"
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes()


def test_prompts_too_long_for_an_engine_cost_their_answers_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = HFEngine.generate

    def bounded(self: HFEngine, requests: Sequence[Request], *rest: Any) -> list[list[Completion]]:
        # Some of the policy's prompts, and some of the judge's, which are longer.
        most = [60 if request.choices else 110 for request in requests]
        if long := [i for i, each in enumerate(requests) if len(each.prompt_ids) > most[i]]:
            raise PromptsTooLong("too long; raise it", long)
        return generate(self, requests, *rest)

    monkeypatch.setattr(HFEngine, "generate", bounded)
    console = Console(record=True, width=300, file=io.StringIO())
    overrides = [
        f"run_dir={tmp_path / 'run'}",
        "loop.tasks_per_iteration=3",
        "evaluation.episodes=3",
    ]
    records = list(Trainer(GUESS, overrides=[*FEW, *overrides], progress=Progress(console)))
    for record in records:
        samples = [one for own in record.result.samples.values() for one in own]
        assert all(sample.completion.token_ids for sample in samples)
    metrics = records[0].metrics
    policy, judge, steps = (
        read(metrics, name) or 0 for name in ("policy/too_long", "judge/too_long", "rollouts/steps")
    )
    assert 0 < policy < steps
    assert judge > 0
    assert records[0].result.samples["policy"]
    told = console.export_text()
    assert "prompts of the policy did not fit into its context, and were answered with" in told
    assert re.search(r"in_domain: \d+ of \d+ answers are empty and were cut off", told)
