"""The benchmark of one GPU runs to its end without one, and does not take a failure for a pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.benchmark_module import load_benchmark, load_part

script: Any = load_benchmark("gpu")
checks: Any = load_part("gpu_stages.checks")
exactness: Any = load_part("gpu_stages.exactness")
made_up: Any = load_part("gpu_stages.made_up")
speed: Any = load_part("gpu_stages.speed")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    return checks.Bench("cpu", True, tmp_path)


@pytest.mark.slow
def test_every_stage_runs_in_tiny_sizes(tmp_path):
    with pytest.raises(SystemExit) as ended:
        script.main(["--all", "--dry", "--out", str(tmp_path / "page.md")])
    sections = script.sections_of((tmp_path / "page.md").read_text())
    assert list(sections) == list(script.STAGES)
    marks = {name: text.splitlines()[0].split(": ")[1] for name, text in sections.items()}
    skipped = {name for name, mark in marks.items() if mark == "SKIP"}
    assert skipped <= {"vllm"}
    assert {name: mark for name, mark in marks.items() if mark != "PASS"}.keys() == skipped
    assert ended.value.code == 0
    assert "sizes that say nothing" in (tmp_path / "page.md").read_text()


def test_a_stage_that_breaks_or_misses_its_mark_fails(bench, monkeypatch, tmp_path):
    def broken(_bench: Any) -> Iterator[Any]:
        yield checks.Check("begun", "1")
        raise RuntimeError("out of memory\nand more")

    def poor(_bench: Any) -> list[Any]:
        return [checks.Check("one", "1", True), checks.at_most("other", float("nan"), 1.0)]

    def lacking(_bench: Any) -> list[Any]:
        # Until it has ended it has failed, should its process die.
        seen.append(page.read_text() if page.exists() else "")
        raise checks.Missing("install it")

    page, seen = tmp_path / "page.md", list[str]()

    found = checks.run(broken, bench)
    assert found.reason == "RuntimeError: out of memory"
    assert [check.name for check in found.checks] == ["begun"]
    assert [checks.run(stage, bench).mark for stage in (broken, poor, lacking)] == [
        "FAIL",
        "FAIL",
        "SKIP",
    ]
    monkeypatch.setattr(script, "STAGES", {"poor": poor, "lacking": lacking})
    for name, code in (("lacking", 0), ("poor", 1)):
        with pytest.raises(SystemExit) as ended:
            script.main(["--stage", name, "--dry", "--out", str(page)])
        assert ended.value.code == code
    # What was there stays, in the order of the stages.
    assert list(script.sections_of(page.read_text())) == ["poor", "lacking"]
    assert "| other | nan (at most 1.0e+00) | FAIL |" in page.read_text()
    assert "install it" in page.read_text()
    assert "## lacking: FAIL\n\n0 s. It did not come to its end." in seen[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_but_a_dry_run(capsys):
    with pytest.raises(SystemExit):
        script.main(["--all"])
    assert "there is no GPU here; --dry runs" in capsys.readouterr().err


def test_a_wrong_gradient_is_seen(bench, monkeypatch):
    steps = iter([(torch.ones(4), torch.ones(4)), (torch.ones(4), torch.full((4,), 1.001))])
    monkeypatch.setattr(exactness, "step", lambda *_: next(steps))
    outcome = checks.run(exactness.sharding, bench)
    assert [check.passed for check in outcome.checks] == [True, False, True]


@pytest.mark.parametrize("judge", [False, True])
def test_made_up_packs_are_one_trie_of_the_size_asked_for(bench, judge):
    real = checks.Bench("cpu", False, bench.folder)
    samples = [sample for _, sample in made_up.one_pack(real, 8192, judge)]
    [batch] = speed.pack(samples, 8192)
    assert 0.8 * 8192 <= batch.computed_tokens <= 8192


def test_what_does_not_fit_is_recomputed_and_then_made_smaller(bench, monkeypatch):
    room = {"bytes": 0.0}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (room["bytes"], 0))
    gpu = checks.Bench("cuda", False, bench.folder)
    samples = made_up.one_pack(gpu, 8192, judge=False)
    chosen = {}
    for room["bytes"] in (300e9, 160e9, 90e9):
        update = speed._fitting(gpu, "7B", samples, False)
        assert update.planned <= 0.9 * room["bytes"]
        chosen[room["bytes"]] = update.layers, update.settings.gradient_checkpointing
    assert chosen == {300e9: (28, False), 160e9: (28, True), 90e9: (14, True)}
