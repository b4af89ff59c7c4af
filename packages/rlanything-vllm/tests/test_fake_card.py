"""Engines on one card, with a stand-in for vLLM that has its memory check and its sleep mode."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import torch

from helpers.starts import engine_of
from helpers.tiny import tiny_model
from rlanything.engines.base import ModelError, Request, Sampling
from rlanything.engines.deadline import GenerationTimeout
from rlanything.engines.hf.model import LanguageModel
from rlanything_vllm.engine import VLLMEngine
from rlanything_vllm.worker import Setup, _adapter_settings, _device_settings

CACHE_GIB = 0.25
CACHE = int(CACHE_GIB * 2**30)
CARD = 4 * CACHE
REQUESTS = [Request((5, 6, 7), (1, 2)), Request((8, 9), (3,))]
GREEDY = Sampling(0.0, 4)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the bytes of the card that others hold, and whether vLLM can sleep on it."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "fake")
    monkeypatch.setenv("FAKE_CARD", str(tmp_path))

    def setting(held: int = 0, sleeps: bool = True, step_seconds: float = 0.0) -> None:
        card = {"total": CARD, "held": held, "sleeps": sleeps, "step_seconds": step_seconds}
        (tmp_path / "card.json").write_text(json.dumps(card))

    setting()
    return setting


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Returns what the card's workers did so far."""

    def read() -> list[dict[str, Any]]:
        file = tmp_path / "log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return read


def on_card(**settings: Any) -> VLLMEngine:
    """An engine on the card; `seconds`: time limit of its answers."""
    return engine_of(tiny_model(1), device="cuda", memory_gib=CACHE_GIB, **settings)


@torch.no_grad()
def move(model: LanguageModel) -> None:
    for weights in model.network.parameters():
        weights.neg_()


def tokens(engine: VLLMEngine) -> list[tuple[int, ...]]:
    return [one.token_ids for group in engine.generate(REQUESTS, GREEDY) for one in group]


def test_vllm_starts_next_to_a_seat_and_shows_each_stage_with_its_time_limit(card) -> None:
    card(held=CARD // 2)
    stages = list[tuple[str, float]]()
    engine = on_card(start_seconds=200, on_stage=lambda *stage: stages.append(stage))
    assert [stage for stage, _ in stages[:2]] == [
        "policy: starting vLLM",
        "policy: vLLM builds and compiles its model",
    ]
    assert stages[2][0].startswith("policy: vLLM is ready after ")
    # While it starts, nobody may give it up earlier than the engine itself does.
    assert min(stages[0][1], stages[1][1]) > 200
    assert stages[2][1] == 0
    assert len(tokens(engine)) == 3


def test_vllm_is_refused_if_its_weights_and_cache_do_not_fit(card) -> None:
    card(held=CARD - CACHE)  # there is room for the cache, but not for the weights
    with pytest.raises(ModelError, match=r"Free memory .*lower policy\.engine\.memory_gib"):
        on_card()


def test_the_share_of_the_card_is_that_of_weights_and_cache(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 1000))

    def share(weights: int, cache: int, device: str = "cuda") -> dict[str, Any]:
        setup = Setup(Path(), "", None, device, "float32", weights, cache, None, None, False)
        return _device_settings(setup, sleeps=False)

    assert share(300, 200)["gpu_memory_utilization"] == 0.5
    assert share(3000, 200)["gpu_memory_utilization"] == 1.0  # vLLM accepts no more
    assert share(300, 200, "cpu") == {}


@pytest.mark.parametrize(("sleeps", "starts"), [(True, 2), (False, 3)])
def test_engines_that_sleep_are_never_awake_together(card, log, sleeps, starts) -> None:
    card(held=2 * CACHE, sleeps=sleeps)  # there is no room for a second worker
    engines = [on_card(sleep=True) for _ in range(2)]
    assert log() == []  # no role has spoken
    said = []
    for engine in (*engines, engines[0]):
        said.append(tokens(engine))
        engine.release_cache()
        engine.release_cache()  # has no further effect
    assert said[0] == said[1] == said[2]
    assert max(entry["awake"] for entry in log()) == 1
    # An engine that vLLM lets sleep keeps its process, and with it the compiled model.
    assert [entry["what"] for entry in log()].count("start") == starts


def test_a_sleeping_engine_has_the_weights_that_were_learned_meanwhile(card, log) -> None:
    engine = on_card(sleep=True)
    before = tokens(engine)
    engine.release_cache()
    worker = engine.process_id
    move(engine._lm)
    engine.sync_weights()
    after = tokens(engine)  # its log-probs are compared with the learner's
    assert after != before
    assert engine.process_id == worker
    done = [entry["what"] for entry in log()]
    assert done == ["start", "weights", "sleep", "wake", "weights"]


def test_samples_are_reported_one_by_one_and_only_silence_has_a_limit(card) -> None:
    engine = on_card(seconds=4.0)
    expected = tokens(engine)
    card(step_seconds=1.6)  # three samples take longer than the limit
    done = list[int]()
    groups = engine.generate(REQUESTS, GREEDY, done.append)
    assert [one.token_ids for group in groups for one in group] == expected
    assert done == [1, 1, 1]
    card(step_seconds=20.0)
    with pytest.raises(GenerationTimeout, match=r"silent for 4 s; raise policy\.timeout_seconds"):
        engine.generate(REQUESTS, GREEDY)


def test_a_worker_that_dies_in_its_sleep_or_cannot_sleep_is_replaced(card, log, tmp_path) -> None:
    stages = list[str]()
    engine = on_card(sleep=True, on_stage=lambda stage, seconds: stages.append(stage))
    before = tokens(engine)
    engine.release_cache()
    os.kill(engine.process_id, signal.SIGKILL)
    assert tokens(engine) == before
    worker = engine.process_id
    (tmp_path / "sleepless").touch()
    engine.release_cache()
    assert "policy: vLLM's process ended, as it did not sleep: " in stages[-1]
    assert not Path(f"/proc/{worker}").exists()


def test_a_start_that_takes_too_long_names_its_limit(card) -> None:
    with pytest.raises(ModelError, match=r"not ready after 0.2 s, see engine\.start_seconds"):
        on_card(start_seconds=0.2)


def test_adapters_are_refused_by_a_vllm_that_cannot_load_weights_below_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("vllm", "vllm.config", "vllm.lora"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    ranks, layers = ModuleType("vllm.config.lora"), ModuleType("vllm.lora.layers")
    monkeypatch.setattr(ranks, "MaxLoRARanks", Literal[8, 16], raising=False)
    wrapper = type("BaseLayerWithLoRA", (), {})
    monkeypatch.setattr(layers, "BaseLayerWithLoRA", wrapper, raising=False)
    monkeypatch.setitem(sys.modules, ranks.__name__, ranks)
    monkeypatch.setitem(sys.modules, layers.__name__, layers)
    with pytest.raises(ValueError, match=r"install vllm>=0\.28"):
        _adapter_settings(4)
    monkeypatch.setattr(wrapper, "load_weights", None, raising=False)
    assert _adapter_settings(9) == {"enable_lora": True, "max_lora_rank": 16}
