"""Programs are graded as contests do, and of what they print little is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.coding_episodes import fenced, rollout, written_test
from rlanything.records import Task
from rlanything_coding.checking import KEPT_BYTES, ground_truth, run_table
from rlanything_coding.domain import Coding
from rlanything_coding.problem import Example, Problem
from rlanything_coding.sandbox.base import Verdict

DOUBLE = Problem(
    "Read a number and print its double.",
    (Example("2\n", "4"), Example("-3\n", "-6"), Example("0\n", "0"), Example("10\n", "20")),
)
TASK = Task("double", DOUBLE.question, "", DOUBLE.to_data())


@pytest.fixture(scope="module")
def domain() -> Iterator[Coding]:
    made = Coding()
    yield made
    made.executor.close()


THIRD = "print(int(input()) / 3)"
THIRDS = {
    "question": "Read a number and print a third of it.",
    "test_input": ["1\n", "2\n", "3\n"],
    "test_output": ["0.333333\n", "0.6666666667\n", "1.0\n"],
    "test_time_limit": 1,
}


def task_of(folder: Path, entry: dict) -> tuple[Coding, Task]:
    (folder / "problems.jsonl").write_text(json.dumps(entry))
    domain = Coding(data={"train": str(folder / "problems.jsonl")})
    [task] = domain.tasks("train", 1, 0)
    return domain, task


@pytest.mark.parametrize(
    ("tolerance", "passes"), [({}, True), ({"test_tolerance": 0}, False)], ids=["default", "exact"]
)
def test_fractions_pass_near_enough_unless_the_file_says_otherwise(
    tmp_path: Path, tolerance: dict, passes: bool
) -> None:
    domain, task = task_of(tmp_path, THIRDS | tolerance)
    assert Problem.from_data(json.loads(json.dumps(task.data))) == Problem.from_data(task.data)
    coarse = "print('%.3f' % (int(input()) / 3))"
    assert (rollout(domain, task, fenced(THIRD)).outcome == 1) is passes
    assert rollout(domain, task, fenced(coarse)).outcome == -1
    # The judge's tests have the same grader, and so have the votes on a rewritten problem.
    tests = [written_test("1\n", "0.3333333"), written_test("3\n", "1")]
    scores = domain.run_tests(task, [fenced(THIRD), fenced(coarse)], tests)
    assert scores == [[1 if passes else -1, -1], [-1, -1]]
    programs = [THIRD, "print('%.9f' % (int(input()) / 3))", "print('%.7f' % (int(input()) / 3))"]
    voters = [rollout(domain, task, fenced(each)) for each in programs]
    assert (domain.objection(task, voters) is None) is passes
    domain.executor.close()


def test_of_an_output_a_beginning_is_kept_and_its_digest(domain: Coding) -> None:
    flood = "print('7 ' * 10**6 + input(), end='{}')"
    programs = [fenced(flood.format(end)) for end in ("", "\\n\\n", " 1")]
    tests = [written_test(f"{number}\n", "7") for number in (1, 2)]
    [first, same, other] = domain.test_outputs(TASK, programs, tests)
    assert first == same
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert first[0] != first[1]
    assert all(len(text) < 20_000 for text in (*first, *other))
    table = run_table(domain.executor, DOUBLE, [flood.format("")], DOUBLE.tests, 256)
    assert [len(run.stdout) for run in table[0]] == [KEPT_BYTES] * 4
    assert {run.verdict for run in table[0]} == {Verdict.WRONG}
    # A program that passes is known to, however much it prints.
    much = Problem("Print.", (Example("", "7 " * 10**5),))
    [[passed]] = run_table(domain.executor, much, ["print('7\\n' * 10**5)"], much.tests, 256)
    assert (passed.verdict, len(passed.stdout)) == (Verdict.OK, KEPT_BYTES)
    [without] = ground_truth(domain.executor, much, "print('7\\n' * 10**5)", 256)
    assert (without.verdict, without.stdout) == (Verdict.OK, b"")
