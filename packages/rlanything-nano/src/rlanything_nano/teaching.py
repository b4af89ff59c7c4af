"""The protocols by which a domain teaches its own nano models.

`rlanything nano build --domain NAME` calls the domain class's `nano_teacher`. A teacher has a plan
(sizes, epochs, ...) and writes the examples from which policy, judge and adapter learn before the
loop begins. A domain without a teacher is taught from its own `expert`, `oracle` and `rewrites`
(`domains/expert_teacher.py`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from rlanything.domains.base import Episode, Image
from rlanything.records import Completion, Direction, Step, Task, Trajectory
from rlanything_nano.sft import PACK_TOKENS


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The settings of a build for a domain whose judge scores steps. The models depend on nothing
    else."""

    seed: int = 0
    """Set by the build."""
    domain: str = ""
    """The name under which `load_domain` finds the domain. Set by the build."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the domain."""
    decoding: Literal["choices", "free"] = "choices"
    response_tokens: int = 32
    thought_tokens: int = 12
    judgement_tokens: int = 24
    proposal_tokens: int = 48
    max_steps: int = 16
    games: int = 2200
    """Tasks for demonstrations and for the policy's rollouts."""
    demonstrations_per_game: int = 2
    parallel_episodes: int = 128
    """Episodes played at the same time."""
    lockstep: bool = True
    """Whether all of them wait for the slowest; otherwise rounding depends on timing."""
    together: int = 1
    """Episodes whose samples share a pack, and so the instructions at the beginning of all
    prompts."""
    pack_tokens: int = PACK_TOKENS
    """Distinct tokens of a pack; an episode that is longer repeats its beginning in each of its
    packs."""
    copying_updates: int = 0
    """Updates of the copying exercise before the policy's own training, for domains with random
    words."""
    exercises: int = 0
    """Tasks from which a policy first learns responses that depend only on the task, and keeps
    learning them (see `DrillingTeacher`)."""
    exercise_epochs: int = 12
    slip: float | None = 0.3
    """Probability that the demonstrator takes an arbitrary action instead of a good one. None: the
    highest at which it still wins two thirds as often as without slips."""
    policy_epochs: int = 2
    judged_games: int = 1000
    """Games for teaching the judge; the policy plays each twice."""
    judged_slip: float = 0.0
    """Slip of a demonstrator that plays the judged games once more, so that the judge also meets
    mistakes that the policy seldom makes. 0: it does not play them."""
    label_noise: float = 0.3
    """Share of the oracle's labels that are flipped before the judge learns from them."""
    judge_epochs: int = 2
    valued_games: int = 250
    """Games for teaching a judge of value, of the judged ones from the first; the policy plays each
    twice."""
    valued_states: int = 5
    """Number of states of each rollout for teaching a judge of value, besides the last."""
    continuations: int = 4
    """Number of times that the policy continues from each of them; the share won is its grade."""
    value_epochs: int = 4
    criticised_games: int = 400
    """Number of the judged games, from the first, on which the adapter learns to explain
    failures."""
    adapter_games: int = 7000
    adapter_epochs: int = 2
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    vocabulary: int = 1024
    """Upper limit; byte-pair merging stops once every word is one token."""
    spaces_apart: bool = False
    """Whether the tokenizer makes every space a separate token (see `train_tokenizer`)."""
    learning_rate: float = 2e-3
    sight: bool = False
    """Whether policy and judge see screenshots, the policy only the current one."""
    scenes: int = 0
    """Screenshots on which a vision model learns to look (see `nano.looking`)."""
    reading_updates: int = 0
    """Updates in which its decoder learns to find things by their words."""
    tower_updates: int = 0
    """Updates in which its tower learns to describe things and their positions."""
    episodes: int = 480
    """Episodes of each measurement."""


@dataclass(frozen=True, slots=True)
class UnitTestPlan:
    """The settings of a build for a domain whose judge writes tests. The models depend on nothing
    else."""

    seed: int = 0
    """Set by the build."""
    domain: str = ""
    """The name under which `load_domain` finds the domain. Set by the build."""
    difficulty: tuple[int, int] = (1, 4)
    """The domain's option of that name: [least, most]."""
    problems: int = 15_000
    """Problems of the training split, and as many drills, with one solution each."""
    tests: int = 2
    """Tests written for each problem."""
    slip: float = 0.5
    """Share of the solutions with a mistake."""
    error: float = 0.4
    """Share of the tests that are worked out wrongly."""
    epochs: int = 2
    together: int = 4
    """Problems whose samples share a pack, and so the instructions at the beginning of all
    prompts."""
    adapter_problems: int = 6_000
    rewritten_tests: int = 2
    """Number of tests in every problem that the adapter learns to write; the domain's option of
    that name."""
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    vocabulary: int = 1024
    """Upper limit; byte-pair merging stops once every word is one token."""
    learning_rate: float = 2e-3
    episodes: int = 400
    """Episodes of each measurement."""


@dataclass(frozen=True, slots=True)
class SeenThing:
    """Something visible on a screenshot."""

    words: tuple[str, ...]
    """Its words in tasks, one by one: `red`, `circle`."""
    point: tuple[int, int]
    """The point where to click it, x and y in pixels."""
    box: tuple[float, float, float, float]
    """Its left, top, right and bottom in pixels."""


