"""The verifiers domain: tasksets of verifiers v1, whose harnesses call the policy.

verifiers needs older packages than this library, so it has its own environment. Every episode is a
program there, in the same box as commands of the domain `agent`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from rlanything.domains.base import DomainError, DomainOptions
from rlanything_agent.domain import AgentDomain

VARIABLE = "RLANYTHING_VERIFIERS"
PROGRAM = Path(__file__).with_name("verifiers_program.py")
LIST_SECONDS = 120.0
_PLACES = (
    "import importlib.util, json, sys; "
    "print(json.dumps([importlib.util.find_spec('verifiers') is not None, sys.prefix, "
    "sys.base_prefix, *sys.path]))"
)
# Programs run in the existing box, and harness `null` only chats and calls tools.
_AGENT = MappingProxyType({"agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}})


class VerifiersDomain(AgentDomain):
    """Episodes of a verifiers taskset. The environment variable RLANYTHING_VERIFIERS names the
    Python that has verifiers and the taskset.

    Raises `DomainError` if there is no such Python, and later if the taskset cannot be loaded."""

    class Options(DomainOptions):  # pyright: ignore[reportIncompatibleVariableOverride]
        taskset: str | dict[str, Any]
        """Its id, or its id and settings as verifiers has them under `taskset`."""
        env: dict[str, Any] | None = None
        """The rest of verifiers' description of an environment; None: one agent, harness `null`, in
        the box."""
        tasks: Annotated[int, Field(ge=1)] = 512
        """Number of its tasks that are used, from the first."""
        splits: Mapping[str, float] = Field({"train": 0.8, "in_domain": 0.2})
        """Share of each split."""
        reward_range: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)
        """Lowest and highest reward: the sum of a trace's weighted ones."""
        win_at: float | None = None
        """Reward from which an episode is won; None: the highest."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 50.0
        """As for the domain `agent`."""
        memory_mb: Annotated[int, Field(ge=64)] = 4096
        """As for the domain `agent`."""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        taskset = chosen.taskset
        named = {"id": taskset} if isinstance(taskset, str) else taskset
        if not isinstance(named.get("id"), str):
            raise DomainError(f"taskset is {taskset!r:.80}: write its id, or {{id: ..., ...}}")
        rest = dict(_AGENT if chosen.env is None else chosen.env)
        config = json.dumps({**rest, "taskset": named})
        python, shown = _python()
        words = [python, "-P", str(PROGRAM)]
        super().__init__(
            tasks=lambda: _listed([*words, "list", config, str(chosen.tasks)], named["id"]),
            command=[*words, "play", config],
            splits=chosen.splits,
            reward_range=chosen.reward_range,
            win_at=chosen.win_at,
            timeout_seconds=chosen.timeout_seconds,
            memory_mb=chosen.memory_mb,
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
