"""Web tasks as a domain: what tasks are, what agents read, and what an adapter may change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlanything.domains.base import (
    DomainError,
    InvalidTask,
    Observation,
    RewriteRequest,
    StepResult,
)
from rlanything.records import Completion, JudgedTrajectory, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.report.pointing import pointer_size
from rlanything_miniwob import pages
from rlanything_miniwob.actions import USAGE
from rlanything_miniwob.browser import HEIGHT, WIDTH
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.environment import NO_ACTION, EpisodeSpec, open_episode
from rlanything_miniwob.experts import EXPERTS
from rlanything_miniwob.rewriting import family
from rlanything_miniwob.tasks import make_task, spec_of_task


def task_on(domain: MiniWob, page: str, seed: int = 3) -> Task:
    start = EpisodeSpec(page, seed)
    return make_task(
        f"{page}-{seed}", start, open_episode(domain.browser, page, start)[1].utterance
    )


def played(domain: MiniWob, task: Task, *responses: str) -> Trajectory:
    environment = domain.environment()
    seen, steps, outcome = environment.reset(task).text, list[Step](), None
    for response in responses:
        result = environment.step(response)
        after = result.observation.text
        said = Completion.unsampled(response)
        steps.append(Step(seen, said, result.action, result.valid, after))
        seen, outcome = after, result.outcome
    return Trajectory("t", task, tuple(steps), outcome or -1)


def test_the_pages_are_many_have_experts_and_the_held_out_ones_are_of_other_families() -> None:
    assert len(pages.TRAIN) >= 25
    assert all(page.name in EXPERTS for page in pages.PAGES.values())
    assert not {p.family for p in pages.TRAIN} & {p.family for p in pages.OOD}
    assert len(pages.OOD) >= 6


def test_tasks_are_decided_by_split_and_seed_and_survive_json(miniwob: MiniWob) -> None:
    tasks = miniwob.tasks("train", 40, 0)
    assert tasks == miniwob.tasks("train", 40, 0)
    assert {task.kind for task in tasks} == {page.name for page in pages.TRAIN}
    others = miniwob.tasks("in_domain", 40, 0)
    assert not {spec_of_task(t).seed for t in tasks} & {spec_of_task(t).seed for t in others}
    for task in tasks:
        assert task.instruction == task.data["utterance"] != ""
        again = replace(task, data=json.loads(json.dumps(task.data)))
        assert miniwob.environment().reset(again).text
    with pytest.raises(DomainError, match="use one of train"):
        miniwob.tasks("test", 1, 0)


def test_pages_may_be_chosen_and_others_held_out(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("miniwob")  # without a Chromium it is skipped
    domain = MiniWob(pages=["click-link", "email-inbox"], held_out=["click-tab"])
    request.addfinalizer(domain.browser.close)
    assert {t.kind for t in domain.tasks("train", 4, 0)} == {"click-link", "email-inbox"}
    assert {t.kind for t in domain.tasks("in_domain", 4, 0)} == {"click-link", "email-inbox"}
    assert {t.kind for t in domain.tasks("ood", 4, 0)} == {"click-tab"}
    assert MiniWob(pages=["click-link"]).splits["ood"] == pages.OOD
    assert MiniWob(held_out=["email-inbox"]).splits["train"] == pages.TRAIN


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pages": "click-link"}, "give a list of pages"),
        ({"pages": []}, "give a list of pages"),
        ({"pages": 5}, r"domain.options.pages: write a list, as \[5\]"),
        ({"held_out": [["click-tab"]]}, "give a list of pages"),
        ({"held_out": ["click-tab", "click-tab"]}, "each once"),
        ({"pages": ["click-ling"]}, "pages: no expert plays a page called 'click-ling'"),
        ({"held_out": ["click-pie"]}, "held_out: no expert plays .* one plays ascending-numbers"),
        (
            {"held_out": ["click-link"]},
            "click-link is among `pages` and .* choose other pages with `held_out`",
        ),
    ],
)
def test_pages_that_cannot_be_chosen_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        MiniWob(**options)


def test_an_expert_wins_and_its_steps_are_labelled_good(miniwob: MiniWob) -> None:
    task = task_on(miniwob, "login-user")
    environment, steps = miniwob.environment(), list[Step]()
    seen, outcome = environment.reset(task).text, None
    while outcome is None and len(steps) < 5:
        response = miniwob.expert(task, steps)
        assert response is not None
        result = environment.step(response)
        said = Completion.unsampled(response)
        steps.append(Step(seen, said, result.action, result.valid, result.observation.text))
        seen, outcome = result.observation.text, result.outcome
    assert outcome == 1
    assert miniwob.oracle(task, steps) == [1] * len(steps)


def test_other_steps_are_labelled_bad_and_the_agent_is_told_what_was_wrong(
    miniwob: MiniWob,
) -> None:
    task = task_on(miniwob, "enter-text")
    trajectory = played(miniwob, task, "no idea", "> fly", "> click [77]", "> type [1] nonsense")
    said = [step.next_observation.splitlines()[0] for step in trajectory.steps]
    assert said[:3] == [
        f"{NO_ACTION}{USAGE}.",
        f"An action is one of: {USAGE}.",
        "There is no element 77.",
    ]
    assert [step.valid for step in trajectory.steps] == [False, False, False, True]
    assert miniwob.oracle(task, trajectory.steps) == [-1] * 4
    assert all('button "Submit" [2]' in step.next_observation for step in trajectory.steps)
    assert played(miniwob, task, "> click [2]").outcome == -1


def test_prompts_say_what_is_to_be_done_what_was_done_and_what_is_seen(miniwob: MiniWob) -> None:
    task = task_on(miniwob, "enter-text")
    trajectory = played(miniwob, task, "the field > type [1] hello", "> click [2]")
    screen = trajectory.steps[1].observation
    texts = {
        "policy": miniwob.policy_prompt(task, trajectory.steps[:1], screen),
        "judge": miniwob.judge_prompt(task, trajectory.steps[:1]),
        "critic": miniwob.critic_prompt(JudgedTrajectory(trajectory, ()), [0]),
        "adapter": miniwob.adapter_prompt(RewriteRequest.of(task, "harder", ("It typed hello.",))),
    }
    for messages in texts.values():
        assert task.instruction in messages[0].content
    assert "type [1] hello" in texts["policy"][0].content
    assert texts["policy"][0].content.endswith(screen)
    assert 'textbox "" [1] = ""' in texts["judge"][0].content
    assert texts["judge"][0].content.endswith('= "hello" focused\nbutton "Submit" [2]')
    assert "(bad) the field > type [1] hello" in texts["critic"][0].content
    assert "enter-text-2" in texts["adapter"][0].content
    assert "It typed hello." in texts["adapter"][0].content


@pytest.mark.parametrize(
    ("page", "answer", "told"),
    [
        ("enter-text", "page: enter-text-2", ("enter-text-2", {})),
        ("click-color", "colors: 7", ("click-color", {"variables": {"MAX_COLORS": 7}})),
        (
            "click-option",
            "It is too easy.\npage: click-option\noptions: 6\nhint: none",
            ("click-option", {"ranges": {"2,7": [6, 7]}}),
        ),
    ],
)
def test_a_rewrite_is_another_page_or_another_number(
    miniwob: MiniWob, page: str, answer: str, told: tuple[str, dict]
) -> None:
    root = task_on(miniwob, page)
    task = miniwob.parse_candidate(root, "new", answer)
    start = spec_of_task(task)
    assert (start.page, start.parameters, start.seed) == (*told, spec_of_task(root).seed)
    assert miniwob.environment().reset(task).text
    assert task.instruction == task.data["utterance"]


def test_a_hint_stands_in_the_instruction_and_nowhere_else(miniwob: MiniWob) -> None:
    root = task_on(miniwob, "enter-text")
    task = miniwob.parse_candidate(root, "new", "hint: Submit last.")
    assert task.instruction == f"{root.instruction} Hint: Submit last."
    assert task.data["start"] == root.data["start"]
    back = miniwob.parse_candidate(task, "newer", "hint: none")
    assert back.instruction == root.instruction


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no `page: ...`"),
        ("nothing of the sort", "no `page: ...`"),
        ("page: login-user", "page login-user is none of click-color"),
        ("page: ../../etc/passwd", "is none of"),
        ("colors: 99", "colors is 99: 2 to 8 are possible"),
        ("colors: many", "2 to 8 are possible"),
        ("speed: 3", "click-color has no number 'speed': it has colors"),
        ("colors: 3\ncolors: 4", "colors is said twice"),
        ("page: click-color\nhint: none", "nothing is changed"),
        (f"hint: {'a' * 300}", "the hint has 300 characters"),
        ("hint: a\u200bb", "unprintable"),
    ],
)
def test_what_is_no_rewrite_is_refused_with_the_reason(
    miniwob: MiniWob, answer: str, reason: str
) -> None:
    with pytest.raises(InvalidTask, match=reason) as refusal:
        miniwob.parse_candidate(task_on(miniwob, "click-color"), "new", answer)
    assert "\n" not in str(refusal.value)


def test_what_the_expert_cannot_solve_is_refused(
    miniwob: MiniWob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERTS, "click-color", lambda utterance, screen, done: [])
    with pytest.raises(InvalidTask, match="the expert cannot solve it") as refusal:
        miniwob.parse_candidate(task_on(miniwob, "click-color"), "new", "colors: 3")
    assert refusal.value.stage == "unsolvable"


def test_all_numbers_of_all_pages_can_be_set(miniwob: MiniWob) -> None:
    for page in pages.PAGES.values():
        for knob in page.knobs:
            root = task_on(miniwob, page.name)
            for value in (knob.least, knob.most):
                miniwob.parse_candidate(root, "new", f"{knob.name}: {value}")


def test_all_pages_of_a_family_can_take_each_others_place(miniwob: MiniWob) -> None:
    for page in pages.TRAIN:
        root = task_on(miniwob, page.name)
        for other in family(page)[1:]:
            assert spec_of_task(miniwob.parse_candidate(root, "new", f"page: {other.name}")).page


def test_no_rewrite_brings_a_held_out_page_of_the_family(miniwob: MiniWob) -> None:
    domain = MiniWob(pages=["click-test"], held_out=["click-test-transfer"])
    root = task_on(miniwob, "click-test")
    with pytest.raises(InvalidTask, match="click-test-transfer is none of click-test, click-tes"):
        domain.parse_candidate(root, "new", "page: click-test-transfer\nhint: none")
    [asked] = domain.adapter_prompt(RewriteRequest.of(root, "harder", []))
    assert "click-test-transfer" not in asked.content


def test_episodes_are_played_in_workers_with_screenshots_kept_by_name(
    miniwob: MiniWob, tmp_path: Path
) -> None:
    tasks = [task_on(miniwob, "click-test", seed) for seed in range(3)]
    with EnvironmentPool("miniwob", {"screenshots": 2}, 1, 60.0, tmp_path / "images") as pool:
        seen = pool.reset(tasks)
        results = pool.step(dict.fromkeys(range(3), "> click [1]"))
    assert [result.outcome for result in results.values()] == [1, 1, 1]  # type: ignore[union-attr]
    names = {each.image.name for each in seen}  # type: ignore[union-attr]
    kept = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert names <= kept.keys()
    assert all(data.startswith(b"\x89PNG") for data in kept.values())


def test_where_only_looking_tells_the_text_says_nothing_of_the_page(tmp_path: Path) -> None:
    options = {"observe": "image"}
    domain = MiniWob(**options)  # type: ignore[arg-type]
    task = task_on(domain, "click-test", 1)
    with EnvironmentPool("miniwob", options, 1, 60.0, tmp_path) as pool:
        [seen] = pool.reset([task])
        lost = pool.step({0: "I do not know."})[0]
        result = pool.step({0: "> click 80 130"})[0]
    assert isinstance(seen, Observation)
    assert isinstance(lost, StepResult)
    assert isinstance(result, StepResult)
    assert seen.text == "See the screenshot."
    assert lost.observation.text.endswith(seen.text)
    assert "[n]" not in lost.observation.text
    assert result.action == "click 80 130"
    assert (tmp_path / str(seen.image_name)).is_file()
    [asked] = domain.policy_prompt(task, (), seen.text)
    assert "[n]" not in asked.content
    assert "click x y" in asked.content
    assert domain.capabilities.shows_images
    assert not MiniWob(screenshots=2).capabilities.shows_images


def test_options_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(
        DomainError, match=r"observe: input should be 'text', 'image' or 'both' \(got 'pixels'\)"
    ):
        MiniWob(observe="pixels")  # type: ignore[arg-type]
    for scale in (-1, 5, "big"):
        with pytest.raises(
            DomainError,
            match=r"domain\.options\.screenshots: input should be .*(0|4|integer) \(got",
        ):
            MiniWob(screenshots=scale)  # type: ignore[arg-type]


def test_the_report_knows_what_coordinates_count_in() -> None:
    assert pointer_size("miniwob") == pointer_size("miniwob-vision") == (WIDTH, HEIGHT)
    names = ("osworld", "made up", "object(Game)", "rlanything_miniwob.domain:MiniWob")
    assert [pointer_size(name) for name in names] == [None] * 4
