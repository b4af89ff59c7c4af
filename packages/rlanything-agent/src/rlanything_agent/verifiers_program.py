"""The program of a verifiers episode: lists the tasks of a taskset, or plays one of them.

    python -P verifiers_program.py list CONFIG COUNT    # a JSON line for each task
    python -P verifiers_program.py play CONFIG          # a task on stdin; the reward comes last

Standalone: it runs in the environment that has verifiers, and imports nothing from the library.
CONFIG: JSON, verifiers' own environment description.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from itertools import islice
from typing import Any

SCRIPT = ".rlanything-program.py"


def main() -> None:
    action, config, *rest = sys.argv[1:]
    printed = sys.stdout
    # tasksets may print, but the last line must be the reward
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if action == "list":
                lines = listed(json.loads(config), int(rest[0]))
            else:
                lines = [str(asyncio.run(reward(json.loads(config), json.loads(sys.stdin.read()))))]
        except Exception as fault:  # an error from the taskset or from verifiers
            sys.exit(" ".join(f"{type(fault).__name__}: {fault}".split())[:500])
    printed.write("\n".join(lines) + "\n")


def listed(config: dict[str, Any], count: int) -> list[str]:
    """Returns the first tasks, in the format of the domain `agent`."""
    rows = []
    for number, task in enumerate(islice(iter(environment(config).taskset), count)):
        data = task.data
        text = data.prompt_text or data.description or data.name or f"Task {number}."
        rows.append(json.dumps({"id": str(number), "instruction": text, "data": {"index": number}}))
    return rows


async def reward(config: dict[str, Any], row: dict[str, Any]) -> float:
    """Plays a task once at the endpoint, and returns its reward."""
    from verifiers.v1 import EvalClientConfig, ModelContext

    played = environment(config)
    index = int(row["data"]["index"])
    task = next(islice(iter(played.taskset), index, None))
    address = os.environ["OPENAI_BASE_URL"]
    client = EvalClientConfig(base_url=address, api_key_var="OPENAI_API_KEY")
    async with played.serving():
        [slot] = played.slots(task)
        episode = await played.run_slot(slot, ModelContext(model="policy", client=client))
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        raise RuntimeError(errors[-1].message if errors else "the episode is not whole")
    return float(sum(trace.reward for trace in episode.traces))


def environment(config: dict[str, Any]) -> Any:
    """Returns a verifiers environment whose programs run with this Python; it installs nothing."""
    from verifiers.v1 import load_environment, resolve_env_config
    from verifiers.v1.runtimes import Runtime

    async def prepared(
        self: Any, script: str | bytes, env: Any = None, *, activate: bool = True
    ) -> list[str]:
        await self.write(SCRIPT, script.encode() if isinstance(script, str) else script)
        return [sys.executable, SCRIPT]

    Runtime.prepare_uv_script = prepared
    return load_environment(resolve_env_config(config))


if __name__ == "__main__":
    main()
