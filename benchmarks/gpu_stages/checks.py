"""A stage's outcome: checks with a figure and a verdict, or the reason why it did not run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from rlanything_planning.seconds import GPUS

Mark = Literal["PASS", "FAIL", "SKIP"]


class Missing(Exception):
    """A stage lacks something that it needs; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a stage. `passed` is None where a figure is only told."""

    name: str
    figure: str
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A stage that ran, or did not."""

    mark: Mark
    seconds: float
    checks: tuple[Check, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """The device, and how much is done on it."""

    device: str
    dry: bool
    folder: Path
    """For what a stage writes; it goes away."""

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"

    def speed(self, passed: bool) -> bool | None:
        """Returns a verdict on speed or memory, which tiny sizes on a CPU have none on."""
        return None if self.dry else passed

    def synchronize(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object], warm_up: int, rounds: int) -> float:
        """Returns the median time of a piece of work, which is done before to warm up."""
        times: list[float] = []
        for turn in range(warm_up + rounds):
            self.synchronize()
            begun = time.perf_counter()
            work()
            self.synchronize()
            if turn >= warm_up:
                times.append(time.perf_counter() - begun)
        return statistics.median(times)

    def peak_flops(self) -> tuple[float, str]:
        """Returns the FLOP/s of dense products in bfloat16, of the data sheet or else measured, and
        which."""
        name = torch.cuda.get_device_name().lower() if self.gpu else "this CPU"
        for known, (_, peak, _) in GPUS.items():
            if known.split("-")[0] in name:
                return peak, f"data sheet of {known}"
        size = 256 if self.dry else 8192
        matrix = torch.randn(size, size, device=self.device, dtype=torch.bfloat16)
        seconds = self.seconds(lambda: matrix @ matrix, 2, 5)
        return 2 * size**3 / seconds, f"measured: no data sheet of {name}"


def run(stage: Callable[[Bench], Iterable[Check]], bench: Bench) -> Outcome:
    """Runs a stage to its end, whatever that is; what it found until then is kept."""
    begun, checks = time.perf_counter(), list[Check]()
    try:
        checks.extend(stage(bench))
    except Missing as missing:
        return Outcome("SKIP", time.perf_counter() - begun, reason=str(missing))
    except Exception as error:  # a stage that breaks must not take the others with it
        said = (str(error).strip() or "no message").splitlines()[0]
        reason = f"{type(error).__name__}: {said}"
        return Outcome("FAIL", time.perf_counter() - begun, tuple(checks), reason)
    failed = any(check.passed is False for check in checks)
    return Outcome("FAIL" if failed else "PASS", time.perf_counter() - begun, tuple(checks))


def at_most(name: str, value: float, bound: float) -> Check:
    """Returns a check that a number is finite and within its bound."""
    return Check(
        name, f"{value:.2e} (at most {bound:.1e})", math.isfinite(value) and value <= bound
    )
