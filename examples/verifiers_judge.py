"""A judge that `rlanything serve` serves, as a judge of verifiers v1.

    rlanything serve --judge runs/mine

Install this file next to your taskset, and name it in the taskset's settings:

    {id: my_taskset, task: {judges: [{id: verifiers_judge, base_url: "http://127.0.0.1:8000"}]}}

A rollout's reward is the mean of its steps' scores, from -1 to 1; `weight` scales it.
`RLANYTHING_JUDGE_KEY`: the server's key, where `--key-variable` has given it one.
"""

# The environment that has verifiers imports this.
# pyright: reportMissingImports=false
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import httpx
import verifiers.v1 as vf

SECONDS = 600.0
"""Limit of one rollout; the server judges those that wait together in one batch."""


class ServedJudgeConfig(vf.JudgeConfig):
    id: str = "verifiers_judge"
    base_url: str = "http://127.0.0.1:8000"
    api_key_var: str = "RLANYTHING_JUDGE_KEY"


class ServedJudge(vf.Judge[float, ServedJudgeConfig]):
    async def score(self, task: Any, trace: Any) -> float:
        """Returns the reward of a rollout; an error makes the rollout's scoring fail."""
        said = trace.messages
        begun = next((i for i, each in enumerate(said) if each.role == "assistant"), len(said))
        request = {
            "responses_create_params": {"input": items(said[:begun])},
            "response": {"output": items(said[begun:])},
        }
        key = os.environ.get(self.config.api_key_var)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            url = f"{self.config.base_url}/verify"
            answer = await client.post(url, json=request, headers=headers)
        answer.raise_for_status()
        return float(answer.json()["reward"])


def items(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns messages as items of OpenAI's Responses."""
    found: list[dict[str, Any]] = []
    for message in messages:
        text = message.content or ""
        if not isinstance(text, str):
            text = "\n".join(getattr(part, "text", f"[{part.type}]") for part in text)
        if message.role == "tool":
            call_id = message.tool_call_id
            found.append({"type": "function_call_output", "call_id": call_id, "output": text})
            continue
        if text or message.role != "assistant":
            found.append({"type": "message", "role": message.role, "content": text})
        for call in getattr(message, "tool_calls", None) or ():
            call_of = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            found.append({"type": "function_call", **call_of})
    return found


__all__ = ["ServedJudge"]
