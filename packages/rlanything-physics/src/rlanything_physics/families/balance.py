"""Keep a pole on a cart upright in the wind."""

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

SECONDS = 0.1
"""Duration of a move."""
FALLEN = 0.35
"""Angle, in radians, at which the pole has fallen."""
TRACK = 1.2
"""Distance from the middle, in metres, at which the cart leaves its track."""


def full_force(p: Setting) -> float:
    """Returns the force of move 3, in newtons."""
    return 1.2 * p["power"]


class Balance(WorldFamily):
    """A pole on a hinge on a cart."""

    name = "balance"
    goal = "Keep the pole up."
    actions = tuple(f"move {n}" for n in LEVELS)
    parameters = (
        Parameter("length", 4, 9, 3, 12, "less"),
        Parameter("tilt", -5, 5, -8, 8, "away"),
        Parameter("wind", -5, 5, -9, 9, "away"),
        Parameter("power", 3, 7, 2, 9, "less"),
        Parameter("time", 10, 15, 6, 16, "more"),
    )
    decisions = 16

    def xml(self, p: Setting) -> str:
        pole = f'fromto="0 0 0 0 0 {0.1 * p["length"]}" size=".02" mass=".2"'
        return f"""<mujoco><option timestep="0.01"/><worldbody>
        <body><joint type="slide" axis="1 0 0" damping=".1"/>
        <geom type="box" size=".1 .05 .05" mass="1"/>
        <body><joint type="hinge" axis="0 1 0"/><geom type="capsule" {pole}/></body></body>
        </worldbody></mujoco>"""

    def start(self, world: Simulation, p: Setting) -> None:
        world.place(1, math.radians(p["tilt"]))

    def act(self, world: Simulation, p: Setting, action: str, taken: int) -> int | None:
        world.push(0, share(action) * full_force(p))
        world.push(1, 0.01 * p["wind"])
        world.run(SECONDS)
        if abs(world.position(1)) > FALLEN or abs(world.position()) > TRACK:
            return -1
        return 1 if taken >= p["time"] else None

    def show(self, world: Simulation, p: Setting) -> str:
        del p
        cart, speed = whole(world.position(), 0.05), whole(world.speed(), 0.1)
        tilt = whole(math.degrees(world.position(1)))
        fall = whole(math.degrees(world.speed(1)), 5)
        return f"cart {cart} speed {speed} tilt {tilt} fall {fall}"

    def decide(self, p: Setting, shown: Shown) -> tuple[str, str]:
        tilt, fall = math.radians(shown["tilt"]), math.radians(5 * shown["fall"])
        cart, speed = 0.05 * shown["cart"], 0.1 * shown["speed"]
        force = 30 * tilt + 6 * fall * math.sqrt(p["length"] / 6) + cart + 2 * speed
        return f"force {whole(force)}", f"move {level(force, full_force(p))}"

    def failure(self, p: Setting, shown: Sequence[Shown]) -> Failure:
        last, lasted = shown[-1], len(shown) - 1
        if abs(last["cart"]) >= whole(TRACK, 0.05) - 1:
            side = "right" if last["cart"] > 0 else "left"
            return Failure(
                f"The cart left its track on the {side} at time {lasted}.", ("wind", "time")
            )
        side = "right" if last["tilt"] > 0 else "left"
        towards = "with" if last["tilt"] * p["wind"] > 0 else "against"
        begun = "as it leaned at first" if last["tilt"] * p["tilt"] > 0 else "not as it leaned"
        text = f"The pole fell {side}, {towards} the wind and {begun}, at time {lasted}."
        if lasted <= 4:
            return Failure(text, ("tilt", "power"))
        return Failure(text, ("wind",) if towards == "with" else ("length", "time"))