@dataclass(frozen=True, slots=True)
class SeenScene:
    """A screenshot with everything visible on it, and possible tasks about it."""

    image: Image
    things: tuple[SeenThing, ...]
    asked: tuple[tuple[Task, str], ...]
    """Tasks that could begin with it, each with the right first response."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A step whose response depends only on the task and the actions before it, not on the
    screen."""

    task: Task
    steps: tuple[Step, ...]
    """Steps before it; their screens are not shown."""
    response: str


class DemonstratingAgent(Protocol):
    """An agent whose responses have text and no tokens (`Completion.unsampled`)."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        """Returns one response for each episode, determined by the episode and its seed."""
        ...

    def release_cache(self) -> None:
        """Drops everything cached about the episodes, which have all ended."""
        ...


class Demonstrator:
    """A `DemonstratingAgent` that answers each episode separately."""

    def __init__(self, slip: float) -> None:
        """`slip`: the probability of a wrong response."""
        self._slip = slip

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        return [
            Completion.unsampled(self.answer(episode, random.Random(seed)))
            for episode, seed in zip(episodes, seeds, strict=True)
        ]

    def release_cache(self) -> None:
        """Does nothing; override it to drop cached data about the episodes."""

    def answer(self, episode: Episode, rng: random.Random) -> str:
        """Returns the next response in an episode; all randomness comes from `rng`."""
        raise NotImplementedError


@runtime_checkable
class StepTeacher(Protocol):
    """The teacher of a domain whose judge scores steps."""

    plan: StepPlan

    def demonstrator(self, slip: float) -> DemonstratingAgent:
        """Returns the agent that the policy imitates. With probability `slip` it takes an arbitrary
        action, so that reinforcement learning has something to improve."""
        ...

    def interchangeable(self) -> list[list[str]]:
        """Returns groups of words that may be swapped with each other throughout an episode."""
        ...

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        """Returns the judge's text on the last of `steps`, ending in `score` (+1 or -1) in the
        format of the domain's judge prompt."""
        ...

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        """Returns a text on why the episode failed; `rejected`: indices of its bad steps."""
        ...

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        """Returns an answer to the adapter's prompt that `parse_candidate` accepts, or None if the
        root task has nothing harder or easier."""
        ...


@runtime_checkable
class ValueTeacher(StepTeacher, Protocol):
    """The teacher of a domain in which a judge can also learn to value states."""

    def valuation(self, task: Task, steps: Sequence[Step], grade: int) -> str:
        """Returns the text of a judge of value on the state after `steps`, ending in the boxed
        `grade`, 0 to 10."""
        ...


@runtime_checkable
class FailureTeacher(StepTeacher, Protocol):
    """The teacher of a domain in which an adapter learns to rewrite a task by how its own rollouts
    failed. Other adapters learn rewrites that do not depend on the critics they read."""

    def revision(
        self, root: Task, direction: Direction, failed: Sequence[Trajectory], rng: random.Random
    ) -> str | None:
        """Returns an answer to the adapter's prompt with critics of the `failed` rollouts of the
        root task, at least one; None if they suggest nothing."""
        ...


@runtime_checkable
class SeeingTeacher(StepTeacher, Protocol):
    """The teacher of a domain with vision models."""

    link: str
    """Text in a response between the words for a thing and its point."""

    def scene(self, task: Task, rng: random.Random) -> SeenScene:
        """Returns the first screen of a task. Raises `EpisodeError` if it cannot be started."""
        ...


@runtime_checkable
class DrillingTeacher(StepTeacher, Protocol):
    """The teacher of a domain in whose tasks a tiny model hardly finds a name: it shows such steps
    of far more tasks than are demonstrated."""

    def exercises(self, tasks: Sequence[Task], rng: random.Random) -> list[Exercise]:
        """Returns the steps of the tasks that can be learned without a screen."""
        ...


@runtime_checkable
class UnitTestTeacher(Protocol):
    """The teacher of a domain whose judge writes tests."""

    plan: UnitTestPlan

    def drills(self, count: int, difficulty: tuple[int, int], seed: int) -> list[Task]:
        """Returns `count` more tasks to learn from, in addition to the training split."""
        ...

    def solution(self, task: Task, rng: random.Random, slip: float) -> str:
        """Returns a policy's response that solves the task; with probability `slip`, one that does
        not."""
        ...

    def unit_test(self, task: Task, rng: random.Random, error: float) -> str:
        """Returns a judge's response with a correct test; with probability `error`, a wrong one."""
        ...

    def critic(self, task: Task, response: str, summary: str) -> str:
        """Returns a text on why `response` fails; `summary`: the environment's report."""
        ...

    def proposal(
        self, root: Task, direction: Direction, rng: random.Random, tests: int
    ) -> str | None:
        """Returns an answer to the adapter's prompt with this many tests, or None if the root task
        has nothing harder or easier."""
        ...


@runtime_checkable
class TaughtDomain(Protocol):
    """A domain class with a teacher for its nano models."""

    @staticmethod
    def nano_teacher() -> StepTeacher | UnitTestTeacher:
        """Returns the teacher. It is a static method because the teacher's plan has the domain's
        options."""
        ...


@runtime_checkable
class RewritableDomain(Protocol):
    """A domain that knows how its tasks can be rewritten, for its adapter to learn from."""

    def rewrites(self, root: Task, direction: Direction) -> Sequence[str]:
        """Returns answers to the adapter's prompt (that `parse_candidate` reads) which make a task
        harder or easier; empty if there are none."""
        ...
