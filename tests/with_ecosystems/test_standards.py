"""The real clients and servers of ORS and OpenEnv: they play our domains, and we play theirs."""

# The environment of `make test-ecosystems` alone has them.
# pyright: reportMissingImports=false
from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openenv.core import GenericEnvClient
from ors.client import ORS, ToolCallError

from helpers import ors_server
from helpers.calling import call
from helpers.ecosystems import trained
from rlanything.domains.base import EpisodeError
from rlanything_gyms.openenv.domain import OpenEnvDomain
from rlanything_gyms.ors.domain import OrsDomain

SECONDS = 90.0


@contextmanager
def started(log: Path, *words: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts a server that writes to a file; its address, which it says itself unless it was given
    a port."""
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, *words], stdout=file, stderr=file)
    try:
        end = time.monotonic() + SECONDS
        url = ""
        while not url and time.monotonic() < end and process.poll() is None:
            time.sleep(0.2)
            said = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            with socket.socket() as client:
                if port and client.connect_ex(("127.0.0.1", port)) == 0:
                    url = f"http://127.0.0.1:{port}"
            url = said[0] if said and not port else url
        assert url, log.read_text()
        yield url, process
    finally:
        process.kill()
        process.wait()


def theirs(folder: Path) -> Any:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return started(folder / "theirs.log", ors_server.__file__, str(port), port=port)


def ours(folder: Path, standard: str) -> Any:
    serving = ("serve-domain", "guess", "--allow-code", "--port", "0", "--as", standard)
    return started(folder / "ours.log", "-m", "rlanything.cli", *serving)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with theirs(tmp_path_factory.mktemp("server")) as (url, _):
        yield url


def guessing(url: str, **options: Any) -> OrsDomain:
    return OrsDomain(url=url, **{"win": {"reward": ">= 1"}, **options})


def test_a_server_of_the_sdk_is_played(url: str) -> None:
    domain = guessing(url)
    [task] = domain.tasks("train", 1, 0)
    environment = domain.environment()
    seen = environment.reset(task)
    assert seen.request is not None
    assert [tool["name"] for tool in seen.request.tools] == ["crash", "fall", "guess", "look"]
    assert "Guess a number" in seen.text
    bad = environment.step(call("guess", number="x"))
    assert (bad.valid, "validation error" in bad.observation.text) == (False, True)
    long = environment.step(call("look"))
    assert "[cut: the result has 50,000 characters" in long.observation.text
    missed = environment.step(call("guess", number=0))
    assert missed.observation.text.endswith("[reward -0.25]")
    secret = int(missed.observation.text.partition("it is ")[2].partition(".")[0])
    right = environment.step(call("guess", number=secret))
    assert (right.outcome, right.reward) == (1, 0.75)
    environment.reset(task)
    with pytest.raises(EpisodeError, match="it fell off") as error:
        environment.step(call("fall"))
    assert error.value.lost
    environment.close()


def test_a_server_of_the_sdk_knows_the_session_that_is_pinged(url: str) -> None:
    domain = guessing(url)
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    client = environment._client
    assert client._server.json("POST", "/ping", None, client._headers()) == {"status": "ok"}
    environment.close()


def test_a_server_of_the_sdk_that_dies_counts_neither_way(tmp_path: Path) -> None:
    with theirs(tmp_path) as (url, process):
        domain = guessing(url, timeout_seconds=5)
        environment = domain.environment()
        environment.reset(domain.tasks("train", 1, 0)[0])
        with pytest.raises(EpisodeError) as error:
            environment.step(call("crash"))
        process.wait(10)
        assert not error.value.lost
        environment.close()


def test_the_recipe_of_ors_trains(url: str, tmp_path: Path) -> None:
    nano = ["policy.model=nano", "judge.model=nano"]
    run = trained("ors", tmp_path / "run", f"domain.options.url={url}", *nano)
    assert run.steps >= 4
    assert run.failures == 0
    assert run.recipe_lines <= 12


def test_the_sdks_client_plays_our_domain(tmp_path: Path) -> None:
    with ours(tmp_path, "ors") as (url, _):
        client = ORS(base_url=url)
        environment = client.environment("guess")
        assert environment.list_splits() == ["train", "tune", "in_domain", "ood"]
        assert environment.num_tasks("train") == 240
        [task, *_] = environment.list_tasks("in_domain")
        with environment.session(task=task) as session:
            assert "Guess a number between 1 and 8" in session.get_prompt()[0].text
            assert [spec.name for spec in session.list_tools()] == ["respond"]
            with pytest.raises(ToolCallError, match="is no tool"):
                session.call_tool("go", {})
            said = session.call_tool("respond", {"response": "> 1"})
            for number in "234":
                if not said.finished:
                    said = session.call_tool("respond", {"response": f"> {number}"})
        assert said.finished
        assert said.reward in (0.0, 1.0)
        with environment.session(split="train", index=2) as session:
            assert session.call_tool("respond", {"response": "hm"}).blocks[0].text == (
                "Say a number."
            )


def test_openenvs_client_and_our_own_play_our_domain(tmp_path: Path) -> None:
    with ours(tmp_path, "openenv") as (url, _):
        with GenericEnvClient(url).sync() as client:
            first = client.reset(seed=3, split="in_domain")
            assert "Guess a number between 1 and 8" in first.observation["text"]
            assert first.observation["choices"] == [*"12345678"]
            said = client.step({"response": "so > 1"})
            for number in "234":
                if not said.done:
                    said = client.step({"response": f"so > {number}"})
            assert said.done
            assert said.reward in (0.0, 1.0)
        options: dict[str, Any] = {"action": {"action": "$action"}, "observation": "text"}
        domain = OpenEnvDomain(url=url, win={"return": ">= 1"}, **options)
        outcomes = set()
        for task in domain.tasks("train", 12, 0):
            environment = domain.environment()
            environment.reset(task)
            result = environment.step("> 2")
            for number in "468":
                if result.outcome is None:
                    result = environment.step(f"> {number}")
            outcomes.add(result.outcome)
            environment.close()
        assert outcomes == {1, -1}
    assert len((tmp_path / "ours.log").read_text().splitlines()) == 1
