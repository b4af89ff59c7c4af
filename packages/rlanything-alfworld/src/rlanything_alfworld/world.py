"""The symbolic state of a game: the effect of every command, without the engine.

Read from any game's PDDL, generated or downloaded. Names are the player's (`mug 1`). Types are in
lower case and without the suffix `Type` (`mug`). Besides the physical state, the world remembers
what an agent that played these commands has been shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

from rlanything_alfworld.pddl import player_names, read_facts
from rlanything_alfworld.wording import CURRENT, Wording

KNIVES = ("knife", "butterknife")
APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""Treatments, with the receptacle type that each needs."""
_TREATABLE = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts that no command changes."""

    receptacles: dict[str, str]
    """Receptacle -> its type."""
    objects: dict[str, str]
    """Object -> its type."""
    location: dict[str, str]
    """Receptacle -> location from which it is used."""
    openable: frozenset[str]
    affords: dict[str, frozenset[str]]
    """`cleanable`, `heatable`, `coolable`, `toggleable`, `sliceable`, `pickupable` -> objects."""
    can_contain: frozenset[tuple[str, str]]
    """(receptacle type, object type)"""

    def holds_type(self, receptacle: str, thing: str) -> bool:
        """Returns whether the object may be put in or on the receptacle."""
        return (self.receptacles[receptacle], self.objects[thing]) in self.can_contain

    def receptacles_of(self, kind: str) -> list[str]:
        return [name for name, type_ in self.receptacles.items() if type_ == kind]

    def objects_of(self, kind: str) -> list[str]:
        return [name for name, type_ in self.objects.items() if type_ == kind]


class World:
    """A state to act in. `World(scene_pddl)` is the initial state. `Game.world()` uses the game's
    own wording of commands."""

    __slots__ = (
        "at",
        "holds",
        "inside",
        "lying_at",
        "opened",
        "opened_before",
        "seen",
        "setting",
        "state",
        "visited",
        "wording",
    )

    def __init__(self, scene_pddl: str, wording: Wording = CURRENT) -> None:
        self._share(_read(scene_pddl))
        self.wording = wording

    def _share(self, other: World) -> None:
        self.setting: Setting = other.setting
        self.wording: Wording = other.wording
        self.at: str = other.at
        """The agent's location."""
        self.holds: str | None = other.holds
        self.inside: set[tuple[str, str]] = set(other.inside)
        """(object, receptacle)"""
        self.lying_at: set[tuple[str, str]] = set(other.lying_at)
        """(object, location)"""
        self.opened: set[str] = set(other.opened)
        self.state: set[tuple[str, str]] = set(other.state)
        """(`clean` | `hot` | `cool` | `toggled` | `sliced`, object)"""
        self.seen: set[str] = set(other.seen)
        """Objects that some observation has named."""
        self.visited: set[str] = set(other.visited)
        """Receptacles the agent has gone to."""
        self.opened_before: set[str] = set(other.opened_before)
        """Receptacles the agent has opened at least once."""

    def __copy__(self) -> World:
        twin = World.__new__(World)
        twin._share(self)
        return twin

    def after(self, commands: Iterable[str]) -> World:
        """Returns a copy in which the commands have been played; impossible ones change nothing."""
        twin = copy(self)
        for command in commands:
            twin.play(command)
        return twin

    def here(self, receptacle: str) -> bool:
        """Returns whether the agent is at the receptacle."""
        return self.setting.location[receptacle] == self.at

    def accessible(self, receptacle: str) -> bool:
        """Returns whether an agent at the receptacle can reach its contents."""
        return receptacle not in self.setting.openable or receptacle in self.opened

    def contents(self, receptacle: str) -> list[str]:
        return sorted(thing for thing, place in self.inside if place == receptacle)

    def places_of(self, thing: str) -> list[str]:
        """Returns the receptacles that contain an object: one, or none while it is held."""
        return sorted(place for name, place in self.inside if name == thing)

    def admissible(self) -> list[str]:
        """Returns every command that is possible now, in the engine's order."""
        return sorted(set(self._possible()))

    def _possible(self) -> Iterator[str]:
        setting = self.setting
        yield from ("look", "inventory", "help") if self.wording.help else ("look", "inventory")
        near = [place for place in setting.receptacles if self.here(place)]
        # The engine offers no walk to the current place, and examines only held objects.
        for place in setting.receptacles:
            if not self.here(place):
                yield f"go to {place}"
        for place in near:
            yield f"examine {place}"
            if place in setting.openable:
                yield f"{'close' if place in self.opened else 'open'} {place}"
            for thing in self.contents(place):
                if (
                    self.holds is None
                    and self.accessible(place)
                    and thing in setting.affords["pickupable"]
                ):
                    yield f"take {thing} from {place}"
                if thing in setting.affords["toggleable"]:
                    yield f"use {thing}"
        held = self.holds
        if held is None:
            return
        yield f"examine {held}"
        for place in near:
            if self.accessible(place) and setting.holds_type(place, held):
                yield self.wording.put(held, place)
            for treatment, appliance in APPLIANCES.items():
                if (
                    setting.receptacles[place] == appliance
                    and held in setting.affords[_TREATABLE[treatment]]
                ):
                    yield f"{treatment} {held} with {place}"
        if setting.objects[held] in KNIVES:
            for thing, location in self.lying_at:
                if location == self.at and thing in setting.affords["sliceable"]:
                    yield f"slice {thing} with {held}"

    def play(self, command: str) -> bool:
        """Plays a command. Returns False, and changes nothing, if it is not possible now."""
        if command not in set(self._possible()):
            return False
        if put := self.wording.put_in(command):
            thing, place = put
            self.inside.add((thing, place))
            self.lying_at.add((thing, self.at))
            self.holds = None
            return True
        verb, _, rest = command.partition(" ")
        match verb:
            case "go":
                self._arrive(rest.removeprefix("to "))
            case "open":
                self.opened.add(rest)
                self.opened_before.add(rest)
                self._look_in(rest)
            case "close":
                self.opened.discard(rest)
            case "take":
                thing, _, place = rest.partition(" from ")
                self.inside.discard((thing, place))
                self.lying_at.discard((thing, self.at))
                self.holds = thing
            case "clean":
                self.state.add(("clean", rest.partition(" with ")[0]))
            case "heat" | "cool":
                thing = rest.partition(" with ")[0]
                hot = verb == "heat"
                self.state.add(("hot" if hot else "cool", thing))
                self.state.discard(("cool" if hot else "hot", thing))
            case "use":
                self.state.add(("toggled", rest))
            case "slice":
                self.state.add(("sliced", rest.partition(" with ")[0]))
            case "examine" if rest in self.setting.receptacles:
                self._look_in(rest)
            case _:
                pass  # look, inventory, help and examining an object change nothing
        return True

    def _arrive(self, place: str) -> None:
        self.at = self.setting.location[place]
        self.visited.add(place)
        self._look_in(place)

    def _look_in(self, place: str) -> None:
        if self.accessible(place):
            self.seen.update(self.contents(place))


