"""The simulation of one episode: a compiled world, forces on its first joint, and time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mujoco as _mujoco

# Its functions are loaded from a compiled module, which has no types.
mujoco: Any = _mujoco


@lru_cache(maxsize=512)
def _compiled(xml: str) -> Any:
    return mujoco.MjModel.from_xml_string(xml)


class Simulation:
    """A world in motion. The same calls give the same bits, in any process of one machine and
    release of MuJoCo."""

    def __init__(self, xml: str) -> None:
        self._model = _compiled(xml)
        self._data = mujoco.MjData(self._model)
        self.memory: dict[str, float] = {}
        """Numbers that a family keeps between decisions."""

    @property
    def model(self) -> Any:
        """The compiled world, an `MjModel`."""
        return self._model

    @property
    def data(self) -> Any:
        """Its state, an `MjData`."""
        return self._data

    def position(self, joint: int = 0) -> float:
        """Returns the position of a joint, in metres or radians."""
        return float(self._data.qpos[joint])

    def speed(self, joint: int = 0) -> float:
        """Returns the velocity of a joint, in metres or radians per second."""
        return float(self._data.qvel[joint])

    def place(self, joint: int, position: float, speed: float = 0.0) -> None:
        """Moves a joint, before the episode begins or between two throws."""
        self._data.qpos[joint] = position
        self._data.qvel[joint] = speed

    def push(self, joint: int, force: float) -> None:
        """Sets the force (N) or torque (N m) on a joint, until the next call."""
        self._data.qfrc_applied[joint] = force

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        mujoco.mj_step(self._model, self._data, round(seconds / self._model.opt.timestep))

    @property
    def state(self) -> bytes:
        """Returns the bytes of all positions and velocities."""
        return self._data.qpos.tobytes() + self._data.qvel.tobytes()
