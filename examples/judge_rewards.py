"""Rewards of a judge that `rlanything serve` serves, for trainers that want a function.

    rlanything serve --judge runs/mine
    RLANYTHING_JUDGE=http://127.0.0.1:8000 python your_training.py

`RLANYTHING_JUDGE_KEY`: the server's key, where `--key-variable` has given it one.

An answer is an episode of one step here: a prompt, and what the model said.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Sequence
from typing import Any

INSTRUCTION = "Answer well."
MOST = 1024
"""Episodes that a request may have."""


def scores(prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
    """Returns the judge's mean score of each answer, in [-1, 1]."""
    if len(answers) > MOST:
        return scores(prompts[:MOST], answers[:MOST]) + scores(prompts[MOST:], answers[MOST:])
    episodes = [
        {
            "task": number,
            "instruction": INSTRUCTION,
            "steps": [{"observation": prompt, "response": answer, "next_observation": ""}],
        }
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    url = os.environ.get("RLANYTHING_JUDGE", "http://127.0.0.1:8000")
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("RLANYTHING_JUDGE_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    body = json.dumps({"trajectories": episodes}).encode()
    request = urllib.request.Request(f"{url}/judge", body, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        judged = json.load(answer)["trajectories"]
    return [episode["steps"][0]["reward"] for episode in judged]


def trl_reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    """A reward function of TRL's `GRPOTrainer`: `reward_funcs=trl_reward`."""
    return scores([_text(prompt) for prompt in prompts], [_text(said) for said in completions])


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None
) -> float:
    """A reward function of verl: `custom_reward_function.path=judge_rewards.py`."""
    del data_source, ground_truth
    return scores([(extra_info or {}).get("question", "")], [solution_str])[0]


def _text(said: Any) -> str:
    """The text of an answer, of a conversation or of one turn of it, calls of tools included."""
    if said is None or isinstance(said, str):
        return said or ""
    if isinstance(said, list):
        return "\n".join(filter(None, map(_text, said)))
    calls = [json.dumps(call) for call in said.get("tool_calls") or ()]
    return "\n".join(filter(None, [_text(said.get("content") or said.get("text")), *calls]))
