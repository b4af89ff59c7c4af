"""Small task folders of Harbor's shape, and episodes in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rlanything.domains.base import StepResult
from rlanything_agent.harbor.domain import HarborDomain
from rlanything_agent.harbor.environment import HarborEnvironment

SETTINGS = "version = '1.0'\n[agent]\ntimeout_sec = 60.0\n[verifier]\ntimeout_sec = 60.0\n"
CHECK = """#!/bin/bash
apt-get update
apt-get install -y coreutils
source $HOME/.local/bin/env
if [ "$(cat /app/answer.txt)" = 42 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
SOLVE = "#!/bin/bash\ncp $(dirname $0)/right.txt answer.txt\n"


def task_folder(
    place: Path,
    dockerfile: str = "FROM debian:12\nWORKDIR /app\n",
    check: str = CHECK,
    settings: str = SETTINGS,
) -> Path:
    """Writes the folder of a task that asks for 42 in answer.txt, and returns it."""
    for name in ("environment", "tests", "solution"):
        (place / name).mkdir(parents=True)
    (place / "task.toml").write_text(settings)
    (place / "instruction.md").write_text("Write 42 into answer.txt.\n")
    data = dockerfile.encode("utf-8", "surrogateescape")
    (place / "environment" / "Dockerfile").write_bytes(data)
    (place / "tests" / "test.sh").write_text(check)
    (place / "solution" / "solve.sh").write_text(SOLVE)
    (place / "solution" / "right.txt").write_text("42\n")
    return place


def harbor(folder: Path, **options: Any) -> HarborDomain:
    """The domain of a folder, in boxes, with all its tasks in `train`."""
    settings = {"container": "box", "splits": {"train": 1.0}, "step_seconds": 90.0, **options}
    return HarborDomain(tasks=str(folder), **settings)


@contextmanager
def episode(folder: Path, **options: Any) -> Iterator[HarborEnvironment]:
    """An episode of the only task of a folder, which has begun."""
    domain = harbor(folder, **options)
    [task] = domain.tasks("train", 9, 0)
    with closing(domain.environment()) as environment:
        environment.reset(task)
        yield environment


def say(environment: HarborEnvironment, command: str) -> StepResult:
    return environment.step(f"I try this.\n```bash\n{command}\n```")
