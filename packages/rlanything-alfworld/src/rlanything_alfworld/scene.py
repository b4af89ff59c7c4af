"""Furnished rooms: the places of receptacles, and the objects in them.

Rooms, standing points and object classes come from the layouts of the installed package. A plan
reduces a room to a chosen size, and a seed decides what stays and where things are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlanything.domains.base import DomainError
from rlanything_alfworld import assets

Range = tuple[int, int]

SMALL_RECEPTACLES: Range = (5, 9)
SMALL_OBJECTS: Range = (6, 12)

# Receptacles that tasks depend on: reducing a room keeps the first of each type.
ESSENTIAL = ("SinkBasin", "Fridge", "Microwave")
# Fixtures that layouts list among the objects, without a standing point, and their number.
FIXTURES: Mapping[str, int] = {
    "CoffeeMachine": 1,
    "Toaster": 1,
    "StoveBurner": 4,
    "GarbageCan": 1,
    "LaundryHamper": 1,
    "Toilet": 1,
    "TowelHolder": 1,
    "HandTowelHolder": 1,
    "ToiletPaperHanger": 1,
    "BathtubBasin": 1,
}
LAMP_STANDS = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")
LAMPS = ("DeskLamp", "FloorLamp", "Lamp")
MOST_COPIES = 3
SMALL_SAME_TYPE = 3


@dataclass(frozen=True, slots=True)
class ScenePlan:
    """Everything that fixes a scene. The same plan gives the same scene in every process."""

    room: str
    seed: int
    receptacles: Range | None = SMALL_RECEPTACLES
    """Smallest and largest number of receptacles; None: all of the room."""
    objects: Range | None = SMALL_OBJECTS
    """Smallest and largest number of objects; None: every class of the room, some more than
    once."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScenePlan:
        """Reads the output of `to_json`. Raises `DomainError` naming the missing or wrong entry."""
        try:
            return cls(
                room=str(data["room"]),
                seed=int(data["seed"]),
                receptacles=_range(data["receptacles"]),
                objects=_range(data["objects"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DomainError(
                f"scene {dict(data)!r} is not readable ({error!r}): give room, seed, and"
                " receptacles and objects as [fewest, most] or null"
            ) from error

    def to_json(self) -> dict[str, Any]:
        return {
            "room": self.room,
            "seed": self.seed,
            "receptacles": None if self.receptacles is None else list(self.receptacles),
            "objects": None if self.objects is None else list(self.objects),
        }


def _range(value: Sequence[int] | None) -> Range | None:
    if value is None:
        return None
    fewest, most = (int(number) for number in value)
    if not 0 < fewest <= most:
        raise ValueError(f"range {value!r}")
    return fewest, most


@dataclass(frozen=True, slots=True)
class Receptacle:
    id: str
    """AlfWorld's name for it: `CounterTop|+00.69|+00.95|-02.48`."""
    type: str
    location: str
    """Standing point from which it is used: `loc|1|-5|2|30`; no two receptacles share one."""


@dataclass(frozen=True, slots=True)
class Thing:
    id: str
    type: str
    receptacle: Receptacle


@dataclass(frozen=True, slots=True)
class Scene:
    plan: ScenePlan
    receptacles: tuple[Receptacle, ...]
    objects: tuple[Thing, ...]
    start: str
    """The agent's initial location, which has no receptacle."""


def room_family(room: str) -> str:
    """Returns Kitchen, LivingRoom, Bedroom or Bathroom. Raises `DomainError` for an unknown
    room."""
    number = room.removeprefix("FloorPlan")
    if number.isdecimal():
        for family, numbers in assets.constants().SCENE_TYPE.items():
            if int(number) in numbers:
                return family
    raise DomainError(f"no room {room!r} in AlfWorld: use FloorPlan1-30, 201-230, 301-330, 401-430")


@lru_cache(maxsize=256)
def room_types(room: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the receptacle types and object types that scenes of this room can have."""
    receptacles = _all_receptacles(room, random.Random(0))
    _, classes = assets.layout(room)
    return frozenset(r.type for r in receptacles), assets.pickable_types().intersection(classes)


@lru_cache(maxsize=4096)
def build_scene(plan: ScenePlan) -> Scene:
    """Furnishes the room of the plan. Raises `DomainError` if the room is unknown."""
    family = room_family(plan.room)
    # A string seeds `random` through SHA-512: the same in every process and version.
    rng = random.Random(f"{plan.room}/{plan.seed}/{plan.receptacles}/{plan.objects}")
    receptacles = _thin_out(_all_receptacles(plan.room, rng), plan.receptacles, rng)
    objects = _place_objects(plan, family, receptacles, rng)
    taken = {receptacle.location for receptacle in receptacles}
    start = next(
        name for turn in range(len(taken) + 1) if (name := f"loc|0|{turn}|0|30") not in taken
    )
    return Scene(plan, receptacles, objects, start)


def _all_receptacles(room: str, rng: random.Random) -> list[Receptacle]:
    poses, classes = assets.layout(room)
    receptacles: list[Receptacle] = []
    taken: set[str] = set()

    def add(identity: str, kind: str, pose: Sequence[float]) -> None:
        x, z, rotation, horizon = pose
        across, along = round(x * 4), round(z * 4)
        turn = round(rotation / 90) % 4
        # A second receptacle used from the same pose gets its own standing point.
        while (location := f"loc|{across}|{along}|{turn}|{round(horizon)}") in taken:
            across += 1
        taken.add(location)
        receptacles.append(Receptacle(identity, kind, location))

    for identity, pose in poses.items():
        name, *rest = identity.split("|")
        kind = {"Sink": "SinkBasin", "Bathtub": "BathtubBasin"}.get(name, name)
        if kind in assets.receptacle_types():
            position = "|".join(rest[:3])
            suffix = f"|{kind}" if kind != name else ""
            add(f"{name}|{position}{suffix}", kind, pose)
    present = {receptacle.type for receptacle in receptacles}
    for kind, count in FIXTURES.items():
        if kind in classes and kind not in present:
            for _ in range(count):
                x, z = rng.uniform(-3, 3), rng.uniform(-3, 3)
                name = kind.removesuffix("Basin")
                suffix = f"|{kind}" if kind != name else ""
                identity = f"{name}|{_position(x, rng.uniform(0, 2), z)}{suffix}"
                add(identity, kind, (x, z, 90 * rng.randrange(4), 30))
    return receptacles


def _position(*coordinates: float) -> str:
    return "|".join(f"{value:+06.2f}" for value in coordinates)


def _thin_out(
    everything: list[Receptacle], wanted: Range | None, rng: random.Random
) -> tuple[Receptacle, ...]:
    shuffled = everything.copy()
    rng.shuffle(shuffled)
    if wanted is None:
        return tuple(shuffled)
    count = min(rng.randint(*wanted), len(shuffled))
    first = {receptacle.type: receptacle for receptacle in reversed(shuffled)}
    kept = [first[kind] for kind in ESSENTIAL if kind in first]
    if not any(kind in first for kind in ESSENTIAL):
        # Living rooms and bedrooms keep a place for a lamp instead.
        kept = [first[kind] for kind in LAMP_STANDS if kind in first][:1]
    copies = Counter(receptacle.type for receptacle in kept)
    for receptacle in shuffled:
        if len(kept) >= count:
            break
        # Twenty cabinets would leave no room for anything else.
        if receptacle not in kept and copies[receptacle.type] < SMALL_SAME_TYPE:
            kept.append(receptacle)
            copies[receptacle.type] += 1
    rng.shuffle(kept)
    return tuple(kept)


def _place_objects(
    plan: ScenePlan, family: str, receptacles: Sequence[Receptacle], rng: random.Random
) -> tuple[Thing, ...]:
    _, classes = assets.layout(plan.room)
    homes = {
        kind: fitting
        for kind in sorted(assets.pickable_types().intersection(classes))
        if (fitting := [r for r in receptacles if kind in assets.can_hold(r.type)])
    }
    order = sorted(homes)
    rng.shuffle(order)
    limit = None if plan.objects is None else rng.randint(*plan.objects)
    placed: list[Thing] = []

    def place(kind: str, home: Receptacle) -> None:
        x, y, z = (rng.uniform(-3, 3) for _ in range(3))
        # The running number keeps identities unique even if coordinates coincide.
        identity = f"{kind}|{_position(x, abs(y), z)}|{len(placed)}"
        placed.append(Thing(identity, kind, home))

    stands = [r for r in receptacles if r.type in LAMP_STANDS]
    if family in ("LivingRoom", "Bedroom") and stands and any(lamp in classes for lamp in LAMPS):
        place("DeskLamp", rng.choice(stands))
    for kind in order:
        copies = rng.choice((1, 1, 1, 2, 2, MOST_COPIES))
        for _ in range(copies):
            if limit is not None and len(placed) >= limit:
                break
            place(kind, _home(homes[kind], rng))
    while limit is not None and len(placed) < limit and order:
        kind = rng.choice(order)
        place(kind, _home(homes[kind], rng))
    return tuple(placed)


def _home(fitting: Sequence[Receptacle], rng: random.Random) -> Receptacle:
    # Draw the type first, then the instance: otherwise nearly everything would be in cabinets.
    kind = rng.choice(sorted({receptacle.type for receptacle in fitting}))
    return rng.choice([receptacle for receptacle in fitting if receptacle.type == kind])
