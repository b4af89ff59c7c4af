"""What a domain must offer: episodes to act in, and words to talk about them.

A new domain is one folder (or one small file, see `examples/`) and one registered name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from rlanything.records import Direction, JudgedTrajectory, Messages, Step, Task, Trajectory


class EpisodeError(RuntimeError):
    """An episode could not be played. Names the task.

    `deadly`: it did not only fail, its workers died or hung, one after the other."""

    def __init__(self, task_id: str, reason: str, deadly: bool = False) -> None:
        super().__init__(f"task {task_id}: {reason}")
        self.task_id = task_id
        self.reason = reason
        self.deadly = deadly

    def __reduce__(self) -> tuple[type[EpisodeError], tuple[str, str, bool]]:
        return (EpisodeError, (self.task_id, self.reason, self.deadly))


Refused: TypeAlias = Literal["unreadable", "invalid", "unsolvable"]
"""How far a proposed task came: nothing could be read, a rule was broken (it names what is not
there, asks for the old task, is held out), or nobody can solve it."""


class InvalidTask(ValueError):
    """A proposed task that must not become a candidate; the message is the reason.

    `stage`: how far it came."""

    def __init__(self, reason: str, stage: Refused = "invalid") -> None:
        super().__init__(reason)
        self.stage: Refused = stage


class DomainError(ValueError):
    """A domain cannot be set up as asked; the message is one line that ends with the remedy."""


class MissingData(DomainError):
    """The data that the options name are not on this machine. A plan can do without them."""


@dataclass(frozen=True, slots=True)
class Image:
    """A screenshot, as PNG."""

    data: bytes

    @property
    def name(self) -> str:
        """Decided by the content: equal screenshots are one file."""
        return f"{hashlib.sha256(self.data).hexdigest()[:32]}.png"


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows."""

    text: str
    choices: tuple[str, ...] | None = None
    """The actions possible now, where the environment can list them; None: any text."""
    image: Image | None = None
    """What it looks like, where the environment was asked for that."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of one response."""

    observation: Observation
    action: str | None
    """The action found in the response; None where there was none."""
    valid: bool
    """Whether that action was possible."""
    outcome: int | None = None
    """+1 or -1 once the episode is over, None before."""
    reward: float | None = None
    """With the outcome, what the environment measures beyond it."""


@dataclass(slots=True)
class Episode:
    """An episode as the one who acts in it sees it."""

    id: str
    task: Task
    observation: Observation
    """What the next response will answer."""
    steps: list[Step] = field(default_factory=list)


class Environment(Protocol):
    """One episode at a time; a worker may own many. Failures raise `EpisodeError`.

    Episodes are deterministic: the same task and the same responses give the same observations, so
    that an episode lost with its worker can be replayed.
    """

    def reset(self, task: Task) -> Observation: ...

    def step(self, response: str) -> StepResult: ...


class Domain(Protocol):
    """Everything the loop must know about a kind of task."""

    action_marker: str
    """The text that separates thought from action in a response: `thought <marker> action`."""

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        """`count` tasks of a split (`train`, `in_domain`, `ood`, ...), the same for the same seed.

        Raises `DomainError` if the split is unknown or empty."""
        ...

    def environment(self) -> Environment: ...

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """What the policy reads before it answers. Append-only prompts make every token cheap."""
        ...

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        """What the judge reads to judge the last of `steps` (its next observation included)."""
        ...

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        """Asks why this episode failed; all m judgements reject the `rejected` steps."""
        ...

    def adapter_prompt(self, root: Task, direction: Direction, critics: Sequence[str]) -> Messages:
        """Asks the adapter for a harder or easier version of the slot's root task."""
        ...

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """The proposed task under the given id. Raises `InvalidTask` with the reason and with how
        far the answer came."""
        ...

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        """What the rollouts of a rewritten task show to be wrong with it, so that it must not be
        accepted whatever its accuracy; None: nothing."""
        ...

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Ground-truth label (+1 / -1) of each step, or None where there is none."""
        ...

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """The next response of someone who knows everything, or None where there is nobody."""
        ...


@runtime_checkable
class UnitTestDomain(Domain, Protocol):
    """A domain of one-step episodes whose judge writes tests instead of scores: one a judgement, m
    a task, which all rollouts of the task share. `judge_prompt(task, ())` asks for one."""

    def run_tests(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[int]]:
        """[responses][tests]: +1 where the response passes what the judge wrote, -1 where it fails,
        0 for a test that cannot be read."""
        ...


@runtime_checkable
class StandInDomain(Domain, Protocol):
    """A domain that makes tasks like those of its data, for plans where these are not at hand."""

    def stand_ins(self, count: int) -> Sequence[Task]:
        """Always the same, at most `count`. Never for a run."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `rlanything doctor` looked at."""

    name: str
    ok: bool
    """False: something is broken. What is optional and missing is no error."""
    text: str
    """What is there; where something is wrong or missing, also what to do about it."""

    def line(self) -> str:
        return f"{'ok' if self.ok else 'error':<6}{self.name}: {self.text}"


@runtime_checkable
class CheckedDomain(Protocol):
    """A domain whose class can say whether what it needs beyond Python packages is here."""

    @staticmethod
    def checks() -> list[Finding]:
        """Looks at this machine, in a few seconds at most. `rlanything doctor` shows the findings
        of every registered domain."""
        ...
