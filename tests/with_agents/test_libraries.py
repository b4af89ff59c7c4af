"""smolagents, the OpenAI Agents SDK and CrewAI act through the endpoint as they are: no line of
theirs knows of it."""

# The environment of `make test-agents` alone has them.
# pyright: reportMissingImports=false
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.agents import Scripted, agent, played
from helpers.calling import call
from rlanything.records import Task, Trajectory


def run(solve: Any, *says: str) -> tuple[Trajectory, list[Any]]:
    policy = Scripted()
    rollouts = played(agent(solve, says, timeout_seconds=30.0), policy=policy, timeout=60.0)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    return rollouts.trajectories[0], policy.requests


def tool_calling(task: Task, client: Any) -> bool:
    """smolagents' ToolCallingAgent."""
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiplies two numbers.

        Args:
            a: one of them
            b: the other
        """
        return a * b

    model = OpenAIModel("policy", api_base=str(client.base_url), api_key=client.api_key)
    acting = ToolCallingAgent(tools=[multiply], model=model, max_steps=3, verbosity_level=0)
    return acting.run("What is 6 times 7?") == 42


def coding(task: Task, client: Any) -> bool:
    """smolagents' CodeAgent, whose actions are Python."""
    from smolagents import CodeAgent, OpenAIModel

    model = OpenAIModel("policy", api_base=str(client.base_url), api_key=client.api_key)
    acting = CodeAgent(tools=[], model=model, max_steps=3, verbosity_level=0)
    return acting.run("What is 6 times 7?") == 42


def streaming(task: Task, client: Any) -> bool:
    """smolagents' ToolCallingAgent on streamed answers."""
    from smolagents import OpenAIModel, ToolCallingAgent

    model = OpenAIModel("policy", api_base=str(client.base_url), api_key=client.api_key)
    acting = ToolCallingAgent(
        tools=[], model=model, max_steps=2, verbosity_level=0, stream_outputs=True
    )
    return acting.run("What is 6 times 7?") == 42


def test_smolagents_calls_tools() -> None:
    trajectory, requests = run(
        tool_calling, call("multiply", a=6, b=7), call("final_answer", answer=42)
    )
    assert trajectory.outcome == 1
    assert [step.action for step in trajectory.steps] == [
        'multiply({"a": 6, "b": 7})',
        'final_answer({"answer": 42})',
    ]
    assert "42" in trajectory.steps[0].next_observation
    assert {tool["name"] for tool in requests[0].tools} == {"multiply", "final_answer"}


def test_smolagents_streams() -> None:
    trajectory, _ = run(streaming, call("final_answer", answer=42))
    assert trajectory.outcome == 1


def test_smolagents_writes_code() -> None:
    trajectory, requests = run(
        coding,
        "Thought: easy.\n<code>\nx = 6 * 7\nprint(x)\n</code>",
        "Thought: done.\n<code>\nfinal_answer(x)\n</code>",
    )
    assert trajectory.outcome == 1
    assert len(trajectory.steps) == 2
    assert "42" in trajectory.steps[0].next_observation
    assert requests[0].stop


async def handing_over(task: Task, client: Any) -> bool:
    """Two agents of the OpenAI Agents SDK: one hands the task to the other, which has a tool."""
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)

    @function_tool
    def multiply(a: int, b: int) -> int:
        """Multiplies two numbers."""
        return a * b

    model = OpenAIChatCompletionsModel(model="policy", openai_client=client)
    reckoner = Agent(name="Reckoner", instructions="Reckon.", tools=[multiply], model=model)
    desk = Agent(name="Desk", instructions="Hand over.", handoffs=[reckoner], model=model)
    result = await Runner.run(desk, "What is 6 times 7?")
    return "42" in result.final_output


async def streamed(task: Task, client: Any) -> bool:
    """An agent of the OpenAI Agents SDK on streamed answers."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(model="policy", openai_client=client)
    result = Runner.run_streamed(Agent(name="One", model=model), "What is 6 times 7?")
    async for _ in result.stream_events():
        pass
    return result.final_output == "It is 42."


def test_the_openai_agents_sdk_hands_over_and_calls_tools() -> None:
    trajectory, requests = run(
        handing_over, call("transfer_to_reckoner"), call("multiply", a=6, b=7), "It is 42."
    )
    assert trajectory.outcome == 1
    assert trajectory.steps[1].action == 'multiply({"a": 6, "b": 7})'
    assert trajectory.steps[2].observation == "[tool] 42"
    systems = [request.messages[0].content for request in requests]
    assert systems == ["Hand over.", "Reckon.", "Reckon."]


def test_the_openai_agents_sdk_streams() -> None:
    trajectory, _ = run(streamed, "It is 42.")
    assert trajectory.outcome == 1


def test_parallel_calls_are_carried_out_and_come_back_together() -> None:
    both = call("multiply", a=6, b=7) + "\n" + call("multiply", a=2, b=3)
    trajectory, _ = run(handing_over, call("transfer_to_reckoner"), both, "It is 42.")
    assert trajectory.outcome == 1
    assert trajectory.steps[2].observation == "[tool] 42\n[tool] 6"


@pytest.mark.parametrize("solve", [tool_calling, handing_over])
def test_a_policy_that_makes_no_sense_loses_and_breaks_nothing(solve: Any) -> None:
    domain = agent(solve, ["<tool_call>nonsense"], timeout_seconds=30.0)
    [trajectory] = played(domain, timeout=60.0).trajectories
    assert trajectory.outcome == -1
    assert not trajectory.steps[0].valid


CREW = """
import os
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

@tool("multiply")
def multiply(a: int, b: int) -> int:
    "Multiplies two numbers."
    return a * b

llm = LLM(
    model="openai/policy",
    base_url=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
clerk = Agent(role="Clerk", goal="Reckon.", backstory="You reckon.", tools=[multiply], llm=llm)
task = Task(description="What is 6 times 7?", expected_output="The product.", agent=clerk)
print("true" if "42" in str(Crew(agents=[clerk], tasks=[task]).kickoff()) else "false")
"""


@pytest.mark.skipif("RLANYTHING_CREWAI" not in os.environ, reason="the Python that has CrewAI")
def test_crewai_calls_tools_as_a_command(tmp_path: Path) -> None:
    # CrewAI wants openai<3: its Python is that of an environment of its own (1.0 GB).
    python = Path(os.environ["RLANYTHING_CREWAI"])
    for place in (tmp_path, tmp_path.parent, tmp_path.parents[1]):  # a box is another user
        place.chmod(0o755)
    (tmp_path / "crew.py").write_text(CREW)
    domain = agent(
        None,
        [call("multiply", a=6, b=7), "It is 42."],
        command=[str(python), "crew.py"],
        folder=str(tmp_path),
        shown=[str(python.parents[1])],
        variables={"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"},
        timeout_seconds=120.0,
    )
    rollouts = played(domain, timeout=150.0)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    [trajectory] = rollouts.trajectories
    assert trajectory.outcome == 1
    assert trajectory.steps[0].action == 'multiply({"a": 6, "b": 7})'
    assert trajectory.steps[1].observation == "[tool] 42"
