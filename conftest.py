"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import settings

from helpers.fake_endpoint import KEY, FakeEndpoint, fake_endpoint
from rlanything.plugins import IMPORTS, Imports

# Tiny models are slower on many threads than on one.
torch.set_num_threads(1)

# Test processes side by side have cores of their own, as far as there are cores, which what they
# start inherits: threads of several processes that wait for one another on the same cores take many
# times as long.
if "PYTEST_XDIST_WORKER" in os.environ:
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    own = sorted(os.sched_getaffinity(0))[number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]
    os.sched_setaffinity(0, own or os.sched_getaffinity(0))

# A deadline for one example says how busy the machine is, and nothing of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


# What takes longest begins first, so that no process is left alone with it.
LONGEST = (
    *("test_lost_seats", "test_training", "test_survival", "test_ablation", "test_loop"),
    *("test_sharding", "test_local_seats", "test_coding_nano", "test_remote", "test_vision"),
    *("test_miniwob_nano", "test_experts", "test_bench_gpu", "test_faults", "test_vision_runs"),
    *("test_osworld_evaluation", "test_attacks", "test_documentation", "test_workers"),
    "test_notebooks",
    *("test_miniwob_teacher", "test_front_door", "test_bench_peers", "test_nano", "test_desktop"),
    *("test_wheel", "test_lora", "test_plan", "test_bench_learner", "test_expert"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session")
def frozen_model():
    """One tiny model for all tests that leave its weights alone."""
    from helpers.tiny import tiny_model

    return tiny_model()


@contextmanager
def fresh_imports() -> Iterator[None]:
    """No recipe has been read yet in this process; what is allowed and limited meanwhile is undone
    at the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in vars(Imports(None)).items():
            patch.setattr(IMPORTS, name, value)
        yield


@pytest.fixture(autouse=True, scope="module")
def imports_of_a_module() -> Iterator[None]:
    """Fixtures that a module's tests share read recipes too: they neither find limits that earlier
    modules left nor leave any."""
    with fresh_imports():
        yield


@pytest.fixture(autouse=True)
def imports_of_a_test() -> Iterator[None]:
    with fresh_imports():
        yield


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEndpoint]:
    """An endpoint that misbehaves as it is told; tries follow one another at once."""
    from rlanything import backoff

    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("RLANYTHING_KEYS", "MY_KEY@127.0.0.1")
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)
    with fake_endpoint() as endpoint:
        yield endpoint
