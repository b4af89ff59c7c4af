"""Programs of this process: a coroutine or a function in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

import openai

from rlanything.domains.agent.conversation import Conversation, Ending
from rlanything.domains.agent.endpoint import AgentEndpoint, Door
from rlanything.records import Task

Solve = Callable[[Task, Any], Any]
"""Somebody's `solve(task, client)`, a coroutine function or a plain one."""
GRACE_SECONDS = 1.0
INTERRUPTIONS = 5


class AgentProgram(Protocol):
    """A program under way; its conversation hears of its end."""

    def end(self) -> None:
        """Ends it, and waits a little for that."""
        ...


class Function:
    """A call of `solve`. Coroutine functions get an `AsyncOpenAI`, plain ones an `OpenAI`."""

    def __init__(
        self,
        solve: Solve,
        task: Task,
        conversation: Conversation,
        endpoint: AgentEndpoint,
        door: Door,
    ) -> None:
        self._conversation = conversation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        target, client = self._call, None
        if inspect.iscoroutinefunction(solve):
            target, client = self._await, endpoint.client(door)
        arguments = (solve, task, client or (endpoint.url, door.key))
        # A daemon: one that cannot be ended holds up nobody's exit.
        self._thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Cancels it; one that takes no notice is interrupted wherever its own code is."""
        if self._running is not None:
            self._wake(self._running.cancel)
        self._thread.join(GRACE_SECONDS)
        # More than once: asyncio.run waits for whatever takes no notice of being cancelled.
        for _ in range(INTERRUPTIONS):
            if not self._thread.is_alive():
                return
            number = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))
            self._wake(_nothing)
            self._thread.join(GRACE_SECONDS / INTERRUPTIONS)

    def _wake(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(call)

    def _call(self, solve: Solve, task: Task, place: tuple[str, str]) -> None:
        url, key = place
        try:
            # No proxy of the environment: the endpoint is in this process.
            direct = openai.DefaultHttpxClient(trust_env=False, timeout=None)
            with openai.OpenAI(
                base_url=url, api_key=key, timeout=None, max_retries=0, http_client=direct
            ) as client:
                self._conversation.finish(Ending(solve(task, client)))
        except BaseException as fault:
            self._conversation.finish(Ending(fault=fault))

    def _await(self, solve: Solve, task: Task, client: openai.AsyncOpenAI) -> None:
        async def solving() -> None:
            self._loop, self._running = asyncio.get_running_loop(), asyncio.current_task()
            # Heard of at once: what a loop does at its end may take long.
            self._conversation.finish(Ending(await solve(task, client)))

        try:
            asyncio.run(solving())
        except BaseException as fault:
            self._conversation.finish(Ending(fault=fault))


def _nothing() -> None:
    """Does nothing: it is run so that a loop notices an interruption."""
