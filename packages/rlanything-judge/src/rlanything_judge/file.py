"""A judge on rollouts of other programs: JSON lines of texts in, the same lines with scores out."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from rlanything_judge.rollouts.formats import AUTO, LineFormat
from rlanything_judge.rollouts.lines import (
    COLUMNS,
    PACKED,
    STANDARD,
    FilePlace,
    RolloutsError,
    limited_lines,
    open_format,
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
    line_format: str = AUTO
    """A name in `FORMATS`, OWN for lines in the format of `TEXT_SHAPE`, or AUTO."""
    rewards: tuple[str, ...] = ()
    """Keys of the reward in records of other frameworks; see `LineFormat`."""

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

    A file, unlike stdin, is read to its end before the judge is loaded: a bad line is refused, and
    what was recognised is logged. Raises `RolloutsError`, `RecipeError`, `ModelError` or
    `DomainError`."""
    _check_places(args)
    line_format = open_format(args.line_format, args.rewards)
    steps = 0 if args.rollouts == STANDARD else _count_steps(args, line_format, progress)
    again = open_format(line_format.name, args.rewards)
    judge = args.judge.open(progress)
    try:
        with progress.live(), open_rollouts(args.rollouts) as (file, *_):
            result = _judge_lines(args, again, judge, file, steps, progress)
        if args.rollouts == STANDARD:
            progress.log(f"stdin: {again.describe(result.trajectories)}")
    except OSError as error:
        raise RolloutsError(
            f"{args.out}: cannot be written ({error.strerror}); free space and begin again: "
            "what was judged is kept"
        ) from error
    return result


def _count_steps(args: JudgeFileArgs, line_format: LineFormat, progress: Progress) -> int:
    """Returns the number of steps in the rollouts, and logs what they are. Raises `RolloutsError`
    at the first bad line."""
    rollouts = steps = 0
    with open_rollouts(args.rollouts) as (file, *_):
        lines = limited_lines(args.rollouts, file)
        for *_, trajectory in read_texts(
            args.rollouts, lines, lambda done: None, args.win_at, line_format
        ):
            rollouts += 1
            steps += len(trajectory.steps)
    if not rollouts:
        raise RolloutsError(f"{args.rollouts}: the file is empty; write rollouts into it")
    progress.log(f"{args.rollouts}: {line_format.describe(rollouts)}, {steps} steps to judge")
    return steps


def _check_places(args: JudgeFileArgs) -> None:
    if not args.out.parent.is_dir():
        raise RolloutsError(
            f"{args.out}: its folder does not exist; create {args.out.parent} first"
        )
    if args.out == Path("-"):
        raise RolloutsError(
            "--out -: these lines go to a file, to go on from after a stop; name it"
        )
    if args.out.suffix in (PACKED, COLUMNS):
        raise RolloutsError(
            f"{args.out}: these lines are written plain, to go on from after a stop; choose "
            f"a name without {args.out.suffix}"
        )
    if os.path.lexists(args.out):
        raise RolloutsError(f"{args.out}: exists already; remove it, or choose another output")


def _judge_lines(
    args: JudgeFileArgs,
    line_format: LineFormat,
    judge: Judge,
    file: Iterable[bytes],
    steps: int,
    progress: Progress,
) -> JudgedFile:
    """`steps`: number of steps in the file; 0 if it is unknown."""
    result, seed = JudgedFile(), derive(args.seed, "judge")
    remedy = f"remove {args.partial} to judge it all again"
    with (
        progress.phase("judged", steps * judge.samples, "judgements") as advance,
        _claimed(args.partial) as target,
    ):
        lines = limited_lines(args.rollouts, file)
        entries = read_texts(args.rollouts, lines, lambda done: None, args.win_at, line_format)
        for done in _earlier(target):
            read = next(entries, None)
            if read is None:
                raise RolloutsError(
                    f"{args.rollouts}: fewer trajectories than were judged before the "
                    f"interruption; {remedy}"
                )
            line, entry, _ = read
            if _unjudged(done) != _unjudged(entry):
                line.fail("not the trajectory that was judged before the interruption", remedy)
            _count(result, done["steps"])
            result.earlier += 1
        advance(result.judgements)
        while chunk := list(itertools.islice(entries, TOGETHER)):
            judged = judge.judge([trajectory for *_, trajectory in chunk], seed, advance)
            for line in _lines(chunk, judged, result):
                target.write(line)
            target.flush()
        os.replace(args.partial, args.out)
    usage = judge.pop_usage() if isinstance(judge, LLMJudge) else {}
    result.cut, result.refused, result.empty = (
        usage.get(name, 0) for name in ("cut", "refused", "empty")
    )
    return result


@contextmanager
def _claimed(partial: Path) -> Iterator[BinaryIO]:
    """Yields the output file, locked against other processes. It is deleted if an error comes
    before its first line."""
    with partial.open("a+b") as target:
        try:
            fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
            claimed = os.path.samestat(os.fstat(target.fileno()), partial.stat())
        except (BlockingIOError, FileNotFoundError):
            claimed = False
        if not claimed:
            raise RolloutsError(
                f"{partial}: another process judges the same into it; wait for that one, or stop it"
            )
        try:
            yield target
        except BaseException:
            if not os.fstat(target.fileno()).st_size:
                partial.unlink()
            raise


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
