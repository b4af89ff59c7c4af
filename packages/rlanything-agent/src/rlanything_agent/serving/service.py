"""A served policy: one thread answers and learns in turns, others bring requests and outcomes."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlanything.domains.base import Episode, Observation
from rlanything.domains.calls import Said
from rlanything.domains.requests import PromptTokens, RequestsRefused
from rlanything.records import Completion, Task
from rlanything.seeds import derive
from rlanything.terminal import one_line
from rlanything_agent.asked import Asked, Denial, refusal
from rlanything_agent.conversation import MOST_PENDING, Sent
from rlanything_agent.serving.episodes import Answered, Episodes, ServedEpisode, Update
from rlanything_agent.serving.journal import Event, Journal, JournalError
from rlanything_agent.threads import said_in

TOGETHER = 64
"""Largest number of answers that are sampled in one batch."""
_ANSWER = re.compile(r"(?:chatcmpl-|msg_|resp_)([0-9]{1,18})")
_LOOKS = 1.0
"""Seconds between two looks for idle episodes."""


class ServedPolicy(Protocol):
    """A policy that is served, and learns."""

    exact: bool
    """Whether an answer must not depend on what was asked before, not even by rounding."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]: ...
    def release_cache(self) -> None: ...

    def update(self, update: Update) -> str:
        """Trains on episodes, keeps the new weights, and returns a line about it."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How a policy is served."""

    seed: int
    every: int
    """Number of ended episodes per update."""
    idle_seconds: float | None = None
    """Time without a request after which an episode has ended, and only judges score it; None:
    outcomes end it."""
    tools: bool = True
    """Whether the model's calls of functions can be read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an episode."""

    id: str
    """Id of its last answer, or its name."""
    outcome: int
    reward: float | None = None


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request that waits for the policy."""

    asked: Asked
    sent: Sent
    name: str
    teaches: bool
    result: Future[Answered | int] = field(default_factory=Future)
    clients: int = 0
    taken: bool = False
    came: float = field(default_factory=time.monotonic)


class PolicyService:
    """Requests and updates in the order in which they come, so that a request is answered by one
    version of the weights."""

    def __init__(
        self,
        policy: ServedPolicy,
        journal: Journal | None,
        version: int,
        settings: ServiceSettings,
        log: Callable[[str], None],
    ) -> None:
        """Reads the journal (None: nothing is kept, and nothing learnt). `version`: number of
        updates of the weights that are loaded; later updates of the journal are made again. Raises
        `JournalError`."""
        self._policy = policy
        self._journal = journal
        self._settings = settings
        self._log = log
        self._changed = threading.Condition()
        self._queue: deque[_Waiting | Update] = deque()
        self._answering: list[_Waiting] = []
        self._closed = False
        self._episodes = Episodes()
        self._last: dict[int, float] = {}
        """Time of the last answer of each open episode, on the monotonic clock."""
        self.version = version
        """Number of updates of the weights that answer now."""
        if journal is not None:
            self._read(journal, version)

    @property
    def learns(self) -> bool:
        return self._journal is not None

    @property
    def takes_outcomes(self) -> bool:
        """Whether outcomes end episodes."""
        return self.learns and self._settings.idle_seconds is None

    def health(self) -> dict[str, Any]:
        """Returns what was done so far."""
        with self._changed:
            return {
                "version": self.version,
                "answers": self._episodes.answers,
                "open_episodes": len(self._episodes),
                "ended_episodes": len(self._episodes.ended),
                "updates_due": len(self._episodes.updates) - self.version,
            }

    def exchanges(self) -> list[Answered]:
        """Returns the exchanges of open episodes, in order."""
        with self._changed:
            return self._episodes.exchanges

    async def ask(self, asked: Asked, sent: Sent, name: str, teaches: bool) -> Answered | int:
        """Returns the answers to a request, or the number of its prompt's tokens. `name`: of its
        episode; "": see `Episodes.event`. Raises `Denial`."""
        if asked.tools and not self._settings.tools:
            raise Denial("tools: this model writes calls in an unknown format; leave them out")
        with self._changed:
            earlier = None if asked.count_only else self._episodes.earlier(sent)
            if earlier is not None:
                earlier.receiving += 1
                return earlier
            waiting = self._entered(asked, sent, name, teaches)
            waiting.clients += 1
        try:
            # Shielded: other clients may wait for the same answers.
            return await asyncio.shield(asyncio.wrap_future(waiting.result))
        except asyncio.CancelledError:  # the client has gone
            with self._changed:
                _no_longer_sent(waiting)
            raise
        finally:
            with self._changed:
                waiting.clients -= 1
                if not waiting.clients and not waiting.taken:
                    with suppress(ValueError):
                        self._queue.remove(waiting)

    def heard(self, exchange: Answered) -> None:
        """Notes that a client has the answers. A request with the same body is then a new one."""
        with self._changed:
            exchange.receiving -= 1
            if exchange.heard:
                return
            exchange.heard = True
            if self._journal is not None and not self._closed:
                event = {"kind": "heard", "first": exchange.answers[0].number}
                with suppress(JournalError):  # the next answer says so
                    self._journal.write(event, synced=False)

    def take(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Takes outcomes, each of which ends an episode, and queues the updates that are due.
        Returns what became of each id. Raises `Denial`."""
        with self._changed:
            self._check_open()
            ending: dict[ServedEpisode, Outcome] = {}
            places: dict[str, list[str]] = {"taken": [], "ended_before": [], "unknown": []}
            for given in outcomes:
                place, episode = self._find(given.id)
                if episode is not None:
                    first = ending.setdefault(episode, given)
                    if (first.outcome, first.reward) != (given.outcome, given.reward):
                        raise Denial(f"{first.id} and {given.id} are one episode: give one outcome")
                places[place].append(given.id)
            ends = [_ended(episode, each.outcome, each.reward) for episode, each in ending.items()]
            try:
                self._end(ends, [*ending])
            except JournalError as error:
                raise Denial(str(error), status=507, code="not_recorded") from None
            waiting, due = len(self._episodes.ended), len(self._episodes.updates)
            return {**places, "waiting": waiting, "updates": due, "version": self.version}

    def run(self) -> None:
        """Answers and learns until `stop` is called. Raises the errors of an update and of the
        journal, after which nothing is answered any more."""
        try:
            with self._changed:
                self._last = dict.fromkeys(self._episodes.numbers, time.monotonic())
                if self.learns:
                    self._end([], [])  # an update may have been due when the process was killed
            while self._turn():
                pass
        finally:
            self.stop()

    def catch_up(self) -> None:
        """Makes the updates of the journal that the loaded weights have not had. Ends no episode:
        nobody could ask in the meantime."""
        while self._queue and isinstance(self._queue[0], Update):
            self._turn()

    def stop(self) -> None:
        """Refuses all requests from now on."""
        with self._changed:
            self._closed = True
            for waiting in (*self._queue, *self._answering):
                if isinstance(waiting, _Waiting) and not waiting.result.done():
                    waiting.result.set_exception(_stopped())
            self._queue.clear()
            self._changed.notify_all()

    def _read(self, journal: Journal, version: int) -> None:
        for number, event in enumerate(journal.events(), start=1):
            try:
                self._episodes.apply(event)
            except (KeyError, ValueError, TypeError, IndexError) as fault:
                raise JournalError(
                    f"{journal.path}: line {number} does not follow from those before it "
                    f"({one_line(str(fault))}); restore the file from a copy"
                ) from None
        if len(self._episodes.updates) < version:
            raise JournalError(
                f"{journal.path}: it knows {len(self._episodes.updates)} updates, but the weights "
                f"have had {version}; restore the file from a copy"
            )
        for update in self._episodes.updates[:version]:
            self._episodes.keep(update.number)
        self._queue.extend(self._episodes.updates[version:])

    def _entered(self, asked: Asked, sent: Sent, name: str, teaches: bool) -> _Waiting:
        self._check_open()
        requests = [each for each in (*self._answering, *self._queue) if isinstance(each, _Waiting)]
        for request in requests:
            again = bool(sent.key) or sent.retry or not request.clients
            if again and (request.sent.body, request.sent.key) == (sent.body, sent.key):
                return request
        if sum(each.asked.answers for each in requests) + asked.answers > MOST_PENDING:
            raise Denial(
                f"more than {MOST_PENDING} answers are waited for: try again later",
                status=429,
                code="rate_limit_exceeded",
            )
        waiting = _Waiting(asked, sent, name, teaches)
        self._queue.append(waiting)
        self._changed.notify_all()
        return waiting

    def _check_open(self) -> None:
        if self._closed:
            raise _stopped()

    def _find(self, name: str) -> tuple[str, ServedEpisode | None]:
        """Returns what is known of an id, and its episode if that is open."""
        if named := self._episodes.named(name):
            return "taken", named
        number = _ANSWER.fullmatch(name)
        if number is None:
            return "unknown", None
        if answered := self._episodes.answered(int(number[1])):
            return "taken", answered
        return "ended_before" if int(number[1]) < self._episodes.answers else "unknown", None

    def _end(self, ends: Sequence[Event], episodes: Sequence[ServedEpisode]) -> None:
        """Ends episodes, and queues the updates that are due."""
        assert self._journal is not None
        every = self._settings.every
        ended = [each.number for each in (*self._episodes.ended, *episodes)]
        events, number = [*ends], len(self._episodes.updates)
        while len(ended) >= every:
            number += 1
            events.append({"kind": "update", "number": number, "episodes": ended[:every]})
            ended = ended[every:]
        if not events:
            return
        self._journal.write(*events)
        before = len(self._episodes.updates)
        for event in events:
            self._episodes.apply(event)
        for episode in episodes:
            self._last.pop(episode.number, None)
        self._queue.extend(self._episodes.updates[before:])
        self._changed.notify_all()

    def _turn(self) -> bool:
        """Answers some requests, or makes an update. Returns False once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed, _LOOKS)
            if self._closed:
                return False
            self._end_idle()
            if not self._queue:
                return True
            if isinstance(update := self._queue[0], Update):
                self._queue.popleft()
            else:
                self._answering = self._next_batch()
        if isinstance(update, Update):
            line = self._policy.update(update)
            with self._changed:
                self.version = update.number
                self._episodes.keep(update.number)
            self._log(line)
        else:
            self._answer(self._answering)
            self._answering = []
        return True

    def _next_batch(self) -> list[_Waiting]:
        """Returns the requests before the next update, up to a limit."""
        batch: list[_Waiting] = []
        size = 0
        while self._queue and isinstance(waiting := self._queue[0], _Waiting):
            size += waiting.asked.answers
            if batch and size > TOGETHER:
                break
            waiting.taken = True
            batch.append(waiting)
            self._queue.popleft()
        return batch

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        left = [*batch]
        while left:
            rows = [waiting for waiting in left for _ in range(waiting.asked.answers)]
            # By number: a request whose answer a kill cut off gets the same one again.
            first = self._episodes.answers
            seeds = [derive(self._settings.seed, "served", first + i) for i in range(len(rows))]
            episodes = [_as_episode(first + i, waiting) for i, waiting in enumerate(rows)]
            try:
                completions = self._policy.respond(episodes, seeds)
                break
            except RequestsRefused as refused:
                reasons = {rows[i]: reason for i, reason in refused.reasons.items()}
                left = [waiting for waiting in left if waiting not in reasons]
                for waiting, reason in reasons.items():
                    _settle(waiting, reason)
            except Exception as fault:  # from the model or its engine
                why = one_line(str(fault)) or type(fault).__name__
                self._log(f"requests could not be answered: {why}")
                for waiting in left:
                    if not waiting.result.done():
                        waiting.result.set_exception(Denial(why, status=500, code="not_answered"))
                return
            finally:
                if self._policy.exact:
                    self._policy.release_cache()
        else:
            return
        self._record(left, completions)

    def _record(self, batch: Sequence[_Waiting], completions: Sequence[Completion]) -> None:
        """Writes the answers, then hands them over."""
        rest = iter(completions)
        exchanges: list[tuple[_Waiting, Answered]] = []
        events: list[Event] = []
        with self._changed:
            for waiting in batch:
                asked = waiting.asked
                own = [next(rest) for _ in range(asked.answers)]
                said: list[tuple[Said, Completion]] = [(said_in(asked, c), c) for c in own]
                event = self._episodes.event(
                    asked, waiting.sent, waiting.name, waiting.teaches, self.version, said
                )
                events.append(event)
                exchange = self._episodes.apply_answers(event)
                exchange.receiving = waiting.clients
                self._last[exchange.episode.number] = time.monotonic()
                exchanges.append((waiting, exchange))
            if self._journal is not None:
                try:
                    self._journal.write(*events)
                except BaseException:
                    self._closed = True  # what follows from these answers would have no line before
                    raise
            for waiting, exchange in exchanges:
                if not waiting.result.done():
                    waiting.result.set_result(exchange)

    def _end_idle(self) -> None:
        """Ends episodes without a request for too long."""
        seconds = self._settings.idle_seconds
        if seconds is None or not self.learns:
            return
        # A request that waits may be an episode's next.
        came = (each.came for each in self._queue if isinstance(each, _Waiting))
        due = min(came, default=time.monotonic()) - seconds
        idle = [number for number, last in self._last.items() if last < due]
        for number in idle:
            episode = self._episodes.episode(number)
            self._last.pop(number)
            if episode is not None:
                self._end([_ended(episode, None, None)], [episode] if episode.teaches else [])


def _ended(episode: ServedEpisode, outcome: int | None, reward: float | None) -> Event:
    if outcome is None and not episode.teaches:
        return {"kind": "forgotten", "episode": episode.number}
    assert reward is None or math.isfinite(reward)
    return {"kind": "ended", "episode": episode.number, "outcome": outcome, "reward": reward}


def _no_longer_sent(waiting: _Waiting) -> None:
    """Notes that a client of a request that may be answered has gone."""
    if waiting.result.done() and not waiting.result.cancelled() and not waiting.result.exception():
        exchange = waiting.result.result()
        if isinstance(exchange, Answered):
            exchange.receiving -= 1


def _settle(waiting: _Waiting, reason: str) -> None:
    """Refuses a request, or answers with the number of its prompt's tokens."""
    if waiting.result.done():
        return
    if isinstance(reason, PromptTokens):
        waiting.result.set_result(int(reason))
    else:
        waiting.result.set_exception(refusal(reason))


def _as_episode(number: int, waiting: _Waiting) -> Episode:
    """Returns a request as the policy is asked."""
    asked = waiting.asked
    observation = Observation("", asked.choices, None, asked.request(f"{number}"))
    return Episode(f"{number}", Task("", ""), observation)


def _stopped() -> Denial:
    return Denial("this policy is served no longer: try again", status=503, code="stopped")
