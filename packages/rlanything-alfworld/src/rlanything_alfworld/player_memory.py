"""The memory of an attentive player, read only from the game's own sentences.

The policy and the judge see it as one line after each observation. So they need not search a long
history for the places of things and for what is unexplored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ROOM = re.compile(r"you see (.+)\.", re.DOTALL)
_LOOK = re.compile(r"(?:On the (.+?)|The (.+?) is open\. In it), you see (.+?)\.")
_CLOSED = re.compile(r"The (.+?) is closed\.")
_ARRIVE = re.compile(r"You arrive at (.+?)\.(?: On the (.+?), you| The (.+?) is )?")
_TAKE = re.compile(r"You pick up the (.+?) from the (.+?)\.")
_MOVE = re.compile(r"You (?:move|put) the (.+?) (?:to|in/on) the (.+?)\.")
_CHANGE = re.compile(r"You (heat|cool|clean) the (.+?) using the ")
_LIGHT = re.compile(r"You turn (on|off) the (.+?)\.")
_NAME = re.compile(r"(?:an?|the) ([a-z]+ \d+)")
_STATES = {"heat": "hot", "cool": "cool", "clean": "clean"}


def names_in(listing: str) -> list[str]:
    """Returns the names in a listing: `a mug 1, and a cup 2` -> [`mug 1`, `cup 2`]; `nothing` ->
    []."""
    return _NAME.findall(listing)


@dataclass
class PlayerMemory:
    """The player's knowledge after some steps of an episode."""

    task: str
    places: list[str]
    """Every receptacle named at the beginning of the episode."""
    at: str | None = None
    holds: str | None = None
    contents: dict[str, list[str]] = field(default_factory=dict)
    """Objects last seen in each inspected place."""
    states: dict[str, str] = field(default_factory=dict)
    """The state of an object that was treated: hot, cool or clean."""
    lit: str | None = None
    closed: set[str] = field(default_factory=set)
    again: bool = False
    """Whether the contents of the place arrived at last had been seen before."""
    first_of_kind: bool = False
    """Whether only the first unseen place of each kind is remembered as such: a full house has up
    to fifty places, which would fill every turn."""

    @classmethod
    def at_start(
        cls, task: str, first_observation: str, first_of_kind: bool = False
    ) -> PlayerMemory:
        """Returns the memory after the first observation of a task."""
        listed = _ROOM.search(first_observation)
        places = sorted(names_in(listed[1]), key=_natural) if listed else []
        return cls(task, places, first_of_kind=first_of_kind)

    def read(self, observation: str) -> None:
        """Adds one observation."""
        if match := _ARRIVE.search(observation):
            # Games from before AlfWorld 0.4 name a standing point here, such as `loc 12`.
            self.at = match[2] or match[3] or match[1]
            self.again = self.at in self.contents
        for on, inside, listing in _LOOK.findall(observation):
            self.contents[on or inside] = names_in(listing)
            self.closed.discard(on or inside)
        if match := _CLOSED.search(observation):
            self.closed.add(match[1])
        if match := _TAKE.search(observation):
            self.holds = match[1]
            held = self.contents.get(match[2], [])
            self.contents[match[2]] = [name for name in held if name != match[1]]
        if match := _MOVE.search(observation):
            self.holds = None
            self.contents.setdefault(match[2], []).append(match[1])
        if match := _CHANGE.search(observation):
            self.states[match[2]] = _STATES[match[1]]
        if match := _LIGHT.search(observation):
            self.lit = match[2] if match[1] == "on" else None

    @property
    def unseen(self) -> list[str]:
        """Places whose contents were never seen; with `first_of_kind` one of each kind."""
        unseen = [place for place in self.places if place not in self.contents]
        if not self.first_of_kind:
            return unseen
        return list({_natural(place)[0]: place for place in reversed(unseen)}.values())[::-1]

    def wanted(self, name: str) -> bool:
        """Returns whether the task mentions this kind of thing."""
        return name.rsplit(" ", 1)[0] in self.task.split()

    def line(self, tell_again: bool = False) -> str:
        """Returns one line: `[put a clean mug in shelf | at shelf 1 | hold mug 1 clean | saw
        nothing | left drawer 1 drawer 2]`. It repeats the task, so that everything relevant is
        close together. `tell_again`: writes `at shelf 1 again` if its contents had been seen."""
        where = f"at {self.at}" if self.at else "at start"
        where += " again" if tell_again and self.again else ""
        held = (
            f"{self.holds} {self.states.get(self.holds, '')}".strip() if self.holds else "nothing"
        )
        parts = [self.task, where, f"hold {held}"]
        saw = [
            f"{f'{name} {self.states.get(name, str())}'.strip()} at {place}"
            for place, names in self.contents.items()
            for name in names
            if self.wanted(name)
        ]
        parts.append(f"saw {', '.join(saw) or 'nothing'}")
        if self.lit:
            parts.append(f"lit {self.lit}")
        parts.append(f"left {' '.join(self.unseen) or 'nothing'}")
        return f"[{' | '.join(parts)}]"


def _natural(name: str) -> tuple[str, int]:
    kind, number = name.rsplit(" ", 1)
    return kind, int(number)


# Remove nothing behind a backslash or within a word: the remaining ends would form a word that the
# observation did not have, such as the `\boxed` of a score.
_CONDENSED = (
    (
        re.compile(r"You are in the middle of a room\. Looking quickly around you, you see "),
        "room: ",
    ),
    (re.compile(r"(?<!\S)You arrive at [^.]+\. "), ""),
    (re.compile(r"(?<!\S)You open the [^.]+\. The "), ""),
    (re.compile(r"is open\. In it, you see "), "in: "),
    (re.compile(r"(?<!\S)On the (.+?), you see "), r"\1: "),
    (re.compile(r"(?<![\w\\])(?:[Aa]n?|[Tt]he|and|You) (?=[a-z])"), ""),
)


def condense(observation: str) -> str:
    """Returns the same facts in fewer words: `On the shelf 1, you see a mug 1.` -> `shelf 1: mug
    1.`"""
    for pattern, replacement in _CONDENSED:
        observation = pattern.sub(replacement, observation)
    return " ".join(observation.split())
