"""The harbor domain: task folders of Harbor, whose tests decide what the policy's commands did."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from rlanything.domains.base import DomainError, File, Finding
from rlanything.domains.rows import TaskSet
from rlanything.domains.text import TextDomain, transcript
from rlanything.records import Messages, Step, Task
from rlanything.terminal import write_line
from rlanything_agent.harbor.box import BoxContainer, BoxImages, box_image
from rlanything_agent.harbor.container import Container
from rlanything_agent.harbor.docker import DockerContainer, container_program
from rlanything_agent.harbor.dockerfile import NotPlain
from rlanything_agent.harbor.environment import MARKER, HarborEnvironment, HarborRules, command_in
from rlanything_agent.harbor.folder import HarborTask, read_task, solving, task_folders
from rlanything_agent.harbor.needed import Installed, installed
from rlanything_agent.tasks import read_tasks
from rlanything_sandbox.bubblewrap import bubblewrap

_RULES = (
    "You have a shell, as root and without a network, and no one answers questions. Answer with a "
    f"thought and one command: a block that begins with {MARKER} and ends with ```. Every command "
    "begins in the same folder with the same variables; files and background processes stay. When "
    "the task is done, the command is exit."
)


class HarborDomain(TextDomain):
    """Tasks of a folder. A response is a thought and a block of bash; `exit` ends the episode."""

    class Options(HarborRules):
        tasks: File
        """A folder of Harbor's task folders, or one of these."""
        splits: Mapping[str, float] = Field({"train": 0.8, "in_domain": 0.2}, min_length=1)
        """Share of each split."""
        container: Literal["box", "docker", "podman"] | None = None
        """Kind of container; None: docker or podman if one of them answers, else a box."""
        python: str | None = None
        """Python whose environment a box has, with what the tests need; None: the running one."""
        skip_refused: bool = False
        """Whether tasks that cannot be played are left out, a line each; otherwise they are an
        error."""

    action_marker = MARKER

    def __init__(self, **options: object) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = HarborDomain.Options.read(options)
        if chosen.command_seconds >= chosen.step_seconds:
            raise DomainError(
                f"command_seconds is {chosen.command_seconds:g} and step_seconds "
                f"{chosen.step_seconds:g}: leave time for the tests after a command"
            )
        self._options = chosen
        self._folder = Path(chosen.tasks)
        self._python = Path(chosen.python or sys.executable)
        self._images: BoxImages | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_images": None}  # every worker has its own

    @staticmethod
    def checks() -> list[Finding]:
        """Looks for the containers that this domain can use."""
        program = container_program()
        kinds = [*([program] if program else []), *(["bubblewrap"] if bubblewrap() else [])]
        if not kinds:
            return [Finding("harbor", "missing", "needs docker, podman or bubblewrap: install one")]
        return [Finding("harbor", "ok", f"plays task folders in {kinds[0]}")]

    @classmethod
    def action_in(cls, response: str) -> str | None:
        return command_in(response)[0]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return self._set.tasks(split, count, seed)

    def environment(self) -> HarborEnvironment:
        return HarborEnvironment(
            lambda task: read_task(self._place(task)), self._begin, self._options
        )

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        first = steps[0].observation if steps else observation
        return transcript(f"{_RULES}\n\n{task.instruction}\n\n{first}", steps)

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the reference solution as a command, then `exit`."""
        command = "exit" if steps else solving(self._place(task))
        return None if command is None else f"{MARKER}\n{command}\n```"

    def refusals(self) -> dict[str, str]:
        """Returns why tasks cannot be played, by the names of their folders."""
        refused: dict[str, str] = {}
        for folder in task_folders(self._folder):
            try:
                self._readable(folder)
            except NotPlain as reason:
                refused[folder.name] = str(reason)
        return refused

    @cached_property
    def _set(self) -> TaskSet:
        tasks: list[Task] = []
        refused: list[str] = []
        for folder in task_folders(self._folder):
            try:
                instruction = self._readable(folder).instruction
                tasks.append(Task(folder.name, instruction, "harbor", {}))
            except NotPlain as reason:
                refused.append(f"task {folder.name}: {reason}")
        if refused and not (self._options.skip_refused and tasks):
            more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
            raise DomainError(
                f"{refused[0]}{more}: start docker or podman, or set "
                "domain.options.skip_refused=true to play the others"
            )
        for line in refused:
            write_line(f"left out: {line}")
        return read_tasks(tasks, self._options.splits)

    @cached_property
    def _kind(self) -> Literal["box", "docker", "podman"]:
        return self._options.container or container_program() or "box"

    @property
    def _here(self) -> Installed:
        return installed(self._python)

    def _readable(self, folder: Path) -> HarborTask:
        """Returns a task that can be played, as far as its files tell. Raises `NotPlain`."""
        task = read_task(folder)
        if self._kind == "box":
            box_image(task, self._here)
        return task

    def _place(self, task: Task) -> Path:
        alone = (self._folder / "task.toml").is_file()
        return self._folder if alone else self._folder / task.id

    def _begin(self, task: HarborTask, seconds: float) -> Container:
        if self._kind != "box":
            return DockerContainer(self._kind, task, seconds)
        if self._images is None:
            self._images = BoxImages(self._here)
        return BoxContainer(self._images, task, seconds)
