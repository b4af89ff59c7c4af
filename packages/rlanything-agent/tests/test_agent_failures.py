"""Each way in which a program can fail costs its own episode, and is said in one line."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

import rlanything as rl
from helpers.agents import Scripted, agent, ask, played
from rlanything.domains.base import DomainError
from rlanything.records import JudgedTrajectory, Task
from rlanything.runs.store.codec import encode_episode
from rlanything_agent.domain import AgentDomain


async def fine(task: Task, client: Any) -> bool:
    return (await ask(client, task.instruction)).choices[0].message.content == "yes"


async def misbehave(task: Task, client: Any) -> Any:
    """Does what the policy's first answer says, if that is no yes."""
    said = (await ask(client, task.instruction)).choices[0].message.content
    match said.split():
        case ["return", value]:
            values = {"nan": math.nan, "text": "won", "none": None, "high": 1.5, "low": -0.1}
            return {**values, "array": np.array([1.0, 0.0])}[value]
        case ["raise"]:
            raise KeyError("no such\nthing")
        case ["exit"]:
            sys.exit(3)
        case ["invalid"]:
            raise rl.InvalidTask("its file is missing")
        case ["sleep"]:
            await asyncio.sleep(60)
        case ["block"]:
            time.sleep(60)
        case ["spin"]:
            while True:
                pass
        case ["swallow"]:
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    continue
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            return said == "yes"


LOST = {
    "return nan": "its agent returned nan: return True, False or a reward from 0 to 1",
    "return text": "its agent returned 'won': return True, False or a reward",
    "return none": "its agent returned None: return True, False or a reward",
    "return high": "its agent returned 1.5: return True, False or a reward from 0 to 1",
    "return low": "its agent returned -0.1: ",
    "return array": "its agent returned array([1., 0.]): return True, False or a reward",
    "raise": "its agent failed: KeyError: 'no such\\nthing', in ",
    "exit": "its agent failed: SystemExit: 3, in ",
}


@pytest.mark.parametrize("says", LOST)
def test_what_comes_after_an_answer_is_lost_and_counted(says: str) -> None:
    rollouts = played(agent(misbehave, [says], ["yes"]))
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]
    [crash] = rollouts.crashes
    assert crash.reason.startswith(LOST[says])
    assert "\n" not in crash.reason
    assert not rollouts.failures


@pytest.mark.parametrize("says", ["sleep", "spin", "swallow"])
def test_a_program_that_never_ends_loses_its_episode_and_leaves_no_thread(says: str) -> None:
    played(agent(fine))  # starts the threads that the process keeps
    before = threading.active_count()
    rollouts = played(agent(misbehave, [says], ["yes"], timeout_seconds=2.0))
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]
    [crash] = rollouts.crashes
    assert crash.reason.startswith("its agent neither asked nor ended within 2 s after answer 1")
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_one_that_cannot_be_ended_is_left_behind_and_the_others_go_on() -> None:
    rollouts = played(agent(misbehave, ["block"], ["yes"], timeout_seconds=6.0), workers=1)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, 1]


def test_a_program_that_kills_its_worker_loses_its_episode_alone() -> None:
    rollouts = played(agent(misbehave, ["yes"], ["die"], ["yes"]), workers=1)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [1, -1, 1]
    [crash] = rollouts.crashes
    assert "its worker died or hung 3 times in a row" in crash.reason


def test_a_task_that_its_program_calls_invalid_counts_neither_way() -> None:
    rollouts = played(agent(misbehave, ["invalid"], ["yes"]))
    [failure] = rollouts.failures
    assert failure.reason == "its agent calls it invalid: its file is missing"
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [1]


async def silent(task: Task, client: Any) -> bool:
    return True


async def broken(task: Task, client: Any) -> bool:
    raise RuntimeError("no licence")


async def idle(task: Task, client: Any) -> bool:
    await asyncio.sleep(60)
    return True


@pytest.mark.parametrize(
    ("solve", "reason"),
    [
        (silent, "its agent asked nothing before it ended (outcome +1)"),
        (broken, "its agent failed: RuntimeError: no licence, in "),
        (idle, "its agent neither asked nor ended within 2 s after its start"),
    ],
)
def test_what_fails_before_any_answer_counts_neither_way(solve: Any, reason: str) -> None:
    rollouts = played(agent(solve, timeout_seconds=2.0))
    [failure] = rollouts.failures
    assert failure.reason.startswith(reason)
    assert not rollouts.trajectories


async def for_ever(task: Task, client: Any) -> bool:
    while True:
        await ask(client, "Again?")


def test_a_program_that_asks_for_ever_ends_at_the_longest_episode() -> None:
    rollouts = played(agent(for_ever, ["a"], ["b"]), max_steps=4)
    assert [len(trajectory.steps) for trajectory in rollouts.trajectories] == [4, 4]
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, -1]
    assert rollouts.trajectories[0].steps[1].observation == "(asked again)"


