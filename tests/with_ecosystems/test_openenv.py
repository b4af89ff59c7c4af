"""A real OpenEnv server in a process of its own: played, overrun, broken, gone."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import openenv_server
from helpers.ecosystems import trained
from rlanything.domains.base import DomainError, EpisodeError, StepResult
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.openenv.domain import OpenEnvDomain
from rlanything_gyms.openenv.game import ServerFault, field_of, filled, shown

START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def started(sessions: int, port: int | None = None) -> tuple[str, subprocess.Popen[bytes]]:
    port = port or free_port()
    words = [sys.executable, openenv_server.__file__, str(port), str(sessions)]
    process = subprocess.Popen(words)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}", process
        time.sleep(0.2)
    process.kill()
    pytest.fail("the server did not start")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    url, process = started(32)
    yield url
    process.kill()
    process.wait()


def guessing(url: str, **options: Any) -> OpenEnvDomain:
    usual = {"win": {"return": ">= 1"}, "observation": "text"}
    return OpenEnvDomain(**{"url": url, **usual, **options})


def secret(text: str) -> str:
    return text.rpartition(" ")[2].rstrip(".")


def test_an_episode_is_won_and_its_seed_decides_it(url: str) -> None:
    domain = guessing(url)
    tasks = domain.tasks("train", 4, 0)
    secrets = []
    for task in [*tasks, *tasks]:
        environment = domain.environment()
        assert environment.reset(task).text == "Guess from 1 to 8."
        missed = environment.step("so > 0")
        assert (missed.outcome, missed.valid) == (None, True)
        secrets.append(secret(missed.observation.text))
        right = environment.step(f"so > {secrets[-1]}")
        assert (right.outcome, right.reward) == (1, 1.0)
        environment.close()
    assert secrets[:4] == secrets[4:]
    assert len(set(secrets)) > 1


def test_a_horizon_ends_it_and_fields_are_conditions(url: str) -> None:
    domain = guessing(url, horizon=2, win={"info.tries": ">= 2"})
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    assert [environment.step("> 0").outcome for _ in range(2)] == [None, 1]
    environment.close()


def test_out_of_domain_is_reset_with_other_arguments(url: str) -> None:
    domain = guessing(url, reset={"highest": 3}, ood={"highest": 99})
    for split, highest in (("train", 3), ("ood", 99)):
        environment = domain.environment()
        seen = environment.reset(domain.tasks(split, 1, 0)[0])
        assert seen.text == f"Guess from 1 to {highest}."
        environment.close()


def test_an_action_that_the_server_calls_none_is_invalid(url: str) -> None:
    domain = guessing(url, action={"message": ["$action"]})
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    result = environment.step("> 3")
    assert (result.valid, result.outcome) == (False, None)
    environment.close()


def test_the_servers_fault_or_a_reward_out_of_range_loses_the_episode(url: str) -> None:
    domain = guessing(url, reward_range=[0, 1])
    for action, kind, said in (
        ("raise", ServerFault, "the server's own fault"),
        ("huge", EpisodeError, r"outside of \[0, 1\]"),
    ):
        environment = domain.environment()
        environment.reset(domain.tasks("train", 1, 0)[0])
        with pytest.raises(kind, match=said) as error:
            environment.step(f"> {action}")
        assert "\n" not in str(error.value)
        environment.close()


def test_a_server_that_is_gone_is_said_with_the_remedy() -> None:
    url, process = started(2)
    domain = guessing(url)
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    with pytest.raises(ServerFault, match=r"fails.*start it, or fix"):
        environment.step("> crash")
    environment.close()
    process.wait(10)
    with pytest.raises(DomainError, match=rf"the OpenEnv server at {url} fails.*start it"):
        guessing(url).tasks("train", 1, 0)


def answered(pool: EnvironmentPool, response: str) -> StepResult | EpisodeError:
    return pool.step({0: response})[0]


def test_a_server_that_is_killed_and_back_changes_no_episode() -> None:
    """Killed in the middle of an episode, between two actions, and started again."""
    url, process = started(4)
    domain = guessing(url)
    texts: list[list[str]] = []
    for killed in (False, True):
        with EnvironmentPool(domain, {}, 0, 60.0) as pool:
            pool.reset(domain.tasks("train", 1, 0))
            results = [answered(pool, "> 0")]
            if killed:
                process.kill()
                process.wait()
                _, process = started(4, int(url.rpartition(":")[2]))
            results += [answered(pool, "> 9"), answered(pool, "> 0")]
        texts.append([r.observation.text if isinstance(r, StepResult) else "" for r in results])
    process.kill()
    process.wait()
    assert texts[0] == texts[1]
    assert all(texts[0])


def test_a_server_that_stays_away_masks_the_episode_and_its_own_fault_loses_it(url: str) -> None:
    domain = guessing(url)
    with EnvironmentPool(domain, {}, 0, 60.0) as pool:
        pool.reset(domain.tasks("train", 1, 0))
        fault = answered(pool, "> raise")
    assert isinstance(fault, EpisodeError)
    assert fault.lost, "it comes back at the same action"

    gone, process = started(4)
    domain = guessing(gone)
    with EnvironmentPool(domain, {}, 0, 60.0) as pool:
        pool.reset(domain.tasks("train", 1, 0))
        assert isinstance(answered(pool, "> 0"), StepResult)
        process.kill()
        process.wait()
        fault = answered(pool, "> 0")
    assert isinstance(fault, EpisodeError)
    assert not fault.lost
    assert "start it, or fix" in fault.reason


def test_a_server_with_too_few_sessions_says_so() -> None:
    url, process = started(1)
    try:
        domain = guessing(url)
        [task] = domain.tasks("train", 1, 0)
        time.sleep(0.5)  # the session in which it looked is closed
        first, second = domain.environment(), domain.environment()
        first.reset(task)
        with pytest.raises(ServerFault, match=r"max_concurrent_envs.*parallel_episodes"):
            second.reset(task)
        first.close()
        second.close()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "localhost:8000"}, "url is 'localhost:8000': write one such as"),
        ({"url": "ftp://here"}, "url is"),
        ({"action": {"message": "go"}}, r"with \$action where"),
        ({"action": "$action"}, "action: write it in braces"),
        ({"win": {}}, "win is"),
        ({"timeout_seconds": 0}, "timeout_seconds: input should be greater than 0"),
        ({"actions": [1]}, "quote numbers"),
    ],
)
def test_options_of_no_use_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DomainError, match=said):
        guessing(**{"url": "http://localhost:1", **options})


def test_actions_and_observations_have_templates_and_paths() -> None:
    template = {"a": {"b": ["$action", 3]}, "c": "$actions"}
    assert filled(template, "go") == {"a": {"b": ["go", 3]}, "c": "$actions"}
    seen = {"world": {"text": "here"}, "tries": 2, "metadata": {"x": 1}}
    assert field_of(seen, "world.text") == "here"
    assert shown(field_of(seen, None)) == "world: text: here\ntries: 2"
    with pytest.raises(ServerFault, match=r"no field 'world\.map', but world, tries"):
        field_of(seen, "world.map")


def test_the_recipe_of_openenv_trains(url: str, tmp_path: Path) -> None:
    nano = ["policy.model=nano", "judge.model=nano", "policy.decoding=choices"]
    nano += ['domain.options.actions=["1", "2", "3"]', "domain.options.observation=text"]
    run = trained("openenv", tmp_path / "run", f"domain.options.url={url}", *nano)
    assert run.steps > 4
    assert run.failures == 0
    assert run.recipe_lines <= 12
