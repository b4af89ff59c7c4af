"""The learner's benchmark: it measures what it says, on samples that a recipe really makes."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from helpers.tiny import tiny_model
from rlanything.bench import memory
from rlanything.bench.arms import learner_arm
from rlanything.bench.experience import OBSERVATION, OPENING, RESPONSE, episodes
from rlanything.bench.learner import BenchError, Result, Row, bench_learner
from rlanything.bench.report import page, table
from rlanything.cli import app
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.packing import pack
from rlanything.progress import Progress

SMALL = ["loop.max_steps=10", "environment.workers=0", "threads=1"]


def row(name: str, shared: list[float], padded: list[float]) -> Row:
    seconds = {"shared": shared, "padded": padded}
    return Row(name, 2, 40, 10, 12, {"padded": 1024}, seconds, {"shared": [3.0]})


def test_the_command_prints_one_object_with_what_a_script_reads(pytestconfig):
    recipe = pytestconfig.rootpath / "recipes" / "quickstart.yaml"
    printed = CliRunner().invoke(
        app, ["bench", "learner", "--quick", "--json", str(recipe), *SMALL]
    )
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    assert set(found) == {
        "sample_tokens",
        "distinct_tokens",
        "computed_tokens",
        "speedup_policy",
        "speedup_judge",
        "speedup_trl",
    }
    assert found["distinct_tokens"] <= found["computed_tokens"] < found["sample_tokens"] / 2
    assert found["speedup_policy"] > 0
    assert found["speedup_judge"] > 0


def test_nothing_to_measure_is_one_line(pytestconfig):
    # A single rollout has nothing to be compared with, so nothing trains.
    recipe = load_recipe(
        pytestconfig.rootpath / "recipes" / "quickstart.yaml", [*SMALL, "loop.rollouts_per_task=1"]
    )
    with pytest.raises(BenchError, match="no sample of the first iteration trains"):
        bench_learner(recipe, quick=True, progress=Progress(Console(quiet=True)))


def test_made_up_episodes_grow_with_the_square_of_their_steps_and_their_trie_does_not():
    short, long = episodes(10, 2, 100, seed=0), episodes(20, 2, 100, seed=0)
    assert len(long) == 2 * len(short) == 40
    totals = [sum(len(s.completion.tokens) for s in each) for each in (short, long)]
    assert totals[1] > 3 * totals[0]
    [trie] = pack(long, 1 << 40)
    assert trie.computed_tokens == OPENING + 2 * (20 * RESPONSE + 19 * OBSERVATION)


def test_both_ways_take_the_same_step():
    model, samples = tiny_model(scale=0.1), episodes(3, 2, 100, seed=1)
    shared, padded = (
        learner_arm(model, TrainedRoleConfig(), packing, 1024) for packing in ("shared", "padded")
    )
    for arm in (shared, padded):
        arm.step(samples)
    expected = padded.gradient()
    assert expected.norm() > 0
    assert (shared.gradient() - expected).norm() <= 1e-4 * expected.norm()


def test_ratios_are_of_medians_and_trl_is_null_where_it_did_not_run():
    result = Result((row("policy", [1, 2, 9], [4, 6, 8]), row("judge", [1], [5])), 3)
    assert result.to_json() == {
        "sample_tokens": 80,
        "distinct_tokens": 20,
        "computed_tokens": 24,
        "speedup_policy": 3.0,
        "speedup_judge": 5.0,
        "speedup_trl": None,
    }


def test_the_page_shows_every_row_with_the_range_of_its_rounds():
    result = Result((row("policy", [1, 2, 9], [4, 6, 8]), row("judge", [1], [5])), 3)
    text = page(result, "rlanything bench learner")
    assert "| policy | 2.00 | 3.0x [0.9, 4.0] | - | 3 | - | - | - | - |" in text
    assert "| judge | 2 | 40 | 10 | 12 | 1.200 |" in text
    assert table(result).row_count == 2


@pytest.mark.skipif(not memory.measurable(), reason="only glibc's memory is measured")
def test_peak_memory_is_that_of_the_work_also_if_it_was_given_back():
    assert 190 < memory.peak_megabytes(lambda: len(b"x" * 200_000_000)) < 260
    assert memory.peak_megabytes(lambda: None) < 50
