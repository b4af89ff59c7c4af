"""Episodes read from a store, with their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rlanything.runs.store.codec import (
    EncodedEpisode,
    EpisodeText,
    StoredCompletion,
    Texts,
    UnreadableEpisodeError,
    decode_episode,
    decode_texts,
)
from rlanything.runs.store.database import Database, StoreError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """One judgement, as recorded."""

    completion: StoredCompletion
    """The completion; empty if several trajectories share it, except in the first."""
    by: str
    """Name of the role that wrote it."""
    score: int
    advantage: float | None
    """The advantage; None if the judge did not train on it."""


@dataclass(frozen=True, slots=True)
class StoredStep:
    """One exchange between policy and environment, as recorded."""

    observation: str
    completion: StoredCompletion
    action: str | None
    valid: bool
    next_observation: str
    label: int | None
    """The oracle's label; None without one."""
    advantage: float | None
    """The advantage; None if the policy did not train on it."""
    judgements: tuple[StoredJudgement, ...]
    """[m]"""
    image: str | None = None
    """Name of the screenshot in the run's `images`; None without one."""
    next_image: str | None = None
    """Name of the screenshot after the step; None without one."""
    by: str = "policy"
    """Name of the role that answered."""

    @property
    def response(self) -> str:
        """The text of the completion."""
        return self.completion.text


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """An episode, as recorded."""

    id: str
    iteration: int
    task: str
    outcome: int
    reward: float | None
    steps: tuple[StoredStep, ...]


class ForgottenError(StoreError):
    """The texts of an episode were deleted, according to the recipe's `store.keep_iterations`."""


def read_trajectory(db: Database, trajectory_id: str) -> StoredTrajectory:
    """Returns an episode with its texts. Raises `StoreError` if there is none of this id, and
    `ForgottenError` if its texts were deleted."""
    rows = db.query(
        "SELECT number, iteration, task, outcome, reward FROM trajectories WHERE id = ?",
        trajectory_id,
    )
    if not rows:
        raise StoreError(f"{db.path} has no trajectory {trajectory_id}")
    number, iteration, task, outcome, reward = rows[0]
    written = _transcript(db, number)
    if written is None:
        raise ForgottenError(
            f"{db.path}: the texts of {trajectory_id} were forgotten; "
            "`store.keep_iterations` in the recipe says how many iterations keep theirs"
        )
    with db.understanding():
        steps = tuple(_steps(db, number, written))
    return StoredTrajectory(trajectory_id, iteration, task, outcome, reward, steps)


def read_texts(db: Database, number: int) -> Texts:
    """Returns the texts of an episode that has them. Raises `StoreError` if they cannot be read."""
    [(texts,)] = db.query("SELECT texts FROM transcripts WHERE trajectory = ?", number)
    return _readable(db, number, lambda: decode_texts(texts))


def transcript_digests(db: Database) -> Iterator[tuple[str, int, *tuple[str, ...]]]:
    """Yields for every step: trajectory, step, and digests of its observations and of its
    completions' texts, tokens, log-probs and prompts."""
    for name, number in db.query("SELECT id, number FROM trajectories ORDER BY id"):
        written = _transcript(db, number)
        if written is None:
            continue
        for i, response in enumerate(written.responses):
            answers = (response, *written.judgements[i])
            yield (
                name,
                i,
                _digest(written.observations[i : i + 2]),
                _digest([answer.text for answer in answers]),
                _digest([answer.token_ids for answer in answers]),
                _digest([answer.logprobs for answer in answers]),
                _digest([answer.prompt_hash for answer in answers]),
            )


def _transcript(db: Database, number: int) -> EpisodeText | None:
    rows = db.query(
        "SELECT texts, token_ids, logprobs, prompts FROM transcripts WHERE trajectory = ?", number
    )
    if not rows:
        return None
    return _readable(db, number, lambda: decode_episode(EncodedEpisode(*rows[0])))


def _readable(db: Database, number: int, decode: Callable[[], T]) -> T:
    try:
        return decode()
    except UnreadableEpisodeError as error:
        raise StoreError(
            f"{db.path}: the texts of episode {number} cannot be read ({error}); restore a copy"
        ) from None


def _steps(db: Database, number: int, written: EpisodeText) -> Iterator[StoredStep]:
    judgements: list[list[StoredJudgement]] = [[] for _ in written.responses]
    for i, j, role, score, advantage in db.query(
        "SELECT step, judgement, role, score, advantage FROM judgements WHERE trajectory = ?"
        " ORDER BY step, judgement",
        number,
    ):
        judgements[i].append(StoredJudgement(written.judgements[i][j], role, score, advantage))
    for i, role, action, valid, label, advantage, image, next_image in db.query(
        "SELECT step, role, action, valid, label, advantage, image, next_image FROM steps"
        " WHERE trajectory = ? ORDER BY step",
        number,
    ):
        yield StoredStep(
            observation=written.observations[i],
            completion=written.responses[i],
            action=action,
            valid=bool(valid),
            next_observation=written.observations[i + 1],
            label=label,
            advantage=advantage,
            judgements=tuple(judgements[i]),
            image=image,
            next_image=next_image,
            by=role,
        )


def _digest(content: Sequence[object]) -> str:
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()
