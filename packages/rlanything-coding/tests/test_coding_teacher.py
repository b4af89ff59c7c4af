"""What the teacher shows: right answers that its own parsers read, and wrong ones on demand."""

from __future__ import annotations

import random
from itertools import product

import pytest

from rlanything.domains.base import InvalidTask
from rlanything_coding import answers, teacher
from rlanything_coding.answers import program_in
from rlanything_coding.families import DIFFICULTIES, make_problem, reference, slips
from rlanything_coding.families.catalogue import FAMILIES
from rlanything_coding.families.problem_generator import spec_of
from rlanything_coding.families.programs import output_of
from rlanything_coding.problem import Problem
from rlanything_coding.rewriting import rewritten


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [make_problem(name, d, 5) for name, d in product(FAMILIES, DIFFICULTIES)]


def test_a_solution_is_the_reference_and_a_slip_one_of_the_slips(problems: list[Problem]) -> None:
    for problem in problems:
        right = teacher.solution(problem, random.Random(0))
        assert program_in(right) == f"{reference(problem)}\n"
        thought = right.partition("\n")[0]
        assert thought.startswith("read, ")
        wrong = program_in(teacher.solution(problem, random.Random(0), slip=1.0))
        assert wrong is not None
        assert wrong.removesuffix("\n") in slips(problem, random.Random(0))


def test_a_unit_test_is_right_or_wrong_as_asked(problems: list[Problem]) -> None:
    for problem, seed in product(problems, range(2)):
        program = spec_of(problem).program()
        right = answers.unit_test_in(teacher.unit_test(problem, random.Random(seed)))
        assert output_of(program, right.input) == right.output
        wrong = answers.unit_test_in(teacher.unit_test(problem, random.Random(seed), error=1.0))
        assert output_of(program, wrong.input) not in (None, wrong.output), problem


def test_the_reasoning_ends_in_the_output() -> None:
    text = teacher.unit_test(make_problem("given threshold", 1, 7), random.Random(1))
    reasoning, _, _ = text.partition("\n```")
    assert reasoning.startswith("read: ")
    assert reasoning.endswith(f": {answers.unit_test_in(text).output}.")


def test_errors_and_slips_come_as_often_as_asked() -> None:
    problem = make_problem("parity total", 2, 0)
    program = spec_of(problem).program()
    rng = random.Random(0)
    tests = [answers.unit_test_in(teacher.unit_test(problem, rng, error=0.3)) for _ in range(400)]
    wrong = sum(output_of(program, test.input) != test.output for test in tests)
    assert 90 <= wrong <= 150
    programs = [program_in(teacher.solution(problem, rng, slip=0.3)) for _ in range(400)]
    assert 90 <= sum(found != f"{reference(problem)}\n" for found in programs) <= 150


def test_a_rewrite_is_a_candidate_of_the_wanted_difficulty(problems: list[Problem]) -> None:
    found = 0
    for problem, direction in product(problems[::2], ("harder", "easier")):
        text = teacher.rewrite(problem, direction, random.Random(0))
        if text is None:
            continue
        found += 1
        candidate = rewritten(text, problem)
        assert len(candidate.tests) == 8
        levels = [d for d in DIFFICULTIES if d != problem.difficulty]
        fitting = [
            d
            for d in levels
            for program in [spec_of(make_problem(problem.family, d, 5)).program()]
            if all(output_of(program, test.input) == test.output for test in candidate.tests)
        ]
        assert any((d > problem.difficulty) == (direction == "harder") for d in fitting)
    assert found > len(problems) / 2


def test_there_is_nothing_easier_than_the_easiest_nor_harder_than_the_hardest() -> None:
    for name in FAMILIES:
        assert teacher.rewrite(make_problem(name, 1, 0), "easier", random.Random(0)) is None
        assert teacher.rewrite(make_problem(name, 5, 0), "harder", random.Random(0)) is None
        harder = teacher.rewrite(make_problem(name, 1, 0), "harder", random.Random(0))
        easier = teacher.rewrite(make_problem(name, 5, 0), "easier", random.Random(0))
        assert harder is not None
        assert easier is not None


def test_a_taught_rewrite_can_be_any_problem_but_the_old_one() -> None:
    root = make_problem("digits", 1, 0)
    text = teacher.rewrite(root, "harder", random.Random(0))
    assert text is not None
    with pytest.raises(InvalidTask, match="old"):
        rewritten(text, rewritten(text, root))


def test_the_same_source_teaches_the_same() -> None:
    problem = make_problem("lengths", 3, 1)
    for lesson in (teacher.solution, teacher.unit_test):
        texts = [lesson(problem, random.Random(seed), 0.5) for seed in (0, 0, *range(9))]
        assert texts[0] == texts[1]
        assert len(set(texts)) > 1
