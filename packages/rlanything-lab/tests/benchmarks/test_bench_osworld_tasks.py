"""The table of OSWorld's own tasks, on two made-up ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.benchmark_module import load_benchmark, load_part
from helpers.desktops import WITHOUT_DESKTOP, desktop
from rlanything.domains.base import DomainError, EpisodeError
from rlanything_osworld.actions import parse_action
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.evaluation import find_python
from rlanything_osworld.packages import APPLICATIONS, OPTIONAL, missing
from rlanything_osworld.screen import ScreenPlace

bench = load_benchmark("osworld_tasks")
experts = load_part("osworld_experts")
EXPERTS = experts.EXPERTS
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
        "| os | a | no set-up |  |  | 9 | a\\|b |",
        "| os | b | 0 untouched | 0 |  | 3 |  |",
    ]


def test_a_page_counts_what_experts_win_and_a_terminal_apart() -> None:
    in_terminal = next(each for each in EXPERTS if experts.in_terminal(EXPERTS[each]))
    first, second, third = [each for each in EXPERTS if each != in_terminal][:3]
    results = [
        bench.TriedTask("chrome", first, "0 untouched", 0.0, 3.0, "", 1.0),
        bench.TriedTask("chrome", second, "not 0 untouched", 1.0, 3.0, "", 1.0),
        bench.TriedTask("chrome", third, "0 untouched", 0.0, 3.0, "", None),
        bench.TriedTask("os", in_terminal, "no score", None, 3.0, "it failed", 1.0),
    ]
    text = "\n".join(bench.page(results, 4))
    assert "reach 1 through the GUI in 1 tasks that do not score 1\nuntouched (chrome 1)" in text
    assert "and in 1 in a terminal" in text
    assert f"| {third} | 0 untouched | 0 | not done | 3 |" in text
    assert f"| {in_terminal} | no score |  | 1, in a terminal | 3 | it failed |" in text


@pytest.mark.parametrize("name", EXPERTS)
def test_an_expert_of_a_task_takes_actions_of_an_agents(name: str) -> None:
    *before, end = [move.action for move in EXPERTS[name]]
    assert end == "done"
    assert "wait" not in before, "the expert takes it for its own"
    for action in before:
        filled = re.sub(r"\[.*\]", "[1]", action)
        parse_action(filled, "numbered", {1: ScreenPlace(1, 1)}, (1280, 800))


PACKAGES = {**APPLICATIONS, **OPTIONAL}
NEEDED = {"chrome": "chromium", "gimp": "gimp", "libreoffice_impress": "libreoffice-impress"}
NEEDED |= {"os": "lxterminal", "vlc": "vlc"}


@pytest.mark.slow
@WITHOUT_DESKTOP
@pytest.mark.skipif(bench.VARIABLE not in os.environ, reason=f"{bench.VARIABLE} names no folder")
@pytest.mark.parametrize("name", EXPERTS)
def test_an_expert_does_a_task_of_osworlds(name: str) -> None:
    domain = OSWorld(data=os.environ[bench.VARIABLE])
    (task,) = [each for each in domain.tasks("all", sys.maxsize, 0) if each.id == name]
    needed = NEEDED[task.kind]
    if missing({needed: PACKAGES[needed]}):
        pytest.skip(f"{needed} is not installed")
    environment = domain.environment()
    try:
        environment.reset(task)
        with contextlib.suppress(EpisodeError):  # where nothing was saved nothing can be scored
            assert environment.step("> done").reward != 1
        assert bench.played(environment, task, EXPERTS[name]) == 1
    finally:
        environment.close()
        domain.evaluators.close()


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
