"""Coding agents from their registries, as they are, make a failing test of a small repository pass.
Those that are programs run in the box."""

# The environment of `make test-agents` alone has them.
# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rlanything as rl
from helpers.agents import Scripted, played
from helpers.calling import call
from helpers.paths import ROOT
from rlanything.records import Task, Trajectory
from rlanything_agent.domain import AgentDomain

SECONDS = 400.0
"""Time limits here: programs of hundreds of megabytes start slowly on a busy machine."""
NODE = Path(sys.prefix, "node", "node_modules")
REPOSITORY = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass Adding(unittest.TestCase):\n"
        "    def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
    # The agent may have changed the test: its own copy decides.
    "check.py": (
        "import shutil, subprocess, sys\n"
        'shutil.copy("test_calc.py", "/tmp/repo/test_calc.py")\n'
        'sys.exit(subprocess.run([sys.executable, "-m", "unittest"], cwd="/tmp/repo").returncode)\n'
    ),
    "config.toml": (
        'model_provider = "rlanything"\n\n[model_providers.rlanything]\nname = "rlanything"\n'
        'base_url = "http://127.0.0.1:8000/v1"\nenv_key = "OPENAI_API_KEY"\n'
        'wire_api = "responses"\n'
    ),
    "opencode.json": json.dumps(
        {
            "provider": {
                "rlanything": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {
                        "baseURL": "{env:OPENAI_BASE_URL}",
                        "apiKey": "{env:OPENAI_API_KEY}",
                    },
                    "models": {"policy": {}},
                }
            },
            "model": "rlanything/policy",
            "permission": "allow",
            "agent": {"title": {"disable": True}},
        }
    ),
    "repair.py": (
        "from inspect_ai import Task, task\nfrom inspect_ai.agent import react\n"
        "from inspect_ai.dataset import Sample\nfrom inspect_ai.tool import bash\n\n\n@task\n"
        "def repair(goal):\n"
        '    return Task([Sample(goal)], solver=react(tools=[bash()]), sandbox="local")\n'
    ),
}
GOAL = "Make the failing test in /tmp/repo pass."
FIXED = "sed -i 's/a - b/a + b/' /tmp/repo/calc.py"
PATCH = (
    "*** Begin Patch\n*** Update File: calc.py\n@@\n def add(a, b):\n-    return a - b\n"
    "+    return a + b\n*** End Patch\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The repository, where the user of a box can reach it."""
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    for name, text in REPOSITORY.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def program(name: str) -> str:
    """Path of a program from npm."""
    path = NODE / ".bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not there: `make test-agents` installs it where npm is")
    return str(path)


def repaired(
    folder: Path, command: str, *says: str, before: str = "", **options: Any
) -> tuple[Trajectory, list[Any]]:
    """An episode of a program that works on a copy of the repository in the box, and what it asked.
    The outcome is the test's. `before`: what the shell does first."""
    rows = [{"id": "repair", "instruction": GOAL, "data": {"says": [*says]}}]
    words = f"cp -r . /tmp/repo && cd /tmp/repo && {before} exec {command} </dev/null"
    settings: dict[str, Any] = {
        "command": ["sh", "-c", words, "sh", "{instruction}"],
        "check": ["python3", "check.py"],
        "outcome": "exit_code",
        "folder": str(folder),
        # The environment below this one, and the programs from npm.
        "shown": [str(ROOT / ".venv"), *([str(NODE)] if NODE.exists() else [])],
        "timeout_seconds": SECONDS,
    }
    domain = AgentDomain(tasks=rows, splits={"train": 1.0}, **{**settings, **options})
    policy = Scripted()
    rollouts = played(domain, max_steps=len(says), policy=policy, timeout=2 * SECONDS)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    recorded = [(step.response, step.completion.token_ids) for step in trajectory.steps]
    assert recorded == [(text, tuple(text.encode())) for text in says]
    return trajectory, policy.requests


def test_claude_code(folder: Path) -> None:
    file = "/tmp/repo/calc.py"
    trajectory, requests = repaired(
        folder,
        f'{program("claude")} --model policy --dangerously-skip-permissions -p "$1"',
        call("Read", file_path=file),
        call("Edit", file_path=file, old_string="a - b", new_string="a + b"),
        call("Bash", command="python3 -m unittest", description="Run the test"),
        "Done.",
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    )
    assert trajectory.outcome == 1
    assert {"Bash", "Read", "Edit", "Write"} <= {tool["name"] for tool in requests[0].tools}
    assert "return a - b" in trajectory.steps[1].observation
    assert "OK" in trajectory.steps[3].observation
    # It adds `replace_all` to the arguments of Edit, so the third chat is another.
    assert [request.follows for request in requests] == [None, 0, None, 2]


CODEX = "exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"


@pytest.mark.parametrize(
    ("model", "edit", "tools"),
    [
        (
            "policy",
            call("exec_command", cmd=f"apply_patch <<'END'\n{PATCH}END"),
            {"exec_command", "multi_agent_v1__spawn_agent"},
        ),
        ("gpt-5.5", call("apply_patch", input=PATCH), {"exec_command", "apply_patch"}),
        (
            "gpt-6.2-sol",
            call("functions__exec", input=f'await tools.exec_command({{cmd: "{FIXED}"}})'),
            {"functions__exec", "clock__sleep"},
        ),
    ],
)
def test_codex(folder: Path, model: str, edit: str, tools: set[str]) -> None:
    trajectory, requests = repaired(
        folder,
        f'{program("codex")} {CODEX} -m {model} "$1"',
        edit,
        "Done.",
        before="mkdir /tmp/.codex && cp config.toml /tmp/.codex &&",
        models=[model],
    )
    assert trajectory.outcome == 1
    assert tools <= {tool["name"] for tool in requests[0].tools}
    assert [request.follows for request in requests] == [None, 0]


