"""Fast Downward's C library with one game loaded, shared by all episodes of that game.

A copy of the library has one global state. It costs 34 MB of disk traffic, some memory that is
never returned, and 0.1 s to open. But it numbers the states it has seen, so episodes take turns in
one copy, each with its own state number. A copy without episodes takes the next game.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, NamedTuple

import fast_downward

_idle: list[Any] = []


class Operator(NamedTuple):
    """A ground action that is possible in some state."""

    number: int
    name: str
    effects: int
    """Number of atoms that it sets in that state."""


class Planner:
    """A copy of the library with a game. A state is a number that `start` or `apply` returned. Not
    thread-safe."""

    start = 0
    """The initial state of a game."""

    def __init__(self, sas: bytes) -> None:
        self._library = _idle.pop() if _idle else _open_library()
        self._library.load_sas(sas)
        weakref.finalize(self, _idle.append, self._library)

    def atoms(self, state: int) -> list[str]:
        """Returns the atoms of a state: `Atom holds(agent1, ...)`, `NegatedAtom ...`."""
        self._library.set_state_id(state)
        atoms = (fast_downward.Atom * self._library.get_state_size())()
        self._library.get_state(atoms)
        return [atom.name for atom in atoms]

    def operators(self, state: int) -> list[Operator]:
        """Returns the possible actions of a state, in the planner's order."""
        self._library.set_state_id(state)
        operators = (fast_downward.Operator * self._library.get_applicable_operators_count())()
        self._library.get_applicable_operators(operators)
        return [Operator(op.id, op.name, op.nb_effect_atoms) for op in operators]

    def apply(self, state: int, operator: Operator) -> tuple[int, list[str]]:
        """Returns the state that an operator leads to, and the atoms it sets."""
        self._library.set_state_id(state)
        atoms = (fast_downward.Atom * operator.effects)()
        self._library.apply_operator(operator.number, atoms)
        return self._library.get_state_id(), [atom.name for atom in atoms]

    def won(self, state: int) -> bool:
        """Returns whether the goal holds."""
        self._library.set_state_id(state)
        return self._library.check_goal()


def _open_library() -> Any:
    library = fast_downward.load_lib()
    # The package declares its other functions, but not these two.
    library.set_state_id.argtypes, library.set_state_id.restype = [ctypes.c_int], None
    library.get_state_id.argtypes, library.get_state_id.restype = [], ctypes.c_int
    return library
