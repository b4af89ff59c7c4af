"""The nemo_gym domain: rows of a data set of NeMo Gym, played on its resources server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlanything.domains.base import Capabilities, DomainError, File
from rlanything.domains.rows import check_shares, divided, read_lines
from rlanything.domains.text import TextDomain
from rlanything.records import Task
from rlanything_gyms.ecosystem import EpisodeRules
from rlanything_gyms.http_tools import HttpFault, HttpServer, checked_url
from rlanything_gyms.nemo_gym.environment import NemoGymEnvironment, NemoGymSettings
from rlanything_gyms.nemo_gym.rows import BadRow, check_row, opening
from rlanything_gyms.tools.calling import CallingOptions
from rlanything_gyms.tools.rows import rows_of
from rlanything_gyms.winning import WinRule


class NemoGymDomain(TextDomain):
    """Tasks whose tools and verdicts come from a resources server.

    Raises `DomainError` for invalid options and rows, and later if no such server answers."""

    class Options(CallingOptions):
        url: str
        """Address of the resources server."""
        tasks: File
        """A file of rows as JSON lines, each with `responses_create_params`."""
        held_out: File | None = None
        """A file of rows for the split `in_domain`; None: shares of `tasks`."""
        splits: Mapping[str, float] = Field({"train": 0.8, "in_domain": 0.2}, min_length=1)
        """Share of each split, without `held_out`."""
        win_at: float = 1.0
        """Reward from which an episode is won."""
        reward_range: Any = None
        """Lowest and highest reward; None: any."""
        timeout_seconds: Annotated[float, Field(gt=0)] = 20.0
        """Limit of the calls of one answer, and of a verdict; keep four times this below
        `environment.timeout_seconds`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        chosen = self.options
        check_shares(chosen.splits)
        if chosen.held_out is not None and "splits" in chosen.model_fields_set:
            raise DomainError("splits: held_out decides; remove one of them")
        shares = chosen.splits if chosen.held_out is None else {"train": 1.0}
        by_split = _tasks(chosen.tasks, shares)
        if chosen.held_out is not None:
            by_split |= _tasks(chosen.held_out, {"in_domain": 1.0})
        self._rows = rows_of(str(chosen.tasks), by_split)
        self._settings = NemoGymSettings(
            checked_url(chosen.url),
            EpisodeRules.read(WinRule.at(chosen.win_at), chosen.reward_range, chosen.horizon),
            chosen.result_characters,
            chosen.timeout_seconds,
        )
        self._looked = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(offers_tools=True)

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        tasks = self._rows.tasks(split, count, seed)
        if not self._looked:
            self._look(tasks[0])
        return tasks

    def environment(self) -> NemoGymEnvironment:
        return NemoGymEnvironment(self._settings)

    def _look(self, task: Task) -> None:
        """Begins a session, to detect errors that would occur in every one."""
        server = HttpServer("NeMo Gym", self._settings.url, {}, self._settings.seconds)
        try:
            server.json("POST", "/seed_session", task.data["row"])
        except HttpFault as fault:
            raise DomainError(str(fault)) from None
        finally:
            server.close()
        self._looked = True


def _tasks(path: Path, shares: Mapping[str, float]) -> dict[str, list[Task]]:
    """Returns a file's tasks by split. Raises `DomainError` with the number of an invalid row."""
    rows = list(read_lines(path, "row"))
    for number, row in rows:
        try:
            check_row(row)
        except BadRow as fault:
            raise DomainError(f"{path}, row {number}: {fault}") from None
    if not rows:
        raise DomainError(f"{path} has no rows; write one a line")
    tasks = [(_task(f"{path.stem}-{number}", row), None) for number, row in rows]
    return divided(tasks, shares)


def _task(name: str, row: Mapping[str, Any]) -> Task:
    """Returns the task of a row, with the last thing that the user says as its instruction."""
    asked = [message.content for message in opening(row) if message.role == "user"]
    return Task(name, asked[-1] if asked else "Do what is asked.", "", {"row": row})
