"""Episodes of Harbor tasks: commands until `exit`, then the tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from rlanything.domains.base import DomainOptions, EpisodeError, Observation, StepResult
from rlanything.domains.rounding import as_good
from rlanything.records import Task
from rlanything_agent.harbor.container import Container, ContainerFault, Ran, Tested
from rlanything_agent.harbor.dockerfile import NotPlain
from rlanything_agent.harbor.folder import HarborTask

MARKER = "```bash"
_OPENING = re.compile(r"^[ \t]*```(?:bash|sh|shell)[ \t]*$", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
_EXIT = re.compile(r"\s*exit(?:\s+0)?\s*;?\s*")
_TAIL_CHARACTERS = 600


class HarborRules(DomainOptions):
    """Options of an episode: its limits, and when it is won."""

    commands: Annotated[int, Field(ge=1)] = 30
    """Number of commands after which the tests decide; keep `loop.max_steps` at or above it."""
    command_seconds: Annotated[float, Field(gt=0)] = 15.0
    """Time limit of a command. All commands of an episode together have the task's own."""
    step_seconds: Annotated[float, Field(gt=0)] = 50.0
    """Time limit of making an image, and of a command and the tests after it: tests get what a
    command leaves, or the task's own limit. Keep it below `environment.timeout_seconds`."""
    reward: str = "reward"
    """The number that counts if tests write several."""
    win_at: float = 1.0
    """Reward from which an episode is won."""


class HarborEnvironment:
    """Plays episodes, each in a container."""

    def __init__(
        self,
        read: Callable[[Task], HarborTask],
        begin: Callable[[HarborTask, float], Container],
        rules: HarborRules,
    ) -> None:
        self._read = read
        self._begin = begin
        self._rules = rules
        self._task = Task("", "")
        self._container: Container | None = None
        self._left = 0.0
        """Seconds that the episode's commands may still take."""
        self._tests_seconds = 0.0
        self._commands = 0

    def reset(self, task: Task) -> Observation:
        self.close()
        self._task = task
        try:
            read = self._read(task)
            self._container = self._begin(read, self._rules.step_seconds)
        except (NotPlain, ContainerFault) as fault:
            raise EpisodeError(task.id, str(fault)) from None
        self._left = read.agent_seconds
        self._tests_seconds = read.tests_seconds
        self._commands = 0
        return Observation(f"You are in {self._container.folder}.")

    def step(self, response: str) -> StepResult:
        container = self._container
        assert container is not None
        command, complaint = command_in(response)
        if command is None:
            return self._after(container, Observation(complaint), None, False)
        if _EXIT.fullmatch(command):
            return self._tested(container, "", command, True)
        seconds = min(self._rules.command_seconds, self._left)
        try:
            ran = container.run(command, seconds)
        except ContainerFault as fault:
            raise self._lost(fault) from None
        self._left -= ran.seconds
        return self._after(container, Observation(_shown(ran, seconds)), command, True)

    def close(self) -> None:
        """Ends the last episode's container."""
        if self._container is not None:
            container, self._container = self._container, None
            container.close()

    def _after(
        self, container: Container, seen: Observation, command: str | None, valid: bool
    ) -> StepResult:
        """Returns the result of a response, with the tests' verdict if it was the last one."""
        self._commands += 1
        if self._commands >= self._rules.commands or self._left <= 0:
            return self._tested(container, f"{seen.text}\n", command, valid)
        return StepResult(seen, command, valid)

    def _tested(
        self, container: Container, shown: str, command: str | None, valid: bool
    ) -> StepResult:
        rules = self._rules
        seconds = min(self._tests_seconds, rules.step_seconds - rules.command_seconds)
        try:
            tested = container.test(seconds)
        except ContainerFault as fault:
            raise self._lost(fault) from None
        self.close()
        reward = self._reward(tested)
        said = f"{shown}The tests give {reward:g}.{_explained(tested, seconds)}"
        won = as_good(reward, rules.win_at) >= rules.win_at
        return StepResult(Observation(said), command, valid, 1 if won else -1, reward)

    def _reward(self, tested: Tested) -> float:
        """Returns the reward, 0 without one. Raises `EpisodeError` if it has another name."""
        rewards = tested.rewards
        if rewards is None or tested.ran.late:
            return 0.0
        if len(rewards) == 1:
            return next(iter(rewards.values()))
        if self._rules.reward not in rewards:
            raise EpisodeError(
                self._task.id,
                f"its tests give {', '.join(rewards):.120}: name one in domain.options.reward",
                lost=True,
            )
        return rewards[self._rules.reward]

    def _lost(self, fault: ContainerFault) -> EpisodeError:
        self.close()
        return EpisodeError(self._task.id, str(fault), lost=True)


def command_in(response: str) -> tuple[str | None, str]:
    """Returns the command in a response, or None and what is wrong with the response.

    The command is everything from the one line that opens a bash block to the last line that closes
    a block, so a file that it writes may have blocks of its own."""
    text = response.replace("\r\n", "\n")
    opened = list(_OPENING.finditer(text))
    rule = f"Write one block that begins with {MARKER} and ends with ```."
    if not opened:
        return None, f"There is no command in this. {rule}"
    if len(opened) > 1:
        return None, f"There are {len(opened)} blocks in this, and nothing was run. {rule}"
    closed = [mark for mark in _CLOSING.finditer(text) if mark.start() > opened[0].end()]
    if not closed:
        return None, f"The block does not end, and nothing was run. {rule}"
    command = text[opened[0].end() + 1 : closed[-1].start()].rstrip("\n")
    if not command.strip() or "\0" in command:
        return None, f"The block has no command. {rule}"
    return command, ""


def _shown(ran: Ran, seconds: float) -> str:
    end = f"[ended after {seconds:g} s: time limit]" if ran.late else f"[exit code {ran.status}]"
    output = ran.output.rstrip("\n")
    return f"{output}\n{end}" if output else end


def _explained(tested: Tested, seconds: float) -> str:
    if tested.ran.late:
        return f" They took more than {seconds:g} s."
    if tested.rewards is None:
        tail = tested.ran.output.strip()[-_TAIL_CHARACTERS:]
        return f" They wrote no reward and ended with {tested.ran.status}: {tail}"
    return ""
