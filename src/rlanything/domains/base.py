"""The domain protocol: tasks, episodes to act in, and the prompts about them.

A new domain is one folder (or one small file, see `examples/`) and one registered name.
`TextDomain` in `domains/text.py` has defaults for everything but tasks and episodes. Its `Options`
declare what a recipe may set, its `capabilities` what it offers beyond tasks and prompts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, runtime_checkable

from pydantic import ValidationError

from rlanything.config.engines import ConfigSection
from rlanything.config.problems import first_problem
from rlanything.config.sections import File as File
from rlanything.config.trust import CodeName as CodeName
from rlanything.config.trust import CommandWords as CommandWords
from rlanything.config.trust import SecretVariable as SecretVariable
from rlanything.config.trust import Trust
from rlanything.domains.findings import Finding
from rlanything.domains.requests import ModelRequest, Reply
from rlanything.records import Direction, JudgedTrajectory, Messages, Step, Task, Trajectory


class EpisodeError(RuntimeError):
    """A fault ended an episode; the message names the task.

    `deadly`: several workers in a row died or hung on this episode. `lost`: a response caused it,
    so the episode counts as lost. Otherwise the policy is not to blame and the episode is missing:
    it does not train, and it widens the intervals. `masked`: it went missing after its first
    response; rollouts set this, domains do not."""

    def __init__(
        self,
        task_id: str,
        reason: str,
        deadly: bool = False,
        lost: bool = False,
        masked: bool = False,
    ) -> None:
        super().__init__(f"task {task_id}: {reason}")
        self.task_id = task_id
        self.reason = reason
        self.deadly = deadly
        self.lost = lost
        self.masked = masked

    def __reduce__(self) -> tuple[type[EpisodeError], tuple[str, str, bool, bool, bool]]:
        return (type(self), (self.task_id, self.reason, self.deadly, self.lost, self.masked))


class UnexplainedError(EpisodeError):
    """An error of `step` that does not say whether the response caused it. Made by the worker,
    which runs as `__main__`, and explained by the pool."""


VALUE_QUESTION = (
    "How likely is the task still to be completed from here? Reason, then write a grade from "
    "\\boxed{0} (impossible) to \\boxed{10} (certain)."
)

Refused: TypeAlias = Literal["unreadable", "invalid", "unsolvable"]
"""The stage at which a proposed task was refused: not readable, breaks a rule (names unknown
things, repeats the old task, is held out), or no expert can solve it."""


class InvalidTask(ValueError):
    """A proposed task that must not become a candidate; the message is the reason.

    `stage`: the stage at which it was refused."""

    def __init__(self, reason: str, stage: Refused = "invalid") -> None:
        super().__init__(reason)
        self.stage: Refused = stage


class DomainError(ValueError):
    """A domain cannot be set up as requested; the message is one line that ends with the remedy."""


class MissingData(DomainError):
    """Data that the options name are missing on this machine. `rlanything plan` works without
    them."""


@dataclass(frozen=True, slots=True)
class Image:
    """A screenshot as PNG."""

    data: bytes

    @property
    def name(self) -> str:
        """Returns the file name, a hash of the content: equal screenshots are one file."""
        return f"{hashlib.sha256(self.data).hexdigest()[:32]}.png"


@dataclass(frozen=True, slots=True)
class Observation:
    """The text, and possibly choices and an image, that the environment shows to the policy."""

    text: str
    choices: tuple[str, ...] | None = None
    """The actions possible now, if the environment can list them; None: any text."""
    image: Image | None = None
    """A screenshot, if the environment was asked for one."""
    request: ModelRequest | None = None
    """The chat to answer, if the agent is a program that writes its own; None: the domain's
    `policy_prompt`."""
    player: str = ""
    """Role that has to answer; "" for the first role that acts."""

    @property
    def images(self) -> Mapping[str, bytes]:
        """Returns the files of all images of the observation, by name."""
        own = {} if self.image is None else {self.image.name: self.image.data}
        return own if self.request is None else {**own, **self.request.images}

    @property
    def image_name(self) -> str | None:
        """The screenshot's file name; None without one."""
        return None if self.image is None else self.image.name


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one response."""

    observation: Observation
    action: str | None
    """The action found in the response; None if it has none."""
    valid: bool
    """Whether that action was possible."""
    outcome: int | None = None
    """+1 or -1 once the episode is over, None before."""
    reward: float | None = None
    """A measure beyond the outcome, such as the share of tests passed; None: none. The last one
    counts: return it on every step if truncated episodes should receive it."""
    others: Mapping[str, int] = field(default_factory=dict)
    """With the outcome, that of each other player by role; a missing player has lost."""

    def __post_init__(self) -> None:
        for outcome in (1 if self.outcome is None else self.outcome, *self.others.values()):
            if outcome not in (1, -1):
                raise ValueError(
                    f"an outcome is 1 (won) or -1 (lost), not {outcome!r}: the domain decides "
                    "what a draw or a part of the way is worth"
                )
        # Domains may compute with numpy numbers, which neither the store nor JSON accepts.
        object.__setattr__(self, "valid", bool(self.valid))
        if self.outcome is not None:
            object.__setattr__(self, "outcome", int(self.outcome))
        if self.reward is not None:
            object.__setattr__(self, "reward", float(self.reward))
            if not isfinite(self.reward):
                raise ValueError(f"a reward is a finite number or None, not {self.reward}")


@dataclass(slots=True)
class Episode:
    """An episode as the agent that acts in it sees it."""

    id: str
    task: Task
    observation: Observation
    """The observation that the next response answers."""
    steps: list[Step] = field(default_factory=list)


class Environment(Protocol):
    """An environment plays one episode at a time; a worker may own many environments.

    Episodes must be deterministic: the same task and the same responses give the same observations,
    so that an episode can be replayed after a fault.

    An error that is surely not the policy's is an `EpisodeError`, which names the task; one that
    surely is has `lost=True`. After any other error of `step`, and after a worker died or hung, the
    episode is replayed in a fresh environment. It is lost if the fault comes back at the same
    response, and masked if the replay does not get that far."""

    def reset(self, task: Task) -> Observation:
        """Starts an episode of `task` and returns its first observation."""
        ...

    def step(self, response: str) -> StepResult:
        """Plays the action in a response of the policy and returns the result. For a response
        without a possible action it has `valid=False`, and its observation says why. Not called
        after an outcome."""
        ...


@runtime_checkable
class ClosableEnvironment(Environment, Protocol):
    """An environment with resources to release: processes, connections, windows."""

    def close(self) -> None:
        """Releases them. Called after the last episode, and after a fault."""
        ...


@runtime_checkable
class AgentEnvironment(Environment, Protocol):
    """An environment with its own agent, whose observations have a `request`. It receives whole
    replies; `step` is used if only text is available."""

    def take(self, reply: Reply) -> None:
        """Passes an answer on without waiting, so that the programs of several episodes run at the
        same time. May be left out before `reply`."""
        ...

    def reply(self, reply: Reply) -> StepResult:
        """Passes an answer on, unless `take` did, and returns the result: another request or the
        outcome."""
        ...


Use: TypeAlias = Literal["train", "evaluation", "both"]
"""The use that data are prepared for; `both` holds some out for evaluation."""


class DomainOptions(ConfigSection):
    """Base class of a domain's `Options`: a field with a type and a docstring for each key that a
    recipe may have under `domain.options`. Other keys are errors.

    Types say what a key may do: `CodeName` is imported, `CommandWords` are run, the value of a
    `SecretVariable` is sent, each only if the user allows it; a `File` is first looked up next to
    the recipe."""

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Self:
        """Returns the options given to a domain. Raises `DomainError` with the key and the remedy.
        Code and secrets are allowed here: those of a recipe were checked before."""
        try:
            return cls.model_validate({**options}, context=Trust(code=True, secrets=True))
        except ValidationError as error:
            raise DomainError(first_problem(error, options, "domain", "options")) from None


class EndpointOptions(ConfigSection):
    """An OpenAI-compatible endpoint, as an option of a domain."""

    url: str
    """Base address of the API, such as `http://127.0.0.1:8000/v1`."""
    key_variable: SecretVariable | None = None
    """The environment variable that holds the key; None if no key is needed."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a domain beyond tasks, episodes and prompts."""

    judge: Literal["steps", "tests"] = "steps"
    """Output of its judge: a score for each step, or m unit tests of programs per task, shared by
    all rollouts of the task. Episodes then have one step, `judge_prompt(task, ())` asks for a test,
    and `run_tests` runs them."""
    rewrites_tasks: bool = False
    """Whether a language model can rewrite tasks; `parse_candidate` reads its answers."""
    shows_images: bool = False
    """Whether policy and judge see screenshots; otherwise only the report shows them."""
    screen_size: tuple[int, int] | None = None
    """Width and height of a screenshot in pixels, for plans; None if unknown before the first
    one."""
    staged_critics: bool = False
    """Whether critics can be written in two stages, as in the paper for screens: a summary of each
    rejected step, then a critic of the episode (`adapter.critic_stages: 2`)."""
    repairs_programs: bool = False
    """Whether programs can be observed and repaired (`test_outputs`, `repair_prompt`), for
    selection methods with more than one answer per task (`rlanything eval --select`)."""
    offers_tools: bool = False
    """Whether its programs may offer functions to the policy."""
    players: tuple[str, ...] = ()
    """Roles that act besides the recipe's first, named by `Observation.player`. All get
    `policy_prompt`, each with its own steps."""
    whole_splits: tuple[str, ...] = ()
    """Splits that `rlanything eval` plays whole unless it is given a number of episodes."""


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """A slot whose task should change, with the evidence for the adapter."""

    slot: str
    root: Task
    active: Task
    direction: Direction
    rollouts: tuple[JudgedTrajectory, ...]
    """All judged episodes of the active task in this iteration; may be empty."""
    critics: tuple[str, ...] = ()
    """Critics' texts on why failed episodes failed; may be empty."""
    tried: tuple[str, ...] = ()
    """Instructions of the slot's earlier candidates, accepted or rejected; the latest last."""

    @classmethod
    def of(
        cls,
        root: Task,
        direction: Direction,
        critics: Sequence[str] = (),
        rollouts: Sequence[JudgedTrajectory] = (),
    ) -> RewriteRequest:
        """Returns a request without a slot; the active task is that of the rollouts."""
        active = rollouts[0].trajectory.task if rollouts else root
        return cls(root.id, root, active, direction, tuple(rollouts), tuple(critics))

    @property
    def failed(self) -> tuple[JudgedTrajectory, ...]:
        return tuple(member for member in self.rollouts if member.trajectory.outcome == -1)


