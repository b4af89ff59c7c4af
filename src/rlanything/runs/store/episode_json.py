"""Episodes as text, as far as a judge reads them: those of its evaluation, which it judges again
and again."""

from __future__ import annotations

import json

from rlanything.records import Completion, Step, Task, Trajectory


def to_json(trajectory: Trajectory) -> str:
    """Returns texts, actions, names of screenshots and outcome as JSON; no tokens, since these
    never train."""
    task = trajectory.task
    return json.dumps(
        {
            "id": trajectory.id,
            "task": {
                "id": task.id,
                "instruction": task.instruction,
                "kind": task.kind,
                "data": task.data,
            },
            "steps": [
                [s.observation, s.response, s.action, s.valid, s.next_observation, *_seen(s)]
                for s in trajectory.steps
            ],
            "outcome": trajectory.outcome,
            "reward": trajectory.reward,
        }
    )


def from_json(text: str) -> Trajectory:
    """Returns the episode of a JSON text: the inverse of `to_json`, but for the tokens."""
    saved = json.loads(text)
    steps = tuple(
        Step(observation, Completion.unsampled(response), action, valid, after, *seen)
        for observation, response, action, valid, after, *seen in saved["steps"]
    )
    return Trajectory(saved["id"], Task(**saved["task"]), steps, saved["outcome"], saved["reward"])


def _seen(step: Step) -> list[str | None]:
    """Returns the names of a step's screenshots, before and after it; nothing where it has none."""
    names = [step.image, step.next_image]
    return names if any(names) else []
