"""An OpenEnv server of our own: guess a number. `python openenv_server.py PORT SESSIONS`."""

# The environment of `make test-ecosystems` alone has OpenEnv.
# pyright: reportMissingImports=false
from __future__ import annotations

import os
import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

HIGHEST = 8


class Guess(Action):
    message: str


class Hint(Observation):
    text: str = ""
    tries: int = 0


class GuessServer(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="", step_count=0)
        self.secret = self.highest = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        highest: int = HIGHEST,
        **rest: Any,
    ) -> Hint:
        del episode_id, rest
        self._state = State(episode_id=str(seed), step_count=0)
        self.highest, self.secret = highest, random.Random(seed).randint(1, highest)
        return Hint(text=f"Guess from 1 to {highest}.")

    def step(self, action: Guess, timeout_s: float | None = None, **rest: Any) -> Hint:
        del timeout_s, rest
        self._state.step_count += 1
        if action.message == "crash":
            os._exit(1)
        if action.message == "raise":
            raise RuntimeError("the server's own fault")
        reward = {"huge": 9.0}.get(action.message, 0.0)
        won = action.message == str(self.secret)
        text = "Right." if won else f"Not {action.message}; it is {self.secret}."
        tries = self._state.step_count
        return Hint(text=text, tries=tries, done=won or reward > 1, reward=1.0 if won else reward)

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    port, sessions = map(int, sys.argv[1:])
    app = create_fastapi_app(GuessServer, Guess, Hint, max_concurrent_envs=sessions)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
