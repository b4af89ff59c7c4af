"""A playable game in AlfWorld's own format, with scene and goal kept separate."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlanything_alfworld.goal import LOOK, TWO, Goal
from rlanything_alfworld.wording import CURRENT, Wording
from rlanything_alfworld.world import World

TASK_LINE = re.compile(r'(Your task is to: )([^"\\]*)')
"""The place where a grammar names the task: the text before the sentence, and the sentence."""


@dataclass(frozen=True, slots=True)
class Game:
    scene_pddl: str
    """The problem up to its goal. Games of one scene share this exact text."""
    goal: Goal
    goal_pddl: str
    """The problem from `(:goal` to its end."""
    instruction: str
    """The sentence the player reads, without `Your task is to:`."""
    pddl_domain: str
    grammar: str
    """The text that begins an episode and holds the instruction."""
    variant: int = 0
    """Index of the template that words the instruction."""
    room: str = ""
    wording: Wording = CURRENT

    @property
    def pddl_problem(self) -> str:
        return self.scene_pddl + self.goal_pddl

    def world(self) -> World:
        """Returns the initial state, to act in."""
        return World(self.scene_pddl, self.wording)

    def asking(self, goal: Goal) -> Game:
        """Returns the same scene with another goal. PDDL, sentence and grammar change together."""
        sentence = goal.sentence(self.variant)
        return replace(
            self,
            goal=goal,
            goal_pddl=goal.pddl(),
            instruction=sentence,
            grammar=TASK_LINE.sub(rf"\g<1>{sentence}.", self.grammar),
        )

    def json(self, walkthrough: tuple[str, ...] | list[str] = ()) -> dict[str, Any]:
        """Returns the content of `game.tw-pddl`."""
        return {
            "pddl_domain": self.pddl_domain,
            "grammar": self.grammar,
            "pddl_problem": self.pddl_problem,
            "solvable": True,
            "walkthrough": list(walkthrough),
        }

    def trajectory_data(self) -> dict[str, Any]:
        """Returns the content of `traj_data.json`, as far as text games need it."""
        look = self.goal.kind == LOOK
        return {
            "task_type": self.goal.kind,
            "pddl_params": {
                "object_target": self.goal.object,
                "object_sliced": False,
                "parent_target": "" if look else self.goal.receptacle,
                "toggle_target": self.goal.receptacle if look else "",
                "mrecep_target": "",
                "two": self.goal.kind == TWO,
            },
            "scene": {"floor_plan": self.room},
            "turk_annotations": {"anns": [{"task_desc": self.instruction}]},
        }

    def write(self, path: str | Path, walkthrough: tuple[str, ...] | list[str] = ()) -> Path:
        """Writes `game.tw-pddl` and `traj_data.json` into a folder; returns the game file."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        game = folder / "game.tw-pddl"
        game.write_text(json.dumps(self.json(walkthrough)), encoding="utf-8")
        trajectory = json.dumps(self.trajectory_data())
        (folder / "traj_data.json").write_text(trajectory, encoding="utf-8")
        return game