class Domain(ABC):
    """A kind of task, with everything the loop needs to know about it."""

    Options: ClassVar[type[DomainOptions]] = DomainOptions
    """Declares the keys that a recipe may have under `domain.options`."""
    action_marker: str
    """The text that separates thought from action in a response: `thought <marker> action`."""

    def __init__(self, **options: Any) -> None:
        """Reads the options that the class declares. Raises `DomainError` for others."""
        self.options: Any = self.Options.read(options)

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities; by default, tasks can be rewritten if the class can parse
        them."""
        reads = type(self).parse_candidate is not Domain.parse_candidate
        return Capabilities(rewrites_tasks=reads)

    @abstractmethod
    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        """Returns `count` tasks of a split (`train`, `in_domain`, `ood`, ...), the same for the
        same seed.

        Every task has a unique id, the instruction that the policy reads, and data that survive
        JSON. Fewer tasks are returned only if the split has no more. Raises `DomainError` if the
        split is unknown or empty."""
        ...

    @abstractmethod
    def environment(self) -> Environment:
        """Returns a new environment, ready for `reset`. Workers call it in their own processes."""
        ...

    @abstractmethod
    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns the chat that the policy answers with its next response.

        `steps`: the episode so far; `observation`: the current one, to which the response reacts. A
        prompt that only appends to that of the step before lets the engine reuse its cache: every
        token is computed once."""
        ...

    @abstractmethod
    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        r"""Returns the chat that asks the judge about the last of `steps`, whose next observation
        is included. The answer must end in `\boxed{1}` or `\boxed{-1}`."""
        ...

    def value_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        r"""Returns the chat that asks a judge of value about the state after `steps`. The answer
        must end in a grade from `\boxed{0}` to `\boxed{10}`. By default, the judge's prompt with
        another question after its own."""
        *before, last = self.judge_prompt(task, steps)
        content = f"{last.content}\nDo not answer that. {VALUE_QUESTION}"
        return (*before, replace(last, content=content))

    @abstractmethod
    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        """Returns the chat that asks why the episode failed. `rejected`: indices of the steps that
        the judge scored -1; the reasons are in the judgements' texts, if there are any."""
        ...

    @abstractmethod
    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        """Returns the chat that asks the adapter for a harder or easier version of a slot's root
        task."""
        ...

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Returns the task that the adapter's answer proposes, under the given id.

        Raises `InvalidTask` with the reason and the stage, also for a task that is unchanged or
        that no expert can solve."""
        del root, task_id, completion
        raise InvalidTask("this domain does not rewrite tasks", "unreadable")

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        """Returns the defect of a rewritten task that its rollouts reveal; None without one.

        A candidate with a defect is rejected at any accuracy."""
        del task, trajectories
        return None

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns the ground-truth label of each step (+1 or -1, 0 if unknown); None if the domain
        has none."""
        del task, steps
        return None

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the next response of an expert with full knowledge, after `steps`; None without
        an expert."""
        del task, steps
        return None

    def stand_ins(self, count: int) -> Sequence[Task]:
        """Returns at most `count` synthetic tasks like those of the domain's data, always the same,
        for plans without the data; empty if it has none. Never used in a run."""
        del count
        return ()

    def step_critic_prompt(self, failed: JudgedTrajectory, index: int) -> Messages:
        """Returns the chat that asks for a summary of the judgements' objections to a step. Called
        if `staged_critics`, like the next method."""
        raise NotImplementedError

    def staged_critic_prompt(
        self, failed: JudgedTrajectory, summaries: Mapping[int, str]
    ) -> Messages:
        """Returns the chat that asks why the episode failed. `summaries`: summaries of its rejected
        steps, by step index."""
        raise NotImplementedError

    def run_tests(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[int]]:
        """Returns scores [responses][tests]: +1 if the response passes the judge's test, -1 if it
        fails, 0 for a test that cannot be read or run; [responses][0] if tests do not apply to the
        task. Called if `judge` is "tests"."""
        raise NotImplementedError

    def test_outputs(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[str]]:
        """Returns what the program in each response prints on the input of each test, [responses]
        [tests], white space normalised; how it ended, in brackets, if it failed; "" for an
        unreadable test. Called if `repairs_programs`, like the next method."""
        raise NotImplementedError

    def repair_prompt(self, task: Task, response: str, test: str, output: str) -> Messages:
        """Returns the chat that asks the policy to replace the program in `response`, which printed
        `output` (see `test_outputs`) on the input of `test`."""
        raise NotImplementedError

    @staticmethod
    def checks() -> list[Finding]:
        """Checks this machine for requirements beyond Python packages, in a few seconds at most.
        `rlanything doctor` shows the findings of every registered domain."""
        return []

    @staticmethod
    def prepare(
        source: Path, folder: Path, use: Use | None, on_bytes: Callable[[int], None]
    ) -> list[str]:
        """Converts a published file into new files in `folder` that options can name, and returns
        lines that say what was written and left out. `use`: None infers it from the file's name;
        `on_bytes`: called with the bytes read so far. Raises `DomainError`."""
        raise NotImplementedError
