"""The agent domain: tasks for your own program, which calls the policy through the OpenAI API."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from rlanything.domains.base import DomainError, InvalidTask
from rlanything.domains.registry import named_function
from rlanything.domains.text import TextDomain, transcript
from rlanything.records import Messages, Step, Task
from rlanything_agent.commands import Command, command_options
from rlanything_agent.environment import AgentOptions, ProgramEnvironment, Start
from rlanything_agent.helpers import Helpers
from rlanything_agent.outcome import Scale
from rlanything_agent.programs import Function, Solve, Solver, awaited
from rlanything_agent.tasks import Row, read_tasks

POLICY = "policy"
_SPLITS = MappingProxyType({"train": 0.8, "in_domain": 0.2})
_REWRITES = ("none", "instruction")


class AgentDomain(TextDomain):
    """Tasks that a program attempts; every request it sends is a step of the policy.

    `tasks`: a file of JSON lines (`domains/agent/tasks.py`), a list of such objects, or a function
    that returns one and is called on first use. `splits`: share of each split if the lines do not
    name their split. `solve`: a function `solve(task, client)`, or `module:function`, that returns
    the outcome: True, False, or a reward within `reward_range`, won from `win_at` on (None: at the
    highest). `rewrite`: `instruction` lets the adapter rewrite a task's instruction and keep its
    data; `none` forbids it. `models`: the names that the policy answers to; `helpers`: other models
    by name, each `{url, model, key_variable}`. `images`: show the policy the images in requests.
    `timeout_seconds`: time limit between an answer and the program's next request; keep it below
    `environment.timeout_seconds`.

    `command`: command line to run instead of `solve`; it finds the endpoint in OPENAI_BASE_URL and
    OPENAI_API_KEY. `outcome`: the `last_line` of its output, or its `exit_code`; `folder`: working
    directory (None: the current one). `shown`: further readable paths. `variables`: additional
    environment variables. `memory_mb`: memory limit of each process, and size of /tmp. `contained`:
    run it in a box without network. `check`: command line to run in the box once the command and
    everything it started have ended; its output or exit code then decides the outcome.

    Raises `DomainError` for options it cannot use."""

    def __init__(
        self,
        tasks: str | Sequence[Row] | Callable[[], Sequence[Row]],
        solve: str | Solve | None = None,
        splits: Mapping[str, float] = _SPLITS,
        rewrite: str = "none",
        models: Sequence[str] = (POLICY,),
        helpers: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        reward_range: Sequence[float] = (0.0, 1.0),
        win_at: float | None = None,
        images: bool = False,
        timeout_seconds: float = 45.0,
        command: Sequence[str] | None = None,
        outcome: str = "last_line",
        folder: str | None = None,
        shown: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        memory_mb: int = 2048,
        contained: bool = True,
        check: Sequence[str] = (),
    ) -> None:
        self.shows_images = images
        self._shares = _shares(splits)
        self._tasks = tasks if callable(tasks) else read_tasks(tasks, self._shares)
        if rewrite not in _REWRITES:
            raise DomainError(f"rewrite is {rewrite!r}: use one of {', '.join(_REWRITES)}")
        self._rewrites = rewrite == "instruction"
        if not isinstance(timeout_seconds, int | float) or not timeout_seconds > 0:
            raise DomainError(f"timeout_seconds is {timeout_seconds!r}: give seconds above 0")
        self._options = AgentOptions(
            models=_names(models),
            helpers=Helpers(helpers, float(timeout_seconds)),
            scale=_scale(reward_range, win_at),
            images=images,
            timeout_seconds=float(timeout_seconds),
        )
        if (solve is None) == (command is None):
            raise DomainError("name the program: solve=module:function, or command=[...], not both")
        if command is not None:
            places = (folder, shown, variables, memory_mb, contained, check)
            self._start: Start = partial(Command, command_options(command, outcome, *places))
        else:
            self._start = _function(solve)

    @property
    def rewrites_tasks(self) -> bool:
        return self._rewrites

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


def _function(solve: str | Solve | None) -> Start:
    if isinstance(solve, str):
        if ":" not in solve:
            raise DomainError(f"solve is {solve!r}: write module:function")
        return partial(Function, Solver(named_function("solve", solve, "(task, client)")))
    if not callable(solve):
        raise DomainError("solve is not a function: give a function (task, client)")
    return partial(Function, Solver(solve))


def _shares(splits: Any) -> Mapping[str, float]:
    shares: list[Any] = list(splits.values()) if isinstance(splits, Mapping) else [None]
    numbers = all(isinstance(share, int | float) and share > 0 for share in shares)
    if not shares or not numbers or sum(shares) > 1 + 1e-9:
        raise DomainError("splits must be shares above 0 that add up to 1 at most: {train: 0.8}")
    return splits


def _names(models: Any) -> tuple[str, ...]:
    names = (models,) if isinstance(models, str) else tuple(models)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise DomainError("models must be the names that the policy answers to, such as [policy]")
    return names


def _scale(reward_range: Any, win_at: Any) -> Scale:
    try:
        lowest, highest = map(float, reward_range)
        won = highest if win_at is None else float(win_at)
    except (TypeError, ValueError):
        raise DomainError("reward_range must be two numbers, such as [0, 1], win_at one") from None
    if not (math.isfinite(lowest) and math.isfinite(highest) and lowest < won <= highest):
        raise DomainError(
            f"reward_range is [{lowest:g}, {highest:g}] and win_at {won:g}: winning must begin "
            "within the range, above its lowest reward"
        )
    return Scale(lowest, highest, won)
