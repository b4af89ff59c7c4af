"""An engine that answers by script, and a small domain to ask it about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers.tiny import completion_of
from rlanything.domains.base import Domain, Environment, InvalidTask, RewriteRequest
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Message,
    Messages,
    Step,
    Task,
    Trajectory,
)


class ScriptedEngine:
    """Answers each (prompt text, seed) with what `script` says, and remembers what it was asked."""

    def __init__(self, model: LanguageModel, script: Callable[[str, int], str]) -> None:
        self._model = model
        self._script = script
        self.calls: list[list[Request]] = []

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        self.calls.append(list(requests))
        return [[self._answer(request, seed) for seed in request.seeds] for request in requests]

    def sync_weights(self) -> None:
        raise AssertionError("roles do not change weights")

    def release_cache(self) -> None: ...

    @property
    def prompts(self) -> list[str]:
        return [self._model.decode(request.prompt_ids) for call in self.calls for request in call]

    def _answer(self, request: Request, seed: int) -> Completion:
        text = self._script(self._model.decode(request.prompt_ids), seed)
        ids = (*self._model.encode(text), self._model.stop_ids[0])
        return completion_of(request.prompt_ids, ids, text=text)


class Counting(Domain):
    """A domain about counting: enough of one to ask every role a question."""

    action_marker = ">"

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        return [Task(f"{split}/{i}", f"count to {i}") for i in range(count)]

    def environment(self) -> Environment:
        raise NotImplementedError

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        messages = [Message("system", task.instruction)]
        for step in steps:
            messages += [Message("user", step.observation), Message("assistant", step.response)]
        return (*messages, Message("user", observation))

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        lines = [
            f"{step.observation}|{step.response}|{step.action}|{step.next_observation}"
            for step in steps
        ]
        return (Message("user", "\n".join((f"JUDGE {task.instruction}", *lines))),)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        return (Message("user", f"CRITIC {failed.trajectory.id} condemned {list(rejected)}"),)

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        return (
            Message(
                "user",
                f"ADAPT {request.root.instruction} {request.direction} because {request.critics}",
            ),
        )

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        word, _, number = completion.rpartition(" ")
        if word != "count to":
            raise InvalidTask("it does not say how far to count", "unreadable")
        if not number.isdigit():
            raise InvalidTask(f"{number} is not a number")
        return Task(task_id, completion)


def step(number: int, response: str = "so > one", action: str | None = "one") -> Step:
    completion = completion_of((9,), (10, 11, 1), text=response)
    return Step(f"saw {number}", completion, action, True, f"saw {number + 1}")


def trajectory(
    name: str, length: int, instruction: str = "count to 3", outcome: int = -1
) -> Trajectory:
    steps = tuple(step(i) for i in range(length))
    return Trajectory(name, Task(f"task of {name}", instruction), steps, outcome)


def judged(name: str, scores: Sequence[Sequence[int]], outcome: int = -1) -> JudgedTrajectory:
    """A trajectory, by default a failed one, with the given scores [steps][m]."""
    judgements = tuple(
        tuple(Judgement(completion_of((9,), (10,)), score) for score in row) for row in scores
    )
    return JudgedTrajectory(trajectory(name, len(scores), outcome=outcome), judgements)


def rejected(*texts: str) -> JudgedTrajectory:
    """A failed trajectory of two steps; judgements with these texts reject the second."""
    task = Task("t", "press the button")
    steps = tuple(
        Step(f"screen {i}", Completion.unsampled(f"so > click [{i}]"), f"click [{i}]", True, "s")
        for i in (1, 2)
    )
    against = tuple(Judgement(Completion.unsampled(text), -1) for text in texts)
    return JudgedTrajectory(Trajectory("e", task, steps, -1), ((), against) if texts else ())
