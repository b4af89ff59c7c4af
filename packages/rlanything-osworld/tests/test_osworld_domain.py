"""The domain: its options, its prompts, and candidates that an expert must do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rlanything.domains.base import (
    DomainError,
    EpisodeError,
    InvalidTask,
    Observation,
    RewriteRequest,
    StepResult,
)
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Step,
    Task,
    Trajectory,
)
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.published_experts import published_moves
from rlanything_osworld.tasks import generated_task

ROOT = generated_task("root", FAMILIES["editor-add-line"], 3, "end")
STEP = Step("the screen", Completion.unsampled("> press enter"), "press enter", True, "the next")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"actions": "mouse"}, "actions: input should be 'numbered', .*got 'mouse'"),
        ({"observe": "sound"}, "observe: input should be 'text', .*got 'sound'"),
        ({"max_steps": 0}, r"max_steps: input should be greater than or equal to 1 \(got 0\)"),
        ({"max_steps": True}, r"max_steps: input should be a valid integer \(got True\)"),
        ({"prompts": "/nowhere"}, "does not exist"),
        ({"applications": ["editor", "mail"]}, "applications is 'mail': use one of editor"),
        ({"applications": []}, "applications is empty"),
        ({"families": ["editor-undo"]}, "families is 'editor-undo': use one of editor-add-line"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: Mapping[str, Any], fault: str) -> None:
    with pytest.raises(DomainError, match=fault):
        OSWorld(**options)


def test_a_python_that_is_not_there_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLANYTHING_OSWORLD_PYTHON", "/nowhere/python")
    with pytest.raises(DomainError, match="need /nowhere/python, which is not there: run `make"):
        OSWorld().environment()


def test_prompts_show_the_task_the_screens_and_the_actions() -> None:
    domain = OSWorld()
    (asked,) = domain.policy_prompt(ROOT, [STEP], "the screen now")
    for part in (ROOT.instruction, "the screen now", "press enter", "double_click [n]"):
        assert part in asked.content
    last = f"Task: {ROOT.instruction}"  # near the answer, which often repeats a name of it
    assert asked.content.endswith(last)
    (asked,) = domain.judge_prompt(ROOT, [STEP])
    for part in ("the screen", "the next", "> press enter", r"\boxed{-1}"):
        assert part in asked.content
    assert asked.content.endswith(last)
    failed = JudgedTrajectory(Trajectory("t", ROOT, (STEP, STEP), -1), ((), ()))
    (asked,) = domain.critic_prompt(failed, [1])
    assert "\n> press enter\n(bad) > press enter" in asked.content
    bad = Judgement(Completion.unsampled("It pressed too early."), -1)
    (asked,) = domain.step_critic_prompt(replace(failed, judgements=((), (bad,))), 1)
    assert (
        "Done: press enter\nthe screen\nStep: > press enter\nAfter it:\nthe next" in asked.content
    )
    assert asked.content.endswith("The judges: It pressed too early.")
    (asked,) = domain.staged_critic_prompt(failed, {1: "Too early."})
    assert "\n1. press enter\n2. press enter: Too early.\nAt the end:\nthe screen" in asked.content
    (asked,) = domain.adapter_prompt(RewriteRequest.of(ROOT, "harder", ["It stopped."]))
    assert "Goal: end\nHint: no\nGoals, the easiest first: end, start" in asked.content
    (asked,) = OSWorld(actions="pyautogui").policy_prompt(ROOT, [], "")
    assert "then Python between ``` and ```" in asked.content
    assert "> and" not in asked.content


def published(name: str, func: str = "exact_match", goal: str | None = None) -> Task:
    data: dict[str, Any] = {"example": {"id": name, "evaluator": {"func": func}}, "files": {}}
    return Task("t", "Do it.", data=data | ({"chosen": {"goal": goal}} if goal else {}))


AUTO_SAVE = "2cd43775-7085-45d8-89fa-9e35c0a915cf"


def test_an_expert_plays_in_numbers_alone_and_gives_up_on_a_published_task_that_it_cannot_do() -> (
    None
):
    assert OSWorld().expert(ROOT, []) == "> press ctrl+end"
    assert OSWorld().expert(published("a"), []) == "> fail"
    assert OSWorld().expert(published(AUTO_SAVE, "infeasible"), []) == "> fail"
    assert OSWorld().expert(published(AUTO_SAVE), []) == "> press escape"
    for task in (ROOT, published("a"), published(AUTO_SAVE)):
        assert OSWorld(actions="pyautogui").expert(task, []) is None
        assert OSWorld(observe="image").expert(task, []) is None


def test_an_expert_knows_each_goal_that_the_paper_prepared_for_a_task() -> None:
    for goal, minutes in {None: 3, "given": 3, "evaluator1": 3, "evaluator2": 4}.items():
        moves = published_moves(published(AUTO_SAVE, goal=goal))
        assert moves is not None
        assert f"type {minutes}" in [move.action for move in moves]
    assert published_moves(published(AUTO_SAVE, goal="evaluator3")) is None


def test_the_models_are_shown_what_is_asked_for() -> None:
    assert [
        OSWorld(observe=kind).capabilities.shows_images for kind in ("text", "image", "both")
    ] == [*(False, True, True)]
    assert not OSWorld(screenshots=True).capabilities.shows_images  # the report's alone


def test_tasks_are_not_rewritten_where_workers_have_the_only_machine() -> None:
    def rewrites(provider: str) -> bool:
        options = {"path_to_vm": "Ubuntu.vmx"}
        return OSWorld(provider=provider, provider_options=options).capabilities.rewrites_tasks

    assert [*map(rewrites, ("docker", "vmware", "virtualbox"))] == [True, False, False]
    assert OSWorld().capabilities.rewrites_tasks


class Scripted(OSWorld):
    """A domain whose desktops are made up: outcomes by what is answered."""

    def __init__(self, outcomes: Mapping[str, int], fault: EpisodeError | None = None) -> None:
        super().__init__()
        self.outcomes, self.fault, self.said = outcomes, fault, list[str]()

    def environment(self) -> Any:
        return self

    def reset(self, task: Task) -> Observation:
        if self.fault is not None:
            raise self.fault
        self.said.append("reset")
        return Observation("a screen")

    def step(self, response: str) -> StepResult:
        self.said.append(response)
        # The untouched episode says nothing but this, which every notation knows.
        key = "untouched" if self.said[-2:] == ["reset", "> DONE"] else response
        return StepResult(Observation("a screen"), response[2:], True, self.outcomes.get(key))

    def close(self) -> None:
        self.said.append("close")


def test_a_candidate_is_taken_when_only_its_expert_does_it() -> None:
    domain = Scripted({"untouched": -1, "> done": 1})
    task = domain.parse_candidate(ROOT, "c1", "goal: start")
    assert task.data["generated"]["goal"] == "start"
    assert domain.said[:3] == ["reset", "> DONE", "close"]
    assert domain.said[3:5] == ["reset", "> press ctrl+home"]
    assert domain.said[-2:] == ["> done", "close"]


def test_of_a_users_candidate_it_is_known_that_it_is_not_done_untouched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    goals = {name: {"instruction": name, "evaluator": {}, "hints": {}} for name in ("a", "b")}
    chosen = {"goal": "a", "hint": "no"}
    root = Task("u", "a", data={"example": {"id": "u"}, "goals": goals, "chosen": chosen})
    domain = Scripted({"untouched": -1})
    with caplog.at_level(logging.INFO):
        assert domain.parse_candidate(root, "c1", "goal: b").instruction == "b"
    assert domain.said == ["reset", "> DONE", "close"]
    assert "c1: not done untouched; without an expert no more is known" in caplog.text
    with pytest.raises(InvalidTask, match="done before anything"):
        Scripted({"untouched": 1}).parse_candidate(root, "c1", "goal: b")


def test_a_prepared_goal_with_an_expert_must_be_won_by_it() -> None:
    evaluator = {"func": "exact_match"}
    goals = {
        f"evaluator{n}": {"instruction": f"{n + 2}", "evaluator": evaluator, "hints": {}}
        for n in (1, 2)
    }
    data = {"example": {"id": AUTO_SAVE, "evaluator": evaluator}, "files": {}, "goals": goals}
    root = Task("u", "3", data=data | {"chosen": {"goal": "evaluator1", "hint": "no"}})
    domain = Scripted({"untouched": -1, "> press escape": -1})
    with pytest.raises(InvalidTask, match="the expert cannot do it"):
        domain.parse_candidate(root, "c1", "goal: evaluator2")
    assert domain.said == ["reset", "> DONE", "close", "reset", "> press escape", "close"]
    domain = Scripted({"untouched": -1, "> press escape": 1})
    assert domain.parse_candidate(root, "c1", "goal: evaluator2").instruction == "4"


@pytest.mark.parametrize(
    ("outcomes", "reason", "stage"),
    [
        ({"untouched": 1, "> done": 1}, "done before anything", "invalid"),
        ({"untouched": -1, "> done": -1}, "the expert cannot do it", "unsolvable"),
        ({"untouched": -1, "> press ctrl+s": -1}, "the expert cannot do it", "unsolvable"),
    ],
)
def test_a_candidate_is_refused_when_it_is_done_or_cannot_be(
    outcomes: Mapping[str, int], reason: str, stage: str
) -> None:
    with pytest.raises(InvalidTask, match=reason) as raised:
        Scripted(outcomes).parse_candidate(ROOT, "c1", "goal: start")
    assert raised.value.stage == stage


def test_a_candidate_whose_desktop_fails_is_refused() -> None:
    domain = Scripted({}, EpisodeError("c1", "the desktop ended"))
    with pytest.raises(InvalidTask, match="the desktop ended"):
        domain.parse_candidate(ROOT, "c1", "goal: start")


def test_a_goal_is_played_once_however_often_it_is_proposed() -> None:
    domain = Scripted({"untouched": -1, "> done": -1})
    for answer in ("goal: start", "goal: start\nhint: yes"):
        with pytest.raises(InvalidTask, match="the expert cannot do it"):
            domain.parse_candidate(ROOT, "c1", answer)
    assert domain.said.count("reset") == 2


def test_every_goal_that_a_user_prepared_is_played() -> None:
    goals = {n: {"instruction": n, "evaluator": {}, "hints": {}} for n in ("a", "b", "c")}
    chosen = {"goal": "a", "hint": "no"}
    root = Task("u", "a", data={"example": {}, "goals": goals, "chosen": chosen})
    domain = Scripted({"untouched": -1})
    for goal in ("b", "c", "b"):
        domain.parse_candidate(root, "c1", f"goal: {goal}")
    assert domain.said.count("reset") == 2, "each once, though their task has one id"


def test_steps_are_labelled_by_the_expert_of_generated_tasks_alone() -> None:
    steps: Sequence[Step] = [STEP]
    assert OSWorld().oracle(ROOT, steps) == [-1]
    assert OSWorld().oracle(Task("a", "Do it.", data={"example": {"id": "a"}}), steps) is None
    assert OSWorld(actions="computer_13").oracle(ROOT, steps) is None


def test_doctor_names_what_desktop_tasks_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLANYTHING_OSWORLD_PYTHON", "/nowhere/python")
    desktop, evaluators = OSWorld.checks()
    assert desktop.name == "desktop"
    assert evaluators.status == "missing"
    assert "not available: OSWorld's evaluators need /nowhere/python" in evaluators.text
