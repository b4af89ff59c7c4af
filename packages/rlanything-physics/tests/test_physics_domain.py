"""Small physical worlds: tasks, episodes that repeat to the bit, expert, oracle, rewrites."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys

import pytest

from helpers.playing import play
from rlanything.domains.base import DomainError, InvalidTask
from rlanything.records import Task
from rlanything_physics.catalogue import FAMILIES
from rlanything_physics.domain import (
    SPLITS,
    Physics,
    PhysicsEnvironment,
    begun,
    split_of,
)
from rlanything_physics.families.base import WorldFamily, numbers_in
from rlanything_physics.families.push import Push
from rlanything_physics.teacher import failure_of

PHYSICS = Physics()
PLAYED = """
import json, sys
from rlanything_physics.domain import PhysicsEnvironment
from rlanything.records import Task
import hashlib
digest = hashlib.sha256()
for name, parameters, actions in json.loads(sys.stdin.read()):
    environment = PhysicsEnvironment()
    environment.reset(Task("t", "", name, {"parameters": parameters}))
    for action in actions:
        environment.step(f"> {action}")
        digest.update(environment.state)
print(digest.hexdigest())
"""


def task_of(family: WorldFamily, **changed: int) -> Task:
    p = {each.name: (each.low + each.high) // 2 for each in family.parameters}
    return Task("t", family.goal, family.name, {"parameters": {**p, **changed}})


def expert_wins(task: Task) -> bool:
    """Whether the expert wins, from what an agent reads."""
    environment, responses = PHYSICS.environment(), list[str]()
    environment.reset(task)
    while True:
        responses.append(str(PHYSICS.expert(task, play(PHYSICS, task, responses))))
        if (outcome := environment.step(responses[-1]).outcome) is not None:
            return outcome == 1


def random_episodes(count: int) -> list[tuple[str, dict[str, int], list[str]]]:
    """Parameters of `count` tasks with random actions."""
    rng = random.Random(7)
    return [
        (t.kind, t.data["parameters"], [rng.choice(FAMILIES[t.kind].actions) for _ in range(4)])
        for t in PHYSICS.tasks("train", count, 3)
    ]


def digest(episodes: list[tuple[str, dict[str, int], list[str]]]) -> str:
    found = hashlib.sha256()
    for name, parameters, actions in episodes:
        environment = PhysicsEnvironment()
        environment.reset(Task("t", "", name, {"parameters": parameters}))
        for action in actions:
            environment.step(f"> {action}")
            found.update(environment.state)
    return found.hexdigest()


def test_the_same_task_and_actions_give_the_same_bits_here_and_in_other_processes() -> None:
    episodes = random_episodes(24)
    wanted = digest(episodes)
    assert digest(episodes) == wanted
    assert digest(episodes[1:]) != wanted
    told = json.dumps(episodes)
    for _ in range(2):
        other = subprocess.run(
            [sys.executable, "-c", PLAYED], input=told, capture_output=True, text=True, check=True
        )
        assert other.stdout.strip() == wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_the_expert_wins_nearly_all_settings_even_before_they_are_checked(name: str) -> None:
    family, rng = FAMILIES[name], random.Random(1)
    won = 0
    for _ in range(100):
        p = {each.name: rng.randint(each.low, each.high) for each in family.parameters}
        world = begun(family, p)
        for taken in range(1, family.decisions + 1):
            action = family.decide(p, numbers_in(family.show(world, p)))[1]
            if (outcome := family.act(world, p, action, taken)) is not None:
                won += outcome == 1
                break
    assert won >= 92


def test_the_expert_wins_every_task_of_every_split() -> None:
    for split in SPLITS:
        tasks = PHYSICS.tasks(split, 16, 5)
        assert [t.id for t in tasks if not expert_wins(t)] == []


def test_splits_share_no_setting_and_held_out_ones_are_outside_the_training_range() -> None:
    settings = {
        split: {(t.kind, str(t.data)) for seed in (0, 1) for t in PHYSICS.tasks(split, 40, seed)}
        for split in SPLITS
    }
    for one in SPLITS:
        assert len(settings[one]) >= 60
        assert not [other for other in SPLITS if other != one and settings[one] & settings[other]]
    for t in PHYSICS.tasks("ood", 20, 0):
        ranges = {each.name: range(each.low, each.high + 1) for each in FAMILIES[t.kind].parameters}
        assert any(value not in ranges[name] for name, value in t.data["parameters"].items())


def test_tasks_repeat_by_seed_and_survive_json() -> None:
    tasks = PHYSICS.tasks("train", 8, 1)
    assert tasks == PHYSICS.tasks("train", 8, 1) != PHYSICS.tasks("train", 8, 2)
    assert [t.data for t in tasks] == json.loads(json.dumps([t.data for t in tasks]))
    assert [t.kind for t in tasks] == [*FAMILIES] * 2
    assert len({t.id for t in tasks}) == 8
    parameters = tasks[0].data["parameters"]
    assert all(f"{name} {value}" in tasks[0].instruction for name, value in parameters.items())


def test_a_recipe_chooses_families() -> None:
    assert {t.kind for t in Physics(families=["slope"]).tasks("train", 4, 0)} == {"slope"}
    with pytest.raises(DomainError, match="no family is called 'fly': use push, balance"):
        Physics(families=["fly"])
    with pytest.raises(DomainError, match="no split is called 'test'"):
        PHYSICS.tasks("test", 1, 0)


@pytest.mark.parametrize(
    ("name", "losing", "said"),
    [
        ("push", "push 3", "far"),
        ("balance", "move 3", "tilt"),
        ("throw", "turn 15", "long"),
        ("slope", "drive 3", "speed"),
    ],
)
def test_an_episode_ends_lost_and_the_failure_says_what_happened(
    name: str, losing: str, said: str
) -> None:
    family, task = FAMILIES[name], task_of(FAMILIES[name])
    environment = PHYSICS.environment()
    seen = environment.reset(task)
    assert seen.choices == family.actions
    actions = [losing]
    while (result := environment.step(f"so > {losing}")).outcome is None:
        assert result.valid
        assert said in result.observation.text
        actions.append(losing)
    assert result.outcome == -1
    assert len(actions) <= family.decisions
    failure = failure_of(task, play(PHYSICS, task, [f"> {each}" for each in actions]))
    assert failure.text.endswith(".")
    assert set(failure.parameters) <= {each.name for each in family.parameters} != set()


def test_a_response_without_a_control_costs_a_decision_and_moves_nothing() -> None:
    task = task_of(Push())
    environment = PHYSICS.environment()
    seen = environment.reset(task)
    for response in ("push 3", "> push 4", "> push\n3", ""):
        result = environment.step(response)
        assert not result.valid
        assert result.observation.text.startswith(f"no such control, {seen.text.split(' left')[0]}")
    outcomes = [environment.step("").outcome for _ in range(Push.decisions - 4)]
    assert outcomes == [None] * (Push.decisions - 5) + [-1]
    steps = play(PHYSICS, task, ["", "> push 3"])
    assert PHYSICS.oracle(task, steps) == [-1, 1]


def test_the_oracle_accepts_the_experts_control_and_its_neighbours() -> None:
    task = task_of(Push())
    [_, _, action] = str(PHYSICS.expert(task, ())).rpartition("> ")
    right = Push.actions.index(action)
    labels = [PHYSICS.oracle(task, play(PHYSICS, task, [f"> {each}"])) for each in Push.actions]
    assert labels == [[1] if abs(i - right) <= 1 else [-1] for i in range(len(labels))]


@pytest.mark.parametrize(
    ("answer", "reason", "stage"),
    [
        ("make it heavy", "no `parameter value`", "unreadable"),
        ("gravity 3", "push has no parameter 'gravity'", "invalid"),
        ("mass 99", "mass is 99: 1 to 9 are possible", "invalid"),
        ("mass 4", "nothing is changed", "invalid"),
        ("mass 9, power 2, wind -5, friction 9", "the expert does not solve it", "unsolvable"),
    ],
)
def test_a_candidate_is_refused_with_the_reason(answer: str, reason: str, stage: str) -> None:
    with pytest.raises(InvalidTask, match=reason) as refused:
        PHYSICS.parse_candidate(task_of(Push()), "t@1", answer)
    assert refused.value.stage == stage


def test_a_candidate_has_the_written_parameters_and_is_never_held_out() -> None:
    root, held_out = task_of(Push()), 0
    for mass in range(1, 10):
        for distance in range(4, 13):
            p = {**root.data["parameters"], "mass": mass, "distance": distance}
            try:
                task = PHYSICS.parse_candidate(root, "t@1", f"mass {mass}, distance {distance}")
            except InvalidTask as refused:
                held_out += "held out" in str(refused)
                continue
            assert (task.id, task.data["parameters"]) == ("t@1", p)
            assert split_of(Push(), p) in ("train", None)
    assert held_out > 5


def test_rewrites_go_in_their_direction() -> None:
    root = task_of(FAMILIES["balance"], wind=-2, tilt=0)
    assert {"wind -3", "wind -5", "tilt 1", "tilt -1", "length 5"} <= {
        *PHYSICS.rewrites(root, "harder")
    }
    easier = PHYSICS.rewrites(root, "easier")
    assert {"wind -1", "wind 0", "length 7"} <= {*easier}
    assert not [each for each in easier if each.startswith("tilt")]
