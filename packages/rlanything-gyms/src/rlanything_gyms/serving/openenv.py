"""A domain as an OpenEnv server, with OpenEnv's own application."""

# The package is an extra, so type checkers may lack it.
# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
from typing import Any
from uuid import uuid4

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from starlette.websockets import WebSocketDisconnect

from rlanything.surrogates import whole_characters
from rlanything_gyms.serving.sessions import SessionError, Sessions, SessionTurn


class DomainAnswer(Action):
    """The policy's answer to an observation: one of the two fields."""

    response: str | None = None
    """The whole answer, in the form that the prompt asks for."""
    action: str | None = None
    """The action alone, without a thought."""


class DomainTurn(Observation):
    """An observation for the policy."""

    text: str
    """At the beginning the whole prompt, afterwards the new observation."""
    choices: list[str] | None = None
    """The actions that are possible now; null: any text."""
    valid: bool = True
    """Whether the last action was possible."""
    measure: float | None = None
    """The domain's measure beyond won or lost; null: none."""


def openenv_app(sessions: Sessions, marker: str, most: int) -> Any:
    """Returns the application. `marker`: the domain's text before an action; `most`: largest number
    of sessions."""

    class DomainEnvironment(Environment):
        """One connection's episodes, one after the other."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._name = uuid4().hex
            self._state = State(episode_id="", step_count=0)

        def reset(
            self,
            seed: int | None = None,
            episode_id: str | None = None,
            split: str = "train",
            **rest: Any,
        ) -> DomainTurn:
            """Begins the task of a seed in a split."""
            del episode_id
            if rest:
                raise SessionError(f"reset takes seed and split, not {min(rest)!r:.40}")
            sessions.close(self._name)
            count = len(sessions.tasks.get(split, ())) or 1
            task = sessions.task(split, (seed or 0) % count)
            self._state = State(episode_id=whole_characters(task.id), step_count=0)
            return shown(sessions.open(self._name, task))

        def step(
            self, action: DomainAnswer, timeout_s: float | None = None, **rest: Any
        ) -> DomainTurn:
            """Plays an answer; a won episode earns 1 and a lost one 0, at its end."""
            del timeout_s, rest
            if (action.response is None) == (action.action is None):
                raise SessionError("write either response or action")
            self._state.step_count += 1
            alone = f"{marker}\n{action.action}"
            response = alone if action.response is None else action.response
            return shown(sessions.respond(self._name, response))

        @property
        def state(self) -> State:
            return self._state

        def close(self) -> None:
            sessions.close(self._name)

    inner = create_fastapi_app(
        DomainEnvironment, DomainAnswer, DomainTurn, max_concurrent_envs=most
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # OpenEnv closes a connection again that its client has closed.
        with contextlib.suppress(WebSocketDisconnect):
            await inner(scope, receive, send)

    return app


def shown(turn: SessionTurn) -> DomainTurn:
    """Returns a turn as the standard's observation."""
    return DomainTurn(
        text=whole_characters(turn.text),
        choices=None if turn.choices is None else list(turn.choices),
        valid=turn.valid,
        measure=turn.measure,
        done=turn.over,
        reward=turn.reward or 0.0,
    )
