"""desktop_env's set-up and evaluators on real desktops; skipped where either is missing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.desktops import WITHOUT_DESKTOP, desktop, needs_application, said
from helpers.paths import ROOT
from rlanything.domains.base import DomainError, EpisodeError
from rlanything.records import Completion, Step, Task
from rlanything_osworld import evaluation
from rlanything_osworld.dataset import listed_tasks
from rlanything_osworld.desktop import Desktop
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment
from rlanything_osworld.evaluation import EvaluationFault, Evaluators, find_python
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.machine import DesktopLost
from rlanything_osworld.tasks import generated_task

try:
    PYTHON = find_python()
except DomainError as missing:
    pytest.skip(str(missing), allow_module_level=True)
pytestmark = WITHOUT_DESKTOP


def data(
    func: str, printed: str, expected: Any, config: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A task whose evaluator is given what a command prints."""
    evaluator = {
        "func": func,
        "result": {"type": "vm_command_line", "command": ["printf", "%s", printed]},
        "expected": {"type": "rule", "rules": {"expected": expected}},
    }
    example = {"id": "t", "instruction": "Do it.", "config": config or [], "evaluator": evaluator}
    return {"example": example, "files": {}}


def evaluated(code: str) -> dict[str, Any]:
    """A task whose evaluator evaluates what the desktop prints as Python: ['yes'] is right."""
    return data("check_gnome_favorite_apps", f"['yes'] if {code} else ['no']", ["yes"])


@pytest.fixture(scope="module")
def machine() -> Iterator[Desktop]:
    with desktop() as started:
        yield started


@pytest.fixture(scope="module")
def evaluators() -> Iterator[Evaluators]:
    made = Evaluators(PYTHON)
    yield made
    made.close()


def test_a_state_is_scored_by_desktop_envs_own_evaluator(
    machine: Desktop, evaluators: Evaluators
) -> None:
    for expected, score in (("hello", 1.0), ("bye", 0.0)):
        task = data("exact_match", "hello", expected)
        evaluators.setup(task, machine)
        assert evaluators.score(task, machine, "done") == score
        assert evaluators.score(task, machine, "fail") == 0.0


def test_an_infeasible_task_is_right_with_fail_alone(
    machine: Desktop, evaluators: Evaluators
) -> None:
    task = data("infeasible", "", "")
    evaluators.setup(task, machine)
    scores = [evaluators.score(task, machine, last) for last in ("fail", "done", "")]
    assert scores == [1.0, 0.0, 0.0]


def test_files_of_a_task_reach_the_desktop_and_gold_does_not(
    machine: Desktop, evaluators: Evaluators
) -> None:
    place = {"url": "generated:a.xlsx", "path": "/home/user/placed/a.xlsx"}
    task = data("exact_match", "", "", [{"type": "download", "parameters": {"files": [place]}}])
    task["files"] = {"a.xlsx": {"sheets": {"One": [[1]]}}, "gold.xlsx": {"sheets": {"One": [[2]]}}}
    evaluators.setup(task, machine)
    assert machine.request("POST", "/file", {"file_path": place["path"]})[:2] == b"PK"
    listed = machine.request("POST", "/list_directory", {"path": "/home/user/placed"})
    assert b"gold" not in listed


def test_desktops_that_take_turns_keep_their_own_files(
    machine: Desktop, evaluators: Evaluators
) -> None:
    task = evaluated("True")
    place = {"path": "/home/user/.bashrc", "type": "vm_file", "dest": "fetched"}
    task["example"]["evaluator"]["result"] = place
    gold = {"path": "generated:gold", "dest": "gold", "type": "cloud_file"}
    task["example"]["evaluator"] |= {"func": "compare_text_file", "expected": gold}
    with desktop() as other:
        for each, text in ((machine, "one\n"), (other, "two\n")):
            evaluators.setup(task | {"files": {"gold": {"text": text}}}, each)
            command = f"printf {text!r} > ~/.bashrc"
            each.request("POST", "/execute", {"command": command, "shell": True})
        for each, text in ((machine, "one\n"), (other, "two\n")):
            kept = task | {"files": {"gold": {"text": text}}}
            assert evaluators.score(kept, each, "done") == 1.0
        evaluators.close()  # as when it is killed: gold is made once more
        assert evaluators.score(kept, other, "done") == 1.0


def test_large_results_leave_room_for_the_files_of_other_desktops(
    machine: Desktop, evaluators: Evaluators
) -> None:
    large = ["truncate", "-s", "300M", "/home/user/large"]
    for number in range(4):  # 1.2 GB in all, and the evaluators have 1 GiB
        place = f"/scratch/cache/{number}/t/large"  # which is the result, if it was fetched
        task = data(
            "exact_match", "", place, [{"type": "execute", "parameters": {"command": large}}]
        )
        fetched = {"type": "vm_file", "path": "/home/user/large", "dest": "large"}
        task["example"]["evaluator"]["result"] = fetched
        # The same desktop under other names.
        other: Any = SimpleNamespace(
            pid=number,
            size=machine.size,
            password=machine.password,
            socket_path=machine.socket_path,
        )
        evaluators.setup(task, other)
        assert evaluators.score(task, other, "done") == 1.0


