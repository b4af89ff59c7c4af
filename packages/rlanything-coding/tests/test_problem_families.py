"""Embedded problems: right answers are right, slips are wrong, and held-out families are new."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything.domains.base import DomainError
from rlanything_coding.families import (
    DIFFICULTIES,
    fresh_tests,
    make_problem,
    ood,
    reference,
    slips,
    train,
)
from rlanything_coding.families.catalogue import FAMILIES, OOD, TRAIN
from rlanything_coding.families.drills import drill
from rlanything_coding.families.problem_generator import spec_of
from rlanything_coding.families.programs import (
    Line,
    Program,
    output_of,
    text_of,
)
from rlanything_coding.families.readers import READERS
from rlanything_coding.families.spec import BLOCKS, Spec
from rlanything_coding.families.wording import WAYS, worded
from rlanything_coding.problem import Problem

SEEDS = range(5)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    """Some of every family at every difficulty."""
    return [
        make_problem(name, difficulty, seed)
        for name, difficulty, seed in product(FAMILIES, DIFFICULTIES, SEEDS)
    ]


def whole(text: str) -> Program:
    return (Line("all", text, ""),)


def test_there_are_many_families_to_train_on_and_some_held_out() -> None:
    assert len(train) >= 20
    assert len(ood) >= 5
    assert len({*train, *ood}) == len(train) + len(ood) == len(FAMILIES)


def test_the_text_of_every_reference_passes_all_tests(problems: list[Problem]) -> None:
    for problem in problems:
        program = whole(reference(problem))
        for test in problem.tests:
            assert output_of(program, test.input) == test.output, (problem, test)


# What people say these problems mean, in code that shares nothing with the blocks.
BY_HAND = {
    ("total", "sum"): lambda rows: sum(map(int, rows[0].split())),
    ("spread", "range"): lambda rows: (
        max(map(int, rows[1].split())) - min(map(int, rows[1].split()))
    ),
    ("parity count", "odd count"): lambda rows: len([n for n in rows[1:] if n[-1] in "13579"]),
    ("symmetry", "palindrome"): lambda rows: (
        "yes" if list(rows[0]) == list(reversed(rows[0])) else "no"
    ),
    ("pairs", "pair max list"): lambda rows: " ".join(
        a if int(a) > int(b) else b for a, b in zip(rows[0].split(), rows[1].split(), strict=True)
    ),
    ("given letter", "letter count k"): lambda rows: len(rows[0].split(rows[1])) - 1,
    ("threshold count", "below 3 count"): lambda rows: len(
        [n for n in rows[0].split() if int(n) + 1 <= 3]
    ),
    ("chosen word", "longest"): lambda rows: sorted(rows[0].split(), key=lambda w: -len(w))[0],
}


@pytest.mark.parametrize(("family", "stages"), BY_HAND)
def test_tests_are_what_a_person_would_compute(family: str, stages: str) -> None:
    problem = next(
        found
        for found in (make_problem(family, 1, seed) for seed in range(200))
        if " ".join(stage.says for stage in spec_of(found).stages) == stages
    )
    for test in (*problem.tests, *fresh_tests(problem, 50, random.Random(0))):
        assert str(BY_HAND[family, stages](test.input.splitlines())) == test.output


def test_tests_are_enough_and_all_different(problems: list[Problem]) -> None:
    for problem in problems:
        assert len(problem.tests) == 8
        assert len({test.input for test in problem.tests}) == 8
        for test in problem.tests:
            assert test.input.endswith("\n")
            assert test.output.strip("\n") == test.output != ""
            assert len(test.input) + len(test.output) < 200


def test_programs_are_short(problems: list[Problem]) -> None:
    for problem in problems:
        lines = reference(problem).count("\n") + 1
        assert lines <= (5 if problem.difficulty == 1 else 8)


def test_every_slip_fails_a_test_and_every_problem_has_some(problems: list[Problem]) -> None:
    for problem in problems:
        found = slips(problem, random.Random(0))
        assert found, problem
        for text in found:
            outputs = [output_of(whole(text), test.input) for test in problem.tests]
            assert outputs != [test.output for test in problem.tests], text


def test_eight_tests_find_nearly_every_mistake_that_a_hundred_find(
    problems: list[Problem],
) -> None:
    found = missed = 0
    for problem in problems[::5]:
        caught = set(slips(problem, random.Random(0)))
        hundred = fresh_tests(problem, 100, random.Random(0))
        for rival in spec_of(problem).rivals():
            if text_of(rival) in caught:
                found += 1
            elif any(output_of(rival, test.input) != test.output for test in hundred):
                missed += 1
    assert found > 1000
    assert missed < found / 100


def test_hard_problems_are_tested_at_their_edges() -> None:
    made = [
        make_problem(name, 4, seed) for name in ("parity extreme", "pairs") for seed in range(9)
    ]
    inputs = [test.input.splitlines()[0].split() for each in made for test in each.tests]
    assert any(len(row) == 1 for row in inputs)
    assert any(len(set(row)) < len(row) for row in inputs)
    assert any("-" in number for row in inputs for number in row)
    assert any(test.output == "0" for each in made for test in each.tests)


def test_the_same_arguments_make_the_same_problem() -> None:
    assert make_problem("pairs", 3, 7) == make_problem("pairs", 3, 7)
    assert len({make_problem("pairs", 3, seed).question for seed in range(20)}) > 10
    first = make_problem("order", 2, 1)
    assert first.question == (
        "Input: a line of integers\nSteps: take absolute values\nOutput: the numbers in reverse."
    )


def test_problems_do_not_hang_on_the_number_of_tests() -> None:
    few, many = (make_problem("digits", 2, 0, tests) for tests in (3, 12))
    assert replace(few, tests=()) == replace(many, tests=())
    assert (len(few.tests), len(many.tests)) == (3, 12)


def test_greater_difficulty_adds_stages_to_the_same_choices() -> None:
    for name in FAMILIES:
        names = [
            [stage.block.name for stage in spec_of(make_problem(name, d, 3)).stages]
            for d in DIFFICULTIES
        ]
        for easier, harder in pairwise(names):
            assert [each for each in harder if each in easier] == easier
        assert len(names[0]) < len(names[-1])


def test_every_problem_is_worded_in_four_ways_and_more(problems: list[Problem]) -> None:
    for problem in problems[:: len(SEEDS)]:
        spec = spec_of(problem)
        rng = random.Random(0)
        told = {worded(spec, way, rng) for way in range(WAYS) for _ in range(20)}
        assert len({worded(spec, way, random.Random(0)) for way in range(WAYS)}) == 4
        assert len(told) >= 8
        assert all("{" not in text and 20 <= len(text) <= 400 for text in told)


def test_no_held_out_combination_is_trained_on() -> None:
    trained = {spec.combination for family in TRAIN for spec in family.combinations()}
    held_out = {spec.combination for family in OOD for spec in family.combinations()}
    assert trained & held_out == set()
    assert len(held_out) > 50


def test_combinations_are_all_that_is_ever_drawn(problems: list[Problem]) -> None:
    possible = {
        name: {spec.combination for spec in family.combinations()}
        for name, family in FAMILIES.items()
    }
    for problem in problems:
        assert spec_of(problem).combination in possible[problem.family]


def test_held_out_families_are_made_of_blocks_and_readers_known_from_training() -> None:
    def parts(families: tuple) -> set[str]:
        specs = [spec for family in families for spec in family.combinations()]
        blocks = {stage.block.name for spec in specs for stage in spec.stages}
        return blocks | {f"read {spec.reader.name}" for spec in specs}

    assert parts(OOD) <= parts(TRAIN)
    assert {name for name in parts(TRAIN) if not name.startswith("read ")} == set(BLOCKS)


def test_blocks_fit_together_and_only_the_last_prints() -> None:
    for family in FAMILIES.values():
        for spec in family.combinations():
            kind = spec.reader.gives
            for stage in spec.stages:
                assert stage.block.takes == kind, (family.name, stage.block.name)
                kind = stage.block.gives
            assert [stage.block.role == "print" for stage in spec.stages].index(True) == (
                len(spec.stages) - 1
            )


def test_a_spec_survives_json(problems: list[Problem]) -> None:
    for problem in problems:
        spec = spec_of(problem)
        assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.sampled_from(DIFFICULTIES), st.integers(0, 2**63 - 1))
def test_any_seed_makes_a_sound_problem(family: str, difficulty: int, seed: int) -> None:
    problem = make_problem(family, difficulty, seed, tests=4)
    program = whole(reference(problem))
    assert all(output_of(program, test.input) == test.output for test in problem.tests)
    assert Problem.from_data(json.loads(json.dumps(problem.to_data()))) == problem


def test_drills_combine_much_and_nothing_that_is_held_out() -> None:
    rng = random.Random(0)
    drills = [drill(rng.randint(1, 5), rng) for _ in range(600)]
    specs = [spec_of(each) for each in drills]
    held_out = {spec.combination for family in OOD for spec in family.combinations()}
    trained = {spec.combination for family in TRAIN for spec in family.combinations()}
    found = {spec.combination for spec in specs}
    assert not found & held_out
    assert len(found - trained) > 200
    assert {stage.block.name for spec in specs for stage in spec.stages} == set(BLOCKS)
    assert {spec.reader.name for spec in specs} == set(READERS)
    for each, spec in zip(drills, specs, strict=True):
        assert all(output_of(spec.program(), test.input) == test.output for test in each.tests)
        assert spec.reader.reads_constant <= any(stage.block.constants for stage in spec.stages)
        assert ("ys" in spec.reader.line) == ("zip(xs, ys)" in reference(each))


def test_what_no_family_made_has_no_reference() -> None:
    with pytest.raises(ValueError, match="not made by a family"):
        reference(Problem("Print 1.", ()))


@pytest.mark.parametrize(("family", "difficulty"), [("totals", 1), ("total", 0), ("total", 6)])
def test_an_unknown_family_or_difficulty_is_refused(family: str, difficulty: int) -> None:
    with pytest.raises(DomainError, match="use"):
        make_problem(family, difficulty, 0)
