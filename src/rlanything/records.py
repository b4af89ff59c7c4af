"""Immutable records that flow through the whole package.

A `Task` is attempted in an episode; its `Trajectory` is a sequence of `Step`s with an outcome; the
judge writes m `Judgement`s per step; a `Completion` that trains becomes a `Sample`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

ChatRole: TypeAlias = Literal["system", "user", "assistant", "tool"]
Direction: TypeAlias = Literal["harder", "easier"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function, requested by an assistant."""

    name: str
    arguments: str
    """A JSON object, as text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: ChatRole
    content: str
    images: tuple[str, ...] = ()
    """Names of the images that follow the text, in order."""
    calls: tuple[ToolCall, ...] = ()
    """An assistant's calls, after its text. Their results follow in messages of role "tool", in the
    order of the calls."""
    name: str = ""
    """The function that a result comes from, if its message names it; otherwise see its call."""
    thought: str = field(default="", compare=False)
    """An assistant's reasoning before its text, without the marks. It is ignored in comparisons:
    most programs send answers back without it."""


Messages: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """A task to attempt. Only its domain reads `data`, which must survive JSON."""

    id: str
    instruction: str
    """The sentence the agent reads."""
    kind: str = ""
    """A label to group results by (for AlfWorld: the task type)."""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled answer of a language model. It is never tokenised again."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[response], including the end-of-turn token if the model produced it."""
    logprobs: tuple[float, ...]
    """[response], of the sampled tokens under the distribution they were sampled from."""
    allowed: tuple[tuple[int, ...], ...]
    """[response], the allowed token ids of each position; empty: the whole vocabulary."""
    stop_reason: Literal["stop", "length"]
    text: str
    """Full response text, including reasoning, without the end-of-turn token."""
    answer_at: int = 0
    """Offset where the answer starts; `len(text)` if the reasoning block was never closed. Set by
    the chat model, which knows whether the prompt opened the block."""
    unread: tuple[str, ...] = ()
    """Fields of the request that the model did not see, as `messages.reasoning_content`: its chat
    template ignores them."""
    call_family: str = "hermes"
    """The family in whose format the model was to write calls, as `domains/calls.py` names it."""

    @property
    def answer(self) -> str:
        """The part to read and parse: the response without the reasoning before it."""
        return self.text[self.answer_at :]

    @property
    def tokens(self) -> tuple[int, ...]:
        """[prompt + response]"""
        return self.prompt_ids + self.token_ids

    @classmethod
    def unsampled(
        cls, text: str, stop_reason: Literal["stop", "length"] = "stop", answer_at: int = 0
    ) -> Completion:
        """Returns a completion without known tokens; it cannot train."""
        return cls((), (), (), (), stop_reason, text, answer_at)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange between policy and environment."""

    observation: str
    """The observation before the answer."""
    completion: Completion
    action: str | None
    """The action found in the response; None if it has none."""
    valid: bool
    """Whether the environment could carry out the action."""
    next_observation: str
    image: str | None = None
    """Name of the screenshot that the agent saw, a file in the run's `images`; None: text only."""
    next_image: str | None = None
    """Name of the screenshot after the step; None without one."""
    player: str = ""
    """Role that answered; "" for the first role that acts. The next observation may be for another
    player."""

    @property
    def response(self) -> str:
        """The answer without reasoning: environment, later prompts and judge see only this."""
        return self.completion.answer


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode of the policy (tau): its steps and the outcome O in {-1, +1}."""

    id: str
    task: Task
    steps: tuple[Step, ...]
    outcome: int
    reward: float | None = None
    """The environment's measure beyond won or lost, such as the share of tests passed; None:
    none."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Outcomes of the other players, by role; a missing player has lost."""

    @property
    def player(self) -> str:
        """The player of a view; of a whole episode the player of the first step, "" without any."""
        return self.steps[0].player if self.steps else ""

    @property
    def views(self) -> tuple[Trajectory, ...]:
        """The episode as each player saw it: own steps and own outcome. A player without a step has
        no view."""
        players = sorted({step.player for step in self.steps})
        if players in ([], [""]):
            return (self,)
        latest = self.steps[-1].next_observation, self.steps[-1].next_image
        return tuple(
            replace(
                self,
                id=f"{self.id}/{player}" if player and len(players) > 1 else self.id,
                steps=steps_of(player, self.steps, latest),
                outcome=self.others.get(player, -1) if player else self.outcome,
                reward=None if player else self.reward,
            )
            for player in players
        )

    @property
    def first_view(self) -> Trajectory:
        """The view of the first role that acts; the whole episode if that role has no step."""
        return next((view for view in self.views if not view.player), self)

    def in_order(self, by_player: Mapping[str, Iterable[T]]) -> tuple[T, ...]:
        """Returns what belongs to the steps of each view, in the order of all steps."""
        left = {player: iter(rows) for player, rows in by_player.items()}
        return tuple(next(left[step.player]) for step in self.steps)


