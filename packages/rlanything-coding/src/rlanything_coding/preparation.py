"""Problem files made from published ones, such as the paper's (Gen-Verse) and LiveCodeBench's.

`published` lists the forms. Output: the lines that `dataset` reads, with the time limits of the
paper's own preparation, or a problem's own limit.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path

from rlanything.domains.base import DomainError, Use
from rlanything_coding.checking import ground_truth
from rlanything_coding.dataset import fail, read_entries
from rlanything_coding.problem import Problem
from rlanything_coding.published import OPEN, LeftOut, Published, read_published
from rlanything_coding.sandbox.base import (
    DEFAULT_LIMITS,
    Executor,
    Grading,
    SandboxUnavailable,
    Verdict,
)
from rlanything_coding.sandbox.local import LocalExecutor

TRAIN_SECONDS, EVALUATION_SECONDS = 2.0, 6.0
"""Time limits of a test in seconds, from the paper's preparation."""
HELD_OUT = 200
"""Problems held out for evaluation if a file serves both uses, as many as in the paper."""
AGREEING = 2
"""Known solutions that must pass the tests of a problem whose statement accepts any answer."""
AGREED_TESTS = 20
"""Largest number of tests on which they must agree."""
SHOWN_FAULTS = 3
"""Number of entries that are not understood to name, of each file."""
_TRAIN = "_train"


@dataclass
class _Intake:
    """Counts of a file's problems while they are read."""

    source: Path
    use: Use
    forms: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    any_answer: int = 0
    """Problems kept as their benchmark has them, although several answers are right."""

    def summary(self) -> str:
        """Returns the numbers of problems read and left out, as the end of a line."""
        left_out = Counter(self.left_out)
        if self.faults:
            left_out["not understood"] = len(self.faults)
        forms = ", ".join(f"{count:,} as {form}" for form, count in self.forms.items())
        said = f"; read: {forms}" if forms else ""
        if left_out:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
            said += f"; left out of {self.source.name}: {counts}"
        if self.any_answer:
            said += f"; kept as published: {self.any_answer:,} with more than one right answer"
        return said

    def fault_lines(self) -> list[str]:
        """Returns the first lines about what is not understood, and the number of further ones."""
        more = len(self.faults) - SHOWN_FAULTS
        return self.faults[:SHOWN_FAULTS] + ([f"and {more:,} more like these"] if more > 0 else [])


def prepare(
    source: Path, folder: Path, use: Use | None, on_bytes: Callable[[int], None]
) -> list[str]:
    """Implements `Domain.prepare`: writes NAME_train.jsonl for training and NAME.jsonl for
    evaluation. A file named NAME_train is for training unless `use` says otherwise. Entries that
    are not understood are left out, and named in lines of their own."""
    name = source.stem.removesuffix(_TRAIN)
    use = use or ("evaluation" if name == source.stem else "train")
    intake = _Intake(source, use)
    lines: list[str] = []
    with ExitStack() as stack:
        executor = cache(lambda: stack.enter_context(LocalExecutor()))
        problems = _published(intake, executor, on_bytes)
        held: list[Published] = []
        if use != "evaluation":
            training = problems if use == "train" else _hold_out(problems, held)
            path = folder / f"{name}{_TRAIN}.jsonl"
            lines.append(_write(path, training, TRAIN_SECONDS, intake))
        if use != "train":
            evaluated = problems if use == "evaluation" else held
            lines.append(_write(folder / f"{name}.jsonl", evaluated, EVALUATION_SECONDS, intake))
    lines[-1] = "\n".join([lines[-1] + intake.summary(), *intake.fault_lines()])
    return lines


