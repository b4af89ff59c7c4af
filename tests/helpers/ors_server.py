"""A server with the SDK of ORS: guess a number. `python ors_server.py PORT`."""

# The environment of `make test-ecosystems` alone has the SDK.
# pyright: reportMissingImports=false
from __future__ import annotations

import os
import sys
from typing import Any

from pydantic import BaseModel

from ors import Environment, Server, Split, TextBlock, ToolOutput, tool

HIGHEST = 8


class Guess(BaseModel):
    number: int


class Guessing(Environment):
    @classmethod
    def list_splits(cls) -> list[Any]:
        return [Split(name="train", type="train"), Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[Any]:
        return [{"secret": n, "split": split} for n in range(1, HIGHEST + 1)]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text=f"Guess a number from 1 to {HIGHEST}.")]

    @tool
    def guess(self, params: Guess) -> ToolOutput:
        """Guesses a number."""
        secret = int(self.task_spec["secret"])
        right = params.number == secret
        text = "Right." if right else f"Not {params.number}; it is {secret}."
        return ToolOutput(
            blocks=[TextBlock(text=text)], reward=1.0 if right else -0.25, finished=right
        )

    @tool
    def look(self) -> ToolOutput:
        """Describes the room."""
        return ToolOutput(blocks=[TextBlock(text=" A  room. " * 5000)])

    @tool
    def fall(self) -> ToolOutput:
        """Falls off."""
        raise ValueError("it fell\noff")

    @tool
    def crash(self) -> ToolOutput:
        """Ends the server."""
        os._exit(1)


if __name__ == "__main__":
    Server([Guessing]).run(host="127.0.0.1", port=int(sys.argv[1]))
