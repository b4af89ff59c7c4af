"""The driver's view of seats: calls to them, and their loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rlanything.config.engines import OnStage


class SeatLost(ValueError):
    """A seat died or was silent for too long, and the state of all seats is lost with it. The
    message is one line."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of `Seat`'s methods."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    apart: bool = False
    """Whether seats run it independently, so that a failure leaves no other seat waiting."""


@dataclass(frozen=True, slots=True)
class Place:
    """A seat's rank and settings, assigned by the launcher."""

    rank: int
    size: int
    meeting: str
    """Rendezvous URL for `torch.distributed`: `file://...` or `tcp://...`."""
    device: str
    """`cpu` or `cuda`; a seat sees only its own GPU."""
    threads: int
    """CPU threads of its models."""
    timeout_seconds: float
    """Time limit for waiting for the other seats."""


class Seats(Protocol):
    """Processes that share the models' work. Each runs its calls in order."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of seats."""
        ...

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether all are still running, as far as this is known without a call."""
        ...

    usable: bool
    """Whether they take calls: not after an interrupted one, nor after their end."""
    on_stage: OnStage
    """Called with the stages of starting that the seats report."""

    @abstractmethod
    def ask(
        self,
        calls: Mapping[int, Call],
        seconds: float,
        on_progress: Callable[[int], None] | None = None,
    ) -> dict[int, Any]:
        """Makes one call per seat, all at the same time, and returns their results by seat.

        `seconds`: longest silence of a seat; `on_progress`: called with the seats' progress
        reports. Raises a call's own error, or `SeatLost`, after which no seat is left."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Ends all seats."""
        ...
