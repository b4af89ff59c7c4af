"""Runs a recipe to its end while killing it again and again; a script, run by test_survival.py.

python survivor.py RECIPE DIRECTORY LIKE KILLS SEED [override ...]

Every attempt is a forked child, so that torch is imported once. A child is killed with SIGKILL from
a thread of its own, a random time after a phase began, within what that phase took in the finished
run LIKE: anywhere, then, also within a checkpoint or a transaction. Prints one JSON object: how
many kills were aimed at each phase and fell.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

ORDER = (
    "eval in_domain",
    "eval ood",
    "eval judge",
    "rollouts",
    "judgements",
    "proposals",
    "policy update",
    "judge update",
    "checkpoint",
    "store",
)
"""The phases kills are aimed at, one after the other."""
LATER = 0.25
"""How often a kill waits for the second time its phase begins: an iteration is kept in between."""


def durations(run: Path) -> dict[str, float]:
    """Seconds that the phases of a finished run took, at most."""
    store = Store(run / "run.sqlite")
    rows = store.query(
        "SELECT name, MAX(value) FROM metrics WHERE name LIKE 'seconds/%' GROUP BY name"
    )
    store.close()
    taken = {name.removeprefix("seconds/"): seconds for name, seconds in rows}
    return {phase: taken[phase.replace(" ", "_")] for phase in ORDER}


class DeadlyView(Progress):
    """Kills its process `delay` seconds after a phase began for the `nth` time."""

    def __init__(self, phase: str, nth: int, delay: float) -> None:
        super().__init__(Console(quiet=True))
        self._phase, self._left, self._delay = phase, nth, delay

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        if name == self._phase:
            self._left -= 1
            if not self._left:
                threading.Thread(target=self._kill, daemon=True).start()
        with super().phase(name, total, unit) as advance:
            yield advance

    def _kill(self) -> None:
        time.sleep(self._delay)
        os.kill(os.getpid(), signal.SIGKILL)


def attempt(
    recipe: Path, directory: Path, overrides: list[str], workers: int, progress: Progress
) -> int:
    """The exit status of a child that starts or resumes the run."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            workers_override = [f"environment.workers={workers}"]
            if (directory / "run.sqlite").exists():
                Trainer.resume(directory, overrides=workers_override, progress=progress).train()
            else:
                changes = [f"run_dir={directory}", *overrides, *workers_override]
                Trainer(load_recipe(recipe, changes), progress=progress).train()
            status = 0
        finally:
            # Whatever it raised has been printed; a child must not run its parent's clean-up.
            if status:
                sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
            os._exit(status)
    return os.waitpid(child, 0)[1]


def main() -> None:
    recipe, directory, like, kills, seed, *overrides = sys.argv[1:]
    rng = random.Random(int(seed))
    seconds = durations(Path(like))
    killed: Counter[str] = Counter()
    while True:
        alive = killed.total() == int(kills)
        phase = ORDER[killed.total() % len(ORDER)]
        nth = 2 if not phase.startswith("eval") and rng.random() < LATER else 1
        progress = DeadlyView(phase, nth, rng.uniform(0, seconds[phase]))
        progress = Progress(Console(quiet=True)) if alive else progress
        status = attempt(Path(recipe), Path(directory), overrides, rng.choice([1, 2, 4]), progress)
        if os.WIFSIGNALED(status) and not alive:
            killed[phase] += 1
        elif status:
            sys.exit(f"an attempt failed with status {status}")
        else:
            break  # it reached its end, perhaps before the blow
    print(json.dumps(killed))


if __name__ == "__main__":
    main()
