"""Every model type of docs/model-types.md does what its line says, to the rounding."""

from __future__ import annotations

import pytest

from helpers.benchmark_module import load_benchmark
from helpers.paths import ROOT

pytest.importorskip("rlanything_nano")
TYPES = load_benchmark("model_types")
LINES = (ROOT / "docs" / "model-types.md").read_text().splitlines()
RARE = sorted(TYPES.CASES.keys() - TYPES.FAST.keys())
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in RARE]


@pytest.mark.parametrize("name", [*TYPES.FAST, *SLOW])
def test_a_type_does_what_its_line_says(name):
    use = TYPES.measure(name)
    assert use.largest_difference < TYPES.TOLERANCE
    assert use.line(name) in LINES, "python benchmarks/model_types.py > docs/model-types.md"


def test_the_page_has_a_line_for_every_type_and_no_other():
    head = TYPES.HEAD.splitlines()
    assert LINES[: len(head)] == head
    names = [line.split(" | ")[0].removeprefix("| ") for line in LINES[len(head) :]]
    assert names == sorted(TYPES.CASES, key=str.lower)
    assert len(TYPES.FAST) >= 40
