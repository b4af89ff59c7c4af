"""Throw a ball into a ring: each decision turns the launcher's dial and throws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlanything_physics.families.base import (
    Failure,
    Parameter,
    Setting,
    Shown,
    WorldFamily,
    whole,
)
from rlanything_physics.simulation import Simulation

TURNS = (-15, -5, -1, 0, 1, 5, 15)
FIRST = 25
"""The dial before the first throw."""
STRONGEST = 90
SPAN = 0.05
"""Unit of shown distances, in metres."""
TICK = 0.005
"""Time step, in seconds."""


def reach(p: Setting) -> float:
    """Returns the distance of a throw for one unit of the dial, in metres, without wind."""
    return 0.02 * (p["power"] + 3) ** 2 / (p["gravity"] + 20)


def tolerance(p: Setting) -> float:
    """Returns the largest distance from the middle of the ring of a ball that is in, in metres."""
    return 0.02 + 0.03 * p["ring"]


class Throw(WorldFamily):
    """A ball in flight. Its speed grows with the root of the dial, its reach with the dial."""

    name = "throw"
    goal = "Throw the ball into the ring."
    actions = tuple(f"turn {n}" for n in TURNS)
    parameters = (
        Parameter("distance", 10, 24, 5, 32, "more"),
        Parameter("gravity", 2, 8, 0, 14, "more"),
        Parameter("power", 5, 8, 3, 10, "less"),
        Parameter("wind", -3, 3, -6, 6, "away"),
        Parameter("ring", 1, 2, 0, 5, "less"),
    )
    decisions = 4

    def xml(self, p: Setting) -> str:
        ring = f'pos="{0.1 * p["distance"]} 0 0" size="{tolerance(p)} .001"'
        return f"""<mujoco><option timestep="{TICK}" gravity="0 0 {-0.5 * (p["gravity"] + 20)}"/>
        <worldbody><geom type="cylinder" {ring} rgba=".9 .1 .1 1"/>
        <body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom type="sphere" size=".05" mass=".1" contype="0" conaffinity="0"/></body>
        </worldbody></mujoco>"""

    def start(self, world: Simulation, p: Setting) -> None:
        world.memory["dial"] = FIRST

    def act(self, world: Simulation, p: Setting, action: str, taken: int) -> int | None:
        dial = max(1, min(STRONGEST, int(world.memory["dial"]) + int(action.split()[1])))
        miss = _landing(world, p, dial) - 0.1 * p["distance"]
        world.memory.update(dial=dial, miss=miss)
        return 1 if abs(miss) <= tolerance(p) else None

    def show(self, world: Simulation, p: Setting) -> str:
        dial, miss = int(world.memory["dial"]), world.memory.get("miss")
        if miss is None:
            return f"dial {dial} ring {whole(0.1 * p['distance'], SPAN)}"
        return f"dial {dial} {'long' if miss > 0 else 'short'} {whole(abs(miss), SPAN)}"

    def decide(self, p: Setting, shown: Shown) -> tuple[str, str]:
        if "ring" in shown:
            short = SPAN * shown["ring"] - shown["dial"] * reach(p)
        else:
            short = SPAN * (shown.get("short", 0) - shown.get("long", 0))
        wanted = short / reach(p)
        turn = min(TURNS, key=lambda each: abs(each - wanted))
        if not turn and "ring" not in shown:
            turn = 1 if short > 0 or "short" in shown else -1
        return f"wanted {whole(wanted)}", f"turn {turn}"

    def failure(self, p: Setting, shown: Sequence[Shown]) -> Failure:
        last = shown[-1]
        misses = [each["long"] if "long" in each else -each["short"] for each in shown[1:]]
        where = "long" if misses[-1] > 0 else "short"
        text = f"{len(misses)} balls fell {min(misses)} to {max(misses)} from the ring"
        text = f"{text}, the last {abs(misses[-1])} {where} at dial {last['dial']}."
        if min(misses) < 0 < max(misses):
            return Failure(text, ("ring", "wind"))
        return Failure(text, ("distance", "power") if where == "short" else ("gravity", "wind"))


def _landing(world: Simulation, p: Setting, dial: int) -> float:
    """Returns the distance at which a ball thrown with a dial comes down, in metres."""
    launch = 0.1 * (p["power"] + 3) * math.sqrt(dial) / math.sqrt(2)
    world.place(0, 0.0, launch)
    world.place(1, 0.0, launch)
    world.push(0, 0.02 * p["wind"])
    world.run(TICK)
    while world.position(1) > 0:
        world.run(TICK)
    return world.position()
