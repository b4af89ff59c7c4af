"""A judge on rollouts made elsewhere: JSON lines of texts in, the same lines with scores out."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from rlanything.progress import Progress
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import Judge
from rlanything.roles.judges.llm import LLMJudge
from rlanything.rollout.formats import FormatError, LineFormat
from rlanything.rollout.lines import (
    FilePlace,
    RolloutsError,
    limited_lines,
    open_rollouts,
    read_texts,
)
from rlanything.runs.judge_source import JudgeSource
from rlanything.seeds import derive
from rlanything.strict_json import finite_json

TOGETHER = 64
"""Trajectories that are judged at once, and then written."""
Entry: TypeAlias = tuple[FilePlace, dict[str, Any], Trajectory]


@dataclass(frozen=True, slots=True)
class JudgeFileRequest:
    """A file of rollouts, and the judge that is to score their steps."""

    rollouts: Path
    judge: JudgeSource
    out: Path
    seed: int = 0
    win_at: float | None = None
    """The outcome is whether a line's `reward` reaches it; None: the line has its outcome."""
    line_format: str | None = None
    """A name in `FORMATS`; None: lines as `TEXT_SHAPE` has them."""
    rewards: tuple[str, ...] = ()
    """Columns of such lines that are rewards; see `LineFormat`."""

    @property
    def partial(self) -> Path:
        """Where the lines wait until they are complete; the same request finds them again."""
        mark = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return self.out.with_name(f".{self.out.name}.{mark}.partial")


@dataclass(slots=True)
class JudgedFile:
    """Counts of what was judged."""

    trajectories: int = 0
    earlier: int = 0
    """Of those, judged before an interruption."""
    steps: int = 0
    judgements: int = 0
    unreadable: int = 0
    """Judgements without a score."""
    cut: int = 0
    """Answers of the judge that `max_tokens` cut off, of those made now; so are the next two."""
    refused: int = 0
    """Answers that its endpoint withheld."""
    empty: int = 0
    """Answers without any text."""


def run_judge_file(request: JudgeFileRequest, progress: Progress) -> JudgedFile:
    """Writes every line of the rollouts with `scores` and `judgements` at each step, in the same
    order. What was judged before an interruption is kept, and not judged again.

    Raises `RolloutsError`, `RecipeError`, `ModelError` or `DomainError`."""
    _check_places(request)
    line_format = _line_format(request)  # refused before a judge is loaded
    judge = request.judge.open(progress)
    try:
        with progress.live(), open_rollouts(request.rollouts) as opened:
            result = _judge_lines(request, line_format, judge, opened, progress)
        os.replace(request.partial, request.out)
    except OSError as error:
        raise RolloutsError(
            f"{request.out}: cannot be written ({error.strerror}); free space and begin again: "
            "what was judged is kept"
        ) from error
    return result


def _line_format(request: JudgeFileRequest) -> LineFormat | None:
    if request.line_format is None:
        if request.rewards:
            raise RolloutsError("--reward: names columns of --format trl; leave it out")
        return None
    if request.win_at is None:
        raise RolloutsError(
            "--format: such lines have rewards; say with --win-at from which one on an episode is "
            "won, e.g. --win-at 1"
        )
    try:
        return LineFormat(request.line_format, request.rewards)
    except FormatError as error:
        raise RolloutsError(str(error)) from error


def _check_places(request: JudgeFileRequest) -> None:
    if not request.out.parent.is_dir():
        raise RolloutsError(
            f"{request.out}: its folder does not exist; create {request.out.parent} first"
        )
    if request.out == Path("-"):
        raise RolloutsError(
            "--out -: these lines go to a file, to go on from after a stop; name it"
        )
    if request.out.suffix == ".gz":
        raise RolloutsError(
            f"{request.out}: these lines are written plain, to go on from after a stop; choose "
            "a name without .gz"
        )
    if os.path.lexists(request.out):
        raise RolloutsError(f"{request.out}: exists already; remove it, or choose another output")


def _judge_lines(
    request: JudgeFileRequest,
    line_format: LineFormat | None,
    judge: Judge,
    opened: tuple[Iterable[bytes], int, Callable[[], int]],
    progress: Progress,
) -> JudgedFile:
    result, (file, size, position) = JudgedFile(), opened
    seed = derive(request.seed, "judge")
    with (
        _without_remains(request.partial),
        progress.bytes_phase("judged") as advance,
        request.partial.open("a+b") as target,
    ):
        _claim(target, request.partial)
        lines = limited_lines(request.rollouts, file)
        entries = read_texts(
            request.rollouts, lines, lambda done: None, request.win_at, line_format
        )
        for done, (line, entry, _) in zip(_earlier(target), entries, strict=False):
            if _unjudged(done) != _unjudged(entry):
                remedy = f"remove {request.partial} to judge it all again"
                line.fail("not the trajectory that was judged before the interruption", remedy)
            _count(result, done["steps"])
            result.earlier += 1
        advance(position(), size)
        while chunk := list(itertools.islice(entries, TOGETHER)):
            judged = judge.judge([trajectory for *_, trajectory in chunk], seed, None)
            for line in _lines(chunk, judged, result):
                target.write(line)
            target.flush()
            advance(position(), size)
    usage = judge.pop_usage() if isinstance(judge, LLMJudge) else {}
    result.cut, result.refused, result.empty = (
        usage.get(name, 0) for name in ("cut", "refused", "empty")
    )
    return result


@contextmanager
def _without_remains(partial: Path) -> Iterator[None]:
    """Leaves no empty file behind where an error comes before the first line."""
    try:
        yield
    except BaseException:
        if partial.is_file() and not partial.stat().st_size:
            partial.unlink()
        raise


def _claim(target: BinaryIO, partial: Path) -> None:
    """Keeps other processes away from what is written, until it is closed."""
    try:
        fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RolloutsError(
            f"{partial}: another process judges the same into it; wait for that one, or stop it"
        ) from None


def _unjudged(entry: Mapping[str, Any]) -> str:
    """A line without what a judge adds, to compare with another."""
    added = ("scores", "judgements")
    steps = [
        {name: value for name, value in step.items() if name not in added}
        for step in entry["steps"]
    ]
    return json.dumps(finite_json({**entry, "steps": steps}), sort_keys=True)


def _earlier(target: BinaryIO) -> list[dict[str, Any]]:
    """Returns the lines that an interrupted run of this request has left; what it was writing when
    it ended is cut off."""
    target.seek(0)
    lines = [line for line in target if line.endswith(b"\n")]
    target.truncate(sum(map(len, lines)))
    return [json.loads(line) for line in lines]


def _lines(
    chunk: Sequence[Entry], judged: Sequence[JudgedTrajectory], result: JudgedFile
) -> Iterator[bytes]:
    """Yields the lines of trajectories that were judged, and counts them."""
    for (_, entry, _), scored in zip(chunk, judged, strict=True):
        steps = [
            {
                **step,
                "scores": [judgement.score for judgement in judgements],
                "judgements": [judgement.completion.text for judgement in judgements],
            }
            for step, judgements in zip(entry["steps"], scored.judgements, strict=True)
        ]
        _count(result, steps)
        yield json.dumps(finite_json({**entry, "steps": steps})).encode() + b"\n"


def _count(result: JudgedFile, steps: Sequence[dict[str, Any]]) -> None:
    scores = [score for step in steps for score in step.get("scores", ())]
    result.trajectories += 1
    result.steps += len(steps)
    result.judgements += len(scores)
    result.unreadable += scores.count(0)
