"""The grid: every arm with every seed, each run in its own process.

A finished run is left alone, an interrupted one is resumed, and a failed one is reported while the
others continue. So the same command always completes the grid.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from rlanything.config.recipe import Recipe, RecipeError, first_difference, load_recipe
from rlanything.config.trust import KEYS_VARIABLE, mappings_in
from rlanything.domains.registry import load_domain
from rlanything.openmp import cores
from rlanything.plugins import CODE_VARIABLE, IMPORTS
from rlanything.progress import Progress
from rlanything.runs.baseline import has_baseline
from rlanything.runs.checkpoint import checkpoint_name
from rlanything.runs.directory import run_lock
from rlanything.runs.paths import CHECKPOINTS, RECIPE, STORE, run_path
from rlanything.runs.refusals import check_feedback, on_judged_steps
from rlanything.runs.stopping import Stopped, Stopper
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything_lab.ablation.arms import Arm

COMMAND = (sys.executable, "-P", "-m", "rlanything.cli")
"""The command that trains and resumes a run; files in the working directory cannot hide modules."""
LEDGER = "ledger.jsonl"
"""The file with the duration and the exit code of each process."""
POLL_SECONDS = 2.0
"""Seconds between two checks of the runs' progress."""
STOP_SECONDS = 120.0
"""Seconds after SIGINT at which a run that has not stopped is killed; it loses an iteration."""
JUDGE = "judge"
"""Name of the judge whose evaluation is compared, and whose model an arm may take over."""
MAY_DIFFER: dict[str, bool | set[str]] = {
    **dict.fromkeys(("run_dir", "environment", "checkpoints", "store", "tracker"), True),
    "evaluation": {"baseline"},
}
"""Settings that change no result."""


