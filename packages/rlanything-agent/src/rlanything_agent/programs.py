"""Programs of this process: a coroutine on the shared loop, or a function in a thread."""

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
from rlanything_agent.loops import SharedLoop, interrupt, program_loop, shared_loop

Solve = Callable[[Task, Any], Any]
"""User function `solve(task, client)`, which returns an outcome or an awaitable of one."""
GRACE_SECONDS = 1.0
_NO_LOOP = re.compile("no (running|current) event loop")


def awaited(value: Any) -> Any:
    """Returns the value, or the result of an awaitable."""

    async def result() -> Any:
        return await value

    if not inspect.isawaitable(value):
        return value
    with ThreadPoolExecutor(1) as pool:  # a notebook's main thread already has a running loop
        return pool.submit(asyncio.run, result()).result()


class Solver:
    """A `solve`, and whether it returns awaitables. For some functions this is known only once they
    are called."""

    def __init__(self, solve: Solve) -> None:
        self.call = solve
        functions = solve, type(solve).__call__
        self.awaits = any(map(inspect.iscoroutinefunction, functions))


class AgentProgram(Protocol):
    """A running program. Its conversation is notified when it ends."""

    def end(self) -> None:
        """Ends the program, and waits briefly until it has."""
        ...

    def held_up(self, seconds: float) -> bool:
        """Returns whether another episode's program has blocked it for this many seconds, so that
        it must be restarted. Call it repeatedly while waiting for the program."""
        ...


class Function:
    """A call of `solve`. It gets an `AsyncOpenAI` if it returns an awaitable, else an `OpenAI`."""

    def __init__(
        self,
        solver: Solver,
        task: Task,
        conversation: Conversation,
        endpoint: AgentEndpoint,
        door: Door,
    ) -> None:
        self._solver = solver
        self._task = task
        self._conversation = conversation
        self._endpoint = endpoint
        self._door = door
        self._shared: SharedLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._over = False
        self._ended = threading.Event()
        # A daemon thread: one that cannot be ended must not block the exit of the process.
        self._thread = threading.Thread(target=self._call, daemon=True)
        if solver.awaits:
            self._begin_awaiting(self._made)
        else:
            self._thread.start()

    def end(self) -> None:
        """Cancels the call. If it ignores that, it is interrupted inside its own code, except on
        the shared loop."""
        self._over = True
        if self._running is not None:
            self._wake(self._running.cancel)
        if self._shared is not None:
            self._ended.wait(GRACE_SECONDS)
            return
        self._thread.join(GRACE_SECONDS)
        # Try more than once: asyncio.run waits for anything that ignores the cancellation.
        interrupt(self._thread, lambda: self._wake(_nothing))

    def held_up(self, seconds: float) -> bool:
        return self._shared is not None and self._shared.hangs(seconds)

    def _wake(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(call)

    def _call(self) -> None:
        try:
            # No proxy from the environment: the endpoint is in this process.
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
            else:  # call it again on a loop with an async client, and do so directly from now on
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
            with asyncio.Runner(loop_factory=program_loop) as runner:
                runner.run(self._await(made))
        except BaseException as fault:  # while leftover tasks were being ended
            self._conversation.finish(Ending(fault=fault))

    async def _await(self, made: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = asyncio.current_task()
        try:
            value = None if self._over else made()
            while inspect.isawaitable(value):
                value = await value
            # Report the end right away: shutting down the loop may take long.
            self._conversation.finish(Ending(value))
        except BaseException as fault:
            if self._shared is None or not self._shared.given_up:  # else it is restarted
                self._conversation.finish(Ending(fault=fault))
        finally:
            self._ended.set()


def _nothing() -> None:
    """Does nothing; scheduled so that the loop notices an interruption."""
