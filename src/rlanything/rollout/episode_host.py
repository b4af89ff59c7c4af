"""Plays many episodes in one process; run as a module, it is a worker of `EnvironmentPool`."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from rlanything.domains.base import (
    AgentEnvironment,
    ClosableEnvironment,
    Domain,
    DomainError,
    Environment,
    EpisodeError,
    Image,
    Observation,
    StepResult,
    UnexplainedError,
)
from rlanything.domains.registry import DomainSource
from rlanything.domains.requests import Reply
from rlanything.records import Task

Response: TypeAlias = str | Reply
"""Input to an environment: the policy's answer, or its reply to an agent's request."""


@dataclass(frozen=True, slots=True)
class Play:
    """Responses to play in one of the host's slots."""

    slot: int
    task: Task
    responses: tuple[Response, ...]
    begin: bool
    """Whether to reset to the task before the responses are played."""
    seen: tuple[str, ...] = ()
    """In a replay: fingerprints of the answers to the reset and to each response, which must be
    the same again."""
    ahead: bool = True
    """Whether a program may get the reply before the play's turn. Not after a fault: it must be
    clear which of several programs fails."""


Answer: TypeAlias = Observation | StepResult | EpisodeError


def fingerprint(answer: Observation | StepResult) -> str:
    """Returns a hash of text, choices and outcome. Screenshots are left out, because a cursor may
    blink, and so are programs' requests, which may come in another order."""
    seen, outcome = answer, None
    if isinstance(answer, StepResult):
        seen, outcome = answer.observation, answer.outcome
    assert isinstance(seen, Observation)
    shown = (seen.text, seen.choices) if seen.request is None else ()
    return hashlib.sha256(repr((shown, outcome)).encode()).hexdigest()


class EpisodeHost:
    """One environment per slot, made when first needed and reused for later episodes."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._environments: dict[int, Environment] = {}

    def play(self, play: Play) -> Answer:
        """Returns the answer to the last response, else to the reset. Never raises."""
        stepping = False
        seen = iter(play.seen)
        try:
            if play.slot not in self._environments:
                self._environments[play.slot] = self._domain.environment()
            environment = self._environments[play.slot]
            answer: Answer | None = None
            if play.begin:
                answer = environment.reset(play.task)
                _check(environment, "reset", answer, Observation)
                _check_repeated(play.task, answer, seen)
            for response in play.responses:
                stepping = True
                answer = _step(environment, response)
                _check_repeated(play.task, answer, seen)
            assert answer is not None
            return answer
        except EpisodeError as error:
            return _of_task(play.task, error)
        except DomainError as fault:  # set-up failed, so the response is not to blame
            return EpisodeError(play.task.id, str(fault))
        # A fault of one environment, or its exit, must not lose the other episodes.
        except (Exception, SystemExit) as fault:
            _close(self._environments.pop(play.slot, None))
            kind = UnexplainedError if stepping else EpisodeError
            return kind(play.task.id, f"{type(fault).__name__}: {fault}")

    def announce(self, plays: Sequence[Play]) -> None:
        """Hands replies to the programs that act in their environments. They continue
        concurrently, and `play` then waits for them one by one. Never raises."""
        for play in plays:
            environment = self._environments.get(play.slot)
            if isinstance(environment, AgentEnvironment) and not play.begin and play.ahead:
                (reply,) = play.responses
                if isinstance(reply, Reply):  # in several worlds not all have an agent
                    environment.take(reply)

    def close(self) -> None:
        """Closes all environments. Never raises."""
        while self._environments:
            _, environment = self._environments.popitem()
            _close(environment)


def _of_task(task: Task, error: EpisodeError) -> EpisodeError:
    """Returns the error with this task's id, even if the environment named another."""
    reason = str(error.reason)
    # A world of several knows its task without its own label.
    if error.task_id not in (task.id, task.id.partition("/")[2]):
        reason = f"{error.task_id}: {reason}"
    return EpisodeError(task.id, reason, deadly=bool(error.deadly), lost=bool(error.lost))


def _check_repeated(task: Task, answer: Observation | StepResult, seen: Iterator[str]) -> None:
    """Raises `EpisodeError` if a replay shows something else than the episode did."""
    if next(seen, None) not in (None, fingerprint(answer)):
        reason = "played again with the same responses, its environment shows something else"
        raise EpisodeError(task.id, reason)


def _close(environment: Environment | None) -> None:
    if isinstance(environment, ClosableEnvironment):
        with contextlib.suppress(Exception):  # a failed clean-up must not cost any episode
            environment.close()


def _step(environment: Environment, response: Response) -> StepResult:
    if isinstance(response, Reply):
        assert isinstance(environment, AgentEnvironment)
        result = environment.reply(response)
    else:
        result = environment.step(response)
    _check(environment, "step", result, StepResult)
    _check(environment, "step", result.observation, Observation)
    return result


def _check(environment: Environment, method: str, answer: object, kind: type) -> None:
    """Raises TypeError if an environment's answer has the wrong type."""
    if not isinstance(answer, kind):
        raise TypeError(
            f"{type(environment).__qualname__}.{method} returned {answer!r:.80}; "
            f"return an rlanything.{kind.__name__}"
        )
    if isinstance(answer, StepResult) and not isinstance(answer.action, str | None):
        raise TypeError(
            f"{type(environment).__qualname__}.{method} returned the action {answer.action!r:.80}; "
            "return a text or None"
        )
    if isinstance(answer, Observation):
        for name, value, fits in (
            ("text", answer.text, isinstance(answer.text, str)),
            ("choices", answer.choices, _are_texts(answer.choices)),
            ("image", answer.image, isinstance(answer.image, Image | None)),
        ):
            if not fits:
                raise TypeError(
                    f"{type(environment).__qualname__}.{method} returned an observation whose "
                    f"{name} is {value!r:.80}"
                )


def _are_texts(choices: object) -> bool:
    listed = isinstance(choices, list | tuple)
    return choices is None or (listed and all(isinstance(choice, str) for choice in choices))


def serve(connection: Connection) -> None:
    """Answers plays one by one, so that the pool knows which episode killed a worker."""
    source: DomainSource = connection.recv()
    try:
        host = EpisodeHost(source.load())
    except DomainError as error:
        connection.send(error)
        return
    connection.send(None)
    try:
        while True:
            plays = connection.recv()
            host.announce(plays)
            for play in plays:
                connection.send(host.play(play))
    finally:
        host.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool handles Ctrl-C
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, ConnectionError):  # the pool is gone
        return


if __name__ == "__main__":
    main()
