"""The base of domains whose observations are screens: web pages and desktops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from rlanything.domains.base import Capabilities, Domain, RewriteRequest
from rlanything.domains.templates import CRITIC_STEP, Templates, reasons, rejecters
from rlanything.records import JudgedTrajectory, Message, Messages, Step, Task

Observed: TypeAlias = Literal["text", "image", "both"]
"""How models see a screen: its text, a screenshot of it, or both."""
LOOK = "See the screenshot."
"""Replaces the text of a screen if only a screenshot is shown."""

_PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"task", "screen", "done", "usage"}),
    "judge": frozenset({"task", "screen", "done", "response", "after"}),
    "critic": frozenset({"task", "steps", "screen", "judges"}),
    "critic_step": CRITIC_STEP,
    "step_critic": frozenset({"task", "screen", "done", "response", "after", "judgements"}),
    "staged_critic": frozenset({"task", "steps", "screen"}),
}


class ScreenDomain(Domain):
    """A domain whose observations are screens, each complete in itself: its prompts, with critics
    in two stages, and what its models see.

    `package`: the domain's package, with a folder `prompts`. `adapter`: placeholders specific to
    the domain. `folder`: the user's templates, or None. Raises `DomainError` like `Templates`, and
    for an invalid `observe`."""

    def __init__(
        self, package: str, adapter: frozenset[str], folder: Path | None, observe: Observed
    ) -> None:
        self._shows_images = observe != "text"
        self._shows_text = observe != "image"
        own = {"adapter": adapter | {"direction", "task", "critics"}}
        self._templates = Templates(package, {**_PLACEHOLDERS, **own}, folder)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, shows_images=self._shows_images, staged_critics=True)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        """Returns the last step with the screens before and after it."""
        return self._message("judge", **_step(task, steps))

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        """Returns every step, the rejected ones marked, and the last screen before the end."""
        trajectory = failed.trajectory
        return self._message(
            "critic",
            task=trajectory.task.instruction,
            judges=rejecters(failed, rejected),
            steps=self._templates.critic_steps(failed, rejected),
            screen=trajectory.steps[-1].observation,
        )

    def step_critic_prompt(self, failed: JudgedTrajectory, index: int) -> Messages:
        """Returns a step as the judge saw it, with the objections of its judgements."""
        trajectory = failed.trajectory
        seen = _step(trajectory.task, trajectory.steps[: index + 1])
        return self._message("step_critic", **seen, judgements=reasons(failed, index) or "nothing")

    def staged_critic_prompt(
        self, failed: JudgedTrajectory, summaries: Mapping[int, str]
    ) -> Messages:
        """Returns the actions with the summaries of the rejected ones, and the last screen before
        the end."""
        trajectory = failed.trajectory
        lines = []
        for i, step in enumerate(trajectory.steps):
            summary = f": {summaries[i]}" if i in summaries else ""
            lines.append(f"\n{i + 1}. {step.action or 'nothing'}{summary}")
        return self._message(
            "staged_critic",
            task=trajectory.task.instruction,
            steps="".join(lines),
            screen=trajectory.steps[-1].observation,
        )

    def _ask_policy(self, task: Task, steps: Sequence[Step], screen: str, usage: str) -> Messages:
        """Returns one message, regardless of the number of steps: the screen shows their result."""
        return self._message(
            "policy", task=task.instruction, screen=screen, done=_done(steps), usage=usage
        )

    def _ask_adapter(self, request: RewriteRequest, **own: str) -> Messages:
        """Returns the request for a changed task; `own`: the domain's placeholders."""
        return self._message(
            "adapter",
            task=request.root.instruction,
            direction=request.direction,
            critics=" ".join(request.critics) or "none",
            **own,
        )

    def _message(self, name: str, **values: str) -> Messages:
        return (Message("user", self._templates.render(name, **values)),)


def _step(task: Task, steps: Sequence[Step]) -> dict[str, str]:
    *before, last = steps
    return {
        "task": task.instruction,
        "done": _done(before),
        "screen": last.observation,
        "response": last.response,
        "after": last.next_observation,
    }


def _done(steps: Sequence[Step]) -> str:
    return "; ".join(step.action or "nothing" for step in steps) or "nothing"
