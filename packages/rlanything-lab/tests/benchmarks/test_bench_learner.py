"""The learner's benchmark: it measures what it says, on samples that a recipe really makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from helpers.benchmark_module import load_benchmark, load_part
from helpers.tiny import tiny_model
from rlanything.config.recipe import load_recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.config.shipped import shipped_files
from rlanything.learning.packing import pack
from rlanything.progress import Progress

script: Any = load_benchmark("learner")
contenders: Any = load_part("learner_steps.contenders")
experience: Any = load_part("learner_steps.experience")
measuring: Any = load_part("learner_steps.measuring")
memory: Any = load_part("learner_steps.memory")
pages: Any = load_part("learner_steps.page")
OBSERVATION, OPENING, RESPONSE = experience.OBSERVATION, experience.OPENING, experience.RESPONSE

QUICKSTART = shipped_files()["quickstart"]
SMALL = ["loop.max_steps=10", "environment.workers=0", "threads=1"]


def row(name: str, shared: list[float], padded: list[float]) -> Any:
    seconds = {"shared": shared, "padded": padded}
    return measuring.Row(name, 2, 40, 10, 12, {"padded": 1024}, seconds, {"shared": [3.0]})


@pytest.mark.slow
def test_the_script_prints_one_object_with_what_another_script_reads(capsys):
    script.main(["--quick", "--json", str(QUICKSTART), *SMALL])
    found = json.loads(capsys.readouterr().out)
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


def test_nothing_to_measure_is_one_line():
    # A single rollout has nothing to be compared with, so nothing trains.
    alone = [*SMALL, "loop.rollouts_per_task=1"]
    with pytest.raises(measuring.BenchError, match="no sample of the first iteration trains"):
        measuring.measure(load_recipe(QUICKSTART, alone), True, Progress(Console(quiet=True)))
    with pytest.raises(SystemExit, match=r"^error: no sample of the first iteration trains.*$"):
        script.main(["--quick", str(QUICKSTART), *alone])


def test_made_up_episodes_grow_with_the_square_of_their_steps_and_their_trie_does_not():
    short, long = experience.episodes(10, 2, 100, seed=0), experience.episodes(20, 2, 100, seed=0)
    assert len(long) == 2 * len(short) == 40
    totals = [sum(len(s.completion.tokens) for s in samples) for samples in (short, long)]
    assert totals[1] > 3 * totals[0]
    [trie] = pack(long, 1 << 40)
    assert trie.computed_tokens == OPENING + 2 * (20 * RESPONSE + 19 * OBSERVATION)


def test_both_ways_take_the_same_step():
    model, samples = tiny_model(scale=0.1), experience.episodes(3, 2, 100, seed=1)
    shared, padded = (
        contenders.learner_contender(model, TrainedRoleConfig(), packing, 1024)
        for packing in ("shared", "padded")
    )
    for contender in (shared, padded):
        contender.step(samples)
    expected = padded.gradient()
    assert expected.norm() > 0
    assert (shared.gradient() - expected).norm() <= 1e-4 * expected.norm()


def test_ratios_are_of_medians_and_trl_is_null_where_it_did_not_run():
    result = measuring.Result((row("policy", [1, 2, 9], [4, 6, 8]), row("judge", [1], [5])), 3)
    assert result.to_json() == {
        "sample_tokens": 80,
        "distinct_tokens": 20,
        "computed_tokens": 24,
        "speedup_policy": 3.0,
        "speedup_judge": 5.0,
        "speedup_trl": None,
    }


def test_the_page_shows_every_row_with_the_range_of_its_rounds():
    result = measuring.Result((row("policy", [1, 2, 9], [4, 6, 8]), row("judge", [1], [5])), 3)
    text = pages.page(result, "python benchmarks/learner.py")
    assert "| policy | 2.00 | 3.0x [0.9, 4.0] | - | 3 | - | - | - | - |" in text
    assert "| judge | 2 | 40 | 10 | 12 | 1.200 |" in text
    assert pages.table(result).row_count == 2


@pytest.mark.skipif(not memory.measurable(), reason="only glibc's memory is measured")
def test_peak_memory_is_that_of_the_work_also_if_it_was_given_back():
    assert 190 < memory.peak_megabytes(lambda: len(b"x" * 200_000_000)) < 260
    assert memory.peak_megabytes(lambda: None) < 50
