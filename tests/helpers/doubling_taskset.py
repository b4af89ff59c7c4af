"""A taskset of verifiers as somebody might write it: double a number, in one turn."""

# The environment that has verifiers imports this; `make test-ecosystems` makes one.
# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf


class DoublingData(vf.TaskData):
    answer: str


class DoublingTask(vf.Task[DoublingData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, task: DoublingData, trace: vf.Trace) -> float:
        if "raise" in trace.last_reply:
            raise ValueError("this cannot be scored")
        return float(trace.last_reply.rpartition(">")[2].strip() == task.answer)


class DoublingConfig(vf.TasksetConfig):
    count: int = 16


class DoublingTaskset(vf.Taskset[DoublingTask, DoublingConfig]):
    def load(self) -> Iterator[DoublingTask]:
        for n in range(self.config.count):
            data = DoublingData(prompt=f"Double {n}.", answer=str(2 * n))
            yield DoublingTask(data, self.config.task)


__all__ = ["DoublingTaskset"]
