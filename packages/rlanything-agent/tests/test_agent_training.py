"""An agent that asks through the endpoint trains to the same weights as one in the loop."""

# pyright: reportMissingImports=false
from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlanything as rl
from helpers.paths import ROOT
from rlanything.engines import shipped
from rlanything.records import Completion, Task, Trajectory
from rlanything.roles.policy import LanguagePolicy
from rlanything_agent.domain import AgentDomain


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
    listed = {"structured_outputs": {"choice": list(seen.choices or ())}}
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
        super().__init__(tasks=[{"id": "1", "instruction": "unused"}], solve=play)
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
    assert through != (shipped.NAMES["nano-guess"] / "policy" / "model.safetensors").read_bytes()


def test_the_shipped_example_trains_and_its_report_shows_what_was_asked(tmp_path: Path) -> None:
    overrides = {
        "run_dir": tmp_path / "run",
        "domain.name": "rlanything_agent.domain:AgentDomain",
        "loop.iterations": 1,
        "loop.rollouts_per_task": 4,
        "evaluation.episodes": 0,
    }
    [iteration] = rl.Trainer("guess_agent", overrides=overrides)
    assert iteration.metrics["rollouts/failures"] == 0
    assert "rollouts/crashes" not in iteration.metrics
    assert (iteration.metrics["rollouts/steps"] or 0) > 32
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Guess a number between 1 and 8 in 4 tries." in report


def test_the_examples_tasks_are_those_that_it_makes() -> None:
    from guess_agent import rows

    lines = (ROOT / "examples" / "guess_agent.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows(40, 0)


CALL = '<tool_call>{"name": "search", "arguments": {"word": "cup"}}</tool_call>'


async def with_a_tool(task: Task, client: Any) -> bool:
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": "Find it."}]
    await client.chat.completions.create(model="policy", messages=messages, tools=[tool])
    return True


def test_a_report_shows_calls_and_a_policy_without_tools_in_its_template_is_told_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = LanguagePolicy.respond

    def calling(self: LanguagePolicy, episodes: Any, seeds: Any) -> list[Completion]:
        return [replace(said, text=CALL, answer_at=0) for said in respond(self, episodes, seeds)]

    monkeypatch.setattr(LanguagePolicy, "respond", calling)
    rows = [{"id": "1", "instruction": "Find it.", "split": "train"}]
    overrides = {
        "run_dir": tmp_path / "run",
        "policy.decoding": "free",
        "curriculum.adapt_tasks": False,
        "environment.workers": 0,
        "loop.iterations": 1,
        "loop.tasks": 1,
        "loop.tasks_per_iteration": 1,
        "loop.rollouts_per_task": 2,
        "evaluation.episodes": 0,
    }
    domain = AgentDomain(tasks=rows, solve=with_a_tool)
    trainer = rl.Trainer(
        "guess", domain=domain, judge=rl.FunctionJudge(judged), overrides=overrides
    )
    [iteration] = trainer
    [step] = iteration.judged[0].trajectory.steps
    assert step.observation == "Find it.\n[tools] search"
    assert len(step.completion.prompt_ids) > 60  # the tools are in it
    assert step.action == 'search({"word": "cup"})'
    page = (tmp_path / "run" / "report.html").read_text()
    chunks = re.findall(r'<script type="text/plain" id="chunk-\d+">(.*?)</script>', page)
    shown = "".join(zlib.decompress(base64.b64decode(chunk)).decode() for chunk in chunks)
    assert "[tools] search" in shown
    assert json.dumps(CALL) in shown
    assert json.dumps(step.action) in shown
