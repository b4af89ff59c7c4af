"""Episodes in which a program of somebody's own acts: its requests are what is observed."""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlanything.domains.agent.conversation import Conversation, Ending, Pending, PolicyAnswer
from rlanything.domains.agent.endpoint import AgentEndpoint, Door, endpoint
from rlanything.domains.agent.helpers import Helpers
from rlanything.domains.agent.outcome import BadOutcome, Scale
from rlanything.domains.agent.programs import AgentProgram
from rlanything.domains.agent.reading import Denial
from rlanything.domains.agent.threads import Place, Threads, shown
from rlanything.domains.agent.tool_calls import Said, parse_calls
from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    Observation,
    StepResult,
)
from rlanything.domains.requests import ModelRequest, Reply, TooLong
from rlanything.records import Completion, Task

Start = Callable[[Task, Conversation, AgentEndpoint, Door], AgentProgram]
"""Starts a program for a task."""
MOST_REFUSED = 8
"""Refusals in a row by the policy at which a program is taken for one that never stops."""
_ACTION_CHARACTERS = 200
_END = Observation("The agent has ended.")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The part of a domain's options that its environments need."""

    models: Sequence[str]
    helpers: Helpers
    scale: Scale
    images: bool
    timeout_seconds: float
    """What a program may take between an answer and its next request."""


class ProgramEnvironment:
    """Runs a program for each episode, and passes its requests on as observations."""

    def __init__(self, options: AgentOptions, start: Start) -> None:
        self._options, self._start = options, start
        self._open: tuple[Door, AgentProgram] | None = None
        self._conversation = Conversation()
        self._task = Task("", "")
        self._asked: tuple[Pending, Place] | None = None
        """The request that was shown, until it is answered."""
        self._taken: tuple[str, StepResult] | None = None
        """The id of a reply that `take` handed over, and what is known of its step."""
        self._threads = Threads()
        self._answers = self._refused = 0

    def reset(self, task: Task) -> Observation:
        """Ends the program of the last episode, starts one and waits for its first request."""
        self._stop()
        self._task, self._conversation, self._threads = task, Conversation(), Threads()
        self._asked = self._taken = None
        self._answers = self._refused = 0
        options, server = self._options, endpoint()
        door = server.open(self._conversation, options.models, options.helpers, options.images)
        try:
            self._open = (door, self._start(task, self._conversation, server, door))
        except BaseException:
            server.shut(door)
            raise
        first = self._next()
        if isinstance(first, Ending):
            outcome, _ = self._outcome(first)
            raise self._fault(f"its agent asked nothing before it ended (outcome {outcome:+d})")
        return self._show(first)

    def take(self, reply: Reply) -> None:
        """Hands over the answer to the request that was shown last."""
        if self._asked is not None and self._asked[0].id == reply.request:
            self._taken = (reply.request, self._hand_over(reply))

    def step(self, response: str) -> StepResult:
        """Replies with a text whose tokens nobody knows."""
        assert self._asked is not None
        return self.reply(Reply(self._asked[0].id, Completion.unsampled(response)))

    def reply(self, reply: Reply) -> StepResult:
        """Returns the next request of the program as an observation, or its outcome."""
        if self._taken is None or self._taken[0] != reply.request:
            self._find(reply.request)
            self._taken = (reply.request, self._hand_over(reply))
        (_, step), self._taken = self._taken, None
        following = self._next()
        if isinstance(following, Pending):
            return StepResult(self._show(following), step.action, step.valid)
        outcome, reward = self._outcome(following)
        self._stop()
        return StepResult(_END, step.action, step.valid, outcome, reward)

    def close(self) -> None:
        """Ends the program of the last episode."""
        self._stop()

    def _find(self, wanted: str) -> None:
        """Shows the request with this id, where another was shown: an episode that is played again
        may bring requests that were sent at the same time in another order."""
        if self._asked is not None and self._asked[0].id == wanted:
            return
        following = self._conversation.next(self._options.timeout_seconds, wanted)
        if not isinstance(following, Pending):
            raise self._fault(
                "its agent, played again with the same answers, asked something else; let it "
                "depend on its task and the answers alone"
            )
        self._show(following)

    def _hand_over(self, reply: Reply) -> StepResult:
        """Answers the request that was shown; returns what the policy did, without what comes of
        it."""
        assert self._asked is not None
        (pending, place), self._asked = self._asked, None
        if reply.completion is None:
            self._refused += 1
            self._conversation.settle(pending, _denial(reply.refused))
            return StepResult(_END, None, False)
        self._refused = 0
        said = _said(pending, reply.completion)
        self._threads.add(pending.asked.messages, place, said)
        self._conversation.settle(pending, PolicyAnswer(said, reply.completion, self._answers))
        self._answers += 1
        return StepResult(_END, _action(said), said.readable)

    def _show(self, pending: Pending) -> Observation:
        asked = pending.asked
        place = self._threads.place(asked.messages)
        self._asked = (pending, place)
        request = ModelRequest(
            pending.id,
            asked.messages,
            asked.tools,
            place.follows,
            place.thread,
            asked.max_tokens,
            asked.stop,
            {image.name: image.data for image in asked.images},
        )
        text = shown(place.new)
        if asked.tools and place.follows is None:
            text += f"\n[tools] {', '.join(str(tool['name']) for tool in asked.tools)}"
        names = {name for message in place.new for name in message.images}
        image = next((image for image in reversed(asked.images) if image.name in names), None)
        return Observation(text, asked.choices, image, request)

    def _next(self) -> Pending | Ending:
        """Returns what the program does next. Raises `EpisodeError` for one that does nothing, or
        goes on asking for what it cannot get."""
        if self._refused >= MOST_REFUSED:
            raise self._fault(f"its agent was refused {MOST_REFUSED} requests in a row")
        seconds = self._options.timeout_seconds
        following = self._conversation.next(seconds)
        if following is None:
            after = f"answer {self._answers}" if self._answers else "its start"
            raise self._fault(
                f"its agent neither asked nor ended within {seconds:g} s after {after}; raise "
                "domain.options.timeout_seconds if it needs longer"
            )
        return following

    def _outcome(self, ended: Ending) -> tuple[int, float | None]:
        """Returns outcome and reward. Raises `EpisodeError` for a program that failed, or returned
        what is neither."""
        fault = ended.fault
        if isinstance(fault, EpisodeError):
            raise EpisodeError(self._task.id, fault.reason, lost=fault.lost)
        if isinstance(fault, DomainError):
            raise fault
        if isinstance(fault, BadOutcome):
            raise self._fault(str(fault))
        if isinstance(fault, InvalidTask):
            raise EpisodeError(self._task.id, f"its agent calls it invalid: {fault}")
        if fault is not None:
            raise self._fault(f"its agent failed: {_reason(fault)}")
        try:
            return self._options.scale.outcome(ended.value)
        except BadOutcome as bad:
            raise self._fault(str(bad)) from None

    def _fault(self, reason: str) -> EpisodeError:
        """Returns a fault, after which nothing of the program is left. Once it was answered, an
        answer may have brought it about: the episode counts as lost."""
        self._stop()
        return EpisodeError(self._task.id, reason, lost=self._answers > 0)

    def _stop(self) -> None:
        if self._open is not None:
            (door, program), self._open = self._open, None
            endpoint().shut(door)
            program.end()


