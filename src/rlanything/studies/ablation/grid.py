"""The grid: every arm with every seed, each a run of its own in a process of its own.

A run that has finished is left alone, one that was interrupted is resumed, one that fails is named
and the others go on: the same command always does what is left to do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic.main import IncEx

from rlanything.config.recipe import Recipe, RecipeError, first_difference, load_recipe
from rlanything.progress import Progress
from rlanything.runs.baseline import has_baseline
from rlanything.runs.lock import RunLock
from rlanything.runs.stopping import Stopped, Stopper
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.studies.ablation.arms import Arm

COMMAND = (sys.executable, "-m", "rlanything.cli")
"""What trains, and resumes."""
LEDGER = "ledger.jsonl"
"""How long each process took, and how it ended."""
LOOK_SECONDS = 2.0
"""Between two looks at how far the runs are."""
STOP_SECONDS = 120.0
"""A run that has not stopped so long after it was told to is killed: it loses an iteration."""
MAY_DIFFER: IncEx = {
    **dict.fromkeys(("run_dir", "environment", "checkpoints", "store"), True),
    "evaluation": {"baseline"},
}
"""What changes no result."""


class GridError(ValueError):
    """A grid cannot be run; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm with one seed."""

    arm: str
    seed: int
    folder: Path
    """The run directory."""
    overrides: tuple[str, ...]
    """All that makes the recipe this run's."""
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def store(self) -> Path:
        return self.folder / "run.sqlite"

    @property
    def log(self) -> Path:
        """What the run says."""
        return self.folder.with_suffix(".log")

    def finished(self) -> bool:
        """Whether its run is at its end. Raises `GridError` where another run is in its place."""
        if not self.folder.exists():
            return False
        self._check_recipe()
        with closing(Store(self.store)) as store:
            return store.finished()

    def iterations(self) -> int:
        """How many it has done."""
        try:
            with closing(Store(self.store)) as store:
                return (store.last_iteration() or (0, ""))[0]
        except StoreError:  # it has not begun
            return 0

    def _check_recipe(self) -> None:
        try:
            there = load_recipe(self.folder / "recipe.yaml")
        except RecipeError as error:
            raise GridError(f"{self.folder} is in the way: {error}; choose another --out") from None
        one, two = (each.model_dump(exclude=MAY_DIFFER) for each in (there, self.recipe))
        if (key := first_difference(one, two)) is not None:
            raise GridError(
                f"{self.folder} is a run of another recipe ({key} differs); choose another --out, "
                "or ask for the arms, seeds and overrides it was begun with"
            )


def make_cells(
    recipe: Path, overrides: Sequence[str], arms: Sequence[Arm], seeds: int, out: Path
) -> list[Cell]:
    """Seed by seed, so that what is there first can be compared. Every recipe is checked.

    A run has one thread unless an override says otherwise: its results then do not depend on how
    many run at once. Raises `RecipeError`, and `GridError` for what is the grid's to say."""
    for override in overrides:
        if override.startswith(("seed=", "run_dir=")):
            raise GridError(f"override {override!r}: --seeds and --out say that; leave it out")
    cells: list[Cell] = []
    for seed in range(seeds):
        for arm in arms:
            folder = out / arm.name / f"seed-{seed}"
            own = ("threads=1", *overrides, *arm.overrides, f"seed={seed}", f"run_dir={folder}")
            cells.append(Cell(arm.name, seed, folder, own, load_recipe(recipe, own)))
    for cell in cells:
        if not cell.recipe.evaluation.episodes or not cell.recipe.evaluation.splits:
            raise GridError(f"{cell.arm}: evaluation is off, so there is nothing to compare")
    return cells


