"""Push a block over a rough floor to a line, against the wind, and let it stop there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlanything_physics.families.base import (
    LEVELS,
    Failure,
    Parameter,
    Setting,
    Shown,
    WorldFamily,
    level,
    share,
    whole,
)
from rlanything_physics.simulation import Simulation

SECONDS = 0.25
"""Duration of a push."""
SPAN = 0.03
"""Unit of shown distances, in metres."""
PACE = 0.05
"""Unit of shown speeds, in metres per second."""
NEAR = 0.06
"""Distance from the line, in metres, at which the block is there."""
STILL = 0.08
"""Speed, in metres per second, below which it stands."""


def full_force(p: Setting) -> float:
    """Returns the force of push 3, in newtons."""
    return 0.5 * p["power"]


def mass(p: Setting) -> float:
    """Returns the mass of the block, in kilograms."""
    return 0.2 * p["mass"] + 0.4


def grip(p: Setting) -> float:
    """Returns the friction of the moving block, in newtons."""
    return 0.02 * p["friction"] * mass(p) * 9.81


def wind(p: Setting) -> float:
    """Returns the force of the wind, in newtons; positive towards the line."""
    return 0.05 * p["wind"]


class Push(WorldFamily):
    """A block on a floor with dry friction."""

    name = "push"
    goal = "Push the block to the line and let it stop there."
    actions = tuple(f"push {n}" for n in LEVELS)
    parameters = (
        Parameter("distance", 4, 12, 2, 18, "more"),
        Parameter("mass", 2, 6, 1, 9, "more"),
        Parameter("friction", 2, 6, 1, 9, "less"),
        Parameter("power", 4, 8, 2, 10, "less"),
        Parameter("wind", -2, 2, -5, 5, "away"),
    )
    decisions = 14

    def xml(self, p: Setting) -> str:
        rough = f'friction="{0.02 * p["friction"]} .005 .0001"'
        return f"""<mujoco><option timestep="0.005"/><worldbody>
        <geom type="plane" size="9 1 .1" {rough}/>
        <geom type="box" size=".01 .3 .001" pos="{0.1 * p["distance"]} 0 0" contype="0"
          conaffinity="0" rgba=".9 .1 .1 1"/>
        <body pos="0 0 .05"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom type="box" size=".05 .05 .05" mass="{mass(p)}" {rough}/></body>
        </worldbody></mujoco>"""

    def act(self, world: Simulation, p: Setting, action: str, taken: int) -> int | None:
        world.push(0, share(action) * full_force(p) + wind(p))
        world.run(SECONDS)
        far = 0.1 * p["distance"] - world.position()
        if abs(far) <= NEAR and abs(world.speed()) < STILL:
            return 1
        return -1 if abs(far) > 2 else None

    def show(self, world: Simulation, p: Setting) -> str:
        far = whole(0.1 * p["distance"] - world.position(), SPAN)
        return f"far {far} speed {whole(world.speed(), PACE)}"

    def decide(self, p: Setting, shown: Shown) -> tuple[str, str]:
        far, speed = SPAN * shown["far"], PACE * shown["speed"]
        # A speed from which friction and a light push back stop the block in time.
        way = 1.2 * (grip(p) / mass(p) + 0.4) * max(0.0, abs(far) - 0.04)
        wish = PACE * whole(math.copysign(min(0.6, math.sqrt(way)), far), PACE)
        moving = speed if shown["speed"] else wish
        held = math.copysign(grip(p), moving) if moving else 0.0
        force = (wish - speed) * mass(p) / SECONDS + held - wind(p)
        if not moving:
            force = 0.0
        chosen = level(force, full_force(p))
        if not shown["speed"] and wish and not chosen:
            chosen = 1 if wish > 0 else -1
        return f"go {whole(wish, PACE)} force {whole(force, 0.2)}", f"push {chosen}"

    def failure(self, p: Setting, shown: Sequence[Shown]) -> Failure:
        last, fastest = shown[-1], max(each["speed"] for each in shown)
        said = f"after a speed of {fastest}"
        if min(each["far"] for each in shown) < -2:
            text = f"The block slid past the line, {said}, and was at {last['far']}."
            return Failure(text, ("friction", "wind"))
        if last["speed"] > 0:
            return Failure(
                f"The block was still {last['far']} away and moving, {said}.", ("distance",)
            )
        return Failure(
            f"The block stood still {last['far']} before the line, {said}.",
            ("mass", "power", "distance"),
        )