def steps_of(
    player: str, steps: Sequence[Step], latest: tuple[str, str | None]
) -> tuple[Step, ...]:
    """Returns a player's own steps, each with the observation that this player saw next. `latest`:
    text and screenshot after the last."""
    own = [step for step in steps if step.player == player]
    seen = [*((step.observation, step.image) for step in own[1:]), latest]
    return tuple(
        replace(step, next_observation=text, next_image=image)
        for step, (text, image) in zip(own, seen, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of a step by a judge: reasoning, and a score S_ij; 0 if unparsable."""

    completion: Completion
    score: int
    by: str = "judge"
    """Name of the role that wrote it."""
    grade: int | None = None
    """Chance of winning that a judge of value gives the state after the step, from 0 to 10; -1 if
    unparsable. Its score is +1 for a grade of at least 5, else -1. None: the judge scores steps."""


@dataclass(frozen=True, slots=True)
class JudgedTrajectory:
    """A trajectory with the m judgements of each of its steps."""

    trajectory: Trajectory
    judgements: tuple[tuple[Judgement, ...], ...]
    """[steps][m]; with several judges, grouped by judge in the order of the recipe."""
    gains: tuple[float, ...] | None = None
    """Each step's gain A as replays measured it, [steps] in [-1, 1]; 0 if it was not measured.
    None: nothing was measured."""

    @property
    def scores(self) -> tuple[tuple[int, ...], ...]:
        """S_ij, [steps][m], of all judges."""
        return tuple(tuple(judgement.score for judgement in step) for step in self.judgements)

    @property
    def views(self) -> tuple[JudgedTrajectory, ...]:
        """The judged episode as each player saw it."""
        views = self.trajectory.views
        if views[0] is self.trajectory:
            return (self,)
        rows = [*zip(self.trajectory.steps, self.judgements, strict=True)]
        return tuple(
            JudgedTrajectory(view, tuple(row for step, row in rows if step.player == view.player))
            for view in views
        )

    @property
    def first_view(self) -> JudgedTrajectory:
        """The view of the first role that acts; the whole episode if that role has no step."""
        return next((view for view in self.views if not view.trajectory.player), self)

    @property
    def grades(self) -> tuple[tuple[int, ...], ...]:
        """Grades [steps][m] of the judges that value states."""
        return tuple(tuple(j.grade for j in s if j.grade is not None) for s in self.judgements)

    def only(self, judge: str) -> JudgedTrajectory:
        """Returns the trajectory with the judgements of one judge."""
        rows = (tuple(each for each in step if each.by == judge) for step in self.judgements)
        return JudgedTrajectory(self.trajectory, tuple(rows), self.gains)

    def scores_by(self, judge: str) -> tuple[tuple[int, ...], ...]:
        """Returns S_ij of one judge, [steps][m]."""
        return self.only(judge).scores


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion with the advantage it trains on."""

    source: str
    """`trajectory/step` for a role that acts, `trajectory/step/j` for a judge, with j the index
    among the judgements that all judges gave the step."""
    completion: Completion
    advantage: float | tuple[float, ...]
    """One advantage for all tokens of the response, or one per token, [response]."""

    @property
    def mean_advantage(self) -> float:
        """The advantage, or its mean over the tokens of the response."""
        if isinstance(self.advantage, tuple):
            return sum(self.advantage) / len(self.advantage)
        return self.advantage

    @property
    def trains(self) -> bool:
        """Whether any advantage is not 0; otherwise the sample carries no signal."""
        return any(self.advantage) if isinstance(self.advantage, tuple) else self.advantage != 0
