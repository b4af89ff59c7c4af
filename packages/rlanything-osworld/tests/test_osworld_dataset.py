"""OSWorld's own format, read from a user's folder."""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    MissingData,
    RewriteRequest,
)
from rlanything.terminal import DamagedData
from rlanything_osworld.dataset import dataset_tasks, downloads, listed_tasks, main
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything_osworld.goals import prepared
from rlanything_osworld.machine import Machine
from rlanything_osworld.packages import missing
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


DOWNLOAD = {"type": "download", "parameters": {"files": [{"url": URL, "path": "/home/a.xlsx"}]}}
GOLD = {"func": "f", "expected": {"type": "cloud_file", "path": URL, "dest": "gold.xlsx"}}
TABS = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://example.org"]}}
PLACE = f"{uuid.uuid5(uuid.NAMESPACE_URL, URL)}_a.xlsx"


def needing(path: Path) -> Path:
    """Returns a folder of tasks, one for each obstacle and two without one."""
    local = {"type": "launch", "parameters": {"command": ["x", "http://localhost:1337"]}}
    clock = {"func": "f", "result": {"type": "vm_command_line", "command": "timedatectl status"}}
    examples = [
        example("fetched", config=[DOWNLOAD], evaluator=GOLD),
        example("absent", config=[DOWNLOAD], evaluator=GOLD),
        example("gold", evaluator=GOLD),
        example("tabs", config=[TABS]),
        example("proxy", proxy=True),
        example("clock", evaluator=clock),
        example("cloud", config=[{"type": "googledrive", "parameters": {}}]),
        example("local", config=[local]),
    ]
    root = folder(path, os=examples, nowhere=[example("code", related_apps=["vscode"])])
    (root / "examples/os/tabs.json").write_text('{"id": "ta')
    examples[3]["id"] = "page"
    (root / "examples/os/page.json").write_text(json.dumps(examples[3]))
    listed = json.loads((root / "test_all.json").read_text())
    listed["os"].append("page")
    (root / "test_all.json").write_text(json.dumps(listed))
    cache = root / "cache" / "fetched"
    cache.mkdir(parents=True)
    (cache / PLACE).touch()
    (cache / "gold.xlsx").touch()
    return root


def damage(warned: pytest.WarningsRecorder) -> list[str]:
    """The lines of the warnings of damaged data."""
    return [str(each.message) for each in warned if each.category is DamagedData]


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "rlanything_osworld.obstacles.missing", lambda packages: missing(packages, tmp_path)
    )


@pytest.mark.usefixtures("without_code")
def test_tasks_that_cannot_be_played_are_counted_by_reason_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = needing(tmp_path)
    with caplog.at_level(logging.WARNING), pytest.warns(DamagedData) as warned:
        tasks = dataset_tasks(root, "all", 99, 0)
    assert sorted(task.id for task in tasks) == ["fetched", "local"]
    counts, remedy = caplog.messages
    (fault,) = damage(warned)
    assert counts.startswith("8 tasks cannot be played here: 1 have a file that cannot be read, 1 ")
    assert counts.endswith("lacks, 2 need the internet, 2 need files from outside")
    assert f"`python -m rlanything_osworld.dataset {root}` names each" in remedy
    assert f"{root / 'examples/os/tabs.json'} is not JSON" in fault
    assert downloads(root) == root / "cache"


@pytest.mark.usefixtures("without_code")
def test_osworlds_own_list_keeps_every_task_with_the_reason_why_it_cannot_be_played(
    tmp_path: Path,
) -> None:
    root = needing(tmp_path)
    with pytest.warns(DamagedData):
        tasks = OSWorld(data=str(root)).tasks("test_all", 99, 0)
    reasons = {task.id: task.data.get("unplayable") for task in tasks}
    assert {name for name, reason in reasons.items() if reason is None} == {"fetched", "local"}
    absent = str(root / "cache/absent" / PLACE)
    for name, said in {
        "absent": f"needs files from outside: put {URL} at {absent}, and 1 more",
        "gold": f"needs a file from outside: put {URL} at {root / 'cache/gold/gold.xlsx'}",
        "page": "needs the internet (https://example.org): use a provider",
        "proxy": "needs the internet through a proxy: use a provider",
        "clock": "needs systemd, which a desktop in namespaces lacks: use a provider",
        "cloud": "needs Google Drive, which is not supported",
        "code": "needs VS Code, which is not installed: Debian has no package of it",
        "tabs": f"{root / 'examples/os/tabs.json'} is not JSON",
    }.items():
        assert (reasons[name] or "").startswith(said)
        assert "\n" not in (reasons[name] or "")
    unplayable = next(task for task in tasks if task.id == "gold")
    environment = DesktopEnvironment(NoTasks(), DesktopOptions(), NoDesktops())
    with pytest.raises(EpisodeError, match="needs a file from outside") as raised:
        environment.reset(unplayable)
    assert not raised.value.lost


class NoTasks:
    """Set-ups and scores that must not be asked for."""

    def setup(self, data: Any, desktop: Any) -> None:
        raise AssertionError

    def score(self, data: Any, desktop: Any, last_action: str) -> float:
        raise AssertionError


class NoDesktops:
    """A source of desktops that must not be asked."""

    def prepare(self) -> None:
        raise AssertionError

    def take(self) -> Machine:
        raise AssertionError

    def close(self) -> None:
        """Does nothing."""


