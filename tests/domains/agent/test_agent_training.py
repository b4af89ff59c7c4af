"""An agent that asks through the endpoint trains to the same weights as one in the loop."""

# pyright: reportMissingImports=false
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rlanything as rl
from helpers.paths import ROOT
from rlanything.domains.agent.domain import AgentDomain
from rlanything.engines import shipped
from rlanything.records import Task, Trajectory


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def guess_tasks(split: str, count: int, seed: int) -> list[Task]:
    del seed
    instruction = "Guess a number between 1 and 8 in 4 tries."
    data = [{"secret": 1 + 3 * i % 8, "tries": 4} for i in range(count)]
    return [Task(f"{split}-{i}", instruction, data=data[i]) for i in range(count)]


def in_process() -> Any:
    from guess import Guess

    class Same(Guess):
        def tasks(self, split: str, count: int, seed: int) -> list[Task]:
            return guess_tasks(split, count, seed)

    return Same()


async def play(task: Task, client: Any) -> bool:
    """The game of examples/guess.py, its own environment included, asked for by a program."""
    from guess import GuessEnvironment

    game = GuessEnvironment()
    seen = game.reset(task)
    rule = "Answer with a thought, then > and one action."
    messages = [{"role": "user", "content": f"{task.instruction}\n{rule}\n{seen.text}"}]
    listed = {"structured_outputs": {"choice": list(seen.choices)}}
    body = listed if task.data.get("listed", True) else {}
    while True:
        reply = await client.chat.completions.create(
            model="policy", messages=messages, extra_body=body
        )
        said = reply.choices[0].message.content
        result = game.step(said)
        if result.outcome is not None:
            return result.outcome == 1
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": result.observation.text})


class Through(AgentDomain):
    def __init__(self, listed: bool) -> None:
        super().__init__([{"id": "1", "instruction": "unused"}], play)
        self._listed = listed

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        tasks = guess_tasks(split, count, seed)
        for task in tasks:
            task.data["listed"] = self._listed  # type: ignore[index]
        return tasks


def judged(trajectory: Trajectory, i: int) -> int:
    """A judge with an opinion on every step, that looks at what was sampled and nothing else."""
    return 1 if hashlib.sha256(trajectory.steps[i].response.encode()).digest()[0] % 2 else -1


def trained(domain: Any, folder: Path, changes: dict[str, Any]) -> tuple[bytes, Sequence[Any]]:
    overrides = {
        "run_dir": folder,
        "loop.iterations": 2,
        "loop.tasks": 3,
        "loop.tasks_per_iteration": 3,
        "loop.rollouts_per_task": 6,
        "curriculum.adapt_tasks": False,
        "evaluation.episodes": 0,
        "feedback.policy_window": [0.0, 1.0],
        **changes,
    }
    rl.Trainer("guess", domain=domain, judge=rl.FunctionJudge(judged), overrides=overrides).train()
    run = rl.open_run(folder)
    weights = (folder / "checkpoints/iter-00002/policy/model.safetensors").read_bytes()
    return weights, run.trajectories(iteration=1)


@pytest.mark.parametrize(("decoding", "workers"), [("choices", 0), ("free", 1)])
def test_the_guess_game_through_the_endpoint_trains_to_the_same_bits(
    decoding: str, workers: int, tmp_path: Path
) -> None:
    changes = {"policy.decoding": decoding, "environment.workers": workers}
    inside, played = trained(in_process(), tmp_path / "inside", changes)
    through, asked = trained(Through(decoding == "choices"), tmp_path / "through", changes)
    assert [t.outcome for t in asked] == [t.outcome for t in played]
    completions = [[step.completion for step in t.steps] for t in asked]
    assert completions == [[step.completion for step in t.steps] for t in played]
    assert through == inside
    assert through != (shipped.MODELS / "policy" / "model.safetensors").read_bytes()
