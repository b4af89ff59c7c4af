"""The expert: a shortest plan from any state, with full knowledge, for all six task types.

A plan is assembled from errands (put down, fetch, treat, bring, switch on) on a sketch of the few
things that decide its length: the agent's position, what it holds and what is open. Every choice of
object, receptacle and appliance is tried, and the shortest plan wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from rlanything_alfworld.goal import CLEAN, COOL, HEAT, LOOK, TWO, Goal
from rlanything_alfworld.world import APPLIANCES, World

_TREATMENT = {CLEAN: ("clean", "clean"), HEAT: ("heat", "hot"), COOL: ("cool", "cool")}
"""Task type -> the command's verb, and the resulting state."""


class NoPlanError(ValueError):
    """A goal that no sequence of commands reaches from here."""


@dataclass(frozen=True, slots=True)
class Subgoal:
    """The purpose of the next few commands, in the player's words for types: `clean mug`."""

    verb: str
    """`find`, `take`, `drop`, `clean`, `heat`, `cool`, `bring` or `use`; `stuck` in a dead end, and
    empty at the end."""
    object: str = ""
    receptacle: str = ""
    """The place or the tool; empty if it does not matter."""

    def text(self) -> str:
        """Returns the subgoal in words: `clean mug sinkbasin`."""
        return " ".join(filter(None, (self.verb, self.object, self.receptacle)))


def reached(world: World, goal: Goal) -> bool:
    """Returns whether the game is won."""
    thing, place = goal.object.lower(), goal.receptacle.lower()
    objects = world.setting.objects
    if goal.kind == LOOK:
        holding = world.holds is not None and objects[world.holds] == thing
        return holding and any(
            objects[lamp] == place and ("toggled", lamp) in world.state and world.here(stand)
            for lamp, stand in world.inside
            if lamp in world.setting.affords["toggleable"]
        )
    required = _TREATMENT[goal.kind][1] if goal.kind in _TREATMENT else None
    counts: dict[str, int] = {}
    for name, receptacle in world.inside:
        if objects[name] == thing and world.setting.receptacles[receptacle] == place:
            fits = required is None or (required, name) in world.state
            counts[receptacle] = counts.get(receptacle, 0) + fits
    return any(count >= goal.count for count in counts.values())


def plan(world: World, goal: Goal) -> list[str]:
    """Returns a shortest sequence of commands that wins from this state; empty if it is won
    already.

    Raises `NoPlanError` if there is none."""
    if reached(world, goal):
        return []
    if goal.kind == LOOK:
        plans = _look_plans(world, goal)
    elif goal.kind == TWO:
        plans = _two_plans(world, goal)
    else:
        plans = _place_plans(world, goal)
    best = min(plans, key=lambda commands: (len(commands), commands), default=None)
    if best is None:
        raise NoPlanError(f"nothing leads to: {goal.sentence()}")
    return best


def steps_left(world: World, goal: Goal) -> float:
    """Returns the length of a shortest plan. It is infinite in a dead end: in published games a
    teddybear or a paper towel can be picked up, but fits nowhere, and then nothing else can be
    carried."""
    try:
        return len(plan(world, goal))
    except NoPlanError:
        return math.inf


