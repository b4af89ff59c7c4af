"""Pages that only looking solves: who knows elements acts, and judges, at points."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rlanything.domains.base import Episode, Observation
from rlanything.domains.screens import LOOK
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything_miniwob.asking import possible_tasks, words_of
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.environment import EpisodeSpec, open_episode
from rlanything_miniwob.pages import SEEN_OOD, SEEN_TRAIN
from rlanything_miniwob.screen import read
from rlanything_miniwob.sight import replayed
from rlanything_miniwob.tasks import make_task, spec_of_task
from rlanything_miniwob.vision import MiniWobVision
from rlanything_miniwob.vision_teacher import (
    MiniWobVisionDemonstrator,
    MiniWobVisionTeacher,
    thought,
)


@pytest.fixture(scope="module")
def seen() -> Iterator[MiniWobVision]:
    domain = MiniWobVision()
    yield domain
    domain.browser.close()


def clicked(domain: MiniWob, task: Task, *responses: str) -> Trajectory:
    """An episode of these responses, and then of an expert's."""
    environment = domain.environment()
    observation, steps, outcome = environment.reset(task), list[Step](), None
    answers = iter(responses)
    while outcome is None and len(steps) < 12:
        response = next(answers, None) or domain.expert(task, steps) or "> nothing"
        result = environment.step(response)
        said, after = Completion.unsampled(response), result.observation
        steps.append(Step(observation.text, said, result.action, result.valid, after.text))
        observation, outcome = after, result.outcome
    return Trajectory("t", task, tuple(steps), outcome or -1)


def test_an_expert_wins_all_pages_by_clicks_at_points(seen: MiniWobVision) -> None:
    pages = len(SEEN_TRAIN)
    tasks = seen.tasks("train", 2 * pages, 0) + seen.tasks("ood", 2 * len(SEEN_OOD), 0)
    assert {task.kind for task in tasks} == {page.name for page in (*SEEN_TRAIN, *SEEN_OOD)}
    for task in tasks:
        episode = clicked(seen, task)
        assert episode.outcome == 1, task.id
        assert {step.observation for step in episode.steps} == {LOOK}
        assert all("[" not in (step.action or "") for step in episode.steps)
        assert seen.oracle(task, episode.steps) == [1] * len(episode.steps)


def test_a_step_that_was_only_seen_is_labelled_by_what_it_fell_on(seen: MiniWobVision) -> None:
    task = next(t for t in seen.tasks("train", 20, 1) if t.kind == "click-color")
    beside, nowhere = "> click 80 120", "> click 1000 5"
    episode = clicked(seen, task, beside, nowhere)
    assert seen.oracle(task, episode.steps) == [-1, -1, 1]
    read = replayed(seen.browser, task, episode.steps).steps
    assert [step.action for step in read[:2]] == ["click 80 120", "click 1000 5"]
    assert (read[2].action or "").startswith("click [")
    assert 'color" [1]' in read[2].observation


def test_a_label_ticks_its_box_and_text_beside_nothing_is_nobody(seen: MiniWobVision) -> None:
    task = next(t for t in seen.tasks("train", 40, 2) if t.kind == "click-widget")
    episode, state = open_episode(seen.browser, task.id, spec_of_task(task))
    for element in state.elements:
        point = episode.place(element.number, 5)
        assert point is not None
        assert episode.element_at(*point) == element.number
    assert episode.element_at(159, 209) is None
    assert episode.place(99, 5) is None


def test_the_demonstrator_slips_onto_other_elements(seen: MiniWobVision) -> None:
    tasks = [t for t in seen.tasks("train", 42, 3) if t.kind == "click-color"]
    episodes = [Episode(t.id, t, Observation(LOOK)) for t in tasks]
    for slip, wins in ((0.0, len(tasks)), (1.0, 0)):
        agent = MiniWobVisionDemonstrator(slip, seen.browser)
        answers = agent.respond(episodes, range(len(tasks)))
        played = [clicked(seen, t, a.text) for t, a in zip(tasks, answers, strict=True)]
        assert sum(p.outcome == 1 and len(p.steps) == 1 for p in played) == wins


@pytest.mark.parametrize("kind", [page.name for page in SEEN_TRAIN])
def test_a_scene_says_what_is_where_and_what_else_could_be_asked(
    seen: MiniWobVision, kind: str
) -> None:
    teacher = MiniWobVisionTeacher()
    task = next(t for t in seen.tasks("train", 21, 5) if t.kind == kind)
    scene = teacher.scene(task, random.Random(0))
    environment = seen.environment()
    assert environment.reset(task).image == scene.image
    for thing in scene.things:
        left, top, right, bottom = thing.box
        # Letters can be hit a pixel beside where they are drawn.
        assert left - 1 <= thing.point[0] <= right + 1
        assert top - 1 <= thing.point[1] <= bottom + 1
    assert scene.asked[0][0] == task
    assert len({asked.instruction for asked, _ in scene.asked}) == len(scene.asked)
    assert (len(scene.asked) > 1) is (kind != "click-test")
    points = {f"{x} {y}" for x, y in (thing.point for thing in scene.things)}
    for asked, response in scene.asked:
        words, _, point = response.partition(teacher.link)
        assert words.startswith("the ")
        assert point.strip() in points
        assert asked.data["start"]["seed"] == task.data["start"]["seed"]
    assert environment.step(scene.asked[0][1]).outcome == 1


def test_a_thought_is_what_the_task_says_of_a_thing_and_all_that_a_button_says() -> None:
    red = Task("t", "Click on a small red item", "click-shape", {})
    assert thought(red, ("small", "red", "letter", "x")) == "the small red"
    assert thought(red, ("large", "blue", "letter", "x")) == "the large"
    count = Task("t", "How many circles are there?", "count-shape", {})
    assert thought(count, ("button", "3")) == "the button 3"
    assert thought(red, ()) == "the"


def test_what_could_be_asked_is_known_by_color_size_kind_or_letters() -> None:
    screen = read(
        'circle "red" [1] 10px\ntext "5" [2] blue 20px\nbutton "3" [3]\nbutton "xyz" [4]\n'
        'text "#ff0000 color" [5]\ntextbox "" [6] = "a"'
    )
    assert [words_of(element) for element in screen] == [
        ("small", "red", "shape", "circle"),
        ("large", "blue", "digit", "5"),
        ("button", "3"),
        ("button",),
        ("red", "box"),
        ("text",),
    ]
    spec = EpisodeSpec("count-shape", 7)
    task = make_task("t", spec, "How many red items are there?")
    others = possible_tasks(task, screen, random.Random(1))
    assert others[0] == task
    said = {other.instruction for other in others}
    assert {"Click button 3.", "Click on the red colored box."} < said
    assert any(each.startswith("Click on a ") for each in said)
    assert sum(each.startswith("How many ") for each in said) > 1
    assert {spec_of_task(other).seed for other in others} == {7}


def test_the_teacher_names_points(seen: MiniWobVision) -> None:
    teacher = MiniWobVisionTeacher()
    task = next(t for t in seen.tasks("train", 20, 4) if t.kind == "click-color")
    episode = clicked(seen, task)
    right = episode.steps[0].action
    said = teacher.judgement(task, episode.steps, -1)
    assert said == f"{right} is next: a wrong step. \\boxed{{-1}}"
    assert f"It did not go on with {right}." in teacher.critic(task, episode.steps, (0,))