@pytest.mark.usefixtures("without_code")
def test_a_listing_names_each_missing_file_and_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(needing(tmp_path))])
    lines = capsys.readouterr().out.splitlines()
    assert "os/local: can be played" in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("os/absent: needs files"))
    assert lines[at + 1 : at + 3] == [
        f"  {URL} -> cache/absent/{PLACE}",
        f"  {URL} -> cache/absent/gold.xlsx",
    ]
    assert lines[-1].startswith("2 of 10 can be played; 1 have a file that cannot be read, ")
    for wrong in ([], [str(tmp_path), "all"]):
        with pytest.raises(DomainError, match="usage: python -m rlanything_osworld"):
            main(wrong)


def test_machines_with_the_internet_play_all_but_what_the_host_would_fetch(tmp_path: Path) -> None:
    with pytest.warns(DamagedData):
        tasks = dataset_tasks(needing(tmp_path), "all", 99, 0, online=True)
    assert sorted(task.id for task in tasks) == sorted(
        ("fetched", "local", "page", "proxy", "clock", "code")
    )


def test_a_folder_without_a_task_that_can_be_played_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path, os=[example("proxy", proxy=True)])
    with pytest.raises(DomainError, match="all can be played here: 1 need the internet; `python"):
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
    with pytest.warns(DamagedData) as warned:
        assert [task.id for task in dataset_tasks(root, "all", 9, 0)] == ["good"]
    assert "2 tasks cannot be played here: 2 have a file that cannot be read" in caplog.messages
    assert len(caplog.messages) == 2
    bad_line, gone_line = damage(warned)
    assert bad_line.startswith(f"{root / 'examples/os/bad.json'}: ")
    assert fault in bad_line
    assert gone_line.startswith(f"{root / 'examples/os/gone.json'} cannot be read")


def test_a_folder_of_many_broken_files_names_some_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = [example(f"e{n}", instruction=None) for n in range(11)]
    with pytest.warns(DamagedData) as warned:
        dataset_tasks(folder(tmp_path, os=[*many, example("good")]), "train", 9, 0)
    assert len(caplog.messages) == 2
    assert len(damage(warned)) == 8 + 1
    assert damage(warned)[-1] == "and 3 more"


def test_a_folder_next_to_examples_replaces_what_it_has(tmp_path: Path) -> None:
    root = folder(tmp_path, os=[example("a")], chrome=[example("b")])
    (root / "cache").mkdir()
    newer = root / "new_examples/os/a.json"
    newer.parent.mkdir(parents=True)
    newer.write_text(json.dumps(example("a", instruction="Do it again.")))
    tasks = dataset_tasks(root / "new_examples", "all", 9, 0)
    assert {task.id: task.instruction for task in tasks} == {"a": "Do it again.", "b": "Do b."}
    assert downloads(root / "new_examples") == root / "cache"


PUBLISHED_DATA = os.environ.get("RLANYTHING_OSWORLD_DATA")


@pytest.fixture
def published_data() -> Path:
    if PUBLISHED_DATA is None:
        pytest.skip("RLANYTHING_OSWORLD_DATA names no folder of the published tasks")
    return Path(PUBLISHED_DATA)


def test_all_tasks_that_the_paper_prepared_are_read(published_data: Path) -> None:
    read = [json.loads(file.read_text()) for file in published_data.glob("new_examples/*/*.json")]
    read = [each for each in read if "evaluator_list" in each]
    choices = [prepared(each) for each in read]
    assert len(choices) == 223
    assert sum(len(each.get("goals", ())) > 1 for each in choices) == 46
    hinted = [choice for choice in choices if any(g["hints"] for g in choice_goals(choice))]
    assert len(hinted) == 4
    # `current_task` differs from the instruction in 7: in 3 by a space, in 4 it is another task's.
    instructions = [(each["current_task"]["evaluator1"], each["instruction"]) for each in read]
    assert sum(current != own for current, own in instructions) == 7
    assert sum(current.strip() != own.strip() for current, own in instructions) == 4
    for each, choice in zip(read, choices, strict=True):
        own = choice.get("goals", {}).get("evaluator1")
        assert own is None or own["instruction"] == each["instruction"]
        assert own is None or own["evaluator"] == each["evaluator"]


def choice_goals(choice: dict[str, Any]) -> list[dict[str, Any]]:
    return list(choice.get("goals", {}).values())


def test_the_whole_published_list_is_walked(published_data: Path) -> None:
    for name in ("examples", "new_examples"):
        listed = listed_tasks(published_data / name)
        assert len(listed) == 369
        assert len(listed_tasks(published_data / name, "test_nogdrive")) == 361
        assert not [each for each in listed if each.obstacle and each.obstacle.kind == "unreadable"]
        needed = {each.id: each.obstacle.files for each in listed if each.obstacle}
        assert all("https://" in file.url for files in needed.values() for file in files)
        assert sum(bool(files) for files in needed.values()) > 200


def test_a_goal_that_needs_the_internet_keeps_its_task_out(tmp_path: Path) -> None:
    other = {"goal": "other", "instruction": "Do it.", "evaluator": GOLD}
    examples = [example("a", evaluator_list=[other]), example("b", config=[TABS])]
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
        ("examples/os/a.json", r'{"id": "a", "instruction": "\ud800"}', "is not JSON"),
        ("examples/os/a.json", '{"id": "b"}', "no task with the id a"),
        ("examples/os/a.json", '{"id": "a", "instruction": 3}', "'instruction' is missing"),
        (
            "examples/os/a.json",
            '{"id": "a", "instruction": "x", "config": [{}], "evaluator": {"func": "f"}}',
            "a step of 'config' has no type",
        ),
        (
            "examples/os/a.json",
            '{"id": "a", "instruction": "x", "evaluator": {}}',
            "'evaluator' has no func",
        ),
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
