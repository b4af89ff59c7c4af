"""Episodes of a domain for clients elsewhere, one session each, independent of the protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rlanything.domains.base import (
    Domain,
    DomainError,
    EpisodeError,
    Image,
    Observation,
    StepResult,
)
from rlanything.domains.registry import checked_tasks
from rlanything.records import Message, Messages, Task
from rlanything_gyms.ecosystem import SPLITS

IDLE_SECONDS = 900.0
"""Time without a request after which a session makes room for a new one."""
MOST_CHARACTERS = 1 << 20
"""Longest response."""
_CRASHED = Observation("The environment failed at this response: the episode is lost.")


class SessionError(ValueError):
    """A request that cannot be met; the message is one line. `status`: its HTTP status."""

    def __init__(self, said: str, status: int = 400) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """The state to show to a client, after the beginning or after a response."""

    messages: Messages
    """The whole prompt at the beginning; afterwards only the new observation."""
    image: Image | None = None
    choices: tuple[str, ...] | None = None
    """The actions that are possible now; None: any text."""
    valid: bool = True
    reward: float | None = None
    """1 for a won and 0 for a lost episode at its end; None before."""
    measure: float | None = None
    """The domain's measure beyond won or lost, such as the share of tests passed; None: none."""

    @property
    def over(self) -> bool:
        return self.reward is not None

    @property
    def text(self) -> str:
        return "\n\n".join(message.content for message in self.messages)


