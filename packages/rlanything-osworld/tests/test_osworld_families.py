"""Generated tasks: their form, their splits, and the expert that follows their moves."""

from __future__ import annotations

import json

import pytest

from rlanything.domains.base import DomainError, InvalidTask
from rlanything.records import Completion, Step
from rlanything_osworld.actions import parse_action
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.experts import label_of, labels, next_action, number_of
from rlanything_osworld.families import FAMILIES, HELD_OUT, Move
from rlanything_osworld.families.base import prints
from rlanything_osworld.rewriting import rewritten
from rlanything_osworld.screen import ScreenPlace
from rlanything_osworld.tasks import (
    SPLITS,
    draft,
    generated_task,
    generated_tasks,
    goal_of,
    goals_of,
)

SCREEN = "\n".join(
    (
        "Launcher: [1] Calc [2] Files",
        "== list.txt (active)",
        "menus: [3] File [4] View",
        "[5] field (focused)",
        "[6] field: bread",
        "[7] A1 Item | [8] B1 | [9] B10 7",
        "[10] button Replace All",
    )
)


def step(action: str, before: str = SCREEN, after: str = SCREEN, valid: bool = True) -> Step:
    return Step(before, Completion.unsampled(f"> {action}"), action, valid, after)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_states_goals_in_osworlds_own_format(name: str) -> None:
    family = FAMILIES[name]
    for seed in range(20):
        drawn = draft(family, seed)
        assert len(goals_of(drawn)) == len(drawn.goals) >= 2
        for goal in drawn.goals:
            task = generated_task("t", family, seed, goal.name)
            json.loads(json.dumps(task.data))
            example = task.data["example"]
            assert {"id", "instruction", "config", "evaluator", "snapshot"} <= example.keys()
            named = {
                file["url"].removeprefix("generated:")
                for each in example["config"]
                if each["type"] == "download"
                for file in each["parameters"]["files"]
            }
            expected = example["evaluator"].get("expected", {})
            named |= {expected["dest"]} if expected.get("type") == "cloud_file" else set()
            assert named == task.data["files"].keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_goal_is_worded_in_its_own_way_and_every_move_is_an_action(name: str) -> None:
    places = {1: ScreenPlace(1, 1)}
    for seed in range(20):
        sentences: list[str] = []
        for goal in draft(FAMILIES[name], seed).goals:
            sentences += goal.wordings
            assert goal.moves[-1].action == ("fail" if goal.name == "absent" else "done")
            for move in goal.moves:
                filled = move.action
                if "[" in filled:
                    filled = f"{filled[: filled.index('[')]}[1]"
                parse_action(filled, "numbered", places, (1280, 800))
        assert len(set(sentences)) == len(sentences)


def test_held_out_applications_are_in_no_split_but_ood() -> None:
    for split, families in SPLITS.items():
        held_out = {family.application in HELD_OUT for family in families}
        assert held_out == {split == "ood"}
    assert len(FAMILIES) >= 15


def test_tasks_are_the_same_for_a_seed_and_others_for_another() -> None:
    first = generated_tasks("train", 40, 1)
    assert first == generated_tasks("train", 40, 1)
    assert len({task.id for task in first}) == 40
    assert {task.kind for task in first} == {family.name for family in SPLITS["train"]}
    assert first != generated_tasks("train", 40, 2)
    assert {task.instruction for task in first}.isdisjoint(
        task.instruction for task in generated_tasks("ood", 20, 1)
    )
    with pytest.raises(DomainError, match="unknown split 'test': use one of train"):
        generated_tasks("test", 1, 1)


def test_tasks_keep_to_the_applications_that_are_named() -> None:
    kinds = {task.kind.partition("-")[0] for task in generated_tasks("tune", 30, 1, ["editor"])}
    assert kinds == {"editor"}
    with pytest.raises(DomainError, match=r"split ood has no task .*: add impress or browser"):
        generated_tasks("ood", 1, 1, ["editor"])


