"""OSWorld's own format, read from a user's folder."""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from rlanything.domains.base import DomainError, InvalidTask, MissingData, RewriteRequest
from rlanything_osworld.dataset import dataset_tasks, downloads
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.goals import prepared
from rlanything_osworld.rewriting import rewritten

URL = "https://example.org/files/a.xlsx"


def example(name: str, **changed: Any) -> dict[str, Any]:
    plain = {
        "id": name,
        "instruction": f"Do {name}.",
        "config": [],
        "evaluator": {"func": "infeasible"},
    }
    return plain | changed


def folder(path: Path, **applications: list[dict[str, Any]]) -> Path:
    for application, examples in applications.items():
        for each in examples:
            file = path / "examples" / application / f"{each['id']}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(each))
    listed = {name: [each["id"] for each in many] for name, many in applications.items()}
    (path / "test_all.json").write_text(json.dumps(listed))
    return path


def test_tasks_are_split_as_in_the_paper(tmp_path: Path) -> None:
    root = folder(
        tmp_path / "evaluation_examples",
        os=[example("a"), example("b")],
        chrome=[example("c")],
        multi_apps=[example("d")],
    )
    for split, ids in {"train": "ab", "in_domain": "ab", "ood": "cd", "all": "abcd"}.items():
        tasks = dataset_tasks(tmp_path, split, 9, 0)
        assert sorted(task.id for task in tasks) == list(ids)
    (task,) = dataset_tasks(root, "train", 1, 0)
    assert task.data == {"example": example(task.id), "files": {}}
    assert task.kind == "os"
    with pytest.raises(DomainError, match="unknown split 'tune'"):
        dataset_tasks(root, "tune", 1, 0)
    with pytest.raises(InvalidTask, match="one evaluator"):
        rewritten(task, "c", "goal: other")


def test_a_task_without_a_set_up_has_an_empty_one(tmp_path: Path) -> None:
    bare = example("bare")
    del bare["config"]
    (task,) = dataset_tasks(folder(tmp_path, os=[bare]), "train", 9, 0)
    assert task.data["example"]["config"] == []


def test_the_log_names_some_of_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = [example(f"e{n}", proxy=True) for n in range(11)]
    dataset_tasks(folder(tmp_path, os=[*many, example("local")]), "train", 9, 0)
    assert "11 tasks need the internet: os/e0, " in caplog.text
    assert caplog.text.rstrip().endswith("os/e7, and 3 more")


def test_a_task_that_needs_the_internet_is_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    download = {"type": "download", "parameters": {"files": [{"url": URL, "path": "/home/a.xlsx"}]}}
    gold = {"func": "f", "expected": {"type": "cloud_file", "path": URL, "dest": "gold.xlsx"}}
    tabs = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://example.org"]}}
    local = {"type": "launch", "parameters": {"command": ["x", "http://localhost:1337"]}}
    examples = [
        example("fetched", config=[download], evaluator=gold),
        example("absent", config=[download]),
        example("gold", evaluator=gold),
        example("tabs", config=[tabs]),
        example("proxy", proxy=True),
        example("local", config=[local]),
    ]
    root = folder(tmp_path, os=examples)
    assert downloads(root) is None
    cache = root / "cache" / "fetched"
    cache.mkdir(parents=True)
    (cache / f"{uuid.uuid5(uuid.NAMESPACE_URL, URL)}_a.xlsx").touch()
    (cache / "gold.xlsx").touch()
    with caplog.at_level(logging.WARNING):
        tasks = dataset_tasks(root, "all", 9, 0)
    assert sorted(task.id for task in tasks) == ["fetched", "local"]
    assert "4 tasks need the internet: os/absent, os/gold, os/tabs, os/proxy" in caplog.text
    assert downloads(root) == root / "cache"


def test_a_folder_without_a_task_that_can_be_played_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path, os=[example("proxy", proxy=True)])
    with pytest.raises(DomainError, match="no task of split all can be played"):
        dataset_tasks(root, "all", 9, 0)
    with pytest.raises(MissingData, match=r"holds no test_all\.json"):
        OSWorld(data=str(tmp_path / "nowhere")).tasks("train", 1, 0)


BOLD, ITALIC = ({"func": "infeasible", "options": name} for name in ("bold", "italic"))
PREPARED = {
    "instruction": "Make it italic.",
    "evaluator": ITALIC,
    "task_template": {"weak": "Make it italic, by ctrl+i.", "strong": "Press ctrl+a, then ctrl+i."},
    "evaluator_list": [
        {"goal": "bold", "instruction": "Make it bold.", "evaluator": BOLD},
        {"goal": "italic"},
    ],
}