class GridError(ValueError):
    """An error that prevents a grid from running; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm with one seed."""

    arm: str
    seed: int
    folder: Path
    """The run directory."""
    overrides: tuple[str, ...]
    """The overrides that turn the recipe into this run's."""
    recipe: Recipe
    allow_code: bool = False
    """Whether all code that the recipe names was allowed, not only what an override names."""
    judge_of: str | None = None
    """Name of the cell whose trained judge this one uses; that cell has to finish first."""

    @property
    def name(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def store(self) -> Path:
        return self.folder / STORE

    @property
    def log(self) -> Path:
        """File for the run's output."""
        return self.folder.with_suffix(".log")

    def finished(self) -> bool:
        """Returns whether its run is finished. Raises `GridError` if another run is in its
        place."""
        if not self.folder.exists():
            return False
        self._check_recipe()
        with closing(Store(self.store)) as store:
            return store.finished()

    def iterations(self) -> int:
        """Returns the number of completed iterations."""
        try:
            with closing(Store(self.store)) as store:
                return (store.last_iteration() or (0, ""))[0]
        except StoreError:  # it has not started
            return 0

    @property
    def trained_judge(self) -> Path:
        """Folder of its judge once it has finished."""
        last = checkpoint_name(self.recipe.loop.iterations)
        return self.folder.absolute() / CHECKPOINTS / last / JUDGE

    def _check_recipe(self) -> None:
        try:
            there = load_recipe(run_path(self.folder, RECIPE), known=self.recipe)
        except RecipeError as error:
            raise GridError(
                f"{self.folder} cannot be used: {error}; choose another --out"
            ) from None
        one, two = (recipe.model_dump(exclude=MAY_DIFFER) for recipe in (there, self.recipe))
        if (key := first_difference(one, two)) is not None:
            raise GridError(
                f"{self.folder} is a run of another recipe ({key} differs); choose another --out, "
                "or ask for the arms, seeds and overrides it was begun with"
            )


def make_cells(
    recipe: Path,
    overrides: Sequence[str],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    out: Path,
    allow_code: bool = False,
) -> list[Cell]:
    """Returns the cells seed by seed, so that the first to finish can be compared; within each
    seed, cells whose judge others use come first. Every recipe is checked. `allow_code`: import
    code that it names.

    A run has one worker and one thread unless an override says otherwise, so that its results do
    not depend on the number of parallel runs. Raises `RecipeError`, and `GridError` for an override
    that the grid sets or a judge that no run trains."""
    for override in (*overrides, *(own for arm in arms for own in arm.overrides)):
        if override.startswith(("seed=", "run_dir=")):
            raise GridError(
                f"override {override!r}: --seeds, --first-seed and --out set that; leave it out"
            )
    cells: list[Cell] = []
    for seed in seeds:
        first = {arm.judge_of for arm in arms}
        made: dict[str, Cell] = {}
        for arm in sorted(arms, key=lambda arm: arm.name not in first):
            folder = out / arm.name / f"seed-{seed}"
            own = ("threads=1", "cluster.seats=1", *overrides, *arm.overrides)
            own = (*own, f"seed={seed}", f"run_dir={json.dumps(str(folder))}")
            source = made[arm.judge_of] if arm.judge_of is not None else None
            own = (*own, *_judge_from(source, arm))
            cell = load_recipe(recipe, own, allow_code=allow_code)
            before = source and source.name
            made[arm.name] = Cell(arm.name, seed, folder, own, cell, allow_code, before)
        cells += made.values()
    for cell in cells:
        if not cell.recipe.evaluation.episodes or not cell.recipe.splits:
            raise GridError(f"{cell.arm}: evaluation is off, so there is nothing to compare")
    _check_effect(cells)
    return cells


def _check_effect(cells: Sequence[Cell]) -> None:
    """Raises `GridError` for an arm that would only repeat another."""
    for arm, recipe in {cell.arm: cell.recipe for cell in cells}.items():
        if not on_judged_steps(recipe):
            continue  # a user's own domain may be importable only in its runs
        try:
            check_feedback(recipe, load_domain(recipe.domain.name, recipe.domain.options))
        except RecipeError as error:
            raise GridError(f"{arm}: {error}, or leave this arm out") from None


def _judge_from(source: Cell | None, arm: Arm) -> tuple[str, ...]:
    """Returns the override that uses a finished run's judge for the arm; empty without a source.

    Raises `GridError` if that run trains no judge."""
    if source is None:
        return ()
    if JUDGE not in source.recipe.trained_roles:
        raise GridError(
            f"{arm.name}: {source.arm} trains no judge that it could use; give the recipe a local "
            "judge that learns (judge.name: llm), or leave this arm out"
        )
    return (f"judge.model={json.dumps(str(source.trained_judge))}",)


def runs_at_once(cells: Sequence[Cell]) -> int:
    """Returns how many runs fit the cores with their threads; one if models share a device."""
    here = cores()
    recipes = [cell.recipe for cell in cells]
    if any(role.device != "cpu" for r in recipes for role in r.roles.values()):
        return 1
    return max(1, here // max(recipe.threads or here for recipe in recipes))


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    begun: float


def run_grid(
    recipe: Path, cells: Sequence[Cell], out: Path, parallel: int, progress: Progress
) -> dict[str, str]:
    """Runs the rest of the grid, `parallel` at a time. Returns the error of each failed run, by its
    name.

    Raises `GridError` before anything runs if a folder contains another recipe's run, and
    `LockedError` if another process is working in `out`. Raises `Stopped` on SIGINT and SIGTERM,
    once every run has stopped at a point from which it can be resumed."""
    waiting = deque(cell for cell in cells if not cell.finished())
    finished = len(cells) - len(waiting)
    if finished:
        progress.log(f"{finished} of {len(cells)} runs are there already")
    failed: dict[str, str] = {}
    running: dict[str, _Running] = {}
    by_name = {cell.name: cell for cell in cells}
    done = {cell.name: cell.recipe.loop.iterations for cell in cells if cell not in waiting}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GridError(f"--out {out}: {error.strerror}; name another folder") from error
    stopper = Stopper()
    total = sum(cell.recipe.loop.iterations for cell in cells)
    with (
        run_lock(out),
        stopper.listening(),
        progress.live(),
        progress.phase("grid", total, "iterations") as advance,
    ):
        try:
            advance(shown := sum(done.values()))
            while waiting or running:
                while len(running) < parallel and (cell := _next(waiting, running)) is not None:
                    if problem := _hindrance(cell, failed):
                        failed[cell.name] = problem
                        progress.log(f"{cell.name}: {problem}")
                    else:
                        with stopper.deferred():  # so that every started run is recorded
                            running[cell.name] = _start(recipe, cell, cells)
                _wait(running)
                for name, run in list(running.items()):
                    cell = by_name[name]
                    done[name] = cell.iterations()
                    if run.process.poll() is None:
                        continue
                    del running[name]
                    seconds = _note(out, cell, run)
                    problem = failure(run.process.returncode, cell.log)
                    if problem is not None:
                        failed[name] = problem
                    finished += problem is None
                    ended = problem or f"finished in {seconds / 60:.1f} min"
                    progress.log(f"{name}: {ended} ({finished} of {len(cells)} runs)")
                advance(sum(done.values()) - shown)
                shown = sum(done.values())
        except Stopped as stop:
            stop.add_note("the same command continues the grid")
            raise
        finally:
            _stop(running, lambda name, run: _note(out, by_name[name], run))
    return failed


def _next(waiting: deque[Cell], running: Mapping[str, _Running]) -> Cell | None:
    """Removes and returns the first cell in `waiting` that depends on no other; None if there is
    none."""
    ahead = {cell.name for cell in waiting} | running.keys()
    ready = next((cell for cell in waiting if cell.judge_of not in ahead), None)
    if ready is not None:
        waiting.remove(ready)
    return ready


def _hindrance(cell: Cell, failed: Mapping[str, str]) -> str | None:
    """Returns why a cell cannot begin: the run that should have trained its judge."""
    if cell.judge_of in failed:
        return f"not begun: it takes the judge of {cell.judge_of}, which failed"
    model = cell.recipe.judges[JUDGE].model
    if cell.judge_of is not None and not Path(model).is_dir():
        return (
            f"not begun: {cell.judge_of} has finished, but {model} is gone; "
            "delete that run and the same command makes it again"
        )
    return None


def _start(recipe: Path, cell: Cell, cells: Sequence[Cell]) -> _Running:
    """Starts a process in its own session: Ctrl-C reaches only the grid, which stops its runs.

    A baseline that another run of the grid has measured is not measured again."""
    cell.folder.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if cell.folder.exists():
        what = ["resume", cell.folder]
        # its overrides cannot be passed again
        environment |= _granted(cell.recipe, cell.allow_code)
    else:
        like = (other.folder for other in cells if has_baseline(other.folder, cell.recipe))
        baseline = [f"evaluation.baseline={json.dumps(str(folder))}" for folder in islice(like, 1)]
        allowed = ["--allow-code"] if cell.allow_code else []
        what = ["train", *allowed, recipe.resolve(), *cell.overrides, *baseline]
    with cell.log.open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, *map(str, what)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    return _Running(process, time.perf_counter())


def _granted(recipe: Recipe, allow_code: bool) -> dict[str, str]:
    """Returns the environment that grants a process what this recipe was allowed to do."""
    keys = [os.environ.get(KEYS_VARIABLE, "")]
    places = [
        (getattr(service, "key_variable", None), getattr(service, "url", ""))
        for role in recipe.model_sections
        for service in (role.engine, getattr(role, "learner", None))
    ]
    asked = [each for _, each in mappings_in(recipe.domain.options)]
    places += [(each.get("key_variable"), str(each.get("url", ""))) for each in asked]
    keys += [f"{variable}@{urlsplit(url).hostname or ''}" for variable, url in places if variable]
    code = {CODE_VARIABLE: "1"} if recipe.code or allow_code else IMPORTS.variables()
    return {KEYS_VARIABLE: ",".join(keys), **code}


def _wait(running: dict[str, _Running]) -> None:
    """Waits until a run ends, or it is time to check their progress."""
    until = time.monotonic() + POLL_SECONDS
    while time.monotonic() < until:
        if any(run.process.poll() is not None for run in running.values()):
            return
        time.sleep(0.05)


def _stop(running: dict[str, _Running], note: Callable[[str, _Running], float]) -> None:
    """Stops every run, and waits until it has ended."""
    for run in running.values():
        run.process.send_signal(signal.SIGINT)
    for name, run in running.items():
        try:
            run.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            run.process.kill()
            run.process.wait()
        note(name, run)


def _note(out: Path, cell: Cell, run: _Running) -> float:
    """Writes an entry in the ledger and returns the seconds."""
    seconds = time.perf_counter() - run.begun
    entry = {
        "arm": cell.arm,
        "seed": cell.seed,
        "seconds": round(seconds, 1),
        "exit_code": run.process.returncode,
    }
    path = out / LEDGER
    # A full disk may have cut the previous entry.
    cut = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as ledger:
        if cut:
            ledger.write("\n")
        ledger.write(json.dumps(entry) + "\n")
    return seconds


def spent_seconds(out: Path, cells: Sequence[Cell]) -> float:
    """Returns the total seconds of these runs' processes, including interrupted ones."""
    wanted = {(cell.arm, cell.seed) for cell in cells}
    path = out / LEDGER
    lines = path.read_bytes().splitlines() if path.is_file() else []
    seconds = 0.0
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):  # an entry that was cut
            entry = json.loads(line)
            seconds += entry["seconds"] if (entry["arm"], entry["seed"]) in wanted else 0.0
    return seconds


def failure(exit_code: int, log: Path) -> str | None:
    """Returns why a run failed, in words; None if it did not."""
    if exit_code == 0:
        return None
    if exit_code < 0:
        killed = exit_code == -signal.SIGKILL
        memory = " (as the system does when memory runs out)" if killed else ""
        return f"failed: ended by signal {-exit_code}{memory}; the same command resumes it"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"failed: {lines[-1] if lines else 'it said nothing'}"
