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

from helpers.benchmark_module import load_benchmark
from helpers.desktops import WITHOUT_DESKTOP, desktop
from rlanything.domains.base import DomainError, EpisodeError
from rlanything.records import Task
from rlanything_osworld.actions import parse_action
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.evaluation import find_python
from rlanything_osworld.packages import APPLICATIONS, OPTIONAL, missing
from rlanything_osworld.published_experts import EXPERTS, VARIANTS, published_moves
from rlanything_osworld.screen import ScreenPlace

bench = load_benchmark("osworld_tasks")
KNOWN = [*((name, None) for name in EXPERTS), *VARIANTS]
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
        bench.TriedTask("os", "a", "no set-up", None, 9.0, "a|b", goal="evaluator2"),
    ]
    lines = list(bench.page(results, ["# A page"]))
    assert lines[0] == "# A page"
    assert "| 0 untouched | 1 |" in lines
    assert lines[-2:] == [
        "| os | a evaluator2 | no set-up |  |  | 9 | a\\|b |",
        "| os | b | 0 untouched | 0 |  | 3 |  |",
    ]


def test_a_page_counts_what_experts_win_and_a_terminal_apart() -> None:
    results = [
        bench.TriedTask("chrome", "first", "0 untouched", 0.0, 3.0, "", "GUI", 1.0, "goal1"),
        bench.TriedTask("chrome", "first", "0 untouched", 0.0, 3.0, "", "GUI", 1.0, "goal2"),
        bench.TriedTask("chrome", "second", "not 0 untouched", 1.0, 3.0, "", "GUI", 1.0),
        bench.TriedTask("chrome", "third", "0 untouched", 0.0, 3.0, "", "GUI", None),
        bench.TriedTask("os", "fourth", "no score", None, 3.0, "it failed", "terminal", 1.0),
    ]
    text = "\n".join(bench.page(results, []))
    assert "reach 1 through the GUI in 1 tasks that do not score 1\nuntouched (chrome 1)" in text
    assert "and in 1 in a terminal" in text
    assert "| third | 0 untouched | 0 | not done | 3 |" in text
    assert "| fourth | no score |  | 1, in a terminal | 3 | it failed |" in text


def test_the_page_of_prepared_tasks_names_those_that_lack_more_than_files(tmp_path: Path) -> None:
    clock = {**ECHO, "result": {"type": "vm_command_line", "command": "timedatectl"}}
    cloud = {**ECHO, "expected": {"type": "cloud_file", "path": "https://a.org/x", "dest": "x"}}
    data = folder(
        tmp_path, plain={"evaluator": ECHO}, clock={"evaluator": clock}, far={"evaluator": cloud}
    )
    text = "\n".join(bench.prepared_opening(bench.listed_tasks(data)))
    assert "prepared 3 tasks for adaptation. 1 need" in text
    assert "Of the other 2 these 1 cannot be played here:" in text
    assert "| os | clock | needs systemd, which a desktop in namespaces lacks" in text
    assert "The remaining 1 were played." in text


def test_a_task_is_tried_with_each_of_its_goals() -> None:
    goal = {"instruction": "Do.", "evaluator": ECHO, "hints": {}}
    task = Task("a", "Do.", "os", {"example": {"id": "a", "evaluator": ECHO}})
    assert bench.goals(task) == [task]
    data = {**task.data, "goals": {"b": goal, "a": goal}, "chosen": {"goal": "a", "hint": "no"}}
    several = Task("a", "Do.", "os", data)
    assert [each.data["chosen"]["goal"] for each in bench.goals(several)] == ["a", "b"]


@pytest.mark.parametrize("known", KNOWN)
def test_an_expert_of_a_task_takes_actions_of_an_agents(known: tuple[str, str | None]) -> None:
    data = {"example": {"id": known[0], "evaluator": ECHO}, "chosen": {"goal": known[1]}}
    moves = published_moves(Task("t", "Do it.", "os", data))
    assert moves is not None
    *before, end = [move.action for move in moves]
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
@pytest.mark.skipif(bench.VARIABLE not in os.environ, reason=f"{bench.VARIABLE} names no folder")
@pytest.mark.parametrize(("name", "goal"), VARIANTS)
def test_a_goal_that_the_paper_prepared_becomes_a_candidate_that_its_expert_wins(
    name: str, goal: str
) -> None:
    domain = OSWorld(data=str(Path(os.environ[bench.VARIABLE], "new_examples")))
    (task,) = [each for each in domain.tasks("all", sys.maxsize, 0) if each.id == name]
    try:
        candidate = domain.parse_candidate(task, "candidate", f"goal: {goal}")
    finally:
        domain.evaluators.close()
    assert candidate.instruction == task.data["goals"][goal]["instruction"] != task.instruction
    assert candidate.data["example"]["evaluator"] == task.data["goals"][goal]["evaluator"]


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
