"""The closed loop at a service, against the same run with the learner and engine of this
process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from helpers.command import call
from helpers.guess import FEW, GUESS
from helpers.tinker_service import TinkerService
from rlanything.cluster import models
from rlanything.engines.base import Request
from rlanything.engines.hf.engine import HFEngine
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_tinker.model import STATE
from rlanything_tinker.weights import SEED_BITS

QUIET = Progress(Console(quiet=True))
HERE = (
    *FEW,
    *("policy.decoding=free", "policy.lora={rank: 4}", "judge.lora={rank: 4}"),
    *("judge.temperature=1.0", "judge.max_tokens=16"),
    # Adam turns the rounding of a gradient near 0 into a share of the learning rate.
    *("policy.learning_rate=2e-4", "judge.learning_rate=2e-4"),
)
"""The recipe with what a service can honour."""
ALLOWED = "policy.learner.key_variable=TINKER_API_KEY"
"""Override that sends the key to the address in a run's recipe."""


def there(url: str) -> tuple[str, ...]:
    """Overrides that have policy and judge at a service."""
    return (
        *HERE,
        *(f"policy.learner={{name: tinker, url: '{url}'}}", "policy.model=tiny/guess-policy"),
        *(f"judge.learner={{name: tinker, url: '{url}'}}", "judge.model=tiny/guess-judge"),
    )


def metrics(run: Path) -> dict[str, float]:
    """All metrics of a run but times, by iteration and name."""
    store = Store(run / "run.sqlite")
    rows = store.query("SELECT iteration, name, value FROM metrics WHERE value IS NOT NULL")
    store.close()
    return {
        f"{i}/{name}": value
        for i, name, value in rows
        if not name.startswith(("seconds", "memory"))
    }


@pytest.fixture(scope="module")
def run_here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Tensor]]]:
    """A run in this process, whose seeds are cut to the bits that services get, and its last
    adapters by role."""
    directory = tmp_path_factory.mktemp("here") / "run"
    generate, add_adapters = HFEngine.generate, models.add_adapters

    def cut(engine: HFEngine, requests: Sequence[Request], *rest: Any) -> Any:
        each = [
            Request(one.prompt_ids, tuple(seed & SEED_BITS for seed in one.seeds), one.choices)
            for one in requests
        ]
        return generate(engine, each, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HFEngine, "generate", cut)
        patch.setattr(
            models,
            "add_adapters",
            lambda model, lora, seed: add_adapters(model, lora, seed & SEED_BITS),
        )
        trainer = Trainer(GUESS, overrides=[f"run_dir={directory}", *HERE], progress=QUIET)
        trainer.train()
    loaded = trainer._session.loaded
    assert loaded is not None
    trained: Mapping[str, Any] = loaded.components.trained_models
    adapters = {
        role: {
            name: weight.detach()
            for name, weight in one.learning.network.named_parameters()
            if weight.requires_grad
        }
        for role, one in trained.items()
    }
    return directory, adapters


@pytest.fixture(scope="module")
def run_there(serving: tuple[TinkerService, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("there") / "run"
    overrides = [f"run_dir={directory}", *there(serving[1])]
    Trainer(GUESS, overrides=overrides, progress=QUIET).train()
    return directory


def test_a_service_trains_guess_with_the_numbers_of_the_own_learner(
    serving: tuple[TinkerService, str], run_here: Any, run_there: Path
) -> None:
    here, there = metrics(run_here[0]), metrics(run_there)
    unknown = {name for name in here if name.endswith(("/entropy", "/computed_tokens"))}
    assert len(here) > 150
    assert there.keys() == here.keys() - unknown
    assert there == pytest.approx({name: here[name] for name in there}, abs=1e-5)
    service = serving[0]
    for role, own in run_here[1].items():
        path = json.loads((run_there / f"checkpoints/iter-00002/{role}/{STATE}").read_text())[
            "path"
        ]
        _, adapters, _ = service.states[path]
        assert adapters.keys() == own.keys()
        assert max(float(own[name].abs().max()) for name in own if "lora_B" in name) > 1e-4
        for name, weight in adapters.items():
            torch.testing.assert_close(weight, own[name], atol=1e-5, rtol=0)


def test_checkpoints_name_states_of_the_service_and_versions_of_the_weights(
    run_there: Path,
) -> None:
    states = [
        json.loads((run_there / f"checkpoints/iter-0000{n}/policy/{STATE}").read_text())
        for n in (1, 2)
    ]
    # Two minibatches an iteration.
    assert [state["updates"] for state in states] == [2, 4]
    assert states[0]["path"] != states[1]["path"]
    assert {state["base_model"] for state in states} == {"tiny/guess-policy"}


def test_a_stopped_run_goes_on_to_the_same_end(
    serving: tuple[TinkerService, str], run_there: Path, tmp_path: Path
) -> None:
    overrides = [f"run_dir={tmp_path / 'run'}", *there(serving[1])]
    first = Trainer(GUESS, overrides=overrides, progress=QUIET)
    next(iter(first))
    Trainer.resume(tmp_path / "run", overrides=[ALLOWED], progress=QUIET).train()
    assert metrics(tmp_path / "run") == pytest.approx(metrics(run_there), abs=1e-5)


def test_a_checkpoint_is_evaluated_at_the_service(
    serving: tuple[TinkerService, str], run_there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, before = serving[0], len(serving[0].sampled)
    arguments = (
        "eval",
        str(run_there),
        "--split",
        "in_domain",
        "--episodes",
        "2",
        "--seed",
        "1",
        ALLOWED,
    )
    assert call(monkeypatch, *arguments) == 0
    assert len(service.sampled) > before
