"""Tasks from rows of a data set, with the columns that TRL's trainers read.

    {"prompt": [{"role": "user", "content": "Find the word."}], "word": "crane"}

`prompt` is a chat or a text; a row without one leaves it to the environment's `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.domains.rows import TaskSet, divided, read_lines
from rlanything.records import Message, Messages, Task
from rlanything.seeds import derive

Row = Mapping[str, Any]
NO_PROMPT: Sequence[Mapping[str, Any]] = ({"role": "user", "content": ""},)
"""The chat that TRL takes for a row without `prompt`."""
_ROLES = ("system", "user", "assistant")


def read_rows(source: str | Path | Sequence[Any], shares: Mapping[str, float]) -> TaskSet:
    """Returns the tasks of a file of JSON lines or of such objects. Columns that a row lacks are
    None, as in a data set that is loaded from the same lines. `shares`: share of each split if no
    row names its `split`. Raises `DomainError` with the number of an invalid row."""
    place = str(source) if isinstance(source, str | Path) else "tasks"
    file = isinstance(source, str | Path)
    given = list(read_lines(Path(source), "row") if file else enumerate(source, 1))
    if not given:
        raise DomainError(f'{place} holds no row; write lines like {{"prompt": "Find the word."}}')
    for number, row in given:
        if not isinstance(row, Mapping) or not row or not all(isinstance(key, str) for key in row):
            raise DomainError(f"{place}, row {number}: write an object with a name for each column")
    columns = dict.fromkeys(name for _, row in given for name in row)
    tasks: dict[str, tuple[Task, Any]] = {}
    for number, row in given:
        whole = {name: row.get(name) for name in columns}
        task = _task(f"{place}, row {number}", number, whole)
        if task.id in tasks:
            raise DomainError(
                f"{place}, row {number}: id {task.id!r} is used twice; give each row its own id"
            )
        tasks[task.id] = (task, whole.get("split"))
    odd = next((t.id for t, own in tasks.values() if not isinstance(own, str) or not own), None)
    if odd is not None and any(split is not None for _, split in tasks.values()):
        raise DomainError(f"{place}: row {odd!r} names no split, others do; write a text there")
    return rows_of(place, divided(tasks.values(), shares))


def rows_of(place: str, by_split: Mapping[str, Sequence[Task]]) -> TaskSet:
    """Returns the tasks of rows that are divided among splits."""
    return TaskSet("tools", "rows", place, by_split)


def opening(prompt: Any, observation: str | None) -> Messages:
    """Returns the chat that an episode begins with: the row's prompt, with the first observation
    at the end of its last message, as TRL puts it there. Raises ValueError for a prompt that is no
    chat of texts."""
    if prompt is None:
        prompt = NO_PROMPT
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or not prompt:
        raise ValueError("prompt must be a text, or a list of messages with role and content")
    *before, last = map(_message, prompt)
    return (*before, Message(last.role, f"{last.content}{observation or ''}"))


def _message(message: Any) -> Message:
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        texts = [part for part in parts if isinstance(part, str)]
        content = "".join(texts) if len(texts) == len(content) else None
    if not isinstance(content, str) or message["role"] not in _ROLES:
        raise ValueError(
            f"prompt holds {message!r:.80}: write messages of the roles system, user and "
            "assistant with texts as content"
        )
    return Message(message["role"], content)


def _task(place: str, number: int, row: Row) -> Task:
    try:
        messages = opening(row.get("prompt"), None)
    except ValueError as fault:
        raise DomainError(f"{place}: {fault}") from None
    name = row.get("id")
    if name is None:
        name = f"row-{number}"
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise DomainError(f"{place}: id is {name!r:.80}; write a text or a number")
    asked = [message.content for message in messages if message.role == "user"]
    kind = row.get("environment")
    data = {"row": dict(row), "seed": derive(0, "tools", str(name))}
    return Task(str(name), asked[-1] if asked else "", kind if isinstance(kind, str) else "", data)
