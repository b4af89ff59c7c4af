"""An entry: what was changed, what it won, and the digests of everything behind it.

An entry is a JSON file. Its `sha256` is the digest of all its other members, written as JSON with
sorted keys and without spaces. `ssh-keygen` can sign the file with the key of its author.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rlanything.evaluation.crossed import Counted, counted, crossed_difference, crossed_mean
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.success import Evaluation
from rlanything.files import read_plain, replace_file
from rlanything.strict_json import read_json
from rlanything.terminal import one_line
from rlanything_lab.speedrun.challenge import Challenge, SpeedrunError, digest
from rlanything_lab.speedrun.provenance import Code, Hardware

NAMESPACE = "rlanything-speedrun"
"""Namespace of the signatures, so that none can be taken from another file's use."""
WON, LOST = "+", "-"
_MOST_BYTES = 1 << 20


class SeedRun(BaseModel):
    """One training run and its held-out games."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: int
    iterations: int
    """Number of iterations that ended within the budget."""
    cpu_seconds: float
    """CPU seconds of training: set-up, rollouts, updates and checkpoints."""
    wall_seconds: float
    checkpoint_sha256: str
    """Digest of the manifest of the last checkpoint, which has the digests of its files."""
    training_sha256: str
    """Digest of all results of training in the run's store; times are left out."""
    games: str
    """`+` for each game that was won and `-` for each other, by the games' ids in order."""


class Entry(BaseModel):
    """A line of the board."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """Its author and idea in a few words."""
    challenge: Challenge
    changes: tuple[str, ...]
    """The overrides, as typed."""
    recipe: dict[str, Any]
    """The resolved recipe, without seed and folder."""
    recipe_sha256: str
    code: Code
    machine: Hardware
    runs: tuple[SeedRun, ...]
    success: tuple[float, float, float]
    """Share of games won, mean over the seeds, and its 95% interval over seeds and games."""
    cpu_seconds: float
    """CPU seconds of all runs together."""
    sha256: str = ""
    """Digest of all other members."""

    @property
    def interval(self) -> Interval:
        """`success` as an interval."""
        return Interval(*self.success)


def canonical(value: object) -> bytes:
    """Returns JSON with sorted keys, without spaces, in ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def content_digest(entry: Entry) -> str:
    """Returns the digest of all members but `sha256`."""
    return digest(canonical(entry.model_dump(mode="json", exclude={"sha256"})))


def success_of(runs: Sequence[SeedRun]) -> tuple[float, float, float]:
    """Returns the share of games won with its interval, as an entry holds it. Raises
    `SpeedrunError` without games."""
    interval = crossed_mean(_counted(runs))
    if interval is None:
        raise SpeedrunError("no game was played")
    return interval.estimate, interval.low, interval.high


def gain(before: Entry, after: Entry) -> Interval | None:
    """Returns the difference of two entries of the same challenge, paired by seed and game."""
    return crossed_difference(_counted(before.runs), _counted(after.runs))


def _counted(runs: Sequence[SeedRun]) -> Counted:
    games = [str(number) for number in range(max((len(run.games) for run in runs), default=0))]
    by_seed = [
        {game: [(int(outcome == WON), 1)] for game, outcome in zip(games, run.games, strict=False)}
        for run in runs
    ]
    return counted(by_seed, games, kinds=1)


def outcomes(evaluation: Evaluation) -> str:
    """Returns the outcomes by the games' ids in order; a game that could not be played is lost."""
    won = dict(zip(evaluation.tasks, evaluation.outcomes, strict=True))
    return "".join(WON if won[game] == 1 else LOST for game in sorted(won))


def write_entry(entry: Entry, path: Path) -> Entry:
    """Writes an entry with its digest, and returns it. Raises `SpeedrunError`."""
    entry = entry.model_copy(update={"sha256": content_digest(entry)})
    content = json.dumps(entry.model_dump(mode="json"), indent=1) + "\n"
    try:
        replace_file(path, content.encode())
    except OSError as error:
        raise SpeedrunError(f"{path}: cannot be written ({error.strerror})") from None
    return entry


def read_entry(path: Path) -> Entry:
    """Returns the entry in a file, whatever its digest. Raises `SpeedrunError`."""
    try:
        return Entry.model_validate(read_json(read_plain(path, _MOST_BYTES)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        reason = f"{place}: {first['msg']}"
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error)
    raise SpeedrunError(f"{path}: not an entry ({one_line(reason):.200})") from None


def signature_of(path: Path) -> Path:
    """Returns the path of an entry's signature, whether it exists or not."""
    return path.with_name(f"{path.name}.sig")


def sign(path: Path, key: Path) -> None:
    """Signs an entry's file with an SSH key. Raises `SpeedrunError`."""
    signature_of(path).unlink(missing_ok=True)
    _ssh_keygen("sign", "-f", str(key), str(path))


def check_key(key: Path) -> None:
    """Raises `SpeedrunError` if nothing can be signed with a key."""
    if not key.is_file():
        raise SpeedrunError(f"--key {key}: no such file; make one with `ssh-keygen -t ed25519`")
    _program()


def signer(path: Path, signers: Path) -> str:
    """Returns who signed an entry's file, in words: a name in the file `signers` (in OpenSSH's
    format `allowed_signers`) if it exists, and the key. Raises `SpeedrunError` for a signature that
    is not of this file, or not of one of them."""
    signature, content = ("-s", str(signature_of(path))), path.read_bytes()
    if not signers.is_file():
        said = _ssh_keygen("check-novalidate", *signature, content=content)
        return f"by the unknown {_key_in(said)}"
    listed = ("-f", str(signers), *signature)
    name = _ssh_keygen("find-principals", *listed).splitlines()[0]
    said = _ssh_keygen("verify", "-I", name, *listed, content=content)
    return f"by {name} with the {_key_in(said)}"


def _key_in(said: str) -> str:
    """Returns the key that ssh-keygen names at the end of its output."""
    return f"key {said.strip().rpartition(' ')[2]}"


def _program() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SpeedrunError("signatures need ssh-keygen: install OpenSSH's client")
    return program


def _ssh_keygen(action: str, *arguments: str, content: bytes | None = None) -> str:
    """Returns the output of `ssh-keygen -Y ACTION`. Raises `SpeedrunError` with its last line."""
    namespace = () if action == "find-principals" else ("-n", NAMESPACE)
    # Without content its standard input is the terminal: a key may have a passphrase.
    finished = subprocess.run(
        [_program(), "-Y", action, *namespace, *arguments], input=content, capture_output=True
    )
    if finished.returncode:
        said = (finished.stderr or finished.stdout).decode(errors="replace").strip()
        reason = one_line(said.splitlines()[-1]) if said else "it says nothing"
        raise SpeedrunError(f"ssh-keygen -Y {action}: {reason}")
    return finished.stdout.decode(errors="replace")
