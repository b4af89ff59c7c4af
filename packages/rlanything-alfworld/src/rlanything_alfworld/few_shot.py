"""AlfWorld for a pretrained model of 135M parameters: shown how, and nothing to remember.

make smollm2 && rlanything train alfworld-smollm2
"""

from collections.abc import Sequence
from typing import Any

from rlanything.domains.base import RewriteRequest
from rlanything.records import JudgedTrajectory, Message, Messages, Step, Task
from rlanything_alfworld.commands import without_commands
from rlanything_alfworld.domain import AlfWorld
from rlanything_alfworld.scene_goals import scene_inventory
from rlanything_alfworld.tasks import load_game

# The possible actions imply the agent's position and what it holds; a history would be redundant.
CHOICES = """Goal: look at pen under the desklamp
go to sofa 1
take cup 1 from desk 1
take pen 3 from desk 1
use desklamp 1
Best: take pen 3 from desk 1

Goal: examine the book with the desklamp
go to bed 1
move book 1 to shelf 2
go to desk 1
Best: go to desk 1

Goal: look at mug under the desklamp
go to bed 1
move mug 1 to desk 2
use desklamp 1
Best: use desklamp 1

Goal: examine the cup with the desklamp
go to desk 2
take pen 1 from shelf 1
go to sofa 1
Best: go to sofa 1

Goal: {goal}
{commands}
Best:"""

RULE = (
    "A household game: does the last command help to reach the goal? "
    "Say \\boxed{1} if it does, \\boxed{-1} if not, and why."
)
JUDGED = (
    (
        "Goal: look at pen under the desklamp\nBefore: go to desk 1, take pen 1 from desk 1\n"
        "> move pen 1 to desk 1\nYou move the pen 1 to the desk 1.",
        "\\boxed{-1} the pen is needed.",
    ),
    (
        "Goal: examine the mug with the desklamp\nBefore: go to bed 1, go to shelf 1\n"
        "> go to bed 1\nOn the bed 1, you see nothing.",
        "\\boxed{-1} it has been there.",
    ),
    (
        "Goal: look at mug under the desklamp\nBefore: go to shelf 1\n"
        "> take mug 2 from shelf 1\nYou pick up the mug 2 from the shelf 1.",
        "\\boxed{1} the goal needs a mug.",
    ),
    (
        "Goal: examine the book with the desklamp\nBefore: go to desk 1\n"
        "> take pen 1 from desk 1\nYou pick up the pen 1 from the desk 1.",
        "\\boxed{-1} no pen is needed.",
    ),
    (
        "Goal: look at book under the desklamp\nBefore: take book 1 from bed 1, go to desk 1\n"
        "> use desklamp 1\nYou turn on the desklamp 1.",
        "\\boxed{1} it holds the book.",
    ),
    (
        "Goal: examine the pen with the desklamp\nBefore: nothing\n"
        "> go to desk 1\nOn the desk 1, you see a pen 1, and a mug 2.",
        "\\boxed{1} a pen is there.",
    ),
)
REMEMBERED = 4
"""Number of commands before the last one that a judge sees."""

CHANGE = "Say another object of the room."
CHANGED = (
    (
        "Goal: look at pen under the desklamp\nObjects: cup, pen",
        "object: cup place: desklamp",
    ),
    (
        "Goal: examine the mug with the desklamp\nObjects: book, mug, pillow",
        "object: book place: desklamp",
    ),
)


class FewShotAlfWorld(AlfWorld):
    """AlfWorld whose prompts show a pretrained model examples first, without history."""

    def __init__(self, **options: Any) -> None:
        super().__init__(style="paper", commands="list", **options)

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        _, commands = without_commands(observation)
        return (Message("user", CHOICES.format(goal=task.instruction, commands=commands)),)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        seen, _ = without_commands(steps[-1].next_observation)
        # The command already names the destination.
        seen = seen.partition("You arrive at ")[2].partition(". ")[2] or seen
        before = ", ".join(str(s.action) for s in steps[-1 - REMEMBERED : -1]) or "nothing"
        step = f"Goal: {task.instruction}\nBefore: {before}\n> {steps[-1].action}\n{seen}"
        return shown(RULE, JUDGED, step)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        steps = failed.trajectory.steps
        lines = [f"{'bad' if i in rejected else 'good'}: {s.action}" for i, s in enumerate(steps)]
        goal = failed.trajectory.task.instruction
        return (Message("user", "\n".join([f"Goal: {goal}", *lines, "Why did it fail?"])),)

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        root = request.root
        objects = [o for o in scene_inventory(load_game(root.data)).objects if o != "desklamp"]
        asked = f"Goal: {root.instruction}\nObjects: {', '.join(objects)}"
        return shown(CHANGE, CHANGED, asked)


def shown(rule: str, examples: Sequence[tuple[str, str]], question: str) -> Messages:
    """Returns a chat in which similar questions were answered before."""
    chat = [Message("system", rule)]
    for asked, answer in examples:
        chat += [Message("user", asked), Message("assistant", answer)]
    return (*chat, Message("user", question))
