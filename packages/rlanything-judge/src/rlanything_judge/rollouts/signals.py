"""Step-wise signals for rollouts from anywhere: JSON lines in, JSON lines out.

An input line is one judged trajectory; other keys are ignored, a score of 0 is unparsable:

    {"task": "t1", "trajectory": "a", "outcome": 1, "steps": [{"scores": [1, -1, 1]}, ...]}

The output line in the same place has the advantages of `feedback.task_signals`, null for samples
that do not train:

    {"task": "t1", "trajectory": "a", "accuracy": 0.5, "policy": [0.7, ...], "judge": [[...], ...]}

The lines of a task may lie anywhere in the file. It is read once and kept in memory: a byte per
score, one more per step, about 300 per trajectory (mostly its id). Signals are computed task by
task and wait on disk, next to the output, until they can be written in the order of the rollouts.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

import numpy as np

from rlanything.algorithm.agreement import agreement, shrinkage
from rlanything.algorithm.feedback import FeedbackSettings, Floats, TrajectoryScores
from rlanything.algorithm.signals import task_signals
from rlanything_judge.rollouts.formats import LineFormat
from rlanything_judge.rollouts.lines import (
    COLUMNS,
    PACKED,
    SHAPE,
    STANDARD,
    Rollout,
    RolloutsError,
    limited_lines,
    open_rollouts,
    read_rollouts,
    read_scores,
)

__all__ = ["RolloutsError", "Summary", "write_signals"]

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(slots=True)
class Summary:
    """Counts of a rollouts file's content and of the samples in it that train."""

    trajectories: int = 0
    tasks: int = 0
    single_trajectory_tasks: int = 0
    """Tasks with a single trajectory: nothing to compare it to, so the policy learns nothing."""
    steps: int = 0
    judgements: int = 0
    policy_samples: int = 0
    """Steps with an advantage."""
    judge_samples: int = 0
    """Judgements with an advantage."""
    policy_lambda: float | None = None
    """lambda of Eq. 1 if it is adaptive: measured over all tasks."""
    scores: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of judgements by the outcome of their episode and their score."""
    judged_steps: int = 0
    agreeing_steps: int = 0
    """Steps whose scores have the outcome's sign in sum."""

    def add(self, outcome: int, steps: TrajectoryScores) -> None:
        """Counts the scores of a trajectory."""
        for step in steps:
            self.scores.update((outcome, score) for score in step)
            self.judged_steps += len(step) > 0
            self.agreeing_steps += outcome * sum(step) > 0

    def judge_line(self) -> str | None:
        """Returns in words how far the scores agree with the outcomes; None without scores. p+, p-
        and mu are those of Theorem 1."""
        if not self.judged_steps:
            return None
        won, lost = (sum(self.scores[outcome, s] for s in (-1, 0, 1)) for outcome in (1, -1))
        plus, minus = self.scores[1, 1] / max(won, 1), self.scores[-1, -1] / max(lost, 1)
        agreeing = f"Outcome Acc {self.agreeing_steps / self.judged_steps:.0%}"
        unreadable = (self.scores[1, 0] + self.scores[-1, 0]) / (won + lost)
        if not won or not lost:
            return f"the judge's scores: {agreeing}, {unreadable:.0%} unreadable"
        better = "better" if plus + minus > 1 else "no better"
        return (
            f"the judge's scores: p+ {plus:.2f}, p- {minus:.2f}, mu {plus + minus:.2f} ({better} "
            f"than chance, which has 1), {agreeing}, {unreadable:.0%} unreadable"
        )


@dataclass(slots=True)
class _Group:
    """The trajectories of one task, in the order of the file."""

    lines: array[int] = field(default_factory=lambda: array("Q"))
    """Line number of each trajectory."""
    places: array[int] = field(default_factory=lambda: array("Q"))
    """Index of each trajectory in the file, from 0."""
    outcomes: array[int] = field(default_factory=lambda: array("b"))
    scores: list[bytes] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    """Index in the group by trajectory id."""


def write_signals(
    rollouts: Path,
    out: Path,
    settings: FeedbackSettings,
    progress: Progress,
    *,
    overwrite: bool = False,
    win_at: float | None = None,
    line_format: LineFormat | None = None,
) -> Summary:
    """Writes the signals of every trajectory in `rollouts` to `out`, in the same order. `.gz` files
    are packed, `-` is stdin or stdout.

    `progress` is called with (bytes done, total bytes); the total is twice the file size, once to
    read it and once for its signals. The output gets its name once it is complete. `win_at`: reward
    from which on an episode counts as won; `line_format`: reads records of other frameworks, whose
    steps have no scores and count by the outcome alone. Raises RolloutsError."""
    if needed := settings.advantage.needs:
        raise RolloutsError(
            f"advantage {settings.advantage.name} needs {needed[0]}, which these lines lack: "
            "choose another, or call rlanything.task_signals with them"
        )
    _check_paths(rollouts, out, overwrite)
    with open_rollouts(rollouts) as (file, size, position):
        told = progress if size else lambda done, total: None
        lines = limited_lines(rollouts, file)
        rows = read_rollouts(
            rollouts, lines, lambda done: told(position(), 2 * size), win_at, line_format
        )
        groups = _read_groups(rollouts, rows)
    try:
        with _writing(out) as target:
            scratch = None if out == STANDARD else out.parent
            return _write(
                groups,
                settings,
                target,
                scratch,
                lambda share: told(size + int(share * size), 2 * size),
            )
    except OSError as error:
        raise RolloutsError(
            f"{out}: cannot be written ({error.strerror}); free space or choose another place"
        ) from error