def test_goals_and_hints_that_a_user_prepared_are_offered_and_chosen(tmp_path: Path) -> None:
    domain = OSWorld(data=str(folder(tmp_path, os=[example("a", **PREPARED)])))
    (root,) = domain.tasks("train", 1, 0)
    assert root.instruction == "Make it italic."
    assert root.data["example"] == example("a", instruction="Make it italic.", evaluator=ITALIC)
    (asked,) = domain.adapter_prompt(RewriteRequest.of(root, "easier", []))
    for line in (
        "hint: no or weak or strong.",
        "Goal: italic\nHint: no",
        "the easiest first: bold (Make it bold.), italic (Make it italic.)",
    ):
        assert line in asked.content
    hinted = rewritten(root, "c", "goal: italic\nhint: weak")
    assert (
        hinted.instruction == hinted.data["example"]["instruction"] == "Make it italic, by ctrl+i."
    )
    other = rewritten(hinted, "c", "goal: bold")
    assert (other.instruction, other.data["example"]["evaluator"]) == ("Make it bold.", BOLD)
    assert other.data["example"]["config"] == root.data["example"]["config"]
    assert other.data["example"]["id"] == "a", "the files of the set-up go by this name"
    for answer, reason in (
        ("goal: italic", "nothing is changed"),
        ("goal: large", "goal large is none of bold, italic"),
        ("goal: bold\nhint: weak", "hint weak is none of no"),
    ):
        with pytest.raises(InvalidTask, match=reason):
            rewritten(root, "c", answer)


def test_a_task_with_hints_alone_keeps_its_goal(tmp_path: Path) -> None:
    hints = {"task_template": {"strong": "Do a, by b."}}
    (root,) = dataset_tasks(folder(tmp_path, os=[example("a", **hints)]), "all", 1, 0)
    assert rewritten(root, "c", "hint: strong").instruction == "Do a, by b."
    assert rewritten(root, "c", "goal: given\nhint: strong").data["example"]["evaluator"] == {
        "func": "infeasible"
    }


@pytest.mark.parametrize(
    ("prepared", "fault"),
    [
        ({"evaluator_list": {}}, "not a list of objects"),
        ({"evaluator_list": [{"goal": "b"}, {"goal": "c"}]}, "two entries without an evaluator"),
        ({"evaluator_list": [{"evaluator": {}}]}, "None is not a goal name"),
        ({"evaluator_list": [{"goal": "b", "evaluator": {}}]}, "instruction of the goal b is miss"),
        ({"evaluator_list": [{**PREPARED, "goal": "given"}]}, "the goal given twice"),
        ({"task_template": {"no": "Do it."}}, "task_template of the goal given"),
        ({"task_template": {"weak": 3}}, "'weak' has no instruction"),
    ],
)
def test_goals_that_cannot_be_read_are_one_line_with_the_file(
    tmp_path: Path, prepared: dict[str, Any], fault: str
) -> None:
    root = folder(tmp_path, os=[example("a", **prepared)])
    with pytest.raises(DomainError, match=fault) as raised:
        dataset_tasks(root, "all", 1, 0)
    assert str(root / "examples/os/a.json") in str(raised.value)


PUBLISHED = {
    "instruction": "Sort by date.",
    "evaluator": BOLD,
    "current_task": {"evaluator1": "Another task's instruction."},
    "task_template": {"evaluator1": "Please sort by date.", "evaluator2": "Sort by amount."},
    "evaluator_list": {"evaluator1": BOLD, "evaluator2": ITALIC},
}


def test_the_papers_own_form_of_prepared_tasks_is_read(tmp_path: Path) -> None:
    domain = OSWorld(data=str(folder(tmp_path, os=[example("a", **PUBLISHED)])))
    (root,) = domain.tasks("train", 1, 0)
    assert root.instruction == "Sort by date.", "neither current_task nor the template's wording"
    assert root.data["example"] == example("a", instruction="Sort by date.", evaluator=BOLD)
    (asked,) = domain.adapter_prompt(RewriteRequest.of(root, "easier", []))
    assert "Goal: evaluator1\nHint: no\nGoals: evaluator1 (Sort by date.), ev" in asked.content
    other = rewritten(root, "c", "goal: evaluator2")
    assert (other.instruction, other.data["example"]["evaluator"]) == ("Sort by amount.", ITALIC)
    assert rewritten(other, "c", "goal: evaluator1").instruction == "Sort by date."
    with pytest.raises(InvalidTask, match="hint yes is none of no"):
        rewritten(root, "c", "hint: yes")


def test_one_evaluator_in_the_papers_form_leaves_nothing_to_rewrite(tmp_path: Path) -> None:
    one = PUBLISHED | {"evaluator_list": {"evaluator1": BOLD}}
    (root,) = dataset_tasks(folder(tmp_path, os=[example("a", **one)]), "all", 1, 0)
    assert root.data == {
        "example": example("a", instruction="Sort by date.", evaluator=BOLD),
        "files": {},
    }


