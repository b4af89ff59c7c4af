"""Teaches the nano models of desktop tasks before the loop begins: examples for the three roles.

The demonstrator is the expert with slips. It corrects most of them, so that the data shows
recoveries and reinforcement learning has something to improve.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from rlanything.domains.base import Episode
from rlanything.records import Completion, Direction, Step, Task
from rlanything_nano.teaching import Demonstrator, Exercise, StepPlan
from rlanything_osworld.actions import ACTION_MARKER
from rlanything_osworld.experts import WAIT, label_of, next_action
from rlanything_osworld.families import FAMILIES, calc, editor, files, writer
from rlanything_osworld.screen import LAUNCHER
from rlanything_osworld.tasks import draft, goal_of

KEYS = "keys"
"""The thought before an action without an element."""
NEAR = 3
"""Largest distance, by number, of a slip from the right element: mostly one of the same kind."""
BEFORE = 2
"""Number of words before a name that are quoted with it."""
_WORD = re.compile(r"[^\s,]+(?<![.])")
_NAME = re.compile(r"(\w+)(?:\.\w+)?$")
"""The last word of an action, without the extension of a file name."""
NUMBERS = (5, 30)
"""Smallest and largest number of an element in an exercise."""
_ELEMENT = re.compile(r"\[[^\]]*\]")
_POINTED = re.compile(r"(\w+ )\[(\d+)\]")
_NUMBERED = re.compile(r"\[(\d+)\] ")
_NAMES = {
    *editor.WORDS,
    *editor.FILES,
    *files.NAMES,
    *files.FOLDERS,
    *calc.FILES,
    *writer.FILES,
    *writer.NOUNS,
}
_TITLES = {*calc.ITEMS, *calc.SHEETS, *files.TITLES}
_SAID = {"list", "items", "old", "Files"}
"""Names that are also words of the instructions or of applications."""


class OSWorldDemonstrator(Demonstrator):
    """Acts like the expert; with probability `slip` it does something else."""

    def answer(self, episode: Episode, rng: random.Random) -> str:
        screen = episode.observation.text
        action = _right(episode.task, episode.steps, screen)
        if rng.random() < self._slip:
            action = slip(screen, action, rng)
        return f"{thought(episode.task, screen, action)} {ACTION_MARKER} {action}"


def slip(screen: str, action: str, rng: random.Random) -> str:
    """Returns another action: on an element nearby, opening a menu, or waiting."""
    lines = [line for line in screen.splitlines() if not line.startswith(LAUNCHER)]
    pointed = _POINTED.fullmatch(action)
    if pointed:
        numbers = [int(each) for line in lines for each in _NUMBERED.findall(line)]
        near = [each for each in numbers if 0 < abs(each - int(pointed[2])) <= NEAR]
        if near and rng.random() < 0.7:
            return f"{pointed[1]}[{rng.choice(near)}]"
    menus = [
        number for line in lines if line.startswith("menus:") for number in _NUMBERED.findall(line)
    ]
    return f"click [{rng.choice(menus)}]" if menus and rng.random() < 0.4 else WAIT


def target(screen: str, action: str) -> str:
    """Returns the target element of an action, its text before its number: the model first finds
    what the task names, and the number is next to it."""
    pointed = _POINTED.match(action)
    label = label_of(screen, int(pointed[2])) if pointed else None
    if pointed is None or label is None:
        return KEYS
    return f"{label.partition(' (')[0][:40].rstrip(':')} [{pointed[2]}]"


def thought(task: Task, screen: str, action: str) -> str:
    """Returns the thought before an action: its target element; before typing a text, the place
    where the task names it."""
    return quoted(task.instruction, action) or target(screen, action)


def quoted(instruction: str, action: str) -> str | None:
    """Returns the words of an instruction that lead to the name at the end of a typed text,
    including the name: a model first finds the words before a name, and the name follows. None if
    nothing is typed, or no name from the instruction."""
    words = _WORD.findall(instruction)
    name = _NAME.search(action)
    if name is None or not action.startswith("type "):
        return None
    for at, word in enumerate(words):
        if name[1] in re.findall(r"\w+", word):
            return " ".join(words[max(0, at - BEFORE) : at + 1])
    return None


class OSWorldTeacher:
    """The teacher of the nano models of desktop tasks (a `DrillingTeacher`)."""

    plan = StepPlan(
        options={"applications": ["editor", "files", "browser"]},
        decoding="free",
        response_tokens=48,
        judgement_tokens=64,
        proposal_tokens=24,
        max_steps=12,
        games=300,
        demonstrations_per_game=1,
        parallel_episodes=8,
        lockstep=False,
        spaces_apart=True,
        together=2,
        copying_updates=6000,
        exercises=3000,
        policy_epochs=12,
        slip=0.1,
        judged_games=40,
        label_noise=0.15,
        judge_epochs=12,
        criticised_games=40,
        adapter_games=400,
        episodes=32,
    )

    def demonstrator(self, slip: float) -> OSWorldDemonstrator:
        return OSWorldDemonstrator(slip)

    def interchangeable(self) -> list[list[str]]:
        return [sorted(_NAMES - _SAID), sorted(_TITLES - _SAID)]

    def exercises(self, tasks: Sequence[Task], rng: random.Random) -> list[Exercise]:
        """Returns the steps that type a name; elements chosen before have random numbers."""
        made: list[Exercise] = []
        for task in tasks:
            steps: list[Step] = []
            goal = goal_of(task)
            for move in goal.moves if goal else ():
                action = _ELEMENT.sub(lambda _: f"[{rng.randint(*NUMBERS)}]", move.action)
                said = quoted(task.instruction, action)
                if said is not None:
                    made.append(Exercise(task, tuple(steps), f"{said} {ACTION_MARKER} {action}"))
                steps.append(Step("", Completion.unsampled(action), action, True, ""))
        return made

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        """Names the right action, which the score depends on."""
        wanted = _wanted(task, steps, len(steps) - 1)
        said = "a right step" if score == 1 else "a wrong step"
        return f"{wanted} is next: {said}. \\boxed{{{score}}}"

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        at = rejected[0] if rejected else len(steps) - 1
        return f"It did not go on with {_wanted(task, steps, at)}. It did {steps[at].action}."

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        """Proposes a later goal of the set-up as harder; an earlier one, or a hint, as easier."""
        made = root.data["generated"]
        names = [goal.name for goal in draft(FAMILIES[made["family"]], made["seed"]).goals]
        at = names.index(made["goal"])
        if direction == "harder":
            changes = [f"goal: {name}\nhint: no" for name in names[at + 1 :]]
        else:
            changes = [f"goal: {name}\nhint: no" for name in names[:at]]
            changes += [] if made["hinted"] else [f"goal: {names[at]}\nhint: yes"]
        return rng.choice(changes) if changes else None


def _right(task: Task, steps: Sequence[Step], screen: str) -> str:
    """Returns the expert's action; if it is lost, it ends the episode."""
    goal = goal_of(task)
    return (goal and next_action(goal.moves, steps, screen)) or "done"


def _wanted(task: Task, steps: Sequence[Step], at: int) -> str:
    """Returns what was right at a step: an element, or otherwise the action, in a policy's
    words."""
    screen = steps[at].observation
    action = _right(task, steps[:at], screen)
    said = thought(task, screen, action)
    if said == KEYS:
        return action
    return f"{said} {ACTION_MARKER} {action}" if action.startswith("type ") else said
