"""The closed loop at a service, against the same run with the learner and engine of this
process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch import Tensor

from helpers.guess import FEW, GUESS
from helpers.tinker_service import TinkerService
from rlanything.cluster import models
from rlanything.engines.base import Request
from rlanything.engines.hf.engine import HFEngine
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_tinker.weights import SEED_BITS

QUIET = Progress(Console(quiet=True))
HERE = (
    *FEW,
    *("policy.decoding=free", "policy.lora={rank: 4}", "judge.lora={rank: 4}"),
    *("judge.temperature=1.0", "judge.max_tokens=16"),
)
"""The recipe with what a service can honour."""


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
    return {f"{i}/{name}": value for i, name, value in rows if not name.startswith("seconds")}


@pytest.fixture(scope="module")
def run_here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Tensor]]]:
    """A run in this process, whose seeds are cut to the bits that services get, and its last
    adapters by role."""
    directory = tmp_path_factory.mktemp("here") / "run"
    generate, add_adapters = HFEngine.generate, models.add_adapters

    def cut(engine: HFEngine, requests: Sequence[Request], sampling: Any) -> Any:
        each = [
            Request(one.prompt_ids, tuple(seed & SEED_BITS for seed in one.seeds), one.choices)
            for one in requests
        ]
        return generate(engine, each, sampling)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HFEngine, "generate", cut)
        patch.setattr(
            models, "add_adapters", lambda model, lora, seed: add_adapters(model, lora, seed & SEED_BITS)
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


def test_a_service_trains_guess_with_the_numbers_of_the_own_learner(run_here, run_there) -> None:
    here, own = metrics(run_here[0]), metrics(run_there)
    print(len(here), sorted(here.keys() ^ own.keys()))
    worst = sorted(((abs(here[k]-own[k]), k, here[k], own[k]) for k in here.keys() & own.keys()), reverse=True)
    for w in worst[:12]: print(w)
    assert 0
