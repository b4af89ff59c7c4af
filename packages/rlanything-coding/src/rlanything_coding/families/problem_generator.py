"""Problems made from families. Spec, wording and tests each have their own seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rlanything.domains.base import DomainError
from rlanything.seeds import derive
from rlanything_coding.families.catalogue import (
    DIFFICULTIES,
    FAMILIES,
    easy_constants,
)
from rlanything_coding.families.programs import Program, output_of, text_of
from rlanything_coding.families.spec import Spec
from rlanything_coding.families.wording import question
from rlanything_coding.problem import Example, Problem

_POOL = 8
"""Number of inputs to choose each test from."""


def make_problem(family: str, difficulty: int, seed: int, tests: int = 8) -> Problem:
    """Returns a problem with at most `tests` tests; the same for the same arguments.

    At another difficulty, family and seed make the same choices, except for further stages, larger
    constants and larger inputs. Raises `DomainError` for an unknown family or difficulty."""
    if family not in FAMILIES:
        raise DomainError(f"unknown family {family!r}: use one of {', '.join(FAMILIES)}")
    if difficulty not in DIFFICULTIES:
        raise DomainError(f"there is no difficulty {difficulty}: use 1 to {DIFFICULTIES[-1]}")
    return _made(family, difficulty, seed, tests, random.Random(derive(seed, family, difficulty)))


def remade(problem: Problem, difficulty: int, rng: random.Random, tests: int = 8) -> Problem:
    """Returns a family's problem at another difficulty. `rng` draws its wording and its tests.

    Raises `ValueError` for a problem that no family made."""
    spec_of(problem)
    return _made(problem.family, difficulty, (problem.spec or {})["seed"], tests, rng)


def _made(family: str, difficulty: int, seed: int, tests: int, rng: random.Random) -> Problem:
    spec = FAMILIES[family].draw(difficulty, random.Random(derive(seed, family)))
    problem = problem_of(spec, family, difficulty, tests, rng)
    return replace(problem, spec={"seed": seed, **spec.to_json()})


def problem_of(spec: Spec, family: str, difficulty: int, tests: int, rng: random.Random) -> Problem:
    """Returns the problem of a spec. `rng` draws its question and at most `tests` tests."""
    return Problem(
        question=question(spec, rng),
        tests=tuple(_telling(spec, difficulty, tests, rng)),
        family=family,
        difficulty=difficulty,
        spec=spec.to_json(),
    )


def spec_of(problem: Problem) -> Spec:
    """Returns the spec of a problem. Raises `ValueError` for a problem that no family made."""
    if problem.spec is None:
        raise ValueError("the problem was not made by a family: its solution is unknown")
    return Spec.from_json(problem.spec)


def reference(problem: Problem) -> str:
    """Returns the text of a correct program. Raises `ValueError` for a problem that no family
    made."""
    return text_of(spec_of(problem).program())


def slips(problem: Problem, rng: random.Random) -> list[str]:
    """Returns programs with one typical mistake, in random order; each fails a test."""
    texts = [text_of(rival) for rival in wrong_programs(problem)]
    rng.shuffle(texts)
    return texts


def wrong_programs(problem: Problem) -> list[Program]:
    """Returns the programs with one typical mistake that fail at least one of the tests."""
    return [
        rival
        for rival in spec_of(problem).rivals()
        if any(output_of(rival, test.input) != test.output for test in problem.tests)
    ]


def fresh_tests(problem: Problem, count: int, rng: random.Random) -> list[Example]:
    """Returns `count` more correct tests; their inputs may repeat."""
    spec = spec_of(problem)
    return [_test(spec, _input(spec, problem.difficulty, rng)) for _ in range(count)]


def _telling(spec: Spec, difficulty: int, count: int, rng: random.Random) -> list[Example]:
    """Returns different tests, preferring those that tell mistakes from the correct program."""
    drawn = (_input(spec, difficulty, rng) for _ in range(_POOL * count))
    pool = [_test(spec, given) for given in dict.fromkeys(drawn)]
    undetected: Sequence[Program] = list(spec.rivals())
    telling: list[Example] = []
    for test in pool:
        remaining = [rival for rival in undetected if output_of(rival, test.input) == test.output]
        if len(remaining) < len(undetected):
            telling.append(test)
        undetected = remaining
    chosen = [*telling, *(test for test in pool if test not in telling)][:count]
    rng.shuffle(chosen)
    return chosen


def _input(spec: Spec, difficulty: int, rng: random.Random) -> str:
    if spec.reader.reads_constant:
        near = [k for stage in spec.stages for k in easy_constants(stage.block, difficulty)]
    else:
        near = [stage.constant for stage in spec.stages if stage.constant is not None]
    return spec.reader.draw(rng, difficulty, near)


def _test(spec: Spec, given: str) -> Example:
    output = output_of(spec.program(), given)
    assert output, f"a block of {spec.to_json()} fails on {given!r}"
    return Example(given, output)
