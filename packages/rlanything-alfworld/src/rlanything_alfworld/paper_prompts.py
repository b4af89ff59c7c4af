"""AlfWorld's prompts at full length, for large models. They have the paper's content (arXiv
2602.02488, C.4 to C.7) in our own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten

from rlanything.domains.base import RewriteRequest
from rlanything.domains.templates import Templates, quoted_lines, reasons
from rlanything.records import JudgedTrajectory, Message, Messages, Step, Task
from rlanything_alfworld.commands import ANSWER_FORMS, Listing, without_commands
from rlanything_alfworld.scene_goals import Inventory, scene_inventory
from rlanything_alfworld.tasks import load_game
from rlanything_alfworld.wording import CURRENT

PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"task", "room", "history", "commands", "form"}),
    "policy_step": frozenset({"number", "action", "observation"}),
    "judge": frozenset({"task", "prompt", "response", "observation"}),
    "critic": frozenset({"task", "room", "steps"}),
    "critic_step": frozenset({"number", "action", "observation"}),
    "critic_rejected": frozenset({"number", "action", "observation", "reasoning"}),
    "adapter": frozenset(
        {"direction", "goal", "frame", "active", "accuracy"}
        | {"objects", "places", "abilities", "critics"}
    ),
}
GRAMMAR = (
    "go to PLACE, open PLACE, close PLACE, take OBJECT from PLACE, move OBJECT to PLACE, "
    "clean OBJECT with PLACE, heat OBJECT with PLACE, cool OBJECT with PLACE, use LAMP, "
    "slice OBJECT with KNIFE; names are those that the game uses, such as `shelf 1`"
)
"""Shown instead of the commands if those are not listed."""
ACTION_CHARACTERS = 100
"""Longest action that a history repeats; possible actions are far shorter."""
_ABILITIES = {
    "pickupable": "taken",
    "cleanable": "cleaned",
    "heatable": "heated",
    "coolable": "cooled",
    "sliceable": "sliced",
    "toggleable": "switched on",
}


class PaperPrompts:
    """Prompts of one message each, filled from `prompts/paper/` or from a user's folder."""

    def __init__(self, folder: Path | None, listing: Listing, history: int | None = None) -> None:
        """`history`: number of latest steps that the policy's prompt repeats; None: all."""
        self._history = history
        self._templates = Templates("rlanything_alfworld", PLACEHOLDERS, folder, "paper")
        self._form = ANSWER_FORMS[listing]

    def policy(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        """Returns goal, room, actions and observations so far, and the commands possible now."""
        room, _ = without_commands(steps[0].observation if steps else observation)
        first = 0 if self._history is None else max(0, len(steps) - self._history)
        text = self._templates.render(
            "policy",
            task=task.instruction,
            room=room,
            history="".join(
                self._step("policy_step", i, steps[i]) for i in range(first, len(steps))
            ),
            commands=without_commands(observation)[1] or _forms(task),
            form=self._form,
        )
        return (Message("user", text),)

    def judge(self, task: Task, steps: Sequence[Step]) -> Messages:
        """Returns the last step: the policy's prompt and response, and the game's reply."""
        *before, last = steps
        [prompt] = self.policy(task, before, last.observation)
        text = self._templates.render(
            "judge",
            task=task.instruction,
            # No quoted text may look like a score.
            prompt=prompt.content.replace("\\boxed", "boxed"),
            response=quoted_lines(last.response),
            observation=without_commands(last.next_observation)[0],
        )
        return (Message("user", text),)

    def critic(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        """Returns the whole episode, actions and observations, with the rejected steps marked and
        the judge's reasons next to them."""
        trajectory = failed.trajectory
        shown = [
            self._step("critic_rejected", i, step, reasoning=reasons(failed, i) or "none given")
            if i in rejected
            else self._step("critic_step", i, step)
            for i, step in enumerate(trajectory.steps)
        ]
        text = self._templates.render(
            "critic",
            task=trajectory.task.instruction,
            room=without_commands(trajectory.steps[0].observation)[0],
            steps="".join(shown),
        )
        return (Message("user", text),)

    def adapter(self, request: RewriteRequest) -> Messages:
        """Returns the task, how its episodes went, and the facts of its scene."""
        game, played = load_game(request.root.data), len(request.rollouts)
        text = self._templates.render(
            "adapter",
            direction=request.direction,
            goal=request.root.instruction,
            frame=replace(game.goal, object="<object>", receptacle="<place>").sentence(),
            active=request.active.instruction,
            accuracy=f"{played - len(request.failed)} of {played}" if played else "not known",
            **scene_facts(scene_inventory(game)),
            critics="\n".join(f"- {critic}" for critic in request.critics) or "nothing is known",
        )
        return (Message("user", text),)

    def _step(self, template: str, index: int, step: Step, **more: str) -> str:
        return self._templates.render(
            template,
            number=str(index + 1),
            action=shorten(step.action or "no command", ACTION_CHARACTERS, placeholder=" ..."),
            observation=without_commands(step.next_observation)[0],
            **more,
        )


def _forms(task: Task) -> str:
    if "path" not in task.data:
        return GRAMMAR
    own = load_game(task.data).wording.put("OBJECT", "PLACE")
    return GRAMMAR.replace(CURRENT.put("OBJECT", "PLACE"), own)


def scene_facts(scene: Inventory) -> Mapping[str, str]:
    """Returns the scene in lines: `objects` with their number and places, `places` with their
    possible contents, and `abilities`, the actions possible on each object."""
    objects = [f"- {kind}: {len(at)}, in {', '.join(at)}" for kind, at in scene.objects.items()]
    places = [
        f"- {kind}: {count}, may contain {', '.join(scene.contents[kind]) or 'none of these'}"
        for kind, count in scene.receptacles.items()
    ]
    abilities = [
        f"- can be {verb}: {', '.join(scene.affords[what]) or 'none'}"
        for what, verb in _ABILITIES.items()
    ]
    lines = {"objects": objects, "places": places, "abilities": abilities}
    return {name: "\n".join(facts) for name, facts in lines.items()}
