"""Checks of an entry: from its file, from its runs, and by playing its games again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlanything.config.recipe import first_difference, load_recipe
from rlanything.progress import Progress
from rlanything.runs.directory import check_run
from rlanything.runs.paths import RECIPE
from rlanything.runs.recovery import last_position
from rlanything_lab.speedrun.challenge import Challenge, broken_rules, digest
from rlanything_lab.speedrun.entry import (
    Entry,
    canonical,
    content_digest,
    read_entry,
    signature_of,
    signer,
    success_of,
)
from rlanything_lab.speedrun.speedrun import (
    checkpoint_digest,
    play,
    run_folder,
    stated,
    training_digest,
)

SIGNERS = "allowed_signers"
"""Name of the file, next to entries, that names the keys of their authors."""
OVERRUN_SECONDS = 2.0
"""CPU seconds that a run may have used beyond its budget: they are read twice a second."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    what: str
    fault: str | None = None
    """The fault in words; None: there is none."""

    def __str__(self) -> str:
        return f"ok: {self.what}" if self.fault is None else f"FAILED: {self.what}: {self.fault}"


def check_entry(path: Path, board: Challenge) -> Iterator[Check]:
    """Yields what its file alone shows of an entry. Raises `SpeedrunError` if it is not one."""
    entry = read_entry(path)
    same = content_digest(entry) == entry.sha256
    yield Check("digest of the entry", None if same else "something was changed after it")
    if signature_of(path).is_file():
        yield _signature(path)
    yield Check("challenge is the board's", entry.challenge.difference(board))
    yield Check("rules", "; ".join(_broken(entry, board)) or None)
    yield Check("figures follow from the games", _wrong_figure(entry))


def check_runs(
    path: Path, out: Path, progress: Progress, *, replay: bool, allow_code: bool
) -> Iterator[Check]:
    """Yields what the runs in the folder of a speedrun show of an entry. `replay`: play its
    held-out games again. `allow_code`: import code that its recipe names."""
    entry = read_entry(path)
    for run in entry.runs:
        folder = run_folder(out, run.seed)
        check_run(folder)
        recipe = load_recipe(folder / RECIPE, allow_code=allow_code)
        other = first_difference(entry.recipe, stated(recipe))
        yield Check(f"seed {run.seed}, recipe", other and f"{other} differs")
        position = last_position(folder, progress.log)
        same = position.iteration == run.iterations
        same = same and checkpoint_digest(position) == run.checkpoint_sha256
        yield Check(f"seed {run.seed}, last checkpoint", None if same else "it is another")
        same = training_digest(folder) == run.training_sha256
        yield Check(f"seed {run.seed}, results of training", None if same else "they are others")
        if replay:
            games = play(entry.challenge, folder, run.seed, progress, allow_code)
            apart = sum(one != two for one, two in zip(games, run.games, strict=True))
            fault = f"{apart} of {len(games)} end differently" if apart else None
            yield Check(f"seed {run.seed}, games played again", fault)


def _signature(path: Path) -> Check:
    try:
        return Check(f"signature {signer(path, path.with_name(SIGNERS))}")
    except ValueError as error:
        return Check("signature", str(error))


def _broken(entry: Entry, board: Challenge) -> list[str]:
    try:
        return broken_rules(board, entry.recipe)
    except (KeyError, TypeError, AttributeError) as error:
        return [f"the recipe is not one ({error})"]


def _wrong_figure(entry: Entry) -> str | None:
    """Returns the first figure of an entry that does not follow from the rest of it."""
    challenge = entry.challenge
    if digest(canonical(entry.recipe)) != entry.recipe_sha256:
        return "recipe_sha256 is not of its recipe"
    if tuple(run.seed for run in entry.runs) != challenge.seeds:
        return f"runs are not of the seeds {', '.join(map(str, challenge.seeds))}"
    for run in entry.runs:
        if len(run.games) != challenge.games or set(run.games) - {"+", "-"}:
            return f"seed {run.seed} has not {challenge.games} games"
        if run.cpu_seconds > challenge.cpu_seconds + OVERRUN_SECONDS:
            return f"seed {run.seed} trained for {run.cpu_seconds:g} CPU seconds"
    recomputed = zip(success_of(entry.runs), entry.success, strict=True)
    if any(abs(one - two) > 1e-9 for one, two in recomputed):
        return "success is not that of its games"
    if abs(sum(run.cpu_seconds for run in entry.runs) - entry.cpu_seconds) > 0.01:
        return "cpu_seconds is not the sum of its runs"
    return None
