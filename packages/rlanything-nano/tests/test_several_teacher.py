"""One set of nano models for several domains: each world's teacher, one tokenizer."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import rlanything as rl
from helpers.paths import ROOT
from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.records import Step, Task
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_nano import plans
from rlanything_nano.command import app
from rlanything_nano.making import ROLES
from rlanything_nano.plans import build, teacher_of
from rlanything_nano.several_teacher import SeveralTeacher
from rlanything_nano.step_domains import StepDomainBuilder
from rlanything_nano.teaching import StepPlan

QUIET = Progress(Console(quiet=True))
BOTH = "guess:Guess,alfworld"
SMALL_ROOMS = {"receptacles": [3, 5], "objects": [3, 6]}


COLOURS = ("red", "green", "blue", "grey")


class Colours(rl.TextDomain):
    """Say the colour, among four; nothing is rewritten."""

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        rng = random.Random(f"{split}/{seed}")
        asked = [rng.choice(COLOURS) for _ in range(count)]
        return [Task(f"{split}-{i}", f"Say {c}.", data={"it": c}) for i, c in enumerate(asked)]

    def environment(self) -> rl.Environment:
        return Asking()

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        return f"as asked > {task.data['it']}"

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        return [1 if step.action == task.data["it"] else -1 for step in steps]


class Asking:
    def reset(self, task: Task) -> rl.Observation:
        self.right = task.data["it"]
        return rl.Observation("Which?", COLOURS)

    def step(self, response: str) -> rl.StepResult:
        action = Colours.action_in(response)
        outcome = 1 if action == self.right else -1
        return rl.StepResult(rl.Observation("Thanks."), action, action in COLOURS, outcome)


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, and the domain of this file, as modules that can be named."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    monkeypatch.setitem(sys.modules, "words", sys.modules[__name__])


def taught_in_both() -> SeveralTeacher:
    teacher = teacher_of(BOTH)
    assert isinstance(teacher, SeveralTeacher)
    return teacher


def test_a_plan_for_several_worlds_is_large_enough_for_each() -> None:
    plan = taught_in_both().plan
    plans_alone = [teacher_of(name).plan for name in BOTH.split(",")]
    alone = [each for each in plans_alone if isinstance(each, StepPlan)]
    assert plan.games == sum(each.games for each in alone)
    assert plan.hidden == max(each.hidden for each in alone)
    assert plan.max_steps == max(each.max_steps for each in alone)
    assert (plan.decoding, plan.slip) == ("choices", None)
    assert [world["weight"] for world in plan.options["worlds"]] == [e.games for e in alone]
    assert plan.options["worlds"][1]["options"] == dict(alone[1].options)


def test_words_are_swapped_only_where_no_other_world_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teacher = taught_in_both()
    [objects] = teacher.interchangeable()
    assert "mug" in objects
    guess = teacher._teachers["guess"]
    own = [["1", "2"], ["thimble", "quill"]]
    monkeypatch.setattr(guess, "interchangeable", lambda: own)
    del teacher._interchangeable
    assert teacher.interchangeable() == [["thimble", "quill"], objects]  # rooms number their places


def test_each_world_is_demonstrated_and_judged_by_its_own_teacher() -> None:
    teacher = taught_in_both()
    plan = teacher.plan
    tasks = [
        *teacher._domain.tasks("guess/train", 2, 0),
        *teacher._domain.tasks("alfworld/train", 2, 0),
    ]
    with EnvironmentPool("several", plan.options, 0, 60.0) as pool:
        requests = [RolloutRequest(task.id, task, i) for i, task in enumerate(tasks)]
        played = rollout(teacher.demonstrator(0.0), pool, requests, 30, 4).trajectories
    assert [each.outcome for each in played] == [1, 1, 1, 1]
    guessed, _, room, _ = played
    assert teacher.judgement(guessed.task, guessed.steps[:1], 1).startswith("1 to 8 > 5; done: 5.")
    assert "find" in teacher.judgement(room.task, room.steps[:1], -1)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("guess:Guess,coding", "domain coding has a judge that writes tests: build its models"),
        ("guess:Guess,osworld", "domain osworld is taught with exercises of its own, which models"),
        ("guess:Guess, guess:Guess", "--domain guess:Guess,guess:Guess: name each domain once"),
    ],
)
def test_domains_that_cannot_share_a_model_are_refused(
    tmp_path: Path, names: str, said: str
) -> None:
    with pytest.raises(DomainError) as error:
        build(names, 0, tmp_path / "models", 0, QUIET)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_names_the_folder_after_all_domains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans, "build", lambda *args: asked.extend(args))
    assert CliRunner().invoke(app, ["--domain", BOTH]).exit_code == 0
    assert (asked[0], asked[2]) == (BOTH, Path("models/guess-alfworld"))


@pytest.mark.parametrize(
    ("other", "options"),
    [
        ("words:Colours", {}),
        pytest.param("alfworld", SMALL_ROOMS, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_two_games_share_one_model_that_then_learns_in_both(
    other: str, options: dict[str, object], tmp_path: Path
) -> None:
    """A short build, then an iteration of the recipe with all three models."""
    names = f"guess:Guess,{other}"
    teacher = teacher_of(names)
    assert isinstance(teacher, SeveralTeacher)
    worlds = [{**world, "weight": 1.0} for world in teacher.plan.options["worlds"]]
    worlds[1]["options"] = options
    sizes = {"games": 12, "judged_games": 4, "criticised_games": 2, "adapter_games": 4}
    sizes |= {"policy_epochs": 1, "judge_epochs": 1, "adapter_epochs": 1, "episodes": 2}
    sizes |= {"hidden": 32, "layers": 1, "demonstrations_per_game": 1, "max_steps": 6}
    plan = replace(teacher.plan, options={"worlds": worlds}, slip=0.3, **sizes)
    models = tmp_path / "models"
    measured = StepDomainBuilder(plan, teacher, models, 0, QUIET).build()
    labels = {name.partition("/")[0] for name in measured["policy"]}
    assert labels == {"guess", other.rpartition(":")[2].lower()}
    card = json.loads((models / "card.json").read_text())
    assert card["command"] == f"rlanything nano build --domain {names} --seed 0"

    small = {"loop.iterations": 1, "loop.tasks": 4, "loop.tasks_per_iteration": 4}
    small |= {"loop.rollouts_per_task": 2, "loop.max_steps": 4, "evaluation.episodes": 0}
    small |= {"environment.workers": 0, "run_dir": str(tmp_path / "run")}
    small |= {"policy.max_tokens": 24, "policy.thought_tokens": 8, "judge.max_tokens": 24}
    small |= {"domains": [{"name": "guess:Guess"}, {"name": other, "options": options}]}
    small |= {f"{role}.model": str(models / role) for role in ROLES}
    [iteration] = rl.Trainer("two-worlds", overrides=small)
    assert [iteration.metrics[f"rollouts/episodes/{label}"] for label in sorted(labels)] == [4, 4]
