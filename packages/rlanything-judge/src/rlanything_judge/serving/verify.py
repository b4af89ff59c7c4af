"""Rollouts as NeMo Gym sends them to the `/verify` of a resources server."""

from __future__ import annotations

import json
from typing import Any

from fastapi import HTTPException

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.strict_json import finite_json
from rlanything.surrogates import whole_characters
from rlanything_judge.rollouts.formats import FormatError, LineFormat
from rlanything_judge.rollouts.lines import trajectory_of
from rlanything_judge.serving.messages import MOST_STEPS, UNKNOWN, step_scores

_NO_REWARD = "0"
"""The reader demands a reward; a judge does not see it."""


def to_verify(data: Any) -> tuple[dict[str, Any], Trajectory]:
    """Returns a request and the rollout in it. Raises `HTTPException` for anything else."""
    if not isinstance(data, dict):
        raise HTTPException(422, "the body is no object with responses_create_params and response")
    try:
        data = finite_json(data)
        entry = LineFormat("responses", (_NO_REWARD,))(data)
    except FormatError as fault:
        said = f"this is no rollout of NeMo Gym: {whole_characters(str(fault))}"
        raise HTTPException(422, said) from None
    except RecursionError:
        raise HTTPException(422, "the body is nested too deeply") from None
    if not 1 <= len(entry["steps"]) <= MOST_STEPS:
        raise HTTPException(422, f"a rollout has 1 to {MOST_STEPS:,} answers of the model")
    return data, trajectory_of(entry, UNKNOWN)


def verified(record: dict[str, Any], judged: JudgedTrajectory) -> str:
    """Returns a request with its reward, the mean of its steps' rewards from -1 to 1, as JSON."""
    rewards = [step.reward for step in step_scores(judged)]
    answer = {**record, "reward": sum(rewards) / len(rewards), "step_rewards": rewards}
    return json.dumps(answer)  # ASCII: half a surrogate pair is not UTF-8
