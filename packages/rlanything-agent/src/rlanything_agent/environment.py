"""Episodes in which your own program acts: its requests are the observations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    Observation,
    StepResult,
)
from rlanything.domains.requests import PromptTokens, Reply
from rlanything.records import Completion, Task
from rlanything_agent.asked import refusal
from rlanything_agent.conversation import Conversation, Ending, Pending, PolicyAnswer
from rlanything_agent.endpoint import AgentEndpoint, Door, endpoint
from rlanything_agent.faults import reason, unreachable
from rlanything_agent.helpers import Helpers
from rlanything_agent.outcome import BadOutcome, Scale
from rlanything_agent.programs import AgentProgram
from rlanything_agent.threads import ENDED, Place, Threads, action_of, said_in, shown

Start = Callable[[Task, Conversation, AgentEndpoint, Door], AgentProgram]
"""Starts a program for a task."""
MOST_REFUSED = 8
"""Consecutive refused requests after which a program is assumed never to stop."""
MOST_COUNTED = 256
"""Number of prompts whose tokens a program may have counted between two answers."""
_HELD_UP = 0.25
"""Share of a program's time limit after which a program that another one blocks is restarted."""
_LOOKS = 0.02
"""Share of the time limit between two checks."""
_END = Observation(ENDED)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options that the environments need."""

    models: Sequence[str]
    helpers: Helpers
    scale: Scale
    images: bool
    timeout_seconds: float
    """Time limit between an answer and the program's next request."""


