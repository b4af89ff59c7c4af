"""The families of tasks, by name."""

from __future__ import annotations

from rlanything_physics.families.balance import Balance
from rlanything_physics.families.base import WorldFamily
from rlanything_physics.families.push import Push
from rlanything_physics.families.slope import Slope
from rlanything_physics.families.throw import Throw

FAMILIES: dict[str, WorldFamily] = {
    family.name: family for family in (Push(), Balance(), Throw(), Slope())
}
