"""The price of the endpoint: the guess game in process and through it, turn by turn in one run.

python benchmarks/agent.py [--rounds 8] [--workers 1] [--out benchmarks/agent.md]

Seconds are those of the processors, of this process and its environment workers together: other
work on the machine counts little. Both runs play the same episodes with the same model (the nano
one, for which a request costs most relative to its computation) and must sample the same tokens;
which goes first changes by round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))

import guess_agent  # noqa: E402
import httpx2  # noqa: E402
import openai  # noqa: E402
from guess import Guess  # noqa: E402

import rlanything as rl  # noqa: E402
from rlanything.records import Messages  # noqa: E402
from rlanything_agent.domain import AgentDomain  # noqa: E402

WAYS = ("in process", "through the endpoint")
OVERRIDES = {
    "curriculum.adapt_tasks": False,
    "evaluation.episodes": 0,
    "threads": 1,
    "loop.tasks": 8,
    "loop.tasks_per_iteration": 8,
    "loop.rollouts_per_task": 8,
    "feedback.policy_window": [0.0, 1.0],
    # A judge's answers depend on how the game is described: nothing else may differ.
    "feedback.policy_reward": "outcome",
}


class Through(AgentDomain):
    """The tasks of the game, for a program."""

    def __init__(self) -> None:
        rows = [{"id": "unused", "instruction": "unused"}]
        super().__init__(tasks=rows, solve=guess_agent.solve)

    def tasks(self, split: str, count: int, seed: int) -> list[rl.Task]:
        return Guess().tasks(split, count, seed)

    def judge_prompt(self, task: rl.Task, steps: Sequence[rl.Step]) -> Messages:
        """Returns what the judge of the game is shown: a program's first message repeats the
        rules, which would be the judge's seconds and not the endpoint's."""
        first = replace(steps[0], observation=steps[0].observation.rpartition("\n")[2])
        return super().judge_prompt(task, [first, *steps[1:]])


def trainer(way: str, folder: Path, rounds: int, workers: int) -> rl.Trainer:
    domain: Any = Guess() if way == WAYS[0] else Through()
    changes = {
        **OVERRIDES,
        "run_dir": folder / way.replace(" ", "-"),
        "loop.iterations": rounds + 1,
        "environment.workers": workers,
    }
    return rl.Trainer("guess", domain=domain, overrides=changes)


def processor_seconds() -> float:
    """Returns what this process and its children have computed so far (Linux)."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == os.getpid():
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def turns(rounds: int, workers: int) -> Iterator[dict[str, dict[str, float]]]:
    """Yields the metrics of an iteration in each way, with what it took under `seconds`; the first,
    which imports, is left out. Raises `SystemExit` where the two sampled different tokens."""
    with tempfile.TemporaryDirectory() as folder:
        running = {way: iter(trainer(way, Path(folder), rounds, workers)) for way in WAYS}
        for number in range(rounds + 1):
            taken: dict[str, dict[str, float]] = {}
            sampled: list[Any] = []
            for way in WAYS if number % 2 else WAYS[::-1]:
                begun = processor_seconds()
                iteration = next(running[way])
                seconds = processor_seconds() - begun
                trajectories = [member.trajectory for member in iteration.judged]
                sampled.append([[s.completion.token_ids for s in t.steps] for t in trajectories])
                metrics = {name: v for name, v in iteration.metrics.items() if v is not None}
                taken[way] = {**metrics, "seconds": seconds}
            if sampled[0] != sampled[1]:
                raise SystemExit("the two ways sampled different tokens: nothing to compare")
            if number:
                yield taken


def client_alone(requests: int = 400) -> float:
    """Returns the processor milliseconds of a request that the `openai` client sends and reads by
    itself, answered at once with the same few words."""
    message = {"role": "assistant", "content": "I think it is higher > 5"}
    asked: Any = [{"role": "user", "content": "Guess a number."}, message, message]
    answer = {
        **{"id": "1", "object": "chat.completion", "created": 1, "model": "policy"},
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 60, "completion_tokens": 9, "total_tokens": 69},
    }

    async def ask(count: int) -> float:
        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=answer))
        http = httpx2.AsyncClient(transport=transport)
        client = openai.AsyncOpenAI(api_key="none", base_url="http://agent/v1", http_client=http)
        begun = time.process_time()
        for _ in range(count):
            await client.chat.completions.create(
                model="policy",
                messages=asked,
                extra_body={"structured_outputs": {"choice": ["4", "5"]}},
            )
        return (time.process_time() - begun) / count * 1e3

    asyncio.run(ask(50))  # imports and caches
    return asyncio.run(ask(requests))


def page(measured: list[dict[str, dict[str, float]]], client: float, words: str) -> str:
    """Returns the page of the figures; `client`: the milliseconds of `client_alone`."""

    def values(way: str, name: str) -> list[float]:
        return [taken[way][name] for taken in measured]

    lines = [
        "# What the endpoint costs an agent",
        "",
        f"`{words}` wrote this page. Python {platform.python_version()}, {os.cpu_count()} cores "
        f"({platform.machine()}), load average at the end {os.getloadavg()[0]:.1f}.",
        "",
        f"{len(measured)} rounds; in each, both ways play the same 64 episodes of the guess game "
        "(`examples/guess.py`, and `examples/guess_agent.py` with the `openai` client), judge them "
        "and train, and which goes first alternates. Tokens were compared: both sampled the same. "
        "The model is the nano one (0.9M parameters): the smallest there is, so that the "
        "share of a request is largest.",
        "",
        "| way | an iteration, processor seconds (median) | steps |",
        "|---|---|---|",
    ]
    for way in WAYS:
        seconds, steps = (median(values(way, name)) for name in ("seconds", "rollouts/steps"))
        lines.append(f"| {way} | {seconds:.2f} | {steps:.0f} |")
    both = list(zip(*(values(way, "seconds") for way in WAYS), strict=True))
    ratios = sorted(through / inside - 1 for inside, through in both)
    steps = median(values(WAYS[1], "rollouts/steps"))
    each = median((through - inside) / steps * 1e3 for inside, through in both)
    lines += [
        "",
        f"Through the endpoint an iteration takes {median(ratios):+.1%} (median of the rounds' "
        f"ratios; lowest {ratios[0]:+.1%}, highest {ratios[-1]:+.1%}): {each:.1f} ms of a "
        "processor for each request, whatever the model. That "
        f"is less than 10% of an iteration where a step costs {10 * each:.0f} ms or more in all it "
        "takes to sample, judge and train it.",
        "",
        f"Of these, {client:.1f} ms are the `openai` client's own: so much it takes here to send a "
        "request and read an answer that costs nothing.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    measured = list(turns(options.rounds, options.workers))
    command = f"python benchmarks/agent.py --rounds {options.rounds} --workers {options.workers}"
    text = page(measured, client_alone(), command)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
