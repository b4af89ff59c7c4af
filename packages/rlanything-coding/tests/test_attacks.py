"""Hostile programs get nothing out of a box, and each gets what it wants without one."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from helpers.attacks import ATTACKS, REACHED, Attack
from helpers.paths import PYTHONPATH, TESTS
from helpers.stage import EXPECTED, TOKEN, Stage, new_stage, run_unprotected
from rlanything_coding.sandbox.base import Job, Verdict
from rlanything_coding.sandbox.local import LocalExecutor

PLAIN_USER = TESTS / "helpers" / "plain_user.py"

Boxed = dict[str, tuple[str, str, str]]
"""Verdict, stdout and reason by the attack's name."""

by_name = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with new_stage() as stage:
        yield stage


@pytest.fixture(scope="module")
def boxed(stage: Stage) -> Boxed:
    """By this process's user."""
    jobs = [
        Job(stage.program(each), expected=expected(each), limits=each.limits) for each in ATTACKS
    ]
    with LocalExecutor(4) as executor:
        results = executor.run_all(jobs)
        assert executor.restarts == 0
    return {
        attack.name: (each.verdict, each.text, f"{each.reason} {each.stderr}")
        for attack, each in zip(ATTACKS, results, strict=True)
    }


@pytest.fixture(scope="module")
def boxed_by_plain_user(stage: Stage) -> Boxed:
    if os.geteuid() != 0:
        pytest.skip("this is a plain user already")
    user = pwd.getpwnam("nobody")
    jobs = [[stage.program(each), expected(each), asdict(each.limits)] for each in ATTACKS]
    printed = run_as(user, [readable_python(user), str(PLAIN_USER)], json.dumps(jobs))
    assert printed.returncode == 0, printed.stderr
    results = json.loads(printed.stdout)
    return {attack.name: tuple(each) for attack, each in zip(ATTACKS, results, strict=True)}


def readable_python(user: pwd.struct_passwd) -> str:
    """One that another user can start: this one may lie in root's home."""
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            run_as(user, [candidate, "-c", TRIAL], "").check_returncode()
            return candidate
    pytest.skip("no Python of 3.11 or later that a plain user may run, or the checkout is closed")


def run_as(
    user: pwd.struct_passwd, command: list[str], stdin: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": PYTHONPATH, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )


TRIAL = "import sys, rlanything; sys.exit(sys.version_info < (3, 11))"


def expected(attack: Attack) -> str | None:
    return EXPECTED if attack.effect == "passes" else None


def contained(attack: Attack, verdict: str, stdout: str) -> bool:
    return (
        verdict in attack.boxed
        and REACHED not in stdout
        and TOKEN not in stdout
        and EXPECTED not in stdout
    )


def test_there_are_no_two_attacks_of_one_name() -> None:
    assert len({each.name for each in ATTACKS}) == len(ATTACKS) >= 50


@by_name
def test_a_box_contains(attack: Attack, boxed: Boxed) -> None:
    verdict, stdout, reason = boxed[attack.name]
    assert contained(attack, verdict, stdout), (verdict, stdout[:200], reason)


@by_name
def test_a_plain_users_box_contains(attack: Attack, boxed_by_plain_user: Boxed) -> None:
    verdict, stdout, reason = boxed_by_plain_user[attack.name]
    assert contained(attack, verdict, stdout), (verdict, stdout[:200], reason)


@pytest.fixture(scope="module")
def unprotected(stage: Stage, boxed: Boxed) -> dict[str, str]:
    """After the boxes: some leave traces."""
    assert stage.victim.poll() is None
    assert (stage.folder / "victim").read_text() == "still here"
    assert (stage.folder / "secret").read_text() == TOKEN
    assert not list(Path("/tmp").glob("rlanything-attack-*"))
    with ThreadPoolExecutor(4) as threads:
        effects = threads.map(lambda each: run_unprotected(stage, each), ATTACKS)
        found = {attack.name: effect for attack, effect in zip(ATTACKS, effects, strict=True)}
    for place in (Path("/tmp"), Path("/")):
        for trace in place.glob(f"*attack-{TOKEN}"):
            trace.unlink()
    return found


@by_name
def test_without_a_box_it_reaches_its_aim(attack: Attack, unprotected: dict[str, str]) -> None:
    effect = unprotected[attack.name]
    if effect == "absent":
        pytest.skip("this kernel does not have it")
    if attack.needs_root and os.geteuid() != 0 and effect != attack.effect:
        pytest.skip("takes root")
    assert effect == attack.effect


def test_a_run_leaves_nothing_for_the_next() -> None:
    spoiler = """
import builtins, json, math, sys, os, threading
builtins.print = lambda *a: None
math.pi = 3
sys.modules["collections"] = None
os.getpid = lambda: 99
os.environ["LEFT"] = "1"
threading.Thread.start = None
sys.setrecursionlimit(50)
"""
    honest = """
import collections, math, os, sys
print(math.pi, os.getpid(), dict(os.environ), sys.getrecursionlimit(), len(collections.deque([1])))
"""
    with LocalExecutor(1) as executor:
        before = executor.run(Job(honest))
        assert executor.run(Job(spoiler)).verdict is Verdict.OK
        assert (
            executor.run(Job(honest)).stdout == before.stdout == b"3.141592653589793 1 {} 1000 1\n"
        )
