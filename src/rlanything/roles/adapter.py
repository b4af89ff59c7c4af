"""The adapter: summarises failed rollouts and rewrites tasks to be harder or easier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

from rlanything.domains.base import Domain, DomainError, InvalidTask, Refused, RewriteRequest
from rlanything.domains.registry import NoTask, checked_task
from rlanything.engines.base import Sampling
from rlanything.plugins import PluginError
from rlanything.records import Completion, JudgedTrajectory, Messages, Task
from rlanything.roles.chat_model import ChatModel, ChatRequest
from rlanything.seeds import derive

STAGES: tuple[Refused, ...] = get_args(Refused)
"""Stages of checking an answer, in order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A try that gave no candidate."""

    stage: Refused
    text: str
    """The answer and the reason why it was refused."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The adapter's answer for one slot."""

    slot: str
    task: Task | None
    """The first valid candidate; None if no try gave one."""
    critics: tuple[str, ...]
    refused: tuple[Refusal, ...]
    """The tries before the candidate."""

    @property
    def reached(self) -> int:
        """The stage that its best try reached: 0 unreadable, 1 read, 2 valid, 3 a candidate."""
        if self.task is not None:
            return len(STAGES)
        return max((STAGES.index(refusal.stage) for refusal in self.refused), default=0)


class Adapter(Protocol):
    """Proposes harder and easier versions of tasks."""

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        """Returns one proposal per request, in their order; a candidate's id is
        `SLOT@ITERATION`."""
        ...


def propose(
    adapter: Adapter, requests: Sequence[RewriteRequest], iteration: int, seed: int
) -> list[Proposal]:
    """Returns an adapter's proposals. Raises `PluginError` unless there is one for each request, in
    order, and every candidate has the id `SLOT@ITERATION`."""
    proposals = adapter.propose(requests, iteration, seed)
    given = proposals if isinstance(proposals, Sequence) else ()
    slots = [getattr(proposal, "slot", None) for proposal in given]
    if slots != [request.slot for request in requests]:
        raise PluginError(
            f"adapter {type(adapter).__qualname__} returned {proposals!r:.80} for {len(requests)} "
            "requests: return a Proposal for each, in their order"
        )
    for proposal in given:
        # Rollouts are grouped by task id.
        task, due = proposal.task, f"{proposal.slot}@{iteration}"
        if task is not None and (not isinstance(task, Task) or task.id != due):
            raise PluginError(
                f"adapter {type(adapter).__qualname__} proposed {task!r:.80} for slot "
                f"{proposal.slot}: return None, or a Task with the id {due!r}"
            )
    return [*given]


class NullAdapter:
    """Proposes nothing; for domains that cannot rewrite their tasks."""

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        del iteration, seed
        return [Proposal(request.slot, None, (), ()) for request in requests]


