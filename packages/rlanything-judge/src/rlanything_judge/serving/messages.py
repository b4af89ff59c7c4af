"""Requests and answers of a served judge, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.surrogates import whole_characters
from rlanything_judge.rollouts.lines import trajectory_id, trajectory_of

MOST_TRAJECTORIES, MOST_STEPS = 1024, 1024
UNKNOWN = -1
"""Placeholder outcome of an episode to be judged; a judge never sees outcomes."""


def _sendable(name: str) -> str:
    if whole_characters(name) != name:
        raise ValueError("half of a surrogate pair: the answer could not repeat this name")
    return name


EpisodeName: TypeAlias = tuple[str, str]
"""Task and trajectory id of an episode. The id alone is ambiguous: names may contain slashes."""
Name = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(_sendable)]


class StepText(BaseModel):
    """One step of an episode, as text."""

    observation: str
    """Observation before the agent's response."""
    response: str
    next_observation: str
    action: str | None = None
    valid: bool = True


class Episode(BaseModel):
    """An episode whose steps are to be judged."""

    task: Name
    trajectory: Name = "0"
    instruction: str
    """The agent's goal."""
    steps: Annotated[list[StepText], Field(min_length=1, max_length=MOST_STEPS, fail_fast=True)]
    kind: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
    """The task's data, for prompts that need it."""

    def to_trajectory(self) -> Trajectory:
        """Returns the episode as a judge reads it."""
        return trajectory_of(self.model_dump(), UNKNOWN)


class JudgeRequest(BaseModel):
    """Episodes that are to be judged."""

    trajectories: Annotated[
        list[Episode], Field(min_length=1, max_length=MOST_TRAJECTORIES, fail_fast=True)
    ]
    seed: int = 0
    """Judgements depend on the seed, on the names of task and trajectory, and on the texts."""


class StepScores(BaseModel):
    """The judgements of a step."""

    scores: list[int]
    """One score per judgement: 1, -1, or 0 if none could be parsed."""
    judgements: list[str]
    """Reasons and scores as the judge wrote them."""
    reward: float
    """The mean of the scores."""


class JudgedEpisode(BaseModel):
    """The judgements of an episode's steps."""

    task: str
    trajectory: str
    steps: list[StepScores]


class JudgeAnswer(BaseModel):
    """The judged episodes, in the order of the request."""

    trajectories: list[JudgedEpisode]

    @classmethod
    def of(cls, episodes: Sequence[Episode], judged: Sequence[JudgedTrajectory]) -> JudgeAnswer:
        """Returns the answer to a request for `episodes`."""
        return cls(
            trajectories=[
                JudgedEpisode(
                    task=episode.task, trajectory=episode.trajectory, steps=step_scores(result)
                )
                for episode, result in zip(episodes, judged, strict=True)
            ]
        )


def step_scores(judged: JudgedTrajectory) -> list[StepScores]:
    """Returns the judgements of each step."""
    return [
        StepScores(
            scores=[judgement.score for judgement in judgements],
            judgements=[judgement.completion.text for judgement in judgements],
            reward=sum(judgement.score for judgement in judgements) / max(1, len(judgements)),
        )
        for judgements in judged.judgements
    ]


class EpisodeOutcome(BaseModel):
    """The outcome of an episode that was judged before."""

    task: Name
    trajectory: Name = "0"
    outcome: Literal[1, -1]
    """Won or lost."""

    @property
    def episode(self) -> EpisodeName:
        """The name under which the judged episode is remembered."""
        return self.task, trajectory_id(self.task, self.trajectory)


class OutcomesRequest(BaseModel):
    """Outcomes of episodes that were judged before, in any order, each once."""

    outcomes: Annotated[
        list[EpisodeOutcome], Field(min_length=1, max_length=MOST_TRAJECTORIES, fail_fast=True)
    ]

    @model_validator(mode="after")
    def _no_contradictions(self) -> OutcomesRequest:
        self.by_episode()
        return self

    def by_episode(self) -> dict[EpisodeName, int]:
        """Returns the outcomes by episode. Raises ValueError for two that contradict."""
        outcomes: dict[EpisodeName, int] = {}
        for ended in self.outcomes:
            if outcomes.setdefault(ended.episode, ended.outcome) != ended.outcome:
                raise ValueError(
                    f"task {ended.task!r:.80}, trajectory {ended.trajectory!r:.80} is both won and "
                    "lost; report one outcome"
                )
        return outcomes


class OutcomesAnswer(BaseModel):
    """The judge's learning so far."""

    unknown: list[str]
    """`task/trajectory` of episodes that were not judged here, or already have an outcome."""
    waiting: int
    """Number of episodes with an outcome, for the next update to learn from."""
    updates: int
    """Number of updates of the judge so far."""


class Health(BaseModel):
    """The work that a service has done so far."""

    judge: str
    trajectories: int
    judgements: int
    unreadable: int
    """Number of judgements without a score."""
    waiting: int
    """Number of episodes still to be judged."""
    updates: int | None
    """Number of updates of the judge; null: it does not learn."""