def test_tasks_keep_to_the_families_that_are_named() -> None:
    chosen = ["files-move", "editor-settings"]
    domain = OSWorld(applications=["files", "editor"], families=chosen)
    assert {task.kind for task in domain.tasks("train", 30, 1)} == set(chosen)
    assert {task.kind for task in domain.stand_ins(8)} == set(chosen)
    with pytest.raises(DomainError, match=r"split tune has no task of the families: add editor-a"):
        OSWorld(applications=["editor"], families=["files-move"]).tasks("tune", 1, 1)


def test_a_sorted_table_is_never_asked_to_be_sorted() -> None:
    for seed in range(300):
        drawn = draft(FAMILIES["calc-sort"], seed)
        (given,) = drawn.files.values()
        assert all(goal.gold["gold.xlsx"] != given for goal in drawn.goals)


@pytest.mark.parametrize("seed", [59, 193])
def test_a_table_that_is_in_every_order_is_drawn_anew(seed: int) -> None:
    assert len(generated_tasks("train", 96, seed)) == 96


def test_what_scores_is_the_systems_and_not_what_a_user_put_before_it() -> None:
    result = prints("gsettings get a b", "true")["result"]
    assert result["command"] == "PATH=/usr/bin:/bin; gsettings get a b"


def test_an_element_is_found_by_its_text_or_its_beginning() -> None:
    assert number_of(SCREEN, "Files") == 2
    assert number_of(SCREEN, "View") == 4
    assert number_of(SCREEN, "field", 2) == 6
    assert number_of(SCREEN, "A1") == 7
    assert number_of(SCREEN, "B1") == 8
    assert number_of(SCREEN, "button Replace All") == 10
    assert number_of(SCREEN, "button Replace") == 10
    assert number_of(SCREEN, "B") is None
    assert label_of(SCREEN, 9) == "B10 7"
    assert label_of(SCREEN, 11) is None


def test_the_expert_looks_before_it_clicks_and_goes_on_from_its_own_steps() -> None:
    moves = [Move("click [field^2]"), Move("press enter", when="== Confirm"), Move("done")]
    assert next_action(moves, []) == "wait"
    assert next_action(moves, [step("wait")]) == "click [6]"
    clicked = [step("wait"), step("click [6]")]
    assert next_action(moves, clicked) == "done"
    asked = [step("wait"), step("click [6]", after=f"== Confirm (active)\n{SCREEN}")]
    assert next_action(moves, asked) == "press enter"


def test_the_expert_waits_for_its_element_and_not_for_ever() -> None:
    moves = [Move("press tab"), Move("click [Missing]"), Move("type ls", needs="$")]
    steps = [step("press tab")]
    assert next_action(moves, steps) == "wait"
    steps += [step("wait"), step("wait")]
    assert next_action(moves, steps) is None
    shown = f"{SCREEN}\n[11] Missing"
    assert next_action(moves, steps, shown) == "click [11]"
    steps[-1] = step("wait", after=shown)
    steps.append(step("click [11]", before=shown, after=shown))
    assert next_action(moves, steps) == "wait"
    assert next_action(moves, steps, f"{shown}\n[12] terminal $") == "type ls"


TYPED = SCREEN.replace("[5] field", "[5] field: tea")
STRAY = SCREEN.replace("[5] field", "[5] field: the")
OPEN = f"{SCREEN}\n[11] menu item Undo"


def test_a_step_without_effect_leaves_the_expert_where_it_was() -> None:
    moves = [Move("type tea"), Move("press tab"), Move("done")]
    harmless = [step("click [99]", valid=False, after=f"No.\n{SCREEN}")]
    harmless.append(step("wait", before=f"No.\n{SCREEN}"))
    assert next_action(moves, harmless) == "type tea"
    typed = [*harmless, step("type tea", after=TYPED)]
    assert next_action(moves, typed) == "press tab"
    assert labels(moves, typed) == [-1, -1, 1]