@pytest.mark.parametrize(
    ("family", "goal", "changed"),
    [
        ("writer-layout", "center", '<w:p><w:pPr><w:jc w:val="center"/></w:pPr>'),
        ("writer-layout", "break", '<w:p><w:r><w:br w:type="page"/></w:r></w:p><w:p>'),
        ("writer-font", "font-0", "<w:p>"),
    ],
)
def test_a_document_that_lost_its_text_is_not_what_was_asked_for(
    machine: Desktop, evaluators: Evaluators, family: str, goal: str, changed: str
) -> None:
    task = dict(generated_task("t", FAMILIES[family], 3, goal).data)
    place, _ = task["example"]["config"]
    task["example"] = {**task["example"], "config": [place]}
    asked = task["example"]["evaluator"]["options"][0]
    name = place["parameters"]["files"][0]["path"]
    font = asked.get("rules", {}).get("font_name")
    scores = []
    for text in (r"\g<0>", "<w:t>"):
        evaluators.setup(task, machine)
        program = f"""import re, zipfile
files = zipfile.ZipFile({name!r})
parts = {{each: files.read(each) for each in files.namelist()}}
xml = parts["word/document.xml"].decode()
xml = xml.replace("<w:p>", {changed!r}, 1)
xml = xml.replace("<w:r><w:t", '<w:r><w:rPr><w:rFonts w:ascii="{font}"/></w:rPr><w:t')
parts["word/document.xml"] = re.sub("<w:t>[^<]*", {text!r}, xml).encode()
with zipfile.ZipFile({name!r}, "w") as file:
    [file.writestr(each, part) for each, part in parts.items()]
"""
        assert evaluators.score(task, machine, "done") == 0.0
        body = {"command": ["/usr/bin/python3", "-c", program]}
        assert b'"returncode": 0' in machine.request("POST", "/execute", body)
        scores.append(evaluators.score(task, machine, "done"))
    assert scores == [1.0, 0.0]


def test_an_evaluator_or_a_set_up_that_fails_is_a_fault_with_its_reason(
    machine: Desktop, evaluators: Evaluators
) -> None:
    broken = data("check_gnome_favorite_apps", "no list at all", ["yes"])
    evaluators.setup(broken, machine)
    with pytest.raises(EvaluationFault, match="SyntaxError"):
        evaluators.score(broken, machine, "done")
    nonsense = data("exact_match", "", "", [{"type": "no_such_step", "parameters": {}}])
    with pytest.raises(EvaluationFault, match="no_such_step"):
        evaluators.setup(nonsense, machine)


def test_nothing_of_a_request_outlives_it_or_speaks_for_the_process(
    machine: Desktop, evaluators: Evaluators
) -> None:
    outlive = "__import__('subprocess').Popen(['sleep', '77'], start_new_session=True)"
    evaluators.setup(evaluated(outlive), machine)
    assert evaluators.score(evaluated(outlive), machine, "done") == 1.0
    alive = "any(open(f'/proc/{p}/comm').read() == 'sleep\\n' for p in P)"
    pids = "P := [p for p in __import__('os').listdir('/proc') if p.isdecimal()]"
    assert evaluators.score(evaluated(f"({pids}) and {alive}"), machine, "done") == 0.0
    lines = ("import os", "for fd in range(64):", " try: os.write(fd, b'{\"score\": 1.0}\\n')")
    speak = "\n".join((*lines, " except OSError: pass"))
    with pytest.raises(EvaluationFault, match="without an answer"):  # it garbled its own
        evaluators.score(evaluated(f"exec({speak!r})"), machine, "done")
    assert evaluators.score(evaluated("False"), machine, "done") == 0.0
    memory = "open(f'/proc/{__import__(\"os\").getppid()}/mem', 'rb')"
    with pytest.raises(EvaluationFault, match="Permission"):
        evaluators.score(evaluated(memory), machine, "done")


@pytest.mark.parametrize(
    "code",
    [
        f"__import__('os').path.exists({str(ROOT / 'pyproject.toml')!r})",
        "__import__('os').path.exists('/etc/passwd')",
        "__import__('os').path.exists('/root/.profile')",
        "len(__import__('socket').if_nameindex()) > 1",
        "len([p for p in __import__('os').listdir('/proc') if p.isdecimal()]) > 9",
        "__import__('os').access('/usr', 2)",
    ],
)
def test_text_of_the_desktop_that_is_evaluated_sees_nothing_of_the_host(
    machine: Desktop, evaluators: Evaluators, code: str
) -> None:
    task = evaluated(code)
    evaluators.setup(task, machine)
    assert evaluators.score(task, machine, "done") == 0.0
    assert evaluators.score(evaluated(f"not ({code})"), machine, "done") == 1.0