class LLMAdapter:
    """A language model that writes critics of failed rollouts, in one stage or two, and then a new
    task."""

    def __init__(
        self,
        chat_model: ChatModel,
        domain: Domain,
        sampling: Sampling,
        tries: int,
        critics_per_task: int | None,
        rejected_by: Literal["all", "some"] = "all",
        critic_stages: Literal[1, 2] = 1,
        memory: int = 0,
    ) -> None:
        """`critics_per_task`: number of failed rollouts summarised per proposal; None: all.
        `rejected_by`: a step counts as bad if all, or some, of its m judgements are -1.
        `critic_stages`: with 2, bad steps are summarised first and the critic is written from these
        summaries; the domain needs staged critics. `memory`: number of a slot's latest
        candidates that are refused if they are proposed again."""
        self._chat_model = chat_model
        self._domain = domain
        self._sampling = sampling
        self._tries = tries
        self._critics_per_task = critics_per_task
        self._rejected_by: Literal["all", "some"] = rejected_by
        self._critic_stages = critic_stages
        self._memory = memory

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        """Returns one proposal per request. All tries are sampled at once; the first valid wins."""
        critics = self._summarize(requests, seed)
        chats: list[ChatRequest] = []
        for request, texts in zip(requests, critics, strict=True):
            messages = self._domain.adapter_prompt(replace(request, critics=texts))
            seeds = tuple(
                derive(seed, "goal", request.slot, attempt) for attempt in range(self._tries)
            )
            chats.append(ChatRequest(messages, seeds))
        answers = self._chat_model.answer(chats, self._sampling) if chats else []
        self._chat_model.release_cache()
        proposals = []
        for request, texts, group in zip(requests, critics, answers, strict=True):
            task, refused = self._first_valid(request, iteration, group)
            proposals.append(Proposal(request.slot, task, texts, refused))
        return proposals

    def _summarize(self, requests: Sequence[RewriteRequest], seed: int) -> list[tuple[str, ...]]:
        """Returns critics per request, from failed rollouts and the steps rejected in them."""
        owners: list[int] = []
        failed: list[JudgedTrajectory] = []
        for number, request in enumerate(requests):
            for judged in request.failed[: self._critics_per_task]:
                owners.append(number)
                failed.append(judged)
        seeds = [(derive(seed, "critic", judged.trajectory.id),) for judged in failed]
        chats = map(ChatRequest, self._critic_prompts(failed, seed), seeds)
        texts: list[list[str]] = [[] for _ in requests]
        for owner, text in zip(owners, self._texts(list(chats)), strict=True):
            if text is not None:
                texts[owner].append(text)
        return [tuple(critics) for critics in texts]

    def _critic_prompts(self, failed: Sequence[JudgedTrajectory], seed: int) -> list[Messages]:
        """Returns the chats that ask for critics; in two stages they hold summaries of steps."""
        rejected = [rejected_steps(judged, self._rejected_by) for judged in failed]
        if self._critic_stages == 1:
            return list(map(self._domain.critic_prompt, failed, rejected))
        chats = [
            ChatRequest(
                self._domain.step_critic_prompt(judged, i),
                (derive(seed, "step critic", judged.trajectory.id, i),),
            )
            for judged, steps in zip(failed, rejected, strict=True)
            for i in steps
        ]
        texts = iter(self._texts(chats))
        summaries = [{i: next(texts) for i in steps} for steps in rejected]
        return [
            self._domain.staged_critic_prompt(
                judged, {i: text for i, text in of_steps.items() if text is not None}
            )
            for judged, of_steps in zip(failed, summaries, strict=True)
        ]

    def _texts(self, chats: Sequence[ChatRequest]) -> list[str | None]:
        """Returns an answer to each chat; None: it was cut off, and may lack its conclusion."""
        answers = self._chat_model.answer(chats, self._sampling) if chats else []
        return [None if said.stop_reason == "length" else said.answer.strip() for [said] in answers]

    def _first_valid(
        self, request: RewriteRequest, iteration: int, group: Sequence[Completion]
    ) -> tuple[Task | None, tuple[Refusal, ...]]:
        refused: list[Refusal] = []
        place = f"{type(self._domain).__qualname__}.parse_candidate"
        task_id = f"{request.slot}@{iteration}"
        remembered = request.tried[-self._memory :] if self._memory else ()
        for said in group:
            answer = said.answer
            try:
                if said.stop_reason == "length":
                    raise InvalidTask("it was cut off: raise adapter.max_tokens", "unreadable")
                task = self._domain.parse_candidate(request.root, task_id, answer)
                task = replace(checked_task(place, task), id=task_id)
                if task.instruction == request.active.instruction:
                    raise InvalidTask("the slot's active task already asks for this")
                if task.instruction in remembered:
                    raise InvalidTask("the slot had this candidate before (adapter.memory)")
                if request.active != request.root:
                    # It must also differ from the currently active task.
                    self._domain.parse_candidate(request.active, task.id, answer)
            except InvalidTask as reason:
                refused.append(Refusal(reason.stage, f"{answer.strip()!r}: {reason}"))
            except NoTask as fault:
                refused.append(Refusal("unreadable", f"{answer.strip()!r}: {fault}"))
            except DomainError:
                raise
            except Exception as error:
                raise DomainError(
                    f"{place} failed for {task_id} and the answer {answer.strip()!r:.80} "
                    f"({type(error).__name__}: {error}): fix it, or raise InvalidTask if the "
                    "answer proposes no task"
                ) from error
            else:
                return task, tuple(refused)
        return None, tuple(refused)


def rejected_steps(judged: JudgedTrajectory, by: Literal["all", "some"]) -> list[int]:
    """Returns the steps of whose m judgements all, or some, are -1."""
    reject = all if by == "all" else any
    return [
        i
        for i, scores in enumerate(judged.scores)
        if scores and reject(score == -1 for score in scores)
    ]
