"""Step-wise signals for rollouts from anywhere: JSON lines in, JSON lines out.

A line of the rollouts is one judged trajectory; other keys are ignored, a score 0 is unparsable:

    {"task": "t1", "trajectory": "a", "outcome": 1, "steps": [{"scores": [1, -1, 1]}, ...]}

The line of the signals at the same place has the advantages of `feedback.task_signals`, null where
that sample does not train:

    {"task": "t1", "trajectory": "a", "accuracy": 0.5, "policy": [0.7, ...], "judge": [[...], ...]}

The lines of a task may lie anywhere in the file, so it is read twice: once to survey every task,
once to write. Between the two stay in memory: each task's id, 33 bytes per trajectory (its task and
its place there, outcome, steps and a fingerprint of its id) and 4 bytes per step (how many +1, -1
and 0 it got). Mean and deviation of a task are held only from its first line to its last.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, TypeAlias

import numpy as np

from rlanything.algorithm.feedback import (
    FeedbackSettings,
    Floats,
    Moments,
    consistency_feedback,
    in_window,
    integrated_feedback,
    moments,
    outcome_balance,
    policy_feedback,
    standardize,
    step_moments,
    task_accuracy,
)
from rlanything.rollout.lines import (
    SCORES,
    SHAPE,
    JudgedStep,
    Rollout,
    RolloutsError,
    Tally,
    read_rollouts,
)

__all__ = ["RolloutsError", "Summary", "write_signals"]

Progress: TypeAlias = Callable[[int, int], None]

UNBALANCED = {1: 1.0, -1: 1.0}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a file of rollouts held, and how much of it trains."""

    trajectories: int
    tasks: int
    single_trajectory_tasks: int
    """Tasks with one trajectory only: nothing to compare it to, so the policy learns nothing."""
    steps: int
    judgements: int
    policy_samples: int
    """Steps with an advantage."""
    judge_samples: int
    """Judgements with an advantage."""


def write_signals(
    rollouts: Path,
    out: Path,
    settings: FeedbackSettings,
    progress: Progress,
    *,
    overwrite: bool = False,
) -> Summary:
    """Writes the signals of every trajectory in `rollouts` to `out`, in the same order.

    `progress` is told (bytes done, bytes in total) over both readings, about once per MiB. The
    signals appear under their name only when they are complete. Raises RolloutsError."""
    if settings.policy_comparison == "state":
        raise RolloutsError(
            "policy_comparison is 'state', and these lines do not say in which state a step began; "
            "give 'step' or 'trajectory', or call feedback.task_signals with the states"
        )
    _check_paths(rollouts, out, overwrite)
    try:
        file = rollouts.open("rb")
    except OSError as error:
        raise RolloutsError(
            f"{rollouts}: cannot be read ({error.strerror}); check its permissions"
        ) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        total = 2 * size
        survey = _Survey(rollouts)
        for _, rollout in read_rollouts(rollouts, file, lambda done: progress(done, total)):
            survey.add(rollout)
        survey.close()
        if survey.repeated_fingerprints:
            _refuse_repeated(rollouts, file, survey.repeated_fingerprints)
        partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
        try:
            target = partial.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise _cannot_write(out, error) from error
        try:
            with target:
                lines = read_rollouts(rollouts, file, lambda done: progress(size + done, total))
                summary = _write(survey, lines, settings, target)
            os.replace(partial, out)
        except OSError as error:
            raise _cannot_write(out, error) from error
        finally:
            partial.unlink(missing_ok=True)
    progress(total, total)
    return summary


def _cannot_write(out: Path, error: OSError) -> RolloutsError:
    return RolloutsError(
        f"{out}: cannot be written ({error.strerror}); free space or choose another place"
    )


def _check_paths(rollouts: Path, out: Path, overwrite: bool) -> None:
    if not rollouts.exists():
        raise RolloutsError(f"{rollouts}: there is no such file; check the path")
    if not rollouts.is_file():
        raise RolloutsError(
            f"{rollouts}: not a regular file, and it is read twice; save the rollouts to a file"
        )
    if not out.parent.is_dir():
        raise RolloutsError(f"{out}: its folder does not exist; create {out.parent} first")
    if out.is_dir():
        raise RolloutsError(f"{out}: is a folder; give the name of a file in it")
    if out.exists():
        if out.samefile(rollouts):
            raise RolloutsError(f"{out}: would overwrite the rollouts; choose another output")
        if not overwrite:
            raise RolloutsError(f"{out}: exists already; remove it, or ask to overwrite it")


def _refuse_repeated(path: Path, file: BinaryIO, fingerprints: set[int]) -> None:
    """Raises RolloutsError where one trajectory occurs twice, which would count it twice."""
    first: dict[tuple[str, str], int] = {}
    for number, rollout in read_rollouts(path, file, lambda done: None):
        name = (rollout.task, rollout.trajectory)
        if hash(name) in fingerprints and first.setdefault(name, number) != number:
            raise RolloutsError(
                f"{path}, line {number}: trajectory {rollout.trajectory!r} of task "
                f"{rollout.task!r} is on line {first[name]} already; remove one or rename it"
            )


