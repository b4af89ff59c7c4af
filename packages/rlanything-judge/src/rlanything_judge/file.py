"""A judge on rollouts of other programs: JSON lines of texts in, the same lines with scores out."""

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
from rlanything.seeds import derive
from rlanything.strict_json import finite_json
from rlanything_judge.rollouts.formats import FormatError, LineFormat
from rlanything_judge.rollouts.lines import (
    FilePlace,
    RolloutsError,
    limited_lines,
    open_rollouts,
    read_texts,
)
from rlanything_judge.source import JudgeSource

TOGETHER = 64
"""Number of trajectories that are judged, then written, together."""
Entry: TypeAlias = tuple[FilePlace, dict[str, Any], Trajectory]


@dataclass(frozen=True, slots=True)
class JudgeFileArgs:
    """A file of rollouts, and the judge that scores their steps."""

    rollouts: Path
    judge: JudgeSource
    out: Path
    seed: int = 0
    win_at: float | None = None
    """Smallest `reward` of a line that counts as a win; None: the line has its outcome."""
    line_format: str | None = None
    """A name in `FORMATS`; None: lines in the format of `TEXT_SHAPE`."""
    rewards: tuple[str, ...] = ()
    """Columns of such lines that are rewards; see `LineFormat`."""

    @property
    def partial(self) -> Path:
        """The file of unfinished output; the same arguments find it again."""
        mark = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return self.out.with_name(f".{self.out.name}.{mark}.partial")


@dataclass(slots=True)
class JudgedFile:
    """Counts of the trajectories, steps and answers of a judged file."""

    trajectories: int = 0
    earlier: int = 0
    """Trajectories that were judged before an interruption."""
    steps: int = 0
    judgements: int = 0
    unreadable: int = 0
    """Judgements without a score."""
    cut: int = 0
    """Answers that `max_tokens` cut off; like the next two, without those from before an
    interruption."""
    refused: int = 0
    """Answers that the endpoint withheld."""
    empty: int = 0
    """Answers without any text."""


def run_judge_file(args: JudgeFileArgs, progress: Progress) -> JudgedFile:
    """Writes every line of the rollouts with `scores` and `judgements` at each step, in the same
    order. Trajectories that were judged before an interruption are not judged again.

    Raises `RolloutsError`, `RecipeError`, `ModelError` or `DomainError`."""
    _check_places(args)
    line_format = _line_format(args)  # refused before a judge is loaded
    judge = args.judge.open(progress)
    try:
        with progress.live(), open_rollouts(args.rollouts) as opened:
            result = _judge_lines(args, line_format, judge, opened, progress)
        os.replace(args.partial, args.out)
    except OSError as error:
        raise RolloutsError(
            f"{args.out}: cannot be written ({error.strerror}); free space and begin again: "
            "what was judged is kept"
        ) from error
    return result


def _line_format(args: JudgeFileArgs) -> LineFormat | None:
    if args.line_format is None:
        if args.rewards:
            raise RolloutsError("--reward: names columns of --format trl; leave it out")
        return None
    if args.win_at is None:
        raise RolloutsError(
            "--format: such lines have rewards; say with --win-at from which one on an episode is "
            "won, e.g. --win-at 1"
        )
    try:
        return LineFormat(args.line_format, args.rewards)
    except FormatError as error:
        raise RolloutsError(str(error)) from error


def _check_places(args: JudgeFileArgs) -> None:
    if not args.out.parent.is_dir():
        raise RolloutsError(
            f"{args.out}: its folder does not exist; create {args.out.parent} first"
        )
    if args.out == Path("-"):
        raise RolloutsError(
            "--out -: these lines go to a file, to go on from after a stop; name it"
        )
    if args.out.suffix == ".gz":
        raise RolloutsError(
            f"{args.out}: these lines are written plain, to go on from after a stop; choose "
            "a name without .gz"
        )
    if os.path.lexists(args.out):
        raise RolloutsError(f"{args.out}: exists already; remove it, or choose another output")


def _judge_lines(
    args: JudgeFileArgs,
    line_format: LineFormat | None,
    judge: Judge,
    opened: tuple[Iterable[bytes], int, Callable[[], int]],
    progress: Progress,
) -> JudgedFile:
    result, (file, size, position) = JudgedFile(), opened
    seed = derive(args.seed, "judge")
    with (
        _without_remains(args.partial),
        progress.bytes_phase("judged") as advance,
        args.partial.open("a+b") as target,
    ):
        _claim(target, args.partial)
        lines = limited_lines(args.rollouts, file)
        entries = read_texts(args.rollouts, lines, lambda done: None, args.win_at, line_format)
        for done, (line, entry, _) in zip(_earlier(target), entries, strict=False):
            if _unjudged(done) != _unjudged(entry):
                remedy = f"remove {args.partial} to judge it all again"
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
    """Deletes an empty file if an error comes before the first line."""
    try:
        yield
    except BaseException:
        if partial.is_file() and not partial.stat().st_size:
            partial.unlink()
        raise


def _claim(target: BinaryIO, partial: Path) -> None:
    """Locks the output file against other processes, until it is closed."""
    try:
        fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RolloutsError(
            f"{partial}: another process judges the same into it; wait for that one, or stop it"
        ) from None


def _unjudged(entry: Mapping[str, Any]) -> str:
    """Returns a line as text without what a judge adds, to compare it with another."""
    added = ("scores", "judgements")
    steps = [
        {name: value for name, value in step.items() if name not in added}
        for step in entry["steps"]
    ]
    return json.dumps(finite_json({**entry, "steps": steps}), sort_keys=True)


def _earlier(target: BinaryIO) -> list[dict[str, Any]]:
    """Returns the lines from before an interruption, and cuts off an unfinished one."""
    target.seek(0)
    lines = [line for line in target if line.endswith(b"\n")]
    target.truncate(sum(map(len, lines)))
    return [json.loads(line) for line in lines]


def _lines(
    chunk: Sequence[Entry], judged: Sequence[JudgedTrajectory], result: JudgedFile
) -> Iterator[bytes]:
    """Yields the lines of judged trajectories, and counts them."""
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
