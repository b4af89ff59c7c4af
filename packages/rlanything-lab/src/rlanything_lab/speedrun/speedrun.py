"""A speedrun: trains each seed within the budget, plays the held-out games, writes the entry."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rlanything.config.recipe import Recipe
from rlanything.progress import Progress
from rlanything.runs.checkpoint import MANIFEST
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything.runs.paths import STORE
from rlanything.runs.recovery import Position, last_position
from rlanything.runs.store.store import Store
from rlanything_lab.ablation.grid import COMMAND, failure
from rlanything_lab.speedrun.budget import on_cores, run_within
from rlanything_lab.speedrun.challenge import (
    Challenge,
    SpeedrunError,
    broken_rules,
    check_materials,
    digest,
)
from rlanything_lab.speedrun.entry import (
    Entry,
    SeedRun,
    canonical,
    check_key,
    outcomes,
    sign,
    success_of,
    write_entry,
)
from rlanything_lab.speedrun.provenance import Code, code_of, hardware


@dataclass(frozen=True, slots=True)
class SpeedrunRequest:
    """The arguments of the command."""

    challenge: Challenge
    changes: Sequence[str]
    """Overrides `section.key=value` of the challenge's recipe."""
    name: str
    out: Path
    """Folder of the runs and of the entry."""
    key: Path | None = None
    """SSH key that signs the entry; None: it is not signed."""

    @property
    def entry(self) -> Path:
        """File of the entry."""
        return self.out / "entry.json"


class _Finished(BaseModel):
    """A seed that is done, as the folder keeps it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    challenge: Challenge
    recipe_sha256: str
    code: Code
    run: SeedRun


def speedrun(request: SpeedrunRequest, progress: Progress) -> Entry:
    """Trains and measures the seeds that `out` does not have yet, and writes the entry.

    Raises `SpeedrunError` before anything runs if a rule is broken or models and games are not the
    challenge's, and for a run that fails or ends no iteration."""
    challenge = request.challenge
    if request.key is not None:
        check_key(request.key)
    recipe = challenge.load(request.changes)
    if broken := broken_rules(challenge, recipe.model_dump(mode="json")):
        raise SpeedrunError(broken[0])
    check_materials(challenge)
    code = code_of(recipe)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpeedrunError(f"--out {request.out}: {error.strerror}; name another") from None
    with on_cores(challenge.cores) as cores:
        runs = [_run(request, recipe, code, seed, progress) for seed in challenge.seeds]
    entry = Entry(
        name=request.name,
        challenge=challenge,
        changes=tuple(request.changes),
        recipe=stated(recipe),
        recipe_sha256=digest(canonical(stated(recipe))),
        code=code,
        machine=hardware(cores),
        runs=tuple(runs),
        success=success_of(runs),
        cpu_seconds=round(sum(run.cpu_seconds for run in runs), 2),
    )
    entry = write_entry(entry, request.entry)
    if request.key is not None:
        sign(request.entry, request.key)
    return entry


def stated(recipe: Recipe) -> dict[str, Any]:
    """Returns a recipe as an entry states it: without seed and folder, which differ by run."""
    return recipe.model_dump(mode="json", exclude={"seed", "run_dir"})


def run_folder(out: Path, seed: int) -> Path:
    """Returns the run directory of a seed."""
    return out / f"seed-{seed}"


def _run(
    request: SpeedrunRequest, recipe: Recipe, code: Code, seed: int, progress: Progress
) -> SeedRun:
    """Returns the result of a seed: the one that the folder has, or a new one."""
    challenge, folder = request.challenge, run_folder(request.out, seed)
    kept = folder.with_suffix(".json")
    asked = {
        "challenge": challenge.model_dump(mode="json"),
        "recipe_sha256": digest(canonical(stated(recipe))),
        "code": code.model_dump(mode="json"),
    }
    if kept.is_file():
        return _finished(kept, asked)
    if folder.exists():
        raise SpeedrunError(f"{folder} is of a speedrun that was interrupted: delete it")
    run = _train_and_play(request, seed, folder, progress)
    content = {**asked, "run": run.model_dump(mode="json")}
    kept.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return run


def _finished(kept: Path, asked: dict[str, Any]) -> SeedRun:
    try:
        finished = _Finished.model_validate_json(kept.read_bytes())
    except ValidationError:
        raise SpeedrunError(f"{kept} is not a result: delete it and the run next to it") from None
    for key, value in asked.items():
        if finished.model_dump(mode="json")[key] != value:
            raise SpeedrunError(f"{kept} is of a speedrun with another {key}; choose another --out")
    return finished.run


def _train_and_play(
    request: SpeedrunRequest, seed: int, folder: Path, progress: Progress
) -> SeedRun:
    challenge, log = request.challenge, folder.with_suffix(".log")
    overrides = challenge.overrides(request.changes)
    own = (f"seed={seed}", f"run_dir={json.dumps(str(folder))}")
    budget = f"{challenge.cpu_seconds:g} CPU seconds"
    progress.log(f"seed {seed}: training for {budget}; its lines are in {log}")
    spent = run_within(
        challenge.cpu_seconds,
        [*COMMAND, "train", challenge.recipe, *overrides, *own],
        log,
        os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    if spent.exit_code and (reason := failure(spent.exit_code, log)):
        raise SpeedrunError(f"seed {seed} {reason}; delete {folder} and begin again")
    position = last_position(folder, progress.log)
    if position.checkpoint is None:
        raise SpeedrunError(f"seed {seed}: the budget ended before an iteration did; make it less")
    minutes = spent.wall_seconds / 60
    progress.log(f"seed {seed}: {position.iteration} iterations in {minutes:.1f} min")
    games = play(challenge, folder, seed, progress)
    return SeedRun(
        seed=seed,
        iterations=position.iteration,
        cpu_seconds=round(spent.cpu_seconds, 2),
        wall_seconds=round(spent.wall_seconds, 1),
        checkpoint_sha256=checkpoint_digest(position),
        training_sha256=training_digest(folder),
        games=games,
    )


def play(
    challenge: Challenge, run: Path, seed: int, progress: Progress, allow_code: bool = True
) -> str:
    """Returns the outcomes of the held-out games, played by a run's last policy. `allow_code`:
    import code that the run's recipe names."""
    asked = EvalArgs(
        str(run),
        challenge.split,
        challenge.games,
        domain=None,
        max_steps=challenge.max_steps,
        temperature=challenge.temperature,
        seed=seed,
        workers=None,
        allow_code=allow_code,
    )
    return outcomes(run_eval(asked, progress).evaluation)


def checkpoint_digest(position: Position) -> str:
    """Returns the digest of a checkpoint's manifest. Raises `SpeedrunError` without a
    checkpoint."""
    if position.checkpoint is None:
        raise SpeedrunError("there is no intact checkpoint")
    return digest((position.checkpoint / MANIFEST).read_bytes())


def training_digest(run: Path) -> str:
    """Returns the digest of all results in a run's store."""
    with closing(Store(run / STORE)) as store:
        return digest("\n".join(store.dump()).encode())