def test_a_hint_of_the_papers_form_can_be_added_and_removed(tmp_path: Path) -> None:
    hinted = PUBLISHED | {"hint": "The unit is cm."}
    (root,) = dataset_tasks(folder(tmp_path, os=[example("a", **hinted)]), "all", 1, 0)
    with_hint = rewritten(root, "c", "hint: yes")
    assert with_hint.instruction == "Sort by date. Hint: The unit is cm."
    assert rewritten(with_hint, "c", "hint: no").instruction == "Sort by date."
    other = rewritten(with_hint, "c", "goal: evaluator2")
    assert other.instruction == "Sort by amount. Hint: The unit is cm."


def test_an_evaluator_outside_the_list_stays_the_tasks_own(tmp_path: Path) -> None:
    apart = PUBLISHED | {"evaluator": {"func": "infeasible"}}
    (root,) = dataset_tasks(folder(tmp_path, os=[example("a", **apart)]), "all", 1, 0)
    assert root.data["chosen"]["goal"] == "given"
    assert rewritten(root, "c", "goal: evaluator1").instruction == "Please sort by date."


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"task_template": {"evaluator1": "x"}}, "instruction of the goal evaluator2 is missing"),
        ({"task_template": None}, "task_template is not an object"),
        ({"task_template": {"evaluator2": 3}}, "instruction of the goal evaluator2"),
        ({"evaluator_list": {"evaluator1": BOLD, "evaluator2": 3}}, "evaluator of the goal ev"),
        ({"evaluator_list": {"evaluator1": BOLD, "a b": ITALIC}}, "'a b' is not a goal name"),
        ({"hint": 3}, "hint is not a text"),
    ],
)
def test_a_file_that_cannot_be_read_ends_no_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], fault: str
) -> None:
    bad = example("bad", **(PUBLISHED | changed))
    root = folder(tmp_path, os=[bad, example("good"), example("gone")])
    (root / "examples/os/gone.json").unlink()
    assert [task.id for task in dataset_tasks(root, "all", 9, 0)] == ["good"]
    assert f"2 files of tasks are left out: {root / 'examples/os/bad.json'}: " in caplog.text
    assert fault in caplog.text
    assert "and 1 more" in caplog.text


def test_a_folder_next_to_examples_takes_its_place(tmp_path: Path) -> None:
    root = folder(tmp_path, os=[example("a")])
    (root / "cache").mkdir()
    (root / "examples").rename(root / "new_examples")
    assert [task.id for task in dataset_tasks(root / "new_examples", "all", 9, 0)] == ["a"]
    assert downloads(root / "new_examples") == root / "cache"


def test_all_tasks_that_the_paper_prepared_are_read() -> None:
    given = os.environ.get("RLANYTHING_OSWORLD_DATA")
    if given is None:
        pytest.skip("RLANYTHING_OSWORLD_DATA names no folder of the published tasks")
    read = [json.loads(file.read_text()) for file in Path(given).glob("new_examples/*/*.json")]
    choices = [prepared(each) for each in read if "evaluator_list" in each]
    assert len(choices) == 223
    assert sum(len(each.get("goals", ())) > 1 for each in choices) == 46


def test_a_goal_that_needs_the_internet_keeps_its_task_out(tmp_path: Path) -> None:
    gold = {"func": "f", "expected": {"type": "cloud_file", "path": URL, "dest": "gold.xlsx"}}
    other = {"goal": "other", "instruction": "Do it.", "evaluator": gold}
    tabs = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://example.org"]}}
    examples = [example("a", evaluator_list=[other]), example("b", config=[tabs])]
    root = folder(tmp_path, os=examples)
    with pytest.raises(DomainError, match="no task of split all"):
        dataset_tasks(root, "all", 9, 0)
    assert [task.id for task in dataset_tasks(root, "all", 9, 0, online=True)] == ["b"]


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("test_all.json", "[]", "not a list of ids for each application"),
        ("test_all.json", '{"os": ["../a"]}', "is not a task id"),
        ("test_all.json", "{", "is not JSON"),
        ("examples/os/a.json", "[" * 100_000, "is not JSON"),
        ("examples/os/a.json", '{"id": "b"}', "no task with the id a"),
        ("examples/os/a.json", '{"id": "a", "instruction": 3}', "'instruction' is missing"),
    ],
)
def test_a_file_that_is_no_task_is_one_line_with_its_name(
    tmp_path: Path, file: str, content: str, fault: str
) -> None:
    root = folder(tmp_path, os=[example("a")])
    (root / file).write_text(content)
    with pytest.raises(DomainError, match=fault) as raised:
        dataset_tasks(root, "all", 1, 0)
    assert str(root / file) in str(raised.value)
    assert "\n" not in str(raised.value)