def test_what_no_screen_shows_is_done_again_after_a_step_that_may_have_undone_it() -> None:
    moves = [Move("press ctrl+end"), Move("type tea"), Move("done")]
    steps = [step("press ctrl+end"), step("press home")]
    assert next_action(moves, steps) == "press ctrl+end"
    assert labels(moves, steps) == [1, -1]


def test_the_expert_closes_what_was_opened_and_takes_back_what_was_written() -> None:
    moves = [Move("type tea"), Move("done")]
    opened = [step("click [4]", after=OPEN)]
    assert next_action(moves, opened) == "press escape"
    closed = [*opened, step("press escape", before=OPEN)]
    assert next_action(moves, closed) == "type tea"
    assert labels(moves, closed) == [-1, 1]
    bare = [step("click [4]", after=SCREEN.replace("[4] View", "[4] View (focused)"))]
    assert next_action(moves, bare) == "press escape", "a menu whose items are not shown"
    focused = SCREEN.replace(" (focused)", "")
    closed = [*opened, step("press escape", before=OPEN, after=focused)]
    assert next_action(moves, closed) == "type tea"
    written = [step("type the", after=STRAY)]
    assert next_action(moves, written) == "press ctrl+z"
    undone = [*written, step("press ctrl+z", before=STRAY)]
    assert next_action(moves, undone) == "type tea"
    in_vain = [*written, *[step("press ctrl+z", before=STRAY, after=STRAY)] * 3]
    assert labels(moves, in_vain) == [-1, 1, 1, 1]
    assert next_action(moves, in_vain) is None


def test_how_something_written_is_taken_back_depends_on_the_application() -> None:
    moves = [Move("type tea"), Move("done")]
    for heading, way in (
        ("[11] terminal Terminal: $ the", "press ctrl+u"),
        ("== sales.xlsx - LibreOffice Calc (active)", "press escape"),
    ):
        before = SCREEN.replace("== list.txt (active)", heading)
        written = [step("type the", before=before, after=f"{before} the")]
        assert next_action(moves, written) == way


def test_the_expert_chooses_again_what_lost_the_focus_and_else_is_lost() -> None:
    moves = [Move("click [B1]"), Move("type 3"), Move("press enter"), Move("done")]
    chosen, other = f"{SCREEN} (focused)", f"{SCREEN} (selected)"
    steps = [step("click [8]", after=chosen), step("click [9]", before=chosen, after=other)]
    assert next_action(moves, steps) == "click [8]"
    steps = [step("click [9]", after=other)]
    assert next_action(moves, steps) == "click [8]"
    entered = [
        step("click [8]"),
        step("type 3", after=TYPED),
        step("press left", before=TYPED, after=other),
    ]
    assert next_action(moves, entered) is None
    assert labels(moves, [*entered, step("done", before=other)]) == [1, 1, -1, -1]


ROOT = generated_task("root", FAMILIES["editor-add-line"], 3, "end")


def test_a_rewritten_task_has_another_goal_on_the_same_set_up() -> None:
    task = rewritten(ROOT, "c1", "goal: start\nhint: yes.")
    goal = goal_of(task)
    assert goal is not None
    assert goal.name == "start"
    assert task.id == "c1"
    assert task.instruction.endswith(f"Hint: {goal.hint}")
    old, new = ROOT.data["example"], task.data["example"]
    assert new["config"] == old["config"]
    assert task.data["files"].keys() == ROOT.data["files"].keys()
    assert task.data["files"]["gold.txt"] != ROOT.data["files"]["gold.txt"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no `goal: ...`"),
        ("goal: end", "nothing is changed"),
        ("goal: end\nhint: no", "nothing is changed"),
        ("goal: middle", "goal middle is none of end, start"),
        ("hint: maybe", "hint is maybe: yes or no"),
        ("goal: end\ngoal: start", "goal is said twice"),
    ],
)
def test_an_answer_that_asks_for_nothing_new_is_refused(answer: str, reason: str) -> None:
    with pytest.raises(InvalidTask, match=reason):
        rewritten(ROOT, "c1", answer)