@contextmanager
def _writing(out: Path) -> Iterator[BinaryIO]:
    """Yields a file that gets its name once it is complete (packed if that ends in `.gz`), or
    stdout."""
    if out == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    with partial.open("wb") as raw:
        try:
            if out.suffix == PACKED:
                # Without a timestamp, so that equal signals are equal bytes.
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield raw
            raw.flush()
            os.replace(partial, out)
        finally:
            partial.unlink(missing_ok=True)


def _check_paths(rollouts: Path, out: Path, overwrite: bool) -> None:
    if out == STANDARD:
        return
    if not out.parent.is_dir():
        raise RolloutsError(f"{out}: its folder does not exist; create {out.parent} first")
    if out.suffix == COLUMNS:
        raise RolloutsError(f"{out}: signals are lines of JSON; choose a name without {COLUMNS}")
    if out.is_dir():
        raise RolloutsError(f"{out}: is a folder; give the name of a file in it")
    if out.exists():
        if rollouts.exists() and out.samefile(rollouts):
            raise RolloutsError(f"{out}: would overwrite the rollouts; choose another output")
        if not overwrite:
            raise RolloutsError(f"{out}: exists already; remove it, or overwrite it with --force")


def _read_groups(path: Path, rows: Iterable[tuple[int, Rollout]]) -> dict[str, _Group]:
    """Returns the trajectories by task. `rows`: each with its line number. Raises RolloutsError if
    one occurs twice."""
    groups: dict[str, _Group] = {}
    for place, (number, rollout) in enumerate(rows):
        group = groups.setdefault(rollout.task, _Group())
        first = group.ids.setdefault(rollout.trajectory, len(group.lines))
        if first < len(group.lines):
            raise RolloutsError(
                f"{path}, line {number}: trajectory {rollout.trajectory!r} of task "
                f"{rollout.task!r} is on line {group.lines[first]} already; remove one or rename it"
            )
        group.lines.append(number)
        group.places.append(place)
        group.outcomes.append(rollout.outcome)
        group.scores.append(rollout.scores)
    if not groups:
        raise RolloutsError(f"{path}: the file is empty; write one trajectory a line, as {SHAPE}")
    return groups


def _write(
    groups: dict[str, _Group],
    settings: FeedbackSettings,
    target: BinaryIO,
    scratch: Path | None,
    progress: Callable[[float], None],
) -> Summary:
    """Writes all signals in the order of the file; calls `progress` with the finished share.
    `scratch`: folder for the waiting signals; None: the system's temporary folder."""
    trajectories = sum(len(group.lines) for group in groups.values())
    summary = Summary(trajectories=trajectories, tasks=len(groups))
    if settings.policy_lambda_control == "adaptive":
        last = all(len(read_scores(own)) < 2 for group in groups.values() for own in group.scores)
        tasks = (agreement(group.outcomes, _scores(group), last) for group in groups.values())
        factor = shrinkage([task for task in tasks if task is not None])
        settings = settings.with_lambda(settings.policy_lambda * factor)
        summary.policy_lambda = settings.policy_lambda
    starts = array("Q", bytes(8 * trajectories))
    done = 0
    with tempfile.TemporaryFile(dir=scratch) as waiting:
        for task, group in groups.items():
            lines = _lines(task, group, settings, summary)
            for place, line in zip(group.places, lines, strict=True):
                starts[place] = waiting.tell()
                waiting.write(line)
            done += len(group.places)
            progress(done / trajectories)
        for start in starts:
            waiting.seek(start)
            target.write(waiting.readline())
    return summary


def _lines(
    task: str, group: _Group, settings: FeedbackSettings, summary: Summary
) -> Iterator[bytes]:
    """Yields the signals of a task's trajectories, and counts them in `summary`."""
    scores = _scores(group)
    signals = task_signals(group.outcomes, scores, settings)
    summary.single_trajectory_tasks += len(scores) == 1
    [judge_signals] = signals.judges.values()
    for outcome, steps in zip(group.outcomes, scores, strict=True):
        summary.add(outcome, steps)
    for trajectory, own, judged in zip(group.ids, signals.policy, judge_signals, strict=True):
        policy, judge = _numbers(np.asarray(own)), [_numbers(step) for step in judged]
        summary.steps += len(policy)
        summary.judgements += sum(map(len, judge))
        summary.policy_samples += len(policy) - policy.count(None)
        summary.judge_samples += sum(len(step) - step.count(None) for step in judge)
        entry = {
            "task": task,
            "trajectory": trajectory,
            "accuracy": signals.accuracy,
            "policy": policy,
            "judge": judge,
        }
        yield json.dumps(entry).encode() + b"\n"


def _scores(group: _Group) -> list[TrajectoryScores]:
    return [read_scores(packed) for packed in group.scores]


def _numbers(advantages: Floats) -> list[float | None]:
    """Returns the advantages with None for each 0, which does not train."""
    return [advantage or None for advantage in advantages.tolist()]
