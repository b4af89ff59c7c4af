"""The verifiers domain: tasksets of verifiers v1, whose harnesses call the policy.

verifiers needs older packages than this library, so it has its own environment. Every episode is a
program there, in the same box as commands of the domain `agent`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlanything.domains.base import DomainError
from rlanything_agent.domain import AgentDomain

VARIABLE = "RLANYTHING_VERIFIERS"
PROGRAM = Path(__file__).with_name("verifiers_program.py")
LIST_SECONDS = 120.0
_PLACES = (
    "import importlib.util, json, sys; "
    "print(json.dumps([importlib.util.find_spec('verifiers') is not None, sys.prefix, "
    "sys.base_prefix, *sys.path]))"
)
_SPLITS = MappingProxyType({"train": 0.8, "in_domain": 0.2})
# Programs run in the existing box, and harness `null` only chats and calls tools.
_AGENT = MappingProxyType({"agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}})


class VerifiersDomain(AgentDomain):
    """Episodes of a verifiers taskset. The environment variable RLANYTHING_VERIFIERS names the
    Python that has verifiers and the taskset.

    `taskset`: its id, or its id and settings as verifiers has them under `taskset`. `env`: the rest
    of verifiers' environment description; None means one agent with harness `null` in the box.
    `tasks`: number of tasks to use, from the first; `splits`, `reward_range`, `win_at`,
    `timeout_seconds` and `memory_mb`: as for the domain `agent`. The reward is the weighted sum of
    a trace's rewards.

    Raises `DomainError` if there is no such Python, and later if the taskset cannot be loaded."""

    def __init__(
        self,
        taskset: str | Mapping[str, Any],
        env: Mapping[str, Any] | None = None,
        tasks: int = 512,
        splits: Mapping[str, float] = _SPLITS,
        reward_range: Sequence[float] = (0.0, 1.0),
        win_at: float | None = None,
        timeout_seconds: float = 50.0,
        memory_mb: int = 4096,
    ) -> None:
        named = {"id": taskset} if isinstance(taskset, str) else taskset
        if not isinstance(named, Mapping) or not isinstance(named.get("id"), str):
            raise DomainError(f"taskset is {taskset!r:.80}: write its id, or {{id: ..., ...}}")
        if type(tasks) is not int or tasks < 1:
            raise DomainError(f"tasks is {tasks!r:.80}: give a whole number of 1 or more")
        rest = dict(_AGENT if env is None else env)
        config = json.dumps({**rest, "taskset": dict(named)})
        python, shown = _python()
        words = [python, "-P", str(PROGRAM)]
        super().__init__(
            lambda: _listed([*words, "list", config, str(tasks)], named["id"]),
            command=[*words, "play", config],
            splits=splits,
            reward_range=reward_range,
            win_at=win_at,
            timeout_seconds=timeout_seconds,
            memory_mb=memory_mb,
            folder=str(PROGRAM.parent),
            shown=shown,
        )


def _python() -> tuple[str, list[str]]:
    """Returns the Python that has verifiers, and all folders that it imports from."""
    python = os.environ.get(VARIABLE)
    remedy = (
        "create a separate environment, `python -m venv vf && vf/bin/pip install verifiers`, and "
        f"set {VARIABLE}=vf/bin/python"
    )
    if not python:
        raise DomainError(f"{VARIABLE} is not set: {remedy}")
    python = os.path.abspath(python)  # keep the symlink: a venv recognizes itself by it
    try:
        asked = subprocess.run(
            [python, "-P", "-c", _PLACES], capture_output=True, text=True, check=True, timeout=60
        )
        here, *places = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as fault:
        raise DomainError(f"{VARIABLE}={python} does not run ({fault}): {remedy}") from None
    if not here:
        raise DomainError(f"{VARIABLE}={python} has no verifiers: {remedy}")
    return python, [place for place in dict.fromkeys(places) if Path(place).exists()]


def _listed(words: list[str], taskset: str) -> list[dict[str, Any]]:
    """Returns the tasks of a taskset. Raises `DomainError`."""
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=LIST_SECONDS)
    except subprocess.TimeoutExpired:
        raise DomainError(
            f"taskset {taskset} lists no tasks within {LIST_SECONDS:g} s: ask for fewer in "
            "domain.options.tasks"
        ) from None
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise DomainError(
            f"taskset {taskset} cannot be loaded ({said:.300}): install it next to verifiers, "
            "or fix domain.options"
        )
    return [json.loads(line) for line in asked.stdout.splitlines() if line.strip()]