class ProgramEnvironment:
    """Runs a program for each episode and passes its requests on as observations."""

    def __init__(self, options: AgentOptions, start: Start) -> None:
        self._options = options
        self._start = start
        self._open: tuple[Door, AgentProgram] | None = None
        self._conversation = Conversation()
        self._task = Task("", "")
        self._asked: tuple[Pending, Place] | None = None
        """The request that was shown, until it is answered."""
        self._taken: tuple[str, StepResult] | None = None
        """Id of the reply that `take` handed over, and the result of its step."""
        self._threads = Threads()
        self._told: list[Reply] = []
        """Replies so far, for a program that has to be restarted."""
        self._answers = self._refused = self._counted = 0

    def reset(self, task: Task) -> Observation:
        """Ends the last episode's program, starts a new one and waits for its first request."""
        self._task = task
        self._told = []
        self._begin()
        first = self._next()
        if isinstance(first, Ending):
            outcome, _ = self._outcome(first)
            raise self._fault(f"its agent asked nothing before it ended (outcome {outcome:+d})")
        return self._show(first)

    def _begin(self) -> None:
        self._stop()
        self._conversation = Conversation()
        self._threads = Threads()
        self._asked = self._taken = None
        self._answers = self._refused = self._counted = 0
        options = self._options
        server = endpoint()
        door = server.open(self._conversation, options.models, options.helpers, options.images)
        try:
            self._open = (door, self._start(self._task, self._conversation, server, door))
        except BaseException:
            server.shut(door)
            raise

    def take(self, reply: Reply) -> None:
        """Hands over the answer to the last request shown."""
        if self._asked is not None and self._asked[0].id == reply.request:
            self._taken = (reply.request, self._hand_over(reply))

    def step(self, response: str) -> StepResult:
        """Replies with a text whose tokens are unknown."""
        assert self._asked is not None
        return self.reply(Reply(self._asked[0].id, Completion.unsampled(response)))

    def reply(self, reply: Reply) -> StepResult:
        """Returns the program's next request as an observation, or its outcome."""
        if self._taken is None or self._taken[0] != reply.request:
            self._find(reply.request)
            self._taken = (reply.request, self._hand_over(reply))
        (_, step), self._taken = self._taken, None
        following = self._next()
        if isinstance(following, Pending):
            return StepResult(self._show(following), step.action, step.valid)
        outcome, reward = self._outcome(following)
        if reply.completion is None and not self._answers and not self._refused:
            raise self._fault("its agent had tokens counted and asked nothing before it ended")
        self._stop()
        return StepResult(_END, step.action, step.valid, outcome, reward)

    def close(self) -> None:
        """Ends the last episode's program."""
        self._stop()

    def _find(self, wanted: str) -> None:
        """Shows the request with this id instead of the current one. A replayed episode may bring
        simultaneous requests in another order."""
        if self._asked is not None and self._asked[0].id == wanted:
            return
        following = self._conversation.next(self._options.timeout_seconds, wanted)
        if not isinstance(following, Pending):
            # Only a replay gets here, and the first time the answers led elsewhere.
            raise self._fault(
                "its agent, played again with the same answers, asked something else; let it "
                "depend on its task and the answers alone",
                unreachable=True,
            )
        self._show(following)

    def _hand_over(self, reply: Reply) -> StepResult:
        """Answers the request that was shown; returns what the policy did, without what comes of
        it."""
        assert self._asked is not None
        (pending, place), self._asked = self._asked, None
        self._told.append(reply)
        if isinstance(reply.refused, PromptTokens):
            self._counted += 1
            self._conversation.settle(pending, int(reply.refused))
            return StepResult(_END, None, False)
        if reply.completion is None:
            self._refused += 1
            self._conversation.settle(pending, refusal(reply.refused))
            return StepResult(_END, None, False)
        self._refused = self._counted = 0
        said = said_in(pending.asked, reply.completion)
        self._threads.add(pending.asked.messages, place, said)
        self._conversation.settle(pending, PolicyAnswer(said, reply.completion, self._answers))
        self._answers += 1
        return StepResult(_END, action_of(said), said.readable)

    def _show(self, pending: Pending) -> Observation:
        asked = pending.asked
        place = self._threads.place(asked.messages)
        self._asked = (pending, place)
        request = asked.request(pending.id, place.follows, place.thread)
        text = shown(place.new, asked.tool_names if place.follows is None else ())
        names = {name for message in place.new for name in message.images}
        image = next((image for image in reversed(asked.images) if image.name in names), None)
        return Observation(text, asked.choices, image, request)

    def _next(self) -> Pending | Ending:
        """Returns what the program does next. Raises `EpisodeError` for a program that hangs, or
        that repeats refused requests too often."""
        if self._refused >= MOST_REFUSED:
            raise self._fault(f"its agent was refused {MOST_REFUSED} requests in a row")
        if self._counted >= MOST_COUNTED:
            raise self._fault(f"its agent had tokens counted {MOST_COUNTED} times in a row")
        seconds = self._options.timeout_seconds
        end = time.monotonic() + seconds
        following = None
        while following is None and (left := end - time.monotonic()) > 0:
            following = self._conversation.next(min(left, seconds * _LOOKS))
            if following is None and self._held_up(seconds * _HELD_UP):
                return self._again()
        if following is None:
            after = f"answer {self._answers}" if self._answers else "its start"
            raise self._fault(
                f"its agent neither asked nor ended within {seconds:g} s after {after}; raise "
                "domain.options.timeout_seconds if it needs longer"
            )
        return following

    def _held_up(self, seconds: float) -> bool:
        return self._open is not None and self._open[1].held_up(seconds)

    def _again(self) -> Pending | Ending:
        """Restarts a program that another one blocked, and replays the same answers. Returns what
        it does next."""
        told = self._told
        self._told = []
        self._begin()
        for reply in told:
            following = self._next()
            if isinstance(following, Ending):
                return following
            self._show(following)
            self._find(reply.request)
            self._hand_over(reply)
        return self._next()

    def _outcome(self, ended: Ending) -> tuple[int, float | None]:
        """Returns outcome and reward. Raises `EpisodeError` if the program failed or returned
        neither."""
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
            raise self._fault(f"its agent failed: {reason(fault)}", self._unreachable(fault))
        try:
            return self._options.scale.outcome(ended.value)
        except BadOutcome as bad:
            raise self._fault(str(bad)) from None

    def _unreachable(self, fault: BaseException) -> bool:
        # A program that gave up on an answer may have failed because the policy was slow.
        answers = [reply.completion.answer for reply in self._told if reply.completion is not None]
        return not self._conversation.unheard and unreachable(fault, answers)

    def _fault(self, said: str, unreachable: bool = False) -> EpisodeError:
        """Returns the fault of a program, and forgets the program. Once the program got an answer,
        that answer may have caused the fault, so the episode counts as lost. `unreachable`: a
        service that the program needs is down, which counts neither way."""
        self._stop()
        return EpisodeError(self._task.id, said, lost=self._answers > 0 and not unreachable)

    def _stop(self) -> None:
        if self._open is not None:
            (door, program), self._open = self._open, None
            endpoint().shut(door)
            program.end()
