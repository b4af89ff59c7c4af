"""What flows through every room of the house. All of it is immutable.

A `Task` is attempted in an episode; its `Trajectory` is a sequence of `Step`s with an outcome; the
judge writes m `Judgement`s per step; a `Completion` that trains becomes a `Sample`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant"]
Direction: TypeAlias = Literal["harder", "easier"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


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
    """What a language model answered, as it was sampled. Nothing is ever tokenised again."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[response], the end-of-turn token included when the model produced it."""
    logprobs: tuple[float, ...]
    """[response], of the sampled tokens under the distribution they were drawn from."""
    allowed: tuple[tuple[int, ...], ...]
    """[response], the token ids each token was chosen among; empty: the whole vocabulary."""
    stop_reason: Literal["stop", "length"]
    text: str
    """The response without its end-of-turn token."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """[prompt + response]"""
        return self.prompt_ids + self.token_ids

    @classmethod
    def unsampled(cls, text: str, stop_reason: Literal["stop", "length"] = "stop") -> Completion:
        """A response whose tokens nobody has: it cannot train."""
        return cls((), (), (), (), stop_reason, text)


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

    @property
    def response(self) -> str:
        return self.completion.text


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode of the policy (tau): its steps, and the outcome O in {-1, +1}."""

    id: str
    task: Task
    steps: tuple[Step, ...]
    outcome: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """One sample of the judge on one step: reasoning, and a score S_ij; 0 if unparsable."""

    completion: Completion
    score: int


@dataclass(frozen=True, slots=True)
class JudgedTrajectory:
    """A trajectory with the m judgements of each of its steps."""

    trajectory: Trajectory
    judgements: tuple[tuple[Judgement, ...], ...]
    """[steps][m]"""

    @property
    def scores(self) -> tuple[tuple[int, ...], ...]:
        """S_ij, [steps][m]."""
        return tuple(tuple(judgement.score for judgement in step) for step in self.judgements)


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion with the advantage it trains on: they cannot come apart."""

    source: str
    """`trajectory/step` for the policy, `trajectory/step/judgement` for the judge."""
    completion: Completion
    advantage: float