class _Survey:
    """What the first reading keeps of every trajectory, and the groups they form."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks: dict[str, int] = {}
        self.codes: dict[Tally, int] = {}
        self._task, self._outcome, self._length = array("I"), array("b"), array("I")
        self._fingerprint, self._code = array("q"), array("I")

    def add(self, rollout: Rollout) -> None:
        self._task.append(self.tasks.setdefault(rollout.task, len(self.tasks)))
        self._outcome.append(rollout.outcome)
        self._length.append(len(rollout.steps))
        self._fingerprint.append(hash((rollout.task, rollout.trajectory)))
        codes = self.codes
        self._code.extend([codes.setdefault(step.tally, len(codes)) for step in rollout.steps])

    def close(self) -> None:
        """Groups what was added by task. Raises RolloutsError if it was nothing."""
        if not self._task:
            raise RolloutsError(
                f"{self.path}: the file is empty; write one trajectory a line, as {SHAPE}"
            )
        self.trajectories, self.total_steps = len(self._task), len(self._code)
        task = np.frombuffer(self._task, dtype=np.uint32)
        self.outcome = np.frombuffer(self._outcome, dtype=np.int8)
        self._ends = np.cumsum(np.frombuffer(self._length, dtype=np.uint32), dtype=np.int64)
        self._all_codes = np.frombuffer(self._code, dtype=np.uint32)
        self.group_sizes = np.bincount(task)
        self._group_ends = np.cumsum(self.group_sizes)
        self._by_task = np.argsort(task, kind="stable")
        fingerprints = np.sort(np.frombuffer(self._fingerprint, dtype=np.int64))
        same = fingerprints[1:] == fingerprints[:-1]
        self.repeated_fingerprints: set[int] = set(fingerprints[1:][same].tolist())
        self.tallies = np.array(list(self.codes), dtype=np.int64).reshape(-1, 3)
        self.means = (self.tallies[:, 0] - self.tallies[:, 1]) / np.maximum(
            self.tallies.sum(axis=1), 1
        )

    def group(self, task: int) -> list[int]:
        """The trajectories of a task, in the order of the file."""
        end = self._group_ends[task]
        return self._by_task[end - self.group_sizes[task] : end].tolist()

    def steps(self, trajectory: int) -> np.ndarray:
        """The codes [steps] of a trajectory; `tallies` and `means` tell what a code stands for."""
        start = self._ends[trajectory - 1] if trajectory else 0
        return self._all_codes[start : self._ends[trajectory]]

    def agrees(self, trajectory: int, task: int, rollout: Rollout) -> bool:
        """Whether the second reading finds what the first did."""
        return (
            trajectory < self.trajectories
            and task == self._task[trajectory]
            and rollout.outcome == self._outcome[trajectory]
            and [self.codes.get(step.tally) for step in rollout.steps]
            == self.steps(trajectory).tolist()
        )

    def feedback(self, trajectory: int, settings: FeedbackSettings) -> Floats:
        """R_i [steps] of a trajectory, the policy's."""
        mean_scores = self.means[self.steps(trajectory)]
        return policy_feedback(int(self.outcome[trajectory]), mean_scores, settings)


class _JudgeSignals:
    """The advantages of judgements, as JSON, standardized over their step or over a whole task."""

    def __init__(
        self,
        survey: _Survey,
        consistency: dict[int, Floats],
        over: Moments | None,
        balance: dict[int, float],
    ) -> None:
        """`consistency`: by outcome, R^S [codes, 3] of the scores in the order of a tally; `over`:
        the moments of the task, or None to take those of each step; `balance`: by outcome, what an
        advantage is multiplied by."""
        self._survey = survey
        self._consistency = consistency
        self._over = over
        self._balance = balance
        self._known: dict[tuple[int, Tally], tuple[dict[int, str], int]] = {}

    def step(self, outcome: int, step: JudgedStep) -> tuple[str, int]:
        """The list of a step's advantages, and how many of its judgements train."""
        known = self._known.get((outcome, step.tally))
        if known is None:
            known = self._known[outcome, step.tally] = self._standardized(outcome, step.tally)
        numbers, trained = known
        return f"[{', '.join([numbers[score] for score in step.scores])}]", trained

    def _standardized(self, outcome: int, tally: Tally) -> tuple[dict[int, str], int]:
        occurring = [i for i, count in enumerate(tally) if count]
        values = self._consistency[outcome][self._survey.codes[tally]][occurring]
        counts = [tally[i] for i in occurring]
        over = self._over or moments(values, counts)
        advantages = (self._balance[outcome] * standardize(values, over)).tolist()
        numbers = dict(zip([SCORES[i] for i in occurring], _numbers(advantages), strict=True))
        trained = sum(count for count, a in zip(counts, advantages, strict=True) if a)
        return numbers, trained


