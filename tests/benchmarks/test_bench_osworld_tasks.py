"""The table of OSWorld's own tasks, on two made-up ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.benchmark_module import load_benchmark
from helpers.desktops import WITHOUT_DESKTOP, desktop
from rlanything.domains.base import DomainError
from rlanything.domains.osworld.evaluation import find_python

bench = load_benchmark("osworld_tasks")
ECHO = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": ["cat", "/home/user/made"]},
    "expected": {"type": "rule", "rules": {"expected": "right"}},
}
MAKE = {"type": "execute", "parameters": {"command": ["sh", "-c", "printf wrong > ~/made"]}}


def folder(path: Path, **examples: dict[str, Any]) -> Path:
    (path / "examples/os").mkdir(parents=True)
    for name, changed in examples.items():
        example = {"id": name, "instruction": "Do it.", "config": [], **changed}
        (path / f"examples/os/{name}.json").write_text(json.dumps(example))
    (path / "test_all.json").write_text(json.dumps({"os": list(examples)}))
    return path


def test_without_a_folder_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(bench.VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=f"{bench.VARIABLE} names no folder"):
        bench.main([])


def test_a_page_counts_what_became_of_tasks_and_lists_them() -> None:
    results = [
        bench.TriedTask("os", "b", "0 untouched", 0.0, 3.4),
        bench.TriedTask("os", "a", "no set-up", None, 9.0, "a|b"),
    ]
    lines = list(bench.page(results, 2))
    assert "| 0 untouched | 1 |" in lines
    assert lines[-2:] == [
        "| os | a | no set-up |  | 9 | a\\|b |",
        "| os | b | 0 untouched | 0 | 3 |  |",
    ]


@pytest.mark.slow
@WITHOUT_DESKTOP
def test_tasks_are_set_up_and_scored_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        find_python()
    except DomainError as missing:
        pytest.skip(str(missing))
    with desktop():
        pass  # or the test is skipped where there is none
    broken = {"config": [{"type": "no_such_step", "parameters": {}}], "evaluator": ECHO}
    data = folder(
        tmp_path / "data",
        plain={"config": [MAKE], "evaluator": ECHO},
        impossible={"evaluator": {"func": "infeasible"}},
        broken=broken,
    )
    monkeypatch.setenv(bench.VARIABLE, str(data))
    bench.main(["--out", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text()
    for row in ("| 0 untouched | 1 |", "| infeasible, 1 by fail | 1 |", "| no set-up | 1 |"):
        assert row in text
    assert "no_such_step" in text