@lru_cache(maxsize=512)
def _read(scene_pddl: str) -> World:
    facts: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for predicate, *arguments in read_facts(scene_pddl):
        facts[predicate].append(tuple(arguments))
    kinds = {
        identity: kind.removesuffix("type")
        for identity, kind in (*facts["objecttype"], *facts["receptacletype"])
    }
    name = player_names(kinds)
    location = {name[r]: place for r, place in facts["receptacleatlocation"] if r in name}
    if not facts["atlocation"]:
        raise ValueError("the problem does not say where the agent is")

    def names(predicate: str) -> frozenset[str]:
        return frozenset(name[entity] for entity, *_ in facts[predicate] if entity in name)

    setting = Setting(
        receptacles={
            name[r]: kinds[r] for r, _ in sorted(facts["receptacletype"]) if name[r] in location
        },
        objects={name[o]: kinds[o] for o, _ in sorted(facts["objecttype"])},
        location=location,
        openable=names("openable"),
        affords={
            predicate: names(predicate)
            for predicate in (*_TREATABLE.values(), "toggleable", "sliceable", "pickupable")
        },
        can_contain=frozenset(
            (place.removesuffix("type"), thing.removesuffix("type"))
            for place, thing in facts["cancontain"]
        ),
    )
    world = World.__new__(World)
    world.setting = setting
    world.wording = CURRENT
    world.at = facts["atlocation"][0][1]
    world.holds = name[facts["holds"][0][1]] if facts["holds"] else None
    world.inside = {
        (name[thing], name[place])
        for thing, place in facts["inreceptacle"]
        if thing in name and name.get(place) in setting.receptacles
    }
    world.lying_at = {
        (name[thing], place) for thing, place in facts["objectatlocation"] if thing in name
    }
    world.opened = set(names("opened"))
    world.state = {
        (label, thing)
        for predicate, label in (
            ("isclean", "clean"),
            ("ishot", "hot"),
            ("iscool", "cool"),
            ("istoggled", "toggled"),
            ("issliced", "sliced"),
        )
        for thing in names(predicate)
    }
    world.seen = {world.holds} if world.holds else set()
    world.visited = set()
    world.opened_before = set()
    return world
