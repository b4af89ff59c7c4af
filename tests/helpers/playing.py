"""Steps of an episode on a domain's own environment."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.domains.base import Domain
from rlanything.records import Completion, Step, Task


def play(domain: Domain, task: Task, responses: Sequence[str]) -> list[Step]:
    """Plays the responses, one after the other, and returns their steps."""
    environment = domain.environment()
    seen = environment.reset(task)
    steps: list[Step] = []
    for response in responses:
        result = environment.step(response)
        said = Completion.unsampled(response)
        steps.append(Step(seen.text, said, result.action, result.valid, result.observation.text))
        seen = result.observation
    return steps
