"""Problems survive JSON, with nothing in it that need not be there."""

from __future__ import annotations

import json

import pytest

from rlanything_coding.families import make_problem
from rlanything_coding.problem import Example, Problem

PLAIN = Problem("Print the sum of a line.", (Example("1 2\n", "3"), Example("\n", "0")))
FUNCTION = Problem("Complete f.", (), 3.0, check="check(f)\n", entry_point="f")


@pytest.mark.parametrize("problem", [PLAIN, FUNCTION, make_problem("total", 3, 0)])
def test_a_problem_survives_json(problem: Problem) -> None:
    assert Problem.from_data(json.loads(json.dumps(problem.to_data()))) == problem


def test_what_a_problem_does_not_have_takes_no_room() -> None:
    assert PLAIN.to_data() == {
        "question": "Print the sum of a line.",
        "tests": [["1 2\n", "3"], ["\n", "0"]],
        "time_limit_seconds": 1.0,
    }