class EpisodePool(Protocol):
    """Plays one episode after the other; see `rollout.workers.EnvironmentPool`."""

    def reset(self, tasks: Sequence[Task]) -> Sequence[Observation | EpisodeError]: ...

    def step(self, responses: Mapping[int, str]) -> Mapping[int, StepResult | EpisodeError]: ...

    def forget(self, index: int) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Session:
    task: Task
    pool: EpisodePool
    used: float
    turn: SessionTurn
    steps: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while its episode advances."""


class Sessions:
    """The episodes under way, each in a pool of its own. A context manager, safe for several
    threads."""

    def __init__(
        self,
        domain: Domain,
        pool: Callable[[], EpisodePool],
        max_steps: int,
        tasks_per_split: int,
        seed: int,
        most: int,
    ) -> None:
        """`pool`: makes the pool of an episode; `max_steps`: steps at which an episode is lost;
        `tasks_per_split`: largest number of tasks of each split, drawn with `seed`; `most`: largest
        number of sessions. Raises `DomainError` for a domain that cannot be served."""
        if domain.capabilities.offers_tools:
            raise DomainError(
                "this domain cannot be served: its episodes ask the policy themselves; serve one "
                "whose policy answers observations"
            )
        if others := domain.capabilities.players:
            raise DomainError(
                f"this domain cannot be served: a client would also play {', '.join(others)}; name "
                "an opponent that is no role"
            )
        self._domain, self._pool, self._max_steps = domain, pool, max_steps
        self._most = most
        self._lock = threading.Lock()
        self._open: dict[str, _Session | None] = {}
        """Sessions by id; None: one that is being opened."""
        self._idle: list[EpisodePool] = []
        self.tasks: Mapping[str, Sequence[Task]] = _tasks(domain, tasks_per_split, seed)
        """Tasks by split."""

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            pools = [*self._idle, *(each.pool for each in self._open.values() if each)]
            self._open, self._idle = {}, []
        for pool in pools:
            pool.close()

    def task(self, split: str, index: int) -> Task:
        """Returns a task of a split. Raises `SessionError`."""
        if split not in self.tasks:
            raise SessionError(f"unknown split {split!r:.40}: use one of {', '.join(self.tasks)}")
        tasks = self.tasks[split]
        if not 0 <= index < len(tasks):
            raise SessionError(f"{split} has the indices 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    def open(self, name: str, task: Task) -> SessionTurn:
        """Begins an episode under a client's name for it. Raises `SessionError` if too many are
        open or it cannot be played."""
        pool = self._reserved(name)
        try:
            pool = pool or self._pool()
            seen = pool.reset([task])[0]
        except BaseException:
            with self._lock:
                self._open.pop(name, None)
            raise
        if isinstance(seen, EpisodeError):
            with self._lock:
                self._open.pop(name, None)
                self._idle.append(pool)
            raise SessionError(f"the episode cannot be played: {seen.reason:.500}", 500)
        prompt = self._domain.policy_prompt(task, (), seen.text)
        turn = SessionTurn(prompt, seen.image, seen.choices)
        with self._lock:
            self._open[name] = _Session(task, pool, time.monotonic(), turn)
        return turn

    def turn(self, name: str) -> SessionTurn:
        """Returns the current turn of a session. Raises `SessionError`."""
        return self._session(name).turn

    def respond(self, name: str, response: str) -> SessionTurn:
        """Plays a response. Raises `SessionError` for an unknown or ended session, and for an
        episode that fails without the response's fault."""
        if len(response) > MOST_CHARACTERS:
            raise SessionError(f"a response has at most {MOST_CHARACTERS:,} characters", 413)
        session = self._session(name)
        with session.lock:
            if session.turn.over:
                raise SessionError("this episode is over: open another session", 409)
            session.turn = self._played(session, response)
            return session.turn

    def close(self, name: str) -> None:
        """Ends a session, if it exists."""
        with self._lock:
            session = self._open.get(name)
            if session is None:
                return
            del self._open[name]
        with session.lock:
            if not session.turn.over:
                session.pool.forget(0)
                session.turn = _shown(_CRASHED, 0.0)  # a call that still waits is refused
        with self._lock:
            self._idle.append(session.pool)

    def _played(self, session: _Session, response: str) -> SessionTurn:
        result = session.pool.step({0: response})[0]
        session.steps += 1
        if isinstance(result, EpisodeError):
            if not result.lost:
                session.turn = _shown(_CRASHED, 0.0)
                raise SessionError(f"the episode failed: {result.reason:.500}", 500)
            return _shown(_CRASHED, 0.0)
        reward = None if result.outcome is None else float(result.outcome == 1)
        if reward is None and session.steps >= self._max_steps:
            session.pool.forget(0)
            reward = 0.0  # as in training, an episode that reaches the limit is lost
        return _shown(result.observation, reward, result.valid, result.reward)

    def _session(self, name: str) -> _Session:
        with self._lock:
            session = self._open.get(name)
            if session is None:
                raise SessionError("no such session: open one first", 404)
            session.used = time.monotonic()
            return session

    def _reserved(self, name: str) -> EpisodePool | None:
        """Reserves a place, and returns a pool that is free; None: there is none yet."""
        with self._lock:
            if name in self._open:
                raise SessionError("this session exists: choose another id, or delete it first")
            late = time.monotonic() - IDLE_SECONDS
            stale = [key for key, each in self._open.items() if each and each.used < late]
        for key in stale:
            self.close(key)
        with self._lock:
            if len(self._open) >= self._most:
                raise SessionError(
                    f"all {self._most} sessions are in use: delete one, or raise --sessions", 503
                )
            self._open[name] = None
            return self._idle.pop() if self._idle else None


def _tasks(domain: Domain, count: int, seed: int) -> dict[str, Sequence[Task]]:
    """Returns the tasks of all splits that have some. Raises `DomainError` if none has."""
    tasks: dict[str, Sequence[Task]] = {}
    faults: list[DomainError] = []
    for split in SPLITS:
        try:
            tasks[split] = checked_tasks(domain, split, count, seed)
        except DomainError as fault:
            faults.append(fault)
    if not any(tasks.values()):
        raise faults[0] if faults else DomainError("no split has tasks: fix domain.options")
    return {split: drawn for split, drawn in tasks.items() if drawn}


def _shown(
    seen: Observation,
    reward: float | None,
    valid: bool = True,
    measure: float | None = None,
) -> SessionTurn:
    message = Message("user", seen.text)
    return SessionTurn((message,), seen.image, seen.choices, valid, reward, measure)
