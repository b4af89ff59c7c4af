"""The task that every entry shares, and the rules that a recipe keeps.

The starting models, the games, the evaluation and the budget are fixed. Everything else may be
changed, by overrides and by plug-ins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rlanything.config.recipe import Recipe, first_difference, load_recipe
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.engines.shipped import NAMES
from rlanything.records import Task


class SpeedrunError(ValueError):
    """A speedrun cannot be run, written or read; the message is one line with the remedy."""


class Challenge(BaseModel):
    """A task: the recipe, its models and games, the budget, and the evaluation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    recipe: str
    """Name of the shipped recipe that overrides change."""
    models: str
    """Name of the shipped models that every role begins with."""
    models_sha256: str
    """Digest of all files of these models."""
    split: str
    """The held-out split that is played after training."""
    games: int
    """Number of held-out games, each played once per seed."""
    training_games: int
    """Number of games of the split `train`."""
    games_sha256: str
    """Digest of the held-out and the training games."""
    max_steps: int
    """Step limit of a held-out game."""
    temperature: float
    """The policy's sampling temperature in held-out games."""
    seeds: tuple[int, ...]
    """Seeds of the training runs; a run's seed also seeds the sampling in its held-out games."""
    cores: int
    """Number of cores that a run may use."""
    cpu_seconds: float
    """CPU seconds of a run, over all its processes; it is killed after them."""

    def load(self, changes: Iterable[str] = ()) -> Recipe:
        """Returns the recipe with the challenge's own overrides, then `changes`. Raises
        `RecipeError`."""
        return load_recipe(self.recipe, self.overrides(changes))

    def overrides(self, changes: Iterable[str]) -> list[str]:
        """Returns all overrides of a run but its seed and folder. The run does not evaluate, so
        that its CPU seconds are those of training; and only the budget ends it."""
        return ["evaluation.episodes=0", f"loop.iterations={ITERATIONS}", *changes]

    def difference(self, other: Challenge) -> str | None:
        """Returns the first difference to another challenge in words; None if they are equal."""
        one, two = self.model_dump(mode="json"), other.model_dump(mode="json")
        key = first_difference(one, two)
        return None if key is None else f"{key} is {one[key]}, not {two[key]}"


ITERATIONS = 1000
"""Number of iterations of a run that sets none, more than any budget allows."""
BOARD = Challenge(
    recipe="alfworld-published",
    models="nano-published",
    models_sha256="b154b3d9c6fef32b9603fe5dade858b73a0c66353b2ad68f2d47afde3fffd54e",
    split="ood",
    games=134,
    training_games=3230,
    games_sha256="5c46b2c6ecc00fde6e2cc2a42e4e5b08323d6581b590112ead4abdc63185e9a7",
    max_steps=50,
    temperature=1.0,
    seeds=(0, 1, 2),
    cores=2,
    cpu_seconds=3600,
)
"""The challenge of the published board (docs/speedrun.md)."""


def broken_rules(challenge: Challenge, recipe: Mapping[str, Any]) -> list[str]:
    """Returns the rules that a resolved recipe (its plain data) breaks, in words."""
    base = challenge.load().model_dump(mode="json")
    broken = [
        f"{key} is fixed: leave it as {challenge.recipe} has it"
        for section in ("name", "domain", "evaluation")
        if (key := first_difference(base[section], recipe.get(section), (section,)))
    ]
    roles: Mapping[str, Mapping[str, Any]] = recipe["roles"]
    for name, role in roles.items():
        if role["model"] not in (challenge.models, *roles):
            broken.append(f"{name}.model is fixed: every role begins with {challenge.models}")
        if "url" in role["engine"] or role.get("learner") is not None:
            broken.append(f"{name}: no other machine computes; use an engine and learner here")
        if role["device"] != "cpu":
            broken.append(f"{name}.device is fixed: the budget counts CPU seconds")
    return broken


def check_materials(challenge: Challenge) -> None:
    """Raises `SpeedrunError` unless this installation has the challenge's models and games, and
    `DomainError` if the games cannot be read."""
    if models_digest(challenge.models) != challenge.models_sha256:
        raise SpeedrunError(
            f"{challenge.models} of this installation has other weights than the challenge: "
            "install rlanything again"
        )
    if games_digest(challenge) != challenge.games_sha256:
        raise SpeedrunError(
            f"the games of {challenge.recipe} are not those of the challenge: download them again"
        )


def models_digest(name: str) -> str:
    """Returns the digest of a set of shipped models. Raises `SpeedrunError` if none ships."""
    if name not in NAMES:
        raise SpeedrunError(f"no models {name} are installed; install the package of their domain")
    return tree_digest(NAMES[name], "*/*")


def games_digest(challenge: Challenge) -> str:
    """Returns the digest of the held-out and the training games: their ids, instructions and data;
    of a game in a file, its content."""
    section = challenge.load().domain
    domain = load_domain(section.name, section.options)
    counts = {challenge.split: challenge.games, "train": challenge.training_games}
    lines = [
        f"{split} {_game(task)}"
        for split, count in counts.items()
        for task in checked_tasks(domain, split, count, seed=0)
    ]
    return digest("\n".join(sorted(lines)).encode())


def _game(task: Task) -> str:
    data = dict(task.data)
    if "path" in data:
        data["path"] = digest(Path(data["path"]).read_bytes())
    return json.dumps([task.id, task.instruction, data], sort_keys=True)


def tree_digest(folder: Path, pattern: str) -> str:
    """Returns the digest of the files in a folder that match a pattern, names included."""
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    lines = [f"{path.relative_to(folder).as_posix()} {digest(path.read_bytes())}" for path in files]
    return digest("\n".join(lines).encode())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
