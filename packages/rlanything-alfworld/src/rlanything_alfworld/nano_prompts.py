"""AlfWorld's prompts for the nano models: few words, and a line of memory instead of a long
history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlanything.domains.base import RewriteRequest
from rlanything.domains.templates import CRITIC_STEP, Templates, rejecters
from rlanything.records import JudgedTrajectory, Message, Messages, Step, Task
from rlanything_alfworld.player_memory import PlayerMemory, condense
from rlanything_alfworld.scene_goals import scene_inventory
from rlanything_alfworld.tasks import load_game

PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"task", "observation", "memory"}),
    "turn": frozenset({"observation", "memory"}),
    "judge": frozenset({"task", "observation", "memory"}),
    "judge_step": frozenset({"response", "observation", "memory"}),
    "judge_question": frozenset(),
    "value_question": frozenset(),
    "critic": frozenset({"task", "steps", "memory", "judges"}),
    "critic_step": CRITIC_STEP,
    "adapter": frozenset({"direction", "goal", "objects", "places", "critics"}),
}


class NanoPrompts:
    """Prompts of a line or two, filled from `prompts/` or from a user's folder."""

    def __init__(self, folder: Path | None, first_of_kind: bool = False) -> None:
        """`first_of_kind`: see `PlayerMemory`."""
        self._first_of_kind = first_of_kind
        self._templates = Templates("rlanything_alfworld", PLACEHOLDERS, folder)

    def policy(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns a chat that only grows: each turn is one observation and what to remember."""
        first = steps[0].observation if steps else observation
        memory = self._memory(task, first)
        opening = self._templates.render(
            "policy", task=task.instruction, observation=condense(first), memory=memory.line()
        )
        messages = [Message("user", opening)]
        for step in steps:
            memory.read(step.next_observation)
            turn = self._templates.render(
                "turn", observation=condense(step.next_observation), memory=memory.line()
            )
            messages += [Message("assistant", step.response), Message("user", turn)]
        return tuple(messages)

    def judge(
        self, task: Task, steps: Sequence[Step], question: str = "judge_question"
    ) -> Messages:
        """Returns one message: the episode so far, with its last step to be judged, or the template
        of another question about it."""
        memory = self._memory(task, steps[0].observation)
        parts = [
            self._templates.render(
                "judge",
                task=task.instruction,
                observation=condense(steps[0].observation),
                memory=memory.line(),
            )
        ]
        for step in steps:
            memory.read(step.next_observation)
            parts.append(
                self._templates.render(
                    "judge_step",
                    response=step.response,
                    observation=condense(step.next_observation),
                    # A list with one unseen place of each kind does not tell which were seen.
                    memory=memory.line(tell_again=self._first_of_kind),
                )
            )
        parts.append(self._templates.render(question))
        return (Message("user", "".join(parts)),)

    def critic(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        trajectory = failed.trajectory
        memory = self._memory(trajectory.task, trajectory.steps[0].observation)
        for step in trajectory.steps:
            memory.read(step.next_observation)
        text = self._templates.render(
            "critic",
            task=trajectory.task.instruction,
            judges=rejecters(failed, rejected),
            steps=self._templates.critic_steps(failed, rejected),
            memory=memory.line(),
        )
        return (Message("user", text),)

    def adapter(self, request: RewriteRequest) -> Messages:
        inventory = scene_inventory(load_game(request.root.data))
        text = self._templates.render(
            "adapter",
            direction=request.direction,
            goal=request.root.instruction,
            objects=", ".join(
                f"{kind} {len(places)} ({places[0]})" for kind, places in inventory.objects.items()
            ),
            places=", ".join(f"{kind} {count}" for kind, count in inventory.receptacles.items()),
            critics=" ".join(request.critics) or "none",
        )
        return (Message("user", text),)

    def _memory(self, task: Task, first_observation: str) -> PlayerMemory:
        return PlayerMemory.at_start(task.instruction, first_observation, self._first_of_kind)