def _task_moments(survey: _Survey, group: list[int], consistency: dict[int, Floats]) -> Moments:
    """Of R^S_ij over all judgements of a task."""
    values, counts = [], []
    for outcome in (1, -1):
        steps = [survey.steps(g) for g in group if survey.outcome[g] == outcome]
        present = np.concatenate([np.zeros(0, dtype=np.uint32), *steps])
        codes, times = np.unique(present, return_counts=True)
        values.append(consistency[outcome][codes].ravel())
        counts.append((survey.tallies[codes] * times[:, None]).ravel())
    return moments(np.concatenate(values), np.concatenate(counts))


def _task_balance(survey: _Survey, group: list[int]) -> dict[int, float]:
    won, lost = (
        sum(len(survey.steps(g)) for g in group if survey.outcome[g] == outcome)
        for outcome in (1, -1)
    )
    return outcome_balance(won, lost)


class _TaskSignals:
    """The advantages of one task, as JSON, while its lines are being written."""

    def __init__(
        self,
        survey: _Survey,
        task: int,
        settings: FeedbackSettings,
        consistency: dict[int, Floats],
        by_step: _JudgeSignals,
    ) -> None:
        group = survey.group(task)
        self._survey = survey
        self._settings = settings
        self.left = len(group)
        self.accuracy = task_accuracy(survey.outcome[group])
        self._policy: Moments | None = None
        if in_window(self.accuracy, settings.policy_window):
            feedback = [survey.feedback(g, settings) for g in group]
            if settings.policy_comparison == "trajectory":
                self._policy = moments(np.concatenate(feedback))
            else:
                self._policy = step_moments(feedback)
        self._judge: _JudgeSignals | None = None
        if in_window(self.accuracy, settings.judge_window):
            self._judge = by_step
            by_task, balanced = (
                settings.judge_normalization == "task",
                settings.judge_balance == "outcome",
            )
            if by_task or balanced:
                over = _task_moments(survey, group, consistency) if by_task else None
                balance = _task_balance(survey, group) if balanced else UNBALANCED
                self._judge = _JudgeSignals(survey, consistency, over, balance)

    def policy(self, trajectory: int) -> list[str]:
        """The advantages [steps] of a trajectory."""
        steps = len(self._survey.steps(trajectory))
        if self._policy is None:
            return ["null"] * steps
        over = self._policy
        if over.mean.ndim:
            over = Moments(over.mean[:steps], over.std[:steps])
        rewards = self._survey.feedback(trajectory, self._settings)
        return _numbers(standardize(rewards, over).tolist())

    def judge(self, outcome: int, steps: list[JudgedStep]) -> tuple[list[str], int]:
        """The lists [steps] of a trajectory's advantages, and how many judgements train."""
        if self._judge is None:
            return [f"[{', '.join(['null'] * len(step.scores))}]" for step in steps], 0
        lines = [self._judge.step(outcome, step) for step in steps]
        return [line for line, _ in lines], sum(trained for _, trained in lines)


def _numbers(advantages: list[float]) -> list[str]:
    return [repr(advantage) if advantage else "null" for advantage in advantages]


def _write(
    survey: _Survey,
    lines: Iterator[tuple[int, Rollout]],
    settings: FeedbackSettings,
    target: TextIO,
) -> Summary:
    open_tasks: dict[int, _TaskSignals] = {}
    consistency = {
        outcome: consistency_feedback(
            integrated_feedback(outcome, survey.means, settings.judge_lambda)[:, None], SCORES
        )
        for outcome in (1, -1)
    }
    by_step = _JudgeSignals(survey, consistency, over=None, balance=UNBALANCED)
    written = judgements = policy_samples = judge_samples = 0
    for trajectory, (_, rollout) in enumerate(lines):
        task = survey.tasks.get(rollout.task)
        if task is None or not survey.agrees(trajectory, task, rollout):
            raise _changed(survey.path)
        signals = open_tasks.get(task)
        if signals is None:
            signals = open_tasks[task] = _TaskSignals(survey, task, settings, consistency, by_step)
        policy = signals.policy(trajectory)
        judge, trained = signals.judge(rollout.outcome, rollout.steps)
        target.write(
            f'{{"task": {json.dumps(rollout.task)}, "trajectory": {json.dumps(rollout.trajectory)}'
            f', "accuracy": {signals.accuracy!r}, "policy": [{", ".join(policy)}]'
            f', "judge": [{", ".join(judge)}]}}\n'
        )
        written += 1
        judgements += sum(len(step.scores) for step in rollout.steps)
        policy_samples += len(policy) - policy.count("null")
        judge_samples += trained
        signals.left -= 1
        if not signals.left:
            del open_tasks[task]
    if written != survey.trajectories:
        raise _changed(survey.path)
    return Summary(
        trajectories=written,
        tasks=len(survey.tasks),
        single_trajectory_tasks=int((survey.group_sizes == 1).sum()),
        steps=survey.total_steps,
        judgements=judgements,
        policy_samples=policy_samples,
        judge_samples=judge_samples,
    )


def _changed(path: Path) -> RolloutsError:
    return RolloutsError(f"{path}: changed while it was read; wait until its writer is done")
