"""Drive a cart over a hill in time, never faster than a limit."""

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
"""Duration of a drive."""
FOOT, TOP, DOWN, END = 0.3, 0.9, 1.3, 1.9
"""Positions in metres: where the road climbs, is flat on the hill, descends, and ends."""
PACE = 0.1
"""Unit of shown speeds and of the limit, in metres per second."""
AHEAD = 0.125
"""Seconds of way ahead of the cart at which the road's grade is shown."""
RADIUS = 0.08


def full_force(p: Setting) -> float:
    """Returns the force of drive 3, in newtons."""
    return 0.6 * p["power"] + 2


def mass(p: Setting) -> float:
    """Returns the mass of the cart, in kilograms."""
    return 0.2 * p["mass"] + 0.8


def climb(p: Setting) -> float:
    """Returns the rise of the road for one metre, going up."""
    return top(p) / (TOP - FOOT)


def top(p: Setting) -> float:
    """Returns the height of the hill, in metres."""
    return 0.012 * p["height"]


class Slope(WorldFamily):
    """A cart on a hill with two ramps."""

    name = "slope"
    goal = "Drive over the hill in time, never faster than the limit."
    actions = tuple(f"drive {n}" for n in LEVELS)
    parameters = (
        Parameter("height", 3, 8, 1, 12, "more"),
        Parameter("mass", 2, 6, 1, 9, "more"),
        Parameter("power", 3, 7, 2, 9, "less"),
        Parameter("limit", 8, 12, 5, 15, "less"),
        Parameter("wind", -3, 3, -8, 8, "away"),
    )
    decisions = 18

    def xml(self, p: Setting) -> str:
        rise = top(p)
        angle = math.atan2(rise, TOP - FOOT)
        half, thick = math.hypot(rise, TOP - FOOT) / 2, 0.05

        def ramp(start: float, end: float, turn: float) -> str:
            x = (start + end) / 2 - math.sin(turn) * thick
            z = rise / 2 - math.cos(turn) * thick
            return (
                f'<geom type="box" pos="{x} 0 {z}" size="{half} .3 {thick}" '
                f'euler="0 {turn} 0" friction="0 0 0"/>'
            )

        return f"""<mujoco><compiler angle="radian"/><option timestep="0.005"/><worldbody>
        <geom type="plane" size="9 1 .1" friction="0 0 0"/>
        {ramp(FOOT, TOP, -angle)}{ramp(DOWN, END, angle)}
        <geom type="box" pos="{(TOP + DOWN) / 2} 0 {rise - 0.05}"
          size="{(DOWN - TOP) / 2} .3 .05" friction="0 0 0"/>
        <body pos="0 0 {RADIUS}"><joint type="slide" axis="1 0 0" damping=".1"/>
        <joint type="slide" axis="0 0 1"/>
        <geom type="sphere" size="{RADIUS}" mass="{mass(p)}" friction="0 0 0"/></body>
        </worldbody></mujoco>"""

    def act(self, world: Simulation, p: Setting, action: str, taken: int) -> int | None:
        world.push(0, share(action) * full_force(p) + 0.05 * p["wind"])
        world.run(SECONDS)
        if world.speed() > PACE * (p["limit"] + 0.5) or world.position() < -0.5:
            return -1
        return 1 if world.position() > END else None

    def show(self, world: Simulation, p: Setting) -> str:
        at, speed = world.position(), world.speed()
        ahead = at + AHEAD * speed
        grade = p["height"] if FOOT < ahead < TOP else -p["height"] if DOWN < ahead < END else 0
        return f"at {whole(at, 0.05)} speed {whole(speed, PACE)} grade {grade}"

    def decide(self, p: Setting, shown: Shown) -> tuple[str, str]:
        faster = p["limit"] - 3 - shown["speed"]
        tangent = climb(p) * (shown["grade"] > 0) - climb(p) * (shown["grade"] < 0)
        pull = mass(p) * 9.81 * tangent / (1 + tangent**2)
        force = pull - 0.05 * p["wind"] + 1.0 * mass(p) * PACE * faster / SECONDS
        return f"faster {faster} force {whole(force, 0.2)}", f"drive {level(force, full_force(p))}"

    def failure(self, p: Setting, shown: Sequence[Shown]) -> Failure:
        last, fastest = shown[-1], max(each["speed"] for each in shown)
        if last["speed"] >= p["limit"]:
            where = {0: "on a flat part", 1: "going up", -1: "going down"}[
                (last["grade"] > 0) - (last["grade"] < 0)
            ]
            text = f"The cart drove {last['speed']}, faster than {p['limit']}, {where}."
            return Failure(text, ("height", "limit") if last["grade"] < 0 else ("limit", "wind"))
        text = f"The cart was at {last['at']} at the end, with a speed of {last['speed']}"
        text = f"{text} and never more than {fastest}."
        return Failure(text, ("height", "mass", "power") if last["grade"] > 0 else ("limit",))
