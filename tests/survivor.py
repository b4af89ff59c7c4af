"""Runs a recipe to its end while killing it again and again; a script, run by test_survival.py.

python survivor.py RECIPE DIRECTORY KILLS SEED [override ...]

Every attempt is a forked child, so that torch is imported once. A child is killed with SIGKILL from
a thread of its own, a random time after a phase began or ended: anywhere, then, also within a
checkpoint or a transaction. Prints one JSON object: where it was killed, and how often in all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from rlanything.config import load_recipe
from rlanything.training import Run
from rlanything.view import View

PHASES = {
    "eval in_domain": 0.6,
    "eval ood": 0.6,
    "eval judge": 0.5,
    "rollouts": 0.8,
    "judgements": 1.0,
    "proposals": 0.1,
    "policy update": 0.3,
    "judge update": 0.3,
    "after judge update": 0.25,
}
"""How long each may last, in seconds, so that kills fall inside. The last is when a checkpoint and
the store are written."""


class DeadlyView(View):
    """Kills its process `delay` seconds after a phase began."""

    def __init__(self, phase: str, delay: float) -> None:
        super().__init__(Console(quiet=True))
        self._phase, self._delay = phase, delay

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        if name == self._phase:
            self._doom()
        with super().phase(name, total, unit) as progress:
            yield progress
        if f"after {name}" == self._phase:
            self._doom()

    def _doom(self) -> None:
        def kill() -> None:
            time.sleep(self._delay)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()


def attempt(recipe: Path, directory: Path, overrides: list[str], workers: int, view: View) -> int:
    """The exit status of a child that starts or resumes the run."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            workers_override = [f"environment.workers={workers}"]
            if (directory / "run.sqlite").exists():
                Run.resume(directory, workers_override, view).train()
            else:
                changes = [f"run_dir={directory}", *overrides, *workers_override]
                Run(load_recipe(recipe, changes), view).train()
            status = 0
        finally:
            # Whatever it raised has been printed; a child must not run its parent's clean-up.
            if status:
                sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
            os._exit(status)
    return os.waitpid(child, 0)[1]


def main() -> None:
    recipe, directory, kills, seed, *overrides = sys.argv[1:]
    rng = random.Random(int(seed))
    killed: dict[str, int] = {}
    names = list(PHASES)
    while sum(killed.values()) < int(kills):
        phase = names[sum(killed.values()) % len(names)]
        view = DeadlyView(phase, rng.uniform(0, PHASES[phase]))
        status = attempt(Path(recipe), Path(directory), overrides, rng.choice([1, 2, 4]), view)
        if os.WIFSIGNALED(status):
            killed[phase] = killed.get(phase, 0) + 1
        elif status:
            sys.exit(f"an attempt failed with status {status}")
        else:
            break  # it reached its end before the blow
    view = View(Console(quiet=True))
    status = attempt(Path(recipe), Path(directory), overrides, rng.choice([1, 2, 4]), view)
    if status:
        sys.exit(f"the last attempt failed with status {status}")
    print(json.dumps({"killed": killed, "kills": sum(killed.values())}))


if __name__ == "__main__":
    main()
