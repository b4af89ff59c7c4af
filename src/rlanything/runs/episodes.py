"""Episodes on disk, as far as a judge reads them: the exam's, which every sitting judges again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.runs.checkpoint import write_synced


def write_episodes(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Texts, actions and outcomes; no tokens, for nobody trains on these."""
    write_synced(path, json.dumps([_as_json(each) for each in trajectories]))


def read_episodes(path: Path) -> list[Trajectory]:
    return [_trajectory(each) for each in json.loads(path.read_text(encoding="utf-8"))]


def _as_json(trajectory: Trajectory) -> dict[str, Any]:
    task = trajectory.task
    return {
        "id": trajectory.id,
        "task": {
            "id": task.id,
            "instruction": task.instruction,
            "kind": task.kind,
            "data": task.data,
        },
        "steps": [
            [s.observation, s.response, s.action, s.valid, s.next_observation]
            for s in trajectory.steps
        ],
        "outcome": trajectory.outcome,
    }


def _trajectory(saved: dict[str, Any]) -> Trajectory:
    steps = tuple(
        Step(observation, Completion.unsampled(response), action, valid, after)
        for observation, response, action, valid, after in saved["steps"]
    )
    return Trajectory(saved["id"], Task(**saved["task"]), steps, saved["outcome"])