def _write(path: Path, problems: Iterable[Published], seconds: float, intake: _Intake) -> str:
    """Writes problems as JSON lines; returns a line with their number. Raises `DomainError` if
    there are none, or if another source has the same name."""
    count = limited = 0
    try:
        with path.open("x", encoding="utf-8") as file:
            for published in problems:
                problem = published.problem
                limit = problem.time_limit_seconds if published.own_limit else seconds
                file.write(f"{json.dumps(entry_of(replace(problem, time_limit_seconds=limit)))}\n")
                count += 1
                limited += published.own_limit
    except FileExistsError:
        fail(str(intake.source), f"another file became {path.name} already", "rename one of them")
    if not count:
        fault = f"no problem is left for {path.name}{intake.summary()}"
        if intake.faults:
            fault += f"; the first fault: {intake.faults[0]}"
        fail(str(intake.source), fault, "give a file with more problems")
    own = f", or a limit of their own ({limited:,})" if limited else ""
    return f"{path.name}: {count:,} problems, {seconds:g} s a test{own}"


def _hold_out(problems: Iterator[Published], held: list[Published]) -> Iterator[Published]:
    """Yields all problems except `HELD_OUT` random ones, always the same, which it appends to
    `held`."""
    rng = random.Random("held out")
    for number, problem in enumerate(problems):
        at = number if number < HELD_OUT else rng.randrange(number + 1)
        if number < HELD_OUT:
            held.append(problem)
        elif at < HELD_OUT:
            yield held[at]
            held[at] = problem
        else:
            yield problem


def _published(
    intake: _Intake, executor: Callable[[], Executor], on_bytes: Callable[[int], None]
) -> Iterator[Published]:
    """Yields the problems of a published file that can be used, and counts the others."""
    seen: set[bytes] = set()
    for place, entry in read_entries(intake.source, on_bytes, intake.faults.append):
        try:
            published = read_published(place, entry, EVALUATION_SECONDS)
        except DomainError as fault:
            intake.faults.append(str(fault))
            continue
        intake.forms[published.form] += 1
        if isinstance(published, LeftOut):
            intake.left_out[published.reason] += 1
            continue
        question = published.problem.question.encode()
        text = hashlib.blake2b(question, digest_size=16).digest()
        if text in seen:
            intake.left_out["met before"] += 1
        elif published.problem.entry_point and intake.use != "evaluation":
            intake.left_out["with function-style tests (for evaluation only)"] += 1
        elif reason := undecided(published, executor):
            intake.left_out[reason] += 1
        else:
            seen.add(text)
            intake.any_answer += published.any_answer and published.form not in OPEN
            yield published


def undecided(published: Published, executor: Callable[[], Executor]) -> str | None:
    """Returns why tests of inputs and outputs do not decide who solves a problem; None if they do.
    Benchmarks are kept as they are, to compare with what is published."""
    if published.form not in OPEN:
        return None
    if published.interactive:
        return "interactive"
    if published.any_answer and not solutions_agree(published, executor):
        return "with more than one right answer"
    return None


def solutions_agree(published: Published, executor: Callable[[], Executor]) -> bool:
    """Returns whether enough of a problem's known solutions pass its tests, and none fails."""
    problem = published.problem
    first = replace(problem, tests=problem.tests[:AGREED_TESTS])
    programs = published.solutions[:AGREEING]
    if len(programs) < AGREEING:
        return False
    try:
        return all(
            run.verdict is Verdict.OK
            for program in programs
            for run in ground_truth(executor(), first, program, DEFAULT_LIMITS.memory_mb)
        )
    except SandboxUnavailable:
        return False


def entry_of(problem: Problem) -> dict[str, object]:
    """Returns the line that `dataset` reads as this problem."""
    entry: dict[str, object] = {
        "question": problem.question,
        "test_input": [test.input for test in problem.tests],
        "test_output": [test.output for test in problem.tests],
        "test_time_limit": problem.time_limit_seconds,
        "test_method": "function" if problem.entry_point else "stdio",
    }
    if problem.entry_point:
        entry["test_function"] = problem.entry_point
    for rule in fields(Grading):
        value = getattr(problem.grading, rule.name)
        if value != rule.default:
            entry[f"test_{rule.name}"] = value
    return entry