def _denial(reason: str) -> Denial:
    """Returns the policy's refusal of a request."""
    if isinstance(reason, TooLong):  # in the words that clients look for
        said = f"This model's maximum context length is exceeded: {reason}"
        return Denial(said, "messages", code="context_length_exceeded")
    return Denial(reason, "messages", code="invalid_prompt")


def _said(pending: Pending, completion: Completion) -> Said:
    """Returns an answer as the program is given it."""
    if not pending.asked.tools:
        return Said(completion.answer)
    said = parse_calls(completion.answer, {str(tool["name"]) for tool in pending.asked.tools})
    return Said(said.content, said.calls[:1], said.readable) if pending.asked.one_call else said


def _action(said: Said) -> str:
    calls = "; ".join(f"{call.name}({call.arguments})" for call in said.calls)
    return calls or textwrap.shorten(said.content, _ACTION_CHARACTERS, placeholder=" ...")


def _reason(fault: BaseException) -> str:
    """Returns what went wrong, and where in the program, in one line."""
    said = " ".join(f"{type(fault).__name__}: {fault}".split())
    frames = traceback.extract_tb(fault.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    last = own[-1] if own else None
    place = f", in {last.filename}, line {last.lineno}" if last else ""
    return f"{textwrap.shorten(said, 300, placeholder=' ...')}{place}"