LATE: dict[str, Any] = {}


async def late(task: Task, client: Any) -> bool:
    """Leaves a thread behind that asks once more, when the program has ended."""
    address, key = str(client.base_url), client.api_key
    await ask(client, "Now?")

    def again() -> None:
        time.sleep(1.5)
        with openai.OpenAI(base_url=address, api_key=key, max_retries=0) as own:
            try:
                own.chat.completions.create(
                    model="policy", messages=[{"role": "user", "content": "Late?"}]
                )
            except openai.APIStatusError as error:
                LATE["status"], LATE["message"] = error.status_code, error.message
        LATE["done"].set()

    threading.Thread(target=again, daemon=True).start()
    return True


def test_what_is_asked_after_the_end_is_refused_and_no_step() -> None:
    LATE["done"] = threading.Event()
    [trajectory] = played(agent(late)).trajectories
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)
    assert LATE["done"].wait(10)
    assert LATE["status"] == 401
    assert "while its episode lasts" in LATE["message"]


async def impatient(task: Task, client: Any) -> bool:
    """Sends two requests at once and hangs up on the one that waits."""
    first = asyncio.create_task(ask(client, "First?"))
    await asyncio.sleep(0.2)
    second = asyncio.create_task(ask(client, "Second?"))
    await asyncio.sleep(0.2)
    second.cancel()
    await first
    return True


async def hangs_up(task: Task, client: Any) -> bool:
    """Hangs up, over the network, on a stream before anything of it has come."""
    async with httpx2.AsyncClient(trust_env=False) as own:
        with pytest.raises(httpx2.ReadTimeout):
            await own.post(
                f"{client.base_url}chat/completions",
                headers={"authorization": f"Bearer {client.api_key}"},
                json={
                    "model": "policy",
                    "messages": [{"role": "user", "content": "First?"}],
                    "stream": True,
                },
                timeout=1.0,
            )
    return (await ask(client, "Second?")).choices[0].message.content == "yes"


def test_a_request_that_is_withdrawn_before_it_is_shown_is_no_step() -> None:
    [trajectory] = played(agent(impatient), policy=Slow()).trajectories
    assert [step.observation for step in trajectory.steps] == ["First?"]


def test_a_client_that_hangs_up_mid_stream_goes_on_with_its_next_request() -> None:
    [trajectory] = played(agent(hangs_up), policy=Slow()).trajectories
    assert [step.observation for step in trajectory.steps] == ["First?", "Second?"]
    assert trajectory.outcome == 1


class Slow(Scripted):
    def respond(self, episodes: Any, seeds: Any) -> Any:
        time.sleep(2.5)
        return super().respond(episodes, seeds)


async def gives_up(task: Task, client: Any) -> bool:
    """Ends before its answer is there."""
    asked = asyncio.ensure_future(ask(client, "Hello"))
    await asyncio.wait([asked], timeout=1.0)
    return False


@pytest.mark.parametrize("workers", [0, 1])
def test_a_program_that_ends_before_its_answer_loses_its_episode_alone(workers: int) -> None:
    rollouts = played(agent(gives_up, ["yes"], ["yes"]), workers=workers, policy=Slow())
    assert [each.outcome for each in rollouts.trajectories] == [-1, -1]
    assert not rollouts.failures
    assert not rollouts.crashes


async def stubborn(task: Task, client: Any) -> bool:
    for _ in range(100):
        try:
            await ask(client, "Please?")
            return True
        except openai.BadRequestError as error:
            if "too long" not in error.message:
                return False
    return False


def test_a_refused_request_is_no_step_and_the_program_goes_on() -> None:
    [trajectory] = played(agent(stubborn, ["refuse: too long", "yes"])).trajectories
    assert (len(trajectory.steps), trajectory.outcome) == (1, 1)


async def trimming(task: Task, client: Any) -> bool:
    await ask(client, "One?")
    with contextlib.suppress(openai.BadRequestError):
        await ask(client, "Two, at length?")
    await ask(client, "Two?")
    return True


def test_a_step_leads_to_the_request_that_came_in_the_place_of_a_refused_one() -> None:
    rollouts = played(agent(trimming, ["1", "refuse: too long", "2"]))
    [trajectory] = rollouts.trajectories
    first, second = trajectory.steps
    assert first.next_observation == second.observation
    assert "Two?" in second.observation
    encode_episode(JudgedTrajectory(trajectory, ((), ())))


def test_an_environment_that_is_closed_ends_its_program() -> None:
    ended = threading.Event()

    async def waiting(task: Task, client: Any) -> bool:
        try:
            await ask(client, "Well?")
        finally:
            ended.set()
        return True

    environment = agent(waiting).environment()
    environment.reset(Task("a", "Ask."))
    environment.close()
    assert ended.wait(5)


