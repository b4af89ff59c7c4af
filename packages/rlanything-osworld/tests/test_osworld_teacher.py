"""What the teacher of tiny models shows: responses, judgements, rewrites, as they are read."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

from rlanything.domains.base import Episode, Observation
from rlanything.records import Completion, Step, Task
from rlanything.roles.judges.scores import parse_score
from rlanything_nano.teaching import DrillingTeacher, TaughtDomain
from rlanything_osworld.actions import find_action
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.families.base import Move
from rlanything_osworld.rewriting import rewritten
from rlanything_osworld.tasks import draft, generated_task, generated_tasks, goal_of
from rlanything_osworld.teacher import OSWorldTeacher, quoted, slip, target, thought

TEACHER = OSWorldTeacher()
TASK = generated_task("t", FAMILIES["files-delete"], 3, "file")
NAME = TASK.instruction.split()[0 if "needed" in TASK.instruction else 1]
SCREEN = "\n".join(
    (
        "Launcher: [1] Calc [2] Files",
        "== Desktop (active)",
        "menus: [3] File [4] View",
        "[5] icon: other.txt",
        f"[6] icon: {NAME} (selected)",
    )
)
CLICKED = Step(SCREEN, Completion.unsampled("> click [6]"), "click [6]", True, SCREEN)
STRAYED = Step(SCREEN, Completion.unsampled("> click [5]"), "click [5]", True, SCREEN)


def moves_of(task: Task) -> Sequence[Move]:
    goal = goal_of(task)
    assert goal is not None
    return goal.moves


def test_the_domain_brings_its_teacher() -> None:
    assert issubclass(OSWorld, TaughtDomain)
    assert isinstance(OSWorld.nano_teacher(), DrillingTeacher)
    OSWorld(**TEACHER.plan.options).tasks("ood", 1, 0)


def test_a_demonstrator_says_the_element_before_it_acts_and_slips_as_often_as_asked() -> None:
    episode = Episode("e", TASK, Observation(SCREEN))
    (said,) = TEACHER.demonstrator(0.0).respond([episode], [1])
    assert said.text == f"icon: {NAME} [6] > click [6]"
    episode.steps.append(CLICKED)
    (said,) = TEACHER.demonstrator(0.0).respond([episode], [1])
    assert said.text == "keys > press delete"
    texts = [TEACHER.demonstrator(0.5).respond([episode], [n])[0].text for n in range(200)]
    actions = Counter(find_action(text, "numbered") for text in texts)
    assert 70 <= actions["press delete"] <= 130
    assert set(actions) == {"press delete", "wait", "click [3]", "click [4]"}


def test_a_slip_is_mostly_on_an_element_nearby_and_never_the_right_action() -> None:
    rng = random.Random(0)
    slips = Counter(slip(SCREEN, "double_click [6]", rng) for _ in range(300))
    assert slips["double_click [5]"] > 40
    assert "double_click [6]" not in slips
    assert not any(action.endswith(("[1]", "[2]")) for action in slips)
    assert target(SCREEN, "drag [5] [6]") == "icon: other.txt [5]"
    assert target(SCREEN, "click [9]") == "keys"


def test_before_a_name_is_typed_the_task_is_quoted_up_to_it() -> None:
    task = generated_task("r", FAMILIES["editor-replace-word"], 3, "first")
    moves = [move.action for move in moves_of(task) if move.action.startswith("type ")]
    for typed in moves:
        word = typed.removeprefix("type ")
        said = thought(task, SCREEN, typed)
        assert said in task.instruction
        assert said.split()[-1] == word
        assert len(said.split()) == 3
    assert thought(task, SCREEN, "press ctrl+r") == thought(task, SCREEN, "type nothing") == "keys"
    assert quoted("Give song.txt the name budget.txt.", "type budget.txt") == "the name budget.txt"
    assert quoted("Call it x.txt, please.", "type /home/x.txt") == "Call it x.txt"
    assert quoted("Make two folders, Music and Bills.", "type Music") == "two folders Music"
    assert quoted("Call it x.txt.", "type y.txt") is None


def test_exercises_are_names_to_type_after_what_was_done_before() -> None:
    tasks = generated_tasks("train", 80, 5, TEACHER.plan.options["applications"])
    exercises = TEACHER.exercises(tasks, random.Random(1))
    assert len({e.task.id for e in exercises}) > 40
    for exercise in exercises:
        thought_said, _, action = exercise.response.partition(" > ")
        assert thought_said in exercise.task.instruction.replace(",", "")
        assert action.startswith("type ")
        done = [step.action for step in exercise.steps]
        moves = [move.action for move in moves_of(exercise.task)]
        assert moves[len(done)] == action
        assert not any("[" in str(each) and "^" in str(each) for each in done)
        assert [re.sub(r"\[.*]", "[]", move) for move in moves[: len(done)]] == [
            re.sub(r"\[\d+]", "[]", str(each)) for each in done
        ]
    assert TEACHER.exercises(tasks, random.Random(1)) == exercises
    fail = generated_task("f", FAMILIES["editor-settings"], 1, "wrap")
    assert TEACHER.exercises([fail], random.Random(1)) == []


def test_judgements_name_what_is_next_and_critics_what_was_missed() -> None:
    for score in (1, -1):
        text = TEACHER.judgement(TASK, [CLICKED, CLICKED], score)
        assert text.startswith("press delete is next: ")
        assert parse_score(text) == score
    replaced = generated_task("r", FAMILIES["editor-replace-word"], 3, "first")
    pressed = Step(SCREEN, Completion.unsampled("> press ctrl+r"), "press ctrl+r", True, SCREEN)
    text = TEACHER.judgement(replaced, [pressed, STRAYED], -1)
    assert re.match(r"\w+ \w+ (\w+) > type \1 is next: a wrong step", text)
    critic = TEACHER.critic(TASK, [STRAYED, CLICKED], [0])
    assert critic == f"It did not go on with icon: {NAME} [6]. It did click [5]."


def test_proposals_are_read_as_other_tasks_of_the_same_set_up() -> None:
    rng, easier, harder = random.Random(0), 0, 0
    for root in generated_tasks("train", 60, 4):
        text = TEACHER.proposal(root, "easier", rng)
        assert text is not None, "a hint makes any task easier"
        task = rewritten(root, "c", text)
        hinted = rewritten(root, "h", f"goal: {root.data['generated']['goal']}\nhint: yes")
        assert "hint: no" in (TEACHER.proposal(hinted, "easier", rng) or "hint: no")
        easier += task.data["generated"]["hinted"]
        text = TEACHER.proposal(root, "harder", rng)
        harder += text is not None and bool(rewritten(root, "c", text))
    assert easier > 20
    assert harder > 20


def test_names_that_are_swapped_belong_to_one_group() -> None:
    names = [name for group in TEACHER.interchangeable() for name in group]
    assert len(names) == len(set(names)) > 50
    for seed in range(5):
        for path in draft(FAMILIES["files-move"], seed).files:
            assert path.removesuffix(".txt") in names