class _Sketch:
    """An unfinished plan."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at = world.at
        self.opened = set(world.opened)
        self.commands: list[str] = []

    def reach(self, receptacle: str) -> None:
        location = self.world.setting.location[receptacle]
        if self.at != location:
            self.commands.append(f"go to {receptacle}")
            self.at = location

    def open(self, receptacle: str) -> None:
        self.reach(receptacle)
        if receptacle in self.world.setting.openable and receptacle not in self.opened:
            self.commands.append(f"open {receptacle}")
            self.opened.add(receptacle)

    def take(self, thing: str) -> None:
        if thing != self.world.holds:
            home = self.world.places_of(thing)[0]
            self.open(home)
            self.commands.append(f"take {thing} from {home}")

    def put(self, thing: str, receptacle: str) -> None:
        self.open(receptacle)
        self.commands.append(self.world.wording.put(thing, receptacle))


def _with_free_hands(world: World, thing: str, on_the_way: Sequence[str]) -> Iterator[_Sketch]:
    """Yields sketches in which the hands are free for `thing`, or hold it already."""
    held = world.holds
    if held is None or held == thing:
        yield _Sketch(world)
        return
    spots = [place for place in world.setting.receptacles if world.setting.holds_type(place, held)]
    elsewhere = sorted(spots, key=lambda place: not world.accessible(place))[:1]
    useful = {place for place in spots if world.here(place) or place in on_the_way}
    for spot in sorted(useful.union(elsewhere)):
        sketch = _Sketch(world)
        sketch.put(held, spot)
        yield sketch


def _takeable(world: World, kind: str) -> list[str]:
    return [
        name
        for name in world.setting.objects_of(kind)
        if name == world.holds
        or (name in world.setting.affords["pickupable"] and world.places_of(name))
    ]


def _homes(world: World, *things: str) -> list[str]:
    return [place for thing in things for place in world.places_of(thing)]


def _place_plans(world: World, goal: Goal) -> Iterator[list[str]]:
    setting = world.setting
    verb, state = _TREATMENT.get(goal.kind, ("", ""))
    for thing in _takeable(world, goal.object.lower()):
        untreated = bool(verb) and (state, thing) not in world.state
        if untreated and thing not in setting.affords[f"{verb}able"]:
            continue
        appliances = setting.receptacles_of(APPLIANCES[verb]) if untreated else [""]
        for target in setting.receptacles_of(goal.receptacle.lower()):
            if not setting.holds_type(target, thing):
                continue
            for appliance in appliances:
                stops = [*_homes(world, thing), target, appliance]
                for sketch in _with_free_hands(world, thing, stops):
                    sketch.take(thing)
                    if appliance:
                        sketch.reach(appliance)
                        sketch.commands.append(f"{verb} {thing} with {appliance}")
                    sketch.put(thing, target)
                    yield sketch.commands


def _two_plans(world: World, goal: Goal) -> Iterator[list[str]]:
    things = _takeable(world, goal.object.lower())
    kind = goal.object.lower()
    for target in world.setting.receptacles_of(goal.receptacle.lower()):
        there = [name for name in world.contents(target) if world.setting.objects[name] == kind]
        missing = [name for name in things if name not in there]
        for chosen in permutations(missing, goal.count - len(there)):
            if world.holds in missing and world.holds != chosen[0]:
                continue  # put down the held object first
            if not all(world.setting.holds_type(target, thing) for thing in chosen):
                continue
            stops = [*_homes(world, *chosen), target]
            for sketch in _with_free_hands(world, chosen[0], stops):
                for thing in chosen:
                    sketch.take(thing)
                    sketch.put(thing, target)
                yield sketch.commands


def _look_plans(world: World, goal: Goal) -> Iterator[list[str]]:
    for thing in _takeable(world, goal.object.lower()):
        for lamp in world.setting.objects_of(goal.receptacle.lower()):
            if lamp not in world.setting.affords["toggleable"]:
                continue
            for stand in world.places_of(lamp):
                stops = [*_homes(world, thing), stand]
                for sketch in _with_free_hands(world, thing, stops):
                    sketch.take(thing)
                    sketch.reach(stand)
                    if ("toggled", lamp) not in world.state:
                        sketch.commands.append(f"use {lamp}")
                    yield sketch.commands


def next_subgoal(world: World, goal: Goal) -> Subgoal:
    """Returns the subgoal for an agent that knows only what it has been shown."""
    left = steps_left(world, goal)
    if left in (0, math.inf):
        return Subgoal("stuck" if left else "")
    kind, place = goal.object.lower(), goal.receptacle.lower()
    setting = world.setting
    if world.holds is None or setting.objects[world.holds] != kind:
        known = [name for name in _still_needed(world, goal) if name in world.seen]
        if not known:
            return Subgoal("find", kind)
        if world.holds is not None:
            return Subgoal("drop", setting.objects[world.holds])
        return Subgoal("take", kind)
    if goal.kind == LOOK:
        lamps = [lamp for lamp in setting.objects_of(place) if lamp in world.seen]
        return Subgoal("use", place) if lamps else Subgoal("find", place)
    if goal.kind in _TREATMENT:
        verb, state = _TREATMENT[goal.kind]
        if (state, world.holds) not in world.state:
            return Subgoal(verb, kind, APPLIANCES[verb])
    return Subgoal("bring", kind, place)


def _still_needed(world: World, goal: Goal) -> list[str]:
    """Returns the objects of the goal's type that still have to be fetched."""
    things = _takeable(world, goal.object.lower())
    if goal.kind != TWO:
        return things
    targets = set(world.setting.receptacles_of(goal.receptacle.lower()))
    return [name for name in things if not targets.intersection(world.places_of(name))]
