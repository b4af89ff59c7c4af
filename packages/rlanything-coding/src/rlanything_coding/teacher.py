"""Teaches the nano models for coding before the loop begins: answers for the three roles.

All answers are about problems of the embedded families, whose solutions are known.
"""

from __future__ import annotations

import json
import random

from rlanything.records import Direction, Task
from rlanything_coding.answers import program_in
from rlanything_coding.families.catalogue import DIFFICULTIES
from rlanything_coding.families.drills import drill
from rlanything_coding.families.problem_generator import (
    fresh_tests,
    remade,
    spec_of,
    wrong_programs,
)
from rlanything_coding.families.programs import (
    Program,
    output_of,
    text_of,
    trace,
)
from rlanything_coding.fences import FENCE
from rlanything_coding.problem import Example, Problem
from rlanything_nano.teaching import UnitTestPlan

_TRIES = 16


def solution(problem: Problem, rng: random.Random, slip: float = 0.0) -> str:
    """Returns a policy's response: the stages in words, then a program in a fence.

    With probability `slip` the program has a typical mistake and fails some ground-truth test."""
    program = spec_of(problem).program()
    thought = ", ".join(line.says for line in program)
    wrong = wrong_programs(problem) if rng.random() < slip else []
    if wrong:
        program = rng.choice(wrong)
    return f"{thought}.\n{_fenced('python', text_of(program))}"


def unit_test(problem: Problem, rng: random.Random, error: float = 0.0) -> str:
    """Returns a judge's response: the stages worked out on an input, then the test in two fences.

    With probability `error` one stage is worked out wrongly, so that the output is wrong. If no
    typical mistake changes the output, the test is still correct."""
    program = spec_of(problem).program()
    (test,) = fresh_tests(problem, 1, rng)
    if rng.random() < error:
        program, test = _mistaken(problem, rng) or (program, test)
    work = "; ".join(f"{says}: {result}" for says, result in trace(program, test.input))
    work = work.replace("\n", " ")
    given, expected = test.input.removesuffix("\n"), test.output
    return f"{work}.\n{_fenced('input', given)}\n{_fenced('output', expected)}"


def _mistaken(problem: Problem, rng: random.Random) -> tuple[Program, Example] | None:
    """Returns a wrong program with the test that it implies, or None if no mistake shows."""
    rivals = wrong_programs(problem)
    rng.shuffle(rivals)
    for rival in rivals:
        for test in (*fresh_tests(problem, _TRIES, rng), *problem.tests):
            output = output_of(rival, test.input)
            if output and output != test.output:
                return rival, Example(test.input, output)
    return None


def rewrite(
    problem: Problem, direction: Direction, rng: random.Random, tests: int = 8
) -> str | None:
    """Returns an adapter's answer: the JSON of the family's next problem with another program.

    None if the family has nothing harder or easier."""
    here = problem.difficulty
    ways = {"harder": range(here + 1, DIFFICULTIES[-1] + 1), "easier": range(here - 1, 0, -1)}
    for difficulty in ways[direction]:
        other = remade(problem, difficulty, rng, tests)
        if other.spec != problem.spec:
            listed = [{"input": test.input, "output": test.output} for test in other.tests]
            return json.dumps({"question": other.question, "tests": listed})
    return None


def _fenced(label: str, text: str) -> str:
    return f"{FENCE}{label}\n{text}\n{FENCE}"


def explanation(problem: Problem, response: str, summary: str) -> str:
    """Returns two short sentences on why a program fails."""
    program = program_in(response)
    if program is None:
        return "There is no program. It must stand in a fenced block."
    written = program.splitlines()
    missing = [line.says for line in spec_of(problem).program() if line.code not in written]
    cause = f"It gets this step wrong: {missing[0]}." if missing else "It does more than asked."
    return f"{cause} {summary.partition('.')[0]}."


class CodingTeacher:
    """The teacher of the nano models for coding (a `UnitTestTeacher`)."""

    plan = UnitTestPlan()

    def drills(self, count: int, difficulty: tuple[int, int], seed: int) -> list[Task]:
        rng = random.Random(seed)
        problems = (drill(rng.randint(*difficulty), rng) for _ in range(count))
        return [
            Task(f"drill-{number}", problem.question, problem.family, problem.to_data())
            for number, problem in enumerate(problems)
        ]

    def solution(self, task: Task, rng: random.Random, slip: float) -> str:
        return solution(Problem.from_data(task.data), rng, slip)

    def unit_test(self, task: Task, rng: random.Random, error: float) -> str:
        return unit_test(Problem.from_data(task.data), rng, error)

    def critic(self, task: Task, response: str, summary: str) -> str:
        return explanation(Problem.from_data(task.data), response, summary)

    def proposal(
        self, root: Task, direction: Direction, rng: random.Random, tests: int
    ) -> str | None:
        answer = rewrite(Problem.from_data(root.data), direction, rng, tests)
        return None if answer is None else _fenced("json", answer)
