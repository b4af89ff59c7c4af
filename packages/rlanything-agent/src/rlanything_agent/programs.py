"""Programs of this process: a coroutine on the loop they share, or a function in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import openai

from rlanything.records import Task
from rlanything_agent.conversation import Conversation, Ending
from rlanything_agent.endpoint import AgentEndpoint, Door
from rlanything_agent.loops import SharedLoop, interrupt, shared_loop

Solve = Callable[[Task, Any], Any]
"""Somebody's `solve(task, client)`, which returns an outcome or an awaitable of one."""
GRACE_SECONDS = 1.0
_NO_LOOP = re.compile("no (running|current) event loop")


def awaited(value: Any) -> Any:
    """Returns the value, or the result of an awaitable."""

    async def result() -> Any:
        return await value

    if not inspect.isawaitable(value):
        return value
    with ThreadPoolExecutor(1) as pool:  # a notebook's own thread has a loop that runs
        return pool.submit(asyncio.run, result()).result()


class Solver:
    """A `solve`, and whether it returns awaitables; some show that only when they are called."""

    def __init__(self, solve: Solve) -> None:
        self.call = solve
        functions = solve, type(solve).__call__
        self.awaits = any(map(inspect.iscoroutinefunction, functions))


class AgentProgram(Protocol):
    """A program under way; its conversation hears of its end."""

    def end(self) -> None:
        """Ends it, and waits a little for that."""
        ...

    def held_up(self, seconds: float) -> bool:
        """Returns whether the program of another episode has held it up for so long: it has to be
        run again. To be called again and again while it is waited for."""
        ...


class Function:
    """A call of `solve`. What returns an awaitable gets an `AsyncOpenAI`, the rest an `OpenAI`."""

    def __init__(
        self,
        solver: Solver,
        task: Task,
        conversation: Conversation,
        endpoint: AgentEndpoint,
        door: Door,
    ) -> None:
        self._solver, self._task = solver, task
        self._conversation = conversation
        self._endpoint, self._door = endpoint, door
        self._shared: SharedLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._over = False
        self._ended = threading.Event()
        # Daemons: one that cannot be ended holds up nobody's exit.
        self._thread = threading.Thread(target=self._call, daemon=True)
        if solver.awaits:
            self._begin_awaiting(self._made)
        else:
            self._thread.start()

    def end(self) -> None:
        """Cancels it; one that takes no notice is interrupted wherever its own code is, except on
        the shared loop."""
        self._over = True
        if self._running is not None:
            self._wake(self._running.cancel)
        if self._shared is not None:
            self._ended.wait(GRACE_SECONDS)
            return
        self._thread.join(GRACE_SECONDS)
        # More than once: asyncio.run waits for whatever takes no notice of being cancelled.
        interrupt(self._thread, lambda: self._wake(_nothing))

    def held_up(self, seconds: float) -> bool:
        return self._shared is not None and self._shared.hangs(seconds)

    def _wake(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(call)

    def _call(self) -> None:
        try:
            # No proxy of the environment: the endpoint is in this process.
            direct = openai.DefaultHttpxClient(trust_env=False, timeout=None)
            client = openai.OpenAI(
                base_url=self._endpoint.url,
                api_key=self._door.key,
                timeout=None,
                max_retries=0,
                http_client=direct,
            )
            value = None
            try:
                value = self._solver.call(self._task, client)
                awaits = inspect.isawaitable(value)
            except RuntimeError as fault:
                awaits = not self._conversation.began and _NO_LOOP.search(str(fault)) is not None
                if not awaits:
                    raise
            if not awaits:
                client.close()
                self._conversation.finish(Ending(value))
            elif self._conversation.began:
                self._begin_awaiting(lambda: value)
            else:  # called again on a loop, with the client for it, and from now on at once
                if inspect.iscoroutine(value):
                    value.close()
                self._solver.awaits = True
                self._begin_awaiting(self._made)
        except BaseException as fault:
            self._conversation.finish(Ending(fault=fault))

    def _made(self) -> Any:
        return self._solver.call(self._task, self._endpoint.client(self._door))

    def _begin_awaiting(self, made: Callable[[], Any]) -> None:
        shared = shared_loop()
        if not shared.given_up:
            self._shared = shared
            shared.start(self._await(made))
        elif threading.current_thread() is self._thread:
            self._run(made)
        else:
            self._thread = threading.Thread(target=self._run, args=(made,), daemon=True)
            self._thread.start()

    def _run(self, made: Callable[[], Any]) -> None:
        try:
            asyncio.run(self._await(made))
        except BaseException as fault:  # while what was left behind was ended
            self._conversation.finish(Ending(fault=fault))

    async def _await(self, made: Callable[[], Any]) -> None:
        self._loop, self._running = asyncio.get_running_loop(), asyncio.current_task()
        try:
            value = None if self._over else made()
            while inspect.isawaitable(value):
                value = await value
            # Heard of at once: what a loop does at its end may take long.
            self._conversation.finish(Ending(value))
        except BaseException as fault:
            if self._shared is None or not self._shared.given_up:  # else it is run again
                self._conversation.finish(Ending(fault=fault))
        finally:
            self._ended.set()


def _nothing() -> None:
    """Does nothing: it is run so that a loop notices an interruption."""