def runs_at_once(cells: Sequence[Cell]) -> int:
    """As many as their threads leave cores for; one where a model is on a device that they would
    share."""
    cores = len(os.sched_getaffinity(0))
    recipes = [cell.recipe for cell in cells]
    if any(role.device != "cpu" for r in recipes for role in (r.policy, r.judge, r.adapter)):
        return 1
    return max(1, cores // max(recipe.threads or cores for recipe in recipes))


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    begun: float


def run_grid(
    recipe: Path, cells: Sequence[Cell], out: Path, parallel: int, progress: Progress
) -> dict[str, str]:
    """Runs what is left to run, `parallel` at a time; why each run failed that did, by its name.

    Raises `GridError` before anything runs if a folder holds another recipe's run, `LockedError` if
    another process is at work in `out`, and `Stopped` on SIGINT and SIGTERM, once every run has
    stopped where it can go on."""
    waiting = deque(cell for cell in cells if not cell.finished())
    finished = len(cells) - len(waiting)
    if finished:
        progress.log(f"{finished} of {len(cells)} runs are there already")
    failed: dict[str, str] = {}
    running: dict[str, _Running] = {}
    by_name = {cell.name: cell for cell in cells}
    done = {cell.name: cell.recipe.loop.iterations for cell in cells if cell not in waiting}
    out.mkdir(parents=True, exist_ok=True)
    stopper = Stopper()
    total = sum(cell.recipe.loop.iterations for cell in cells)
    with (
        RunLock(out),
        stopper.listening(),
        progress.live(),
        progress.phase("grid", total, "iterations") as advance,
    ):
        try:
            advance(told := sum(done.values()))
            while waiting or running:
                while waiting and len(running) < parallel:
                    cell = waiting.popleft()
                    running[cell.name] = _start(recipe, cell, cells)
                _wait(running)
                for name, each in list(running.items()):
                    cell = by_name[name]
                    done[name] = cell.iterations()
                    if each.process.poll() is None:
                        continue
                    del running[name]
                    seconds = _note(out, cell, each)
                    problem = None if each.process.returncode == 0 else _last_line(cell.log)
                    if problem is not None:
                        failed[name] = problem
                    finished += problem is None
                    ended = problem or f"finished in {seconds / 60:.1f} min"
                    progress.log(f"{name}: {ended} ({finished} of {len(cells)} runs)")
                advance(sum(done.values()) - told)
                told = sum(done.values())
        except Stopped as stop:
            stop.add_note("the same command goes on with the grid")
            raise
        finally:
            _stop(running, lambda name, each: _note(out, by_name[name], each))
    return failed


def _start(recipe: Path, cell: Cell, cells: Sequence[Cell]) -> _Running:
    """A session of its own: Ctrl-C reaches the grid, which tells its runs.

    What a run of the grid that began alike has measured before training is not measured again."""
    cell.folder.parent.mkdir(parents=True, exist_ok=True)
    if cell.folder.exists():
        what = ["resume", cell.folder]
    else:
        like = (each.folder for each in cells if has_baseline(each.folder, cell.recipe))
        baseline = [f"evaluation.baseline={folder}" for folder in islice(like, 1)]
        what = ["train", recipe.resolve(), *cell.overrides, *baseline]
    with cell.log.open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, *map(str, what)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Running(process, time.perf_counter())


def _wait(running: dict[str, _Running]) -> None:
    """Until a run ends, or it is time to look how far they are."""
    until = time.monotonic() + LOOK_SECONDS
    while time.monotonic() < until:
        if any(each.process.poll() is not None for each in running.values()):
            return
        time.sleep(0.05)


def _stop(running: dict[str, _Running], note: Callable[[str, _Running], float]) -> None:
    """Tells every run to stop, and waits until they have."""
    for each in running.values():
        each.process.send_signal(signal.SIGINT)
    for name, each in running.items():
        try:
            each.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
        note(name, each)


def _note(out: Path, cell: Cell, each: _Running) -> float:
    """An entry in the ledger; the seconds."""
    seconds = time.perf_counter() - each.begun
    entry = {
        "arm": cell.arm,
        "seed": cell.seed,
        "seconds": round(seconds, 1),
        "exit_code": each.process.returncode,
    }
    with (out / LEDGER).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(entry) + "\n")
    return seconds


def spent_seconds(out: Path, cells: Sequence[Cell]) -> float:
    """What the processes of these runs have taken, the interrupted ones too."""
    wanted = {(cell.arm, cell.seed) for cell in cells}
    path = out / LEDGER
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    entries = [json.loads(line) for line in lines]
    return sum(e["seconds"] for e in entries if (e["arm"], e["seed"]) in wanted)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"failed: {lines[-1] if lines else 'it said nothing'}"
