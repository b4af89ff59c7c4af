"""The records that flow through the whole package. All of them are immutable.

A `Task` is attempted in an episode; its `Trajectory` is a sequence of `Step`s with an outcome; the
judge writes m `Judgement`s per step; a `Completion` that trains becomes a `Sample`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

ChatRole: TypeAlias = Literal["system", "user", "assistant", "tool"]
Direction: TypeAlias = Literal["harder", "easier"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function, as an assistant asks for it."""

    name: str
    arguments: str
    """A JSON object, as text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: ChatRole
    content: str
    images: tuple[str, ...] = ()
    """The names of the images that follow the text, in their order."""
    calls: tuple[ToolCall, ...] = ()
    """An assistant's, after its text. Their results come in messages of role "tool" right behind
    it, in the order of the calls."""
    name: str = ""
    """The function that a result comes from, where its message names it; otherwise its call
    does."""
    thought: str = field(default="", compare=False)
    """An assistant's reasoning before its text, without the marks around it. Messages that differ
    in nothing else are the same turn: most programs send answers back without it."""


Messages: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """Something to attempt. Only its domain reads `data`, which must survive JSON."""

    id: str
    instruction: str
    """The sentence the agent reads."""
    kind: str = ""
    """A label to group results by (for AlfWorld: the task type)."""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer of a language model, as it was sampled. Nothing is ever tokenised again."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[response], the end-of-turn token included when the model produced it."""
    logprobs: tuple[float, ...]
    """[response], of the sampled tokens under the distribution they were drawn from."""
    allowed: tuple[tuple[int, ...], ...]
    """[response], the token ids each token was chosen among; empty: the whole vocabulary."""
    stop_reason: Literal["stop", "length"]
    text: str
    """The response without its end-of-turn token, all that was reasoned included."""
    answer_at: int = 0
    """Where in the text the answer begins; at its end if the reasoning never ended. The chat model
    sets it: part of the block may stand in the prompt."""
    unread: tuple[str, ...] = ()
    """Fields of the request that the model was not shown, as `messages.reasoning_content`: its chat
    template has no place for them."""

    @property
    def answer(self) -> str:
        """The part that others may read and parse: the response without the reasoning before it."""
        return self.text[self.answer_at :]

    @property
    def tokens(self) -> tuple[int, ...]:
        """[prompt + response]"""
        return self.prompt_ids + self.token_ids

    @classmethod
    def unsampled(
        cls, text: str, stop_reason: Literal["stop", "length"] = "stop", answer_at: int = 0
    ) -> Completion:
        """Returns a completion whose tokens are unknown: it cannot train."""
        return cls((), (), (), (), stop_reason, text, answer_at)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange between policy and environment."""

    observation: str
    """What the agent saw before it answered."""
    completion: Completion
    action: str | None
    """The action found in the response; None where there was none."""
    valid: bool
    """Whether the environment could carry the action out."""
    next_observation: str
    image: str | None = None
    """The name of the screenshot that the agent saw, a file in the run's `images`; None: it saw
    text only."""
    next_image: str | None = None
    """The name of the screenshot after the step; None: there is none."""

    @property
    def response(self) -> str:
        """The answer alone: environment, later prompts and judge get this and no more."""
        return self.completion.answer


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode of the policy (tau): its steps, and the outcome O in {-1, +1}."""

    id: str
    task: Task
    steps: tuple[Step, ...]
    outcome: int
    reward: float | None = None
    """What the environment measures beyond won or lost, such as the share of tests passed; None:
    nothing."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One sample of a judge on one step: reasoning, and a score S_ij; 0 if unparsable."""

    completion: Completion
    score: int
    by: str = "judge"
    """Name of the role that wrote it."""


@dataclass(frozen=True, slots=True)
class JudgedTrajectory:
    """A trajectory with the m judgements of each of its steps."""

    trajectory: Trajectory
    judgements: tuple[tuple[Judgement, ...], ...]
    """[steps][m]; of several judges, those of the first judge of the recipe, then the next's."""

    @property
    def scores(self) -> tuple[tuple[int, ...], ...]:
        """S_ij, [steps][m], of all judges."""
        return tuple(tuple(judgement.score for judgement in step) for step in self.judgements)

    def only(self, judge: str) -> JudgedTrajectory:
        """Returns the trajectory with the judgements of one judge."""
        rows = (tuple(each for each in step if each.by == judge) for step in self.judgements)
        return JudgedTrajectory(self.trajectory, tuple(rows))

    def scores_by(self, judge: str) -> tuple[tuple[int, ...], ...]:
        """S_ij of one judge, [steps][m]."""
        return self.only(judge).scores


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion with the advantage it trains on: they cannot come apart."""

    source: str
    """`trajectory/step` for a role that acts, `trajectory/step/j` for a judge, with j the index
    among the judgements that all judges gave the step."""
    completion: Completion
    advantage: float | tuple[float, ...]
    """One for all tokens of the response, or each token's own, [response]."""

    @property
    def mean_advantage(self) -> float:
        """The advantage, or the mean over the tokens of the response."""
        if isinstance(self.advantage, tuple):
            return sum(self.advantage) / len(self.advantage)
        return self.advantage

    @property
    def trains(self) -> bool:
        """Whether any advantage is other than 0; without one a sample carries no signal."""
        return any(self.advantage) if isinstance(self.advantage, tuple) else self.advantage != 0
