"""Runs programs in boxes on this machine."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from rlanything.openmp import cores
from rlanything_coding.sandbox.base import CONTROL, Job, RunResult, SandboxUnavailable, Verdict
from rlanything_coding.sandbox.box import Box, BoxDied, Ended
from rlanything_coding.sandbox.comparison import kept, verdict_on
from rlanything_sandbox.bubblewrap import no_bubblewrap

TRIES = 3
"""Largest number of tries of a run that was killed from outside or whose box died."""
EXTRA_SECONDS = 12.0
"""Extra seconds beyond its own limit that all tries of a run may take together."""

READY = (
    *("array", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions"),
    *("functools", "heapq", "itertools", "math", "operator", "random", "re", "statistics"),
    *("string", "threading", "typing"),
)
"""Standard library modules that are already loaded when a program starts."""


class LocalExecutor:
    """Runs programs on this machine, contained by bubblewrap, seccomp and resource limits: see
    packages/rlanything-coding/sandbox.md.

    boxes: number of parallel runs; None: one per core. imports: packages of this environment that
    programs may use, loaded before the first run."""

    def __init__(self, boxes: int | None = None, imports: Sequence[str] = ()) -> None:
        if sys.platform != "linux":
            raise SandboxUnavailable(no_bubblewrap())
        self._imports = tuple(imports)
        count = boxes or cores()
        self.restarts = 0
        """Number of boxes that were replaced."""
        # A box ends with the thread that started it, so this thread lives as long as the executor.
        self._wanted: queue.SimpleQueue[Future[Box] | None] = queue.SimpleQueue()
        loads = (*READY, *self._imports)
        starter = threading.Thread(
            target=_start_boxes, args=(self._wanted, loads, self._imports), daemon=True
        )
        starter.start()
        weakref.finalize(self, self._wanted.put, None)
        self._boxes: set[Box] = set()
        # None stands for a free place without a box; one is started on next use.
        self._places: queue.SimpleQueue[Box | None] = queue.SimpleQueue()
        self._places.put(self._start())  # fail early if something is missing
        for _ in range(count - 1):
            self._places.put(None)
        self._count = count
        self._threads = ThreadPoolExecutor(count, "sandbox")

    def run(self, job: Job) -> RunResult:
        left = job.limits.wall + EXTRA_SECONDS
        tries = 0
        while True:
            result = self._try(job, left)
            if result.verdict is not Verdict.BROKEN:
                return result
            tries += 1
            left -= result.seconds
            if tries == TRIES or left <= 0:
                break
        reason = f"{result.reason}, {tries} times" if tries > 1 else result.reason
        if self._try(CONTROL, CONTROL.limits.wall + EXTRA_SECONDS).verdict is Verdict.OK:
            # A program must not be able to exclude itself: a fault that only it triggers is
            # attributed to it.
            return RunResult(Verdict.ERROR, reason=f"{reason}; another program ran")
        return RunResult(Verdict.BROKEN, reason=reason)

    def _try(self, job: Job, most_seconds: float) -> RunResult:
        box = self._places.get()
        began = time.monotonic()
        try:
            if box is None:
                box = self._start()
                began = time.monotonic()  # starting a box does not count as the program's time
            return judge(job, box.run(job, most_seconds))
        except BoxDied as error:
            self.restarts += 1
            box = self._end(box, at_once=True)
            seconds = time.monotonic() - began
            return RunResult(Verdict.BROKEN, seconds=seconds, reason=f"the box died: {error}")
        except BaseException:  # Ctrl-C: the next run must not get this answer
            box = self._end(box, at_once=True)
            raise
        finally:
            self._places.put(box)

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._threads.shutdown()
        for _ in range(self._count):
            self._end(self._places.get())
        self._wanted.put(None)

    def box_pids(self) -> list[int]:
        """Returns the outermost process of each box, which leads its process group."""
        return sorted(box.pid for box in self._boxes)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> Box:
        wanted = Future[Box]()
        self._wanted.put(wanted)
        box = wanted.result()
        self._boxes.add(box)
        return box

    def _end(self, box: Box | None, at_once: bool = False) -> None:
        if box is not None:
            self._boxes.discard(box)
            box.close(at_once)


def _start_boxes(
    wanted: queue.SimpleQueue[Future[Box] | None], imports: Sequence[str], packages: Sequence[str]
) -> None:
    """Starts a box for each request until None arrives."""
    while (future := wanted.get()) is not None:
        try:
            future.set_result(Box(imports, packages))
        except BaseException as error:
            future.set_exception(error)


def judge(job: Job, ended: Ended) -> RunResult:
    """Returns the verdict on a run."""
    verdict, reason = _verdict(job, ended)
    stdout, summary = kept(job, verdict, ended.stdout)
    return RunResult(
        verdict,
        stdout,
        ended.stderr.decode("utf-8", "replace"),
        ended.seconds,
        ended.peak_memory_mb,
        reason,
        summary,
    )


def _verdict(job: Job, ended: Ended) -> tuple[Verdict, str]:
    limits = job.limits
    if ended.exceeded == "wall":
        return Verdict.TIMEOUT, f"more than {limits.wall:g} s"
    if ended.exceeded == "cpu" or ended.cpu_seconds > limits.cpu_seconds:
        return Verdict.TIMEOUT, f"more than {limits.cpu_seconds:g} s of CPU"
    if max(ended.stdout_bytes, ended.stderr_bytes) > limits.output_bytes:
        return Verdict.OUTPUT, f"more than {limits.output_bytes} bytes"
    if ended.status == -signal.SIGKILL:
        # A run can neither send itself this signal nor set the limit at which the kernel sends it.
        return Verdict.BROKEN, "killed from outside, perhaps because the machine ran out of memory"
    if ended.status < 0:
        return Verdict.ERROR, f"killed by {signal.Signals(-ended.status).name}"
    if ended.status > 0:
        if ended.stderr.endswith(b"MemoryError\n"):
            return Verdict.MEMORY, f"more than {limits.memory_mb} MiB"
        return Verdict.ERROR, f"exit status {ended.status}"
    return verdict_on(ended.stdout, job.expected, job.grading), ""
