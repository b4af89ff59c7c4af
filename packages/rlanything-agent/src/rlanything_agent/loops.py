"""Event loops for coroutines of programs: one that those of a process share, and others."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

INTERRUPTIONS = 5
_APART_SECONDS = 0.2
_ENDING_SECONDS = 1.0


class _DaemonThreads(ThreadPoolExecutor):
    """A thread for each call, for `asyncio.to_thread`: some may hang, and neither other episodes
    nor the end of the process wait for them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as fault:
                future.set_exception(fault)

        threading.Thread(target=call, name="agent-call", daemon=True).start()
        return future


def program_loop() -> asyncio.AbstractEventLoop:
    """Returns a new event loop for coroutines of programs."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_DaemonThreads())
    return loop


class SharedLoop:
    """An event loop in its own thread. All episodes of the process run on it, so that a client
    which a program creates once works in each of them.

    A coroutine that blocks holds up all others. `hangs` detects that. The loop is then abandoned,
    and each program runs on a loop of its own."""

    def __init__(self) -> None:
        self.given_up = False
        self._loop = program_loop()
        self._loop.set_exception_handler(_complain)
        self._lock = threading.Lock()
        self._asked: float | None = None
        """Time at which the loop was pinged; None once it has responded."""
        self._thread = threading.Thread(target=self._run, name="agent-loop", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine; callable from any thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def hangs(self, seconds: float) -> bool:
        """Returns whether the loop is abandoned. It is abandoned now if it did not respond for this
        many seconds. Call it repeatedly: the first call only pings the loop."""
        with self._lock:
            now = time.monotonic()
            if not self.given_up and self._asked is None:
                self._asked = now
                self._loop.call_soon_threadsafe(self._sign_of_life)
            if not self.given_up and now - (self._asked or now) >= seconds:
                self.given_up = True
                threading.Thread(target=interrupt, args=(self._thread,), daemon=True).start()
            return self.given_up

    def _sign_of_life(self) -> None:
        self._asked = None

    def _run(self) -> None:
        while not self.given_up:
            # A task that a program started may raise these, and asyncio passes them on.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        with contextlib.suppress(SystemExit):
            if left := asyncio.all_tasks(self._loop):
                for task in left:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(left, timeout=_ENDING_SECONDS))
            self._loop.close()


@cache
def shared_loop() -> SharedLoop:
    """Returns the shared loop of this process."""
    return SharedLoop()


def interrupt(thread: threading.Thread, wake: Any = None) -> None:
    """Raises SystemExit in a thread, wherever its Python code is. `wake`: called after each try."""
    for _ in range(INTERRUPTIONS):
        if not thread.is_alive():
            return
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))
        if wake is not None:
            wake()
        thread.join(_APART_SECONDS)


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Requests that a program left behind are refused after its episode, and nobody awaits them.
    names = {kind.__name__ for kind in type(context.get("exception")).__mro__}
    if "APIStatusError" not in names:  # of openai or anthropic
        loop.default_exception_handler(context)
