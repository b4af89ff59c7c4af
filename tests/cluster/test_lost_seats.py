"""A run whose seats are killed again and again is the run that was never disturbed, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.paths import TINY
from helpers.survivor import durations
from rlanything.cluster.base import SeatLost
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer
from runs.test_survival import TINIER, fingerprint

pytestmark = pytest.mark.timeout(600)
FEWER = ("evaluation.episodes=2", "evaluation.judged_episodes=1", "loop.iterations=4")
QUIET = Progress(Console(quiet=True))
PHASES = (
    *("eval in_domain", "eval judge", "rollouts", "judgements", "proposals"),
    *("policy update", "judge update", "checkpoint"),
)


class Killer(Progress):
    """Kills a random seat, again and again, a random time after a phase began."""

    def __init__(self, kills: int, seconds: dict[str, float], seed: int) -> None:
        super().__init__(Console(quiet=True))
        self.trainer: Any = None
        self.killed = Counter[str]()
        self._left, self._seconds, self._rng = kills, seconds, random.Random(seed)
        self._in_a_row = 0

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        if name == "store":
            self._in_a_row = 0  # more in a row than that, without an iteration, end a run
        aimed = PHASES[self.killed.total() % len(PHASES)]
        if name == aimed and self.killed.total() < self._left and self._in_a_row < 2:
            self._in_a_row += 1
            self.killed[name] += 1
            seats = seats_of(self.trainer)
            victim, delay = self._rng.choice(seats), self._rng.uniform(0, self._seconds[name])
            threading.Thread(target=self._kill, args=(victim, delay), daemon=True).start()
        with super().phase(name, total, unit) as advance:
            yield advance

    def _kill(self, victim: int, delay: float) -> None:
        time.sleep(delay)
        with suppress(ProcessLookupError):  # the run ended before the blow
            os.kill(victim, signal.SIGKILL)


def seats_of(trainer: Any) -> list[int]:
    """The process ids of a run's seats."""
    return trainer._session.loaded.components.models._seats.process_ids


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    trainer(run, QUIET).train()
    return run


def trainer(run: Path, progress: Progress, *more: str) -> Trainer:
    changes = [f"run_dir={run}", *TINIER, *FEWER, "cluster.seats=2", *more]
    return Trainer(TINY, overrides=changes, progress=progress)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_seats_killed_in_every_phase_change_nothing(
    undisturbed: Path, tmp_path: Path, seed: int
) -> None:
    killer = Killer(len(PHASES), durations(undisturbed), seed)
    killer.trainer = trainer(tmp_path / "run", killer)
    killer.trainer.train()
    assert killer.killed == dict.fromkeys(PHASES, 1)
    assert fingerprint(tmp_path / "run") == fingerprint(undisturbed)


def test_seats_that_are_lost_again_and_again_end_the_run_with_one_line(tmp_path: Path) -> None:
    class Always(Progress):
        """Kills a seat whenever rollouts begin."""

        trainer: Any = None

        @contextmanager
        def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
            if name == "rollouts":
                os.kill(seats_of(self.trainer)[1], signal.SIGKILL)
            with super().phase(name, total, unit) as advance:
                yield advance

    killer = Always(Console(quiet=True))
    killer.trainer = trainer(tmp_path / "run", killer, "evaluation.episodes=0")
    with pytest.raises(SeatLost, match=r"died \(exit status -9") as caught:
        killer.trainer.train()
    assert "\n" not in str(caught.value)
    assert caught.value.__notes__ == [f"continue with `rlanything resume {tmp_path / 'run'}`"]


@pytest.mark.slow
def test_after_a_lost_seat_the_next_evaluation_starts_seats_anew(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", QUIET)
    before = run.evaluate("in_domain", episodes=4)
    os.kill(seats_of(run)[1], signal.SIGKILL)
    with pytest.raises(SeatLost, match="seat 1"):
        run.evaluate("in_domain", episodes=4)
    assert run.evaluate("in_domain", episodes=4).trajectories == before.trajectories
