"""Seats as the driver knows them: what can be asked of them, and how they are lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class SeatLost(ValueError):
    """A seat died, or was silent for too long: what all seats knew is gone with it. One line."""


@dataclass(frozen=True, slots=True)
class Call:
    """A method of `Seat` to be called, with what to call it on."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    apart: bool = False
    """Whether seats do it each for itself: one that fails leaves none waiting for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A seat's place among all, as the launcher assigns it."""

    rank: int
    size: int
    meeting: str
    """Where all seats meet, as `torch.distributed` takes it: `file://...` or `tcp://...`."""
    device: str
    """`cpu` or `cuda`: its own GPU is the only one that it sees."""
    threads: int
    """CPU threads of its models."""
    timeout_seconds: float
    """How long it waits for the others."""


class Seats(Protocol):
    """Processes that share the models' work. They do what they are asked, each in order."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    @property
    def alive(self) -> bool:
        """Whether they have not been ended."""
        ...

    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        """Makes calls, by seat, at the same time, and returns the results, by seat.

        `seconds`: how long there may be silence; `on_progress`: called with what seats report
        meanwhile. Raises what a call raised, and `SeatLost`, after which no seat is left."""
        ...

    def close(self) -> None:
        """Ends all seats."""
        ...