def test_an_evaluator_that_hangs_or_grows_costs_one_fault(
    machine: Desktop, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluators.setup(evaluated("True"), machine)
    began = time.monotonic()
    for code, fault, seconds in (
        ("__import__('time').sleep(600)", "no answer in 3 s", 3.0),
        ("'x' * 10**11", "MemoryError", 30.0),
        ("__import__('os')._exit(0)", "without an answer", 30.0),
    ):
        monkeypatch.setattr(evaluation, "SCORE_SECONDS", seconds)
        with pytest.raises(EvaluationFault, match=fault):
            evaluators.score(evaluated(code), machine, "done")
    assert time.monotonic() - began < 20
    monkeypatch.undo()
    assert evaluators.score(evaluated("True"), machine, "done") == 1.0


def test_a_python_without_desktop_env_is_one_line_with_the_remedy(machine: Desktop) -> None:
    with pytest.raises(DomainError, match=r"ModuleNotFoundError.*make osworld"):
        Evaluators(Path("/usr/bin/python3")).setup(data("infeasible", "", ""), machine)


EDITING = generated_task("t", FAMILIES["editor-add-line"], 1, "end")


def outcome_of_expert(domain: OSWorld, environment: DesktopEnvironment) -> int:
    screen, steps = environment.reset(EDITING).text, list[Step]()
    while True:
        response = domain.expert(EDITING, steps)
        assert response is not None
        result = environment.step(response)
        if result.outcome is not None:
            return result.outcome
        answered, after = Completion.unsampled(response), result.observation.text
        steps.append(Step(screen, answered, result.action, result.valid, after))
        screen = after


@needs_application("mousepad")
def test_an_expert_wins_a_task_that_is_lost_untouched() -> None:
    domain = OSWorld()
    environment = domain.environment()
    try:
        environment.reset(EDITING)
        over = environment.step("> done")
        assert (over.outcome, over.reward) == (-1, 0.0)
        assert outcome_of_expert(domain, environment) == 1
    finally:
        environment.close()
        domain.evaluators.close()


def keys_pressed(environment: DesktopEnvironment) -> None:
    """Acts until the end is seen: what kills a desktop may take a moment."""
    for _ in range(10):
        environment.step("> press a")


@needs_application("mousepad")
def test_what_is_killed_costs_its_own_episode_and_no_other() -> None:
    domain = OSWorld()
    environment = domain.environment()
    kill_server = {"command": ["pkill", "-9", "-f", "server.py"]}
    kills: dict[str, Callable[[Desktop], object]] = {
        "desktop": lambda machine: os.killpg(machine.pid, signal.SIGKILL),
        "server": lambda machine: machine.request("POST", "/setup/launch", kill_server),
    }
    try:
        for kill in kills.values():
            environment.reset(EDITING)
            assert isinstance(environment._desktop, Desktop)
            with contextlib.suppress(DesktopLost):  # the server may be gone before it answers
                kill(environment._desktop)
            with pytest.raises(DesktopLost):  # which a replay explains
                keys_pressed(environment)
        assert "Mousepad" in environment.reset(EDITING).text
        assert isinstance(environment._desktop, Desktop)
        said(environment._desktop, "pkill -9 mousepad")
        assert "Mousepad" not in environment.step("> wait").observation.text
        assert environment.step("> done").outcome == -1
        assert outcome_of_expert(domain, environment) == 1
    finally:
        environment.close()
        domain.evaluators.close()


def test_an_episode_whose_evaluator_fails_is_lost() -> None:
    domain = OSWorld()
    environment = domain.environment()
    task = Task("t", "Do it.", data=data("check_gnome_favorite_apps", "no list", ["yes"]))
    try:
        environment.reset(task)
        with pytest.raises(EpisodeError, match=r"the evaluator failed.*SyntaxError") as raised:
            environment.step("> done")
        assert raised.value.lost
    finally:
        environment.close()
        domain.evaluators.close()


def test_a_file_put_where_the_reason_says_is_on_the_desktop_and_compared_with(
    tmp_path: Path,
) -> None:
    url, place = "https://example.org/files/a.txt", "/home/user/Desktop/a.txt"
    files = {"files": [{"url": url, "path": place}]}
    example = {
        "id": "t",
        "instruction": "Do it.",
        "config": [{"type": "download", "parameters": files}],
        "evaluator": {
            "func": "compare_text_file",
            "result": {"type": "vm_file", "path": place, "dest": "result.txt"},
            "expected": {"type": "cloud_file", "path": f"{url}.gold", "dest": "gold.txt"},
        },
    }
    (tmp_path / "examples/os").mkdir(parents=True)
    (tmp_path / "examples/os/t.json").write_text(json.dumps(example))
    (tmp_path / "test_all.json").write_text('{"os": ["t"]}')
    (listed,) = listed_tasks(tmp_path)
    assert listed.obstacle is not None
    for file in listed.obstacle.files:
        (tmp_path / "cache/t").mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache/t" / file.name).write_text("from outside")
    domain = OSWorld(data=str(tmp_path))
    (task,) = domain.tasks("test_all", 1, 0)
    environment = domain.environment()
    try:
        environment.reset(task)
        assert environment.step("> done").reward == 1.0
    finally:
        environment.close()
        domain.evaluators.close()
