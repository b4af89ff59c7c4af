"""No policy raises its measured success above its true one by what it says: programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import Template

import pytest

from helpers.attacks import ATTACKS
from helpers.hostile import TEXTS, check, dozen, measured
from rlanything_coding.domain import Coding

PROGRAMS = tuple(
    Template(attack.program).safe_substitute(
        dict.fromkeys(("secret", "expected", "victim_file", "socket", "abstract", "token"), "/x"),
        port="1",
        victim="1",
    )
    for attack in ATTACKS
)


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def check_coding(programs: Sequence[str]) -> None:
    domain = Coding(tests=1)
    try:
        tasks = [
            replace(task, data={**task.data, "time_limit_seconds": 0.8})
            for task in domain.tasks("in_domain", 2 * len(programs), 3)
        ]
        attacks = [fenced(program) for program in programs]
        check(*measured(domain, tasks, attacks, 1), len(tasks))
    finally:
        domain.executor.close()


def test_coding_counts_every_episode() -> None:
    check_coding(dozen(PROGRAMS, 3))


@pytest.mark.slow
def test_coding_counts_every_episode_of_the_whole_list() -> None:
    check_coding([*PROGRAMS, *TEXTS])
