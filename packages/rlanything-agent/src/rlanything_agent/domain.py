"""The agent domain: tasks for your own program, which calls the policy through the API of OpenAI or
Anthropic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from rlanything.domains.base import (
    Capabilities,
    CodeName,
    DomainError,
    File,
    InvalidTask,
)
from rlanything.domains.registry import named_function
from rlanything.domains.rows import check_shares
from rlanything.domains.text import TextDomain, transcript
from rlanything.records import Messages, Step, Task
from rlanything_agent.commands import Command, CommandSettings, command_options
from rlanything_agent.environment import AgentOptions, ProgramEnvironment, Start
from rlanything_agent.helpers import HelperOptions, Helpers
from rlanything_agent.outcome import Scale
from rlanything_agent.programs import Function, Solve, Solver, awaited
from rlanything_agent.tasks import read_tasks


class AgentDomain(TextDomain):
    """Tasks that a program attempts; every request it sends is a step of the policy."""

    class Options(CommandSettings):
        tasks: File | Callable[[], Any] | Sequence[Any]
        """A file of JSON lines (`domains/agent/tasks.py`), a list of such objects, or a function
        that returns one and is called on first use."""
        solve: CodeName | Callable[..., Any] | None = None
        """A function `solve(task, client)`, or `module:function`, that returns the outcome: True,
        False, or a reward within `reward_range`."""
        splits: Mapping[str, float] = Field({"train": 0.8, "in_domain": 0.2}, min_length=1)
        """Share of each split if the lines do not name their split."""
        rewrite: Literal["none", "instruction"] = "none"
        """`instruction`: the adapter may rewrite a task's instruction; its data stay."""
        models: str | Sequence[str] = ("policy",)
        """Names that the policy answers to."""
        helpers: Mapping[str, HelperOptions] = Field(default_factory=dict)
        """Other models by name, each `{url, model, key_variable, timeout_seconds}`."""
        reward_range: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)
        """Lowest and highest reward."""
        win_at: float | None = None
        """Reward from which an episode is won; None: the highest."""
        images: bool = False
        """Whether the policy is shown the images in requests."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 45.0
        """Time limit between an answer and the program's next request; keep it below
        `environment.timeout_seconds`."""

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = AgentDomain.Options.read(options)
        check_shares(chosen.splits)
        self._shares = chosen.splits
        self._tasks = (
            chosen.tasks if callable(chosen.tasks) else read_tasks(chosen.tasks, self._shares)
        )
        self._rewrites = chosen.rewrite == "instruction"
        self._options = AgentOptions(
            models=_names(chosen.models),
            helpers=Helpers(chosen.helpers, chosen.timeout_seconds),
            scale=_scale(chosen.reward_range, chosen.win_at),
            images=chosen.images,
            timeout_seconds=chosen.timeout_seconds,
        )
        if (chosen.solve is None) == (chosen.command is None):
            raise DomainError("name the program: solve=module:function, or command=[...], not both")
        self._start: Start
        if chosen.solve is None:
            self._start = partial(Command, command_options(chosen))
        else:
            self._start = _function(chosen.solve)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            rewrites_tasks=self._rewrites, shows_images=self._options.images, offers_tools=True
        )

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        if callable(self._tasks):
            self._tasks = read_tasks(awaited(self._tasks()), self._shares)
        return self._tasks.tasks(split, count, seed)

    def environment(self) -> ProgramEnvironment:
        return ProgramEnvironment(self._options, self._start)

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns a chat like those that programs send. Training uses the programs' own chats."""
        first = steps[0].observation if steps else observation
        return transcript(first or task.instruction, steps)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        if not self._rewrites:
            raise InvalidTask("rewriting is disabled for this agent: domain.options.rewrite=none")
        instruction = completion.strip()
        if not instruction:
            raise InvalidTask("the answer holds no instruction", "unreadable")
        if instruction == root.instruction:
            raise InvalidTask("the instruction is unchanged")
        return Task(task_id, instruction, root.kind, root.data)


def _function(solve: str | Solve) -> Start:
    if isinstance(solve, str):
        if ":" not in solve:
            raise DomainError(f"solve is {solve!r}: write module:function")
        return partial(Function, Solver(named_function("solve", solve, "(task, client)")))
    return partial(Function, Solver(solve))


def _names(models: str | Sequence[str]) -> tuple[str, ...]:
    names = (models,) if isinstance(models, str) else tuple(models)
    if not names or not all(names):
        raise DomainError("models must be the names that the policy answers to, such as [policy]")
    return names


def _scale(reward_range: tuple[float, float], win_at: float | None) -> Scale:
    lowest, highest = reward_range
    won = highest if win_at is None else win_at
    if not lowest < won <= highest:
        raise DomainError(
            f"reward_range is [{lowest:g}, {highest:g}] and win_at {won:g}: winning must begin "
            "within the range, above its lowest reward"
        )
    return Scale(lowest, highest, won)