def test_a_program_that_never_stops_asking_what_is_refused_is_ended() -> None:
    [failure] = played(agent(stubborn, ["refuse: too long"])).failures
    assert failure.reason == "its agent was refused 8 requests in a row"


async def die_once(task: Task, client: Any) -> bool:
    """Sends three requests at the same time; the first time it is played it kills its worker
    behind them."""
    firsts = await asyncio.gather(*(ask(client, f"Part {i}?") for i in range(3)))
    texts = [reply.choices[0].message.content for reply in firsts]
    if not os.path.exists(task.data["mark"]):
        open(task.data["mark"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    await ask(client, *texts)
    return sorted(texts) == ["a", "b", "c"]


def test_an_episode_whose_worker_died_is_played_again_with_the_same_answers(tmp_path: Any) -> None:
    domain = agent(die_once, ["a", "b", "c", "d"])
    [task] = domain.tasks("train", 1, 0)
    task.data["mark"] = str(tmp_path / "mark")  # type: ignore[index]
    rollouts = played(domain, workers=1)
    [trajectory] = rollouts.trajectories
    assert (trajectory.outcome, len(trajectory.steps)) == (1, 4)
    told = {step.observation: step.response for step in trajectory.steps[:3]}
    assert trajectory.steps[3].observation == "\n".join(told[f"Part {i}?"] for i in range(3))


async def whimsical(task: Task, client: Any) -> bool:
    await ask(client, f"It is {time.time_ns()}.")
    if not os.path.exists(task.data["mark"]):
        open(task.data["mark"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_a_program_that_asks_something_else_when_played_again_is_told_so(tmp_path: Any) -> None:
    domain = agent(whimsical, timeout_seconds=5.0)
    [task] = domain.tasks("train", 1, 0)
    task.data["mark"] = str(tmp_path / "mark")  # type: ignore[index]
    [failure] = played(domain, workers=1).failures
    assert "played again with the same answers, asked something else" in failure.reason


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"solve": None}, "name the program"),
        ({"solve": "nowhere"}, "write module:function"),
        ({"solve": "nowhere:solve"}, "there is no module nowhere"),
        ({"solve": 3}, r"solve: input should be .*\(got 3\)"),
        ({"rewrite": "all"}, r"rewrite: input should be 'none' or 'instruction' \(got 'all'\)"),
        ({"timeout_seconds": 0}, r"timeout_seconds: input should be greater than 0 \(got 0\)"),
        ({"reward_range": [1, 0]}, "winning must begin within the range"),
        ({"win_at": 2}, "winning must begin within the range"),
        ({"reward_range": "01x"}, r"reward_range: write a list, as \[01x\]"),
        ({"splits": {"train": 1.5}}, "add up to 1 at most"),
        ({"models": []}, "the names that the policy answers to"),
        ({"helpers": {"big": {}}}, r"helpers\.big\.url: missing; add it"),
        ({"helpers": {"big": {"url": "http://x", "timeout_seconds": 45}}}, "below the 45 after"),
        (
            {"helpers": {"big": {"url": "http://x", "key": 1}}},
            r"helpers\.big\.key: unknown key; known here: key_variable, model",
        ),
        ({"tasks": "nowhere.jsonl"}, "tasks: nowhere.jsonl cannot be read"),
        ({"tasks": []}, "holds no task"),
        ({"tasks": [{"id": "1"}]}, "instruction must be a text"),
        ({"tasks": [{"id": None, "instruction": "a"}]}, "id must be a text"),
        ({"tasks": [{"id": "a\ud800", "instruction": "a"}]}, "unpaired surrogates"),
        ({"helpers": {"big": {"url": None}}}, r"helpers\.big\.url: .*valid string"),
        ({"tasks": [{"id": "1", "instruction": "a", "more": 1}]}, "unknown key 'more'"),
        ({"tasks": [{"id": "1", "instruction": "a"}] * 2}, "id '1' is used twice"),
        ({"tasks": [{"id": "1", "instruction": "a", "data": 3}]}, "data must be an object"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_the_remedy(
    options: dict[str, Any], reason: str
) -> None:
    rows = [{"id": "1", "instruction": "a"}]
    with pytest.raises(DomainError, match=reason):
        AgentDomain(**{"tasks": rows, "solve": fine, **options})


HUNG = """
import asyncio, time
from rlanything_agent.domain import AgentDomain
from rlanything_agent.loops import shared_loop

async def solve(task, client):
    await asyncio.to_thread(time.sleep, 3600)

task = {"id": "1", "instruction": "x"}
for shared in (True, False):
    shared_loop().given_up = not shared
    domain = AgentDomain(tasks=[task], splits={"train": 1.0}, solve=solve, timeout_seconds=0.5)
    try:
        domain.environment().reset(domain.tasks("train", 1, 0)[0])
    except Exception as fault:
        print(fault)
"""


def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, timeout=200)
    assert ended.returncode == 0
    assert ended.stdout.decode().count("its agent neither asked nor ended within 0.5 s") == 2
