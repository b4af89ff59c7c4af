"""Goals of games: one of AlfWorld's six task types with its object and receptacle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlanything.domains.base import InvalidTask
from rlanything_alfworld import assets

SIMPLE = "pick_and_place_simple"
LOOK = "look_at_obj_in_light"
CLEAN = "pick_clean_then_place_in_recep"
HEAT = "pick_heat_then_place_in_recep"
COOL = "pick_cool_then_place_in_recep"
TWO = "pick_two_obj_and_place"
KINDS = (SIMPLE, LOOK, CLEAN, HEAT, COOL, TWO)

TREATMENTS: Mapping[str, str] = {CLEAN: "Cleanable", HEAT: "Heatable", COOL: "Coolable"}
"""Task types that change an object first, with the affordance that the object needs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A task type with its object and receptacle, spelled as AlfWorld spells them: `Mug`,
    `CounterTop`."""

    kind: str
    object: str
    receptacle: str
    """The object's destination; for `look_at_obj_in_light` the lamp to use."""

    @classmethod
    def of(cls, kind: str, object: str, receptacle: str) -> Goal:
        """Returns a goal from any spelling of the types (`mug`, `CounterTop`).

        Raises `InvalidTask` naming the type that does not exist."""
        if kind not in KINDS:
            raise InvalidTask(f"unknown task type {kind!r}; known: {', '.join(KINDS)}")
        things = assets.pickable_types()
        places = assets.affording("Toggleable") if kind == LOOK else assets.receptacle_types()
        return cls(
            kind,
            _spelled(object, things, "object"),
            _spelled(receptacle, places, "lamp" if kind == LOOK else "receptacle"),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Goal:
        """Reads the output of `to_json`. Raises `InvalidTask` if that is impossible."""
        missing = [key for key in ("kind", "object", "receptacle") if key not in data]
        if missing:
            raise InvalidTask(f"the goal lacks {', '.join(missing)}")
        return cls.of(str(data["kind"]), str(data["object"]), str(data["receptacle"]))

    def to_json(self) -> dict[str, str]:
        """Returns the goal as JSON."""
        return {"kind": self.kind, "object": self.object, "receptacle": self.receptacle}

    @property
    def count(self) -> int:
        """Number of objects needed."""
        return 2 if self.kind == TWO else 1

    def sentence(self, variant: int = 0) -> str:
        """Returns the task as the player reads it: `put a hot mug in shelf`."""
        templates = assets.goal_library()[self.kind]["templates"]
        names = {"obj": self.object.lower(), "recep": self.receptacle.lower()}
        return templates[variant % len(templates)].format(toggle=names["recep"], **names)

    def pddl(self) -> str:
        """Returns the goal's text, including the end of the problem."""
        text = assets.goal_library()[self.kind]["pddl"].replace("#", "-")
        names = {"obj": self.object, "recep": self.receptacle, "toggle": self.receptacle}
        return "\n".join(line.strip() for line in text.format(**names).strip().splitlines()) + "\n"


def _spelled(name: str, known: frozenset[str], what: str) -> str:
    wanted = re.sub(r"[\s_-]", "", name).lower()
    for candidate in known:
        if candidate.lower() == wanted:
            return candidate
    raise InvalidTask(f"unknown {what} type {name!r}")
