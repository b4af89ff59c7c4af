"""Responses with programs and tests, and an episode of coding."""

from __future__ import annotations

from rlanything.records import Completion, Step, Task, Trajectory
from rlanything_coding.domain import Coding


def fenced(program: str) -> str:
    return f"Let me think.\n```python\n{program}\n```"


def written_test(given: str, expected: str) -> str:
    return f"So.\n```input\n{given}\n```\n```output\n{expected}\n```"


def rollout(domain: Coding, task: Task, response: str, name: str = "t") -> Trajectory:
    environment = domain.environment()
    seen = environment.reset(task)
    result = environment.step(response)
    assert result.outcome is not None
    step = Step(
        seen.text,
        Completion.unsampled(response),
        result.action,
        result.valid,
        result.observation.text,
    )
    return Trajectory(name, task, (step,), result.outcome, result.reward)
