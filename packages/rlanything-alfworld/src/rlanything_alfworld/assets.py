"""The data of the installed `alfworld` package: rules, grammar, constants, goals and room layouts.

Files are read in place. `import alfworld` would create a cache folder and load the vision stack, so
it is never imported; its two plain-data modules are executed on their own.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rlanything.domains.base import DomainError

REMEDY = 'pip install "rlanything[alfworld]"'


@cache
def package_folder() -> Path:
    """Returns the folder of the installed package. Raises `DomainError` if it is not installed."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise DomainError(f"AlfWorld is not installed: {REMEDY}")
    return Path(next(iter(spec.submodule_search_locations)))


def _read(relative: str) -> str:
    path = package_folder() / relative
    if not path.is_file():
        raise DomainError(f"AlfWorld's file {relative} is missing from {path.parent}: {REMEDY}")
    return path.read_text(encoding="utf-8")


def _plain_module(relative: str) -> ModuleType:
    module = ModuleType(Path(relative).stem)
    exec(compile(_read(relative), relative, "exec"), module.__dict__)
    return module


@cache
def pddl_domain() -> str:
    """Returns the rules of the world in PDDL."""
    return _read("data/alfred.pddl")


@cache
def grammar() -> str:
    """Returns the text grammar, with `UNKNOWN GOAL` in place of the task's sentence."""
    return _read("data/alfred.twl2")


@cache
def constants() -> Any:
    """Returns `gen/constants.py`: allowed placements, heatable objects, existing rooms and the
    like."""
    return _plain_module("gen/constants.py")


@cache
def goal_library() -> dict[str, dict[str, Any]]:
    """Returns `gen/goal_library.py`: task type -> its PDDL goal and its sentence templates."""
    return _plain_module("gen/goal_library.py").gdict


@cache
def layout(room: str) -> tuple[dict[str, list[float]], tuple[str, ...]]:
    """Returns the receptacles of a room, each with the pose from which it is used (x, z, rotation,
    horizon), and the classes of objects in the room."""
    poses = json.loads(_read(f"gen/layouts/{room}-openable.json"))
    classes = json.loads(_read(f"gen/layouts/{room}-objects.json"))
    return poses, tuple(classes)


@cache
def can_hold(receptacle_type: str) -> frozenset[str]:
    """Returns the object types that a receptacle of this type can hold."""
    return frozenset(constants().VAL_RECEPTACLE_OBJECTS.get(receptacle_type, ()))


@cache
def affording(action: str) -> frozenset[str]:
    """Returns the object types with an affordance: Heatable, Coolable, Cleanable, Toggleable or
    Sliceable."""
    return frozenset(constants().VAL_ACTION_OBJECTS[action])


@cache
def pickable_types() -> frozenset[str]:
    """Returns the whole object types that an agent can carry (slices appear only during play)."""
    held = frozenset[str]().union(*map(can_hold, constants().VAL_RECEPTACLE_OBJECTS))
    return frozenset(name for name in held if not name.endswith("Sliced"))


@cache
def receptacle_types() -> frozenset[str]:
    """Returns the receptacle types that cannot be moved."""
    known = constants()
    movable = set(known.MOVABLE_RECEPTACLES)
    return frozenset(name for name in known.VAL_RECEPTACLE_OBJECTS if name not in movable)