def test_opencode(folder: Path) -> None:
    file = "/tmp/repo/calc.py"
    trajectory, requests = repaired(
        folder,
        f'{program("opencode")} run "$1"',
        call("read", filePath=file),
        call("edit", filePath=file, oldString="a - b", newString="a + b"),
        "Done.",
        variables={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        memory_mb=8192,
    )
    assert trajectory.outcome == 1
    assert {"bash", "read", "edit"} <= {tool["name"] for tool in requests[0].tools}
    assert "return a - b" in trajectory.steps[1].observation


def test_mini_swe_agent(folder: Path) -> None:
    trajectory, requests = repaired(
        folder,
        'mini --yolo --exit-immediately -m openai/policy -t "$1"',
        call("bash", command=f"{FIXED} && python3 -m unittest"),
        call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        variables={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    assert trajectory.outcome == 1
    assert "OK" in trajectory.steps[1].observation
    assert [request.follows for request in requests] == [None, 0]


def test_inspect(folder: Path) -> None:
    trajectory, requests = repaired(
        folder,
        "inspect eval repair.py --model openai-api/policy/policy --display none "
        '--log-dir /tmp/logs -T goal="$1"',
        call("bash", command=FIXED),
        call("submit", answer="Done."),
        before="export POLICY_BASE_URL=$OPENAI_BASE_URL POLICY_API_KEY=$OPENAI_API_KEY &&",
    )
    assert trajectory.outcome == 1
    assert {tool["name"] for tool in requests[0].tools} == {"bash", "submit"}
    assert [request.follows for request in requests] == [None, 0]


def passes(repository: Path) -> bool:
    words = [sys.executable, "-m", "unittest"]
    return subprocess.run(words, cwd=repository, capture_output=True).returncode == 0


async def by_pydantic_ai(task: Task, client: Any) -> bool:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("policy", provider=OpenAIProvider(openai_client=client))
    await Agent(model, tools=[written(task)]).run(task.instruction)
    return await asyncio.to_thread(passes, Path(task.data["repository"]))


async def by_langgraph(task: Task, client: Any) -> bool:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="policy", base_url=str(client.base_url), api_key=client.api_key)
    acting = create_react_agent(model, [written(task)])
    await acting.ainvoke({"messages": [("user", task.instruction)]})
    return await asyncio.to_thread(passes, Path(task.data["repository"]))


def by_smolagents(task: Task, client: Any) -> bool:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel("policy", api_base=str(client.base_url), api_key=client.api_key)
    acting = ToolCallingAgent([tool(written(task))], model, max_steps=3, verbosity_level=0)
    acting.run(task.instruction)
    return passes(Path(task.data["repository"]))


def written(task: Task) -> Any:
    def write(text: str) -> str:
        """Replaces calc.py.

        Args:
            text: the new content
        """
        Path(task.data["repository"], "calc.py").write_text(text)
        return "written"

    return write


WRITE = call("write", text=REPOSITORY["calc.py"].replace("-", "+"))


@pytest.mark.parametrize(
    ("solve", "end"),
    [
        (by_pydantic_ai, "Done."),
        (by_langgraph, "Done."),
        (by_smolagents, call("final_answer", answer="Done.")),
    ],
)
def test_libraries(solve: Any, end: str, folder: Path) -> None:
    says = (WRITE, end)
    rows = [{"id": "1", "instruction": GOAL, "data": {"says": says, "repository": str(folder)}}]
    domain = AgentDomain(tasks=rows, solve=solve, splits={"train": 1.0}, timeout_seconds=SECONDS)
    rollouts = played(domain, timeout=2 * SECONDS)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    assert trajectory.outcome == 1
    assert [step.response for step in trajectory.steps] == [*says]
    assert "written" in trajectory.steps[1].observation


def opinion(trajectory: Trajectory, i: int) -> int:
    return 1 if (i + len(trajectory.steps[i].response)) % 2 else -1


def test_an_episode_of_a_harness_is_judged_and_trains(tmp_path: Path) -> None:
    """Its answers are the tiny model's own, so the test fails, and the judge's scores train."""
    rows = [{"id": "1", "instruction": GOAL, "data": {"repository": str(tmp_path)}}]
    overrides = {
        "run_dir": tmp_path / "run",
        "domain.name": "rlanything_agent.domain:AgentDomain",
        "policy.decoding": "free",
        "curriculum.adapt_tasks": False,
        "feedback.policy_window": [0.0, 1.0],
        "environment.workers": 0,
        "loop.iterations": 1,
        "loop.tasks": 1,
        "loop.tasks_per_iteration": 1,
        "loop.rollouts_per_task": 4,
        "evaluation.episodes": 0,
    }
    for name, text in REPOSITORY.items():
        (tmp_path / name).write_text(text)
    domain = AgentDomain(tasks=rows, solve=by_pydantic_ai, splits={"train": 1.0})
    judge = rl.FunctionJudge(opinion)
    [iteration] = rl.Trainer("guess", domain=domain, judge=judge, overrides=overrides)
    assert iteration.metrics["rollouts/failures"] == 0
    assert iteration.metrics["policy/samples"] == 4
    steps: Sequence[Any] = [step for each in iteration.judged for step in each.trajectory.steps]
    assert all(len(step.completion.logprobs) == len(step.completion.token_ids) for step in steps)
