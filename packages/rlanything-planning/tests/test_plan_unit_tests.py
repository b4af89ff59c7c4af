"""Plans where the judge writes tests, where data are missing, and where nothing can be played."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlanything_planning
from helpers.at_least import AtLeast
from helpers.guess import GUESS
from helpers.plans import value
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import SHORT_FORM, JudgeConfig, PolicyConfig
from rlanything.domains.base import EpisodeError, MissingData, Observation, StepResult
from rlanything.domains.registry import load_domain
from rlanything.engines import shipped
from rlanything.learning.packing import pack
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Sample,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.rollout.groups import RolloutGroup, ScheduledTask
from rlanything_planning.assumptions import (
    GROWING,
    assume,
    measure,
    play,
    prompt_lengths,
    tokenizer_of,
)
from rlanything_planning.plan import make_plan
from rlanything_planning.report import PlanError
from rlanything_planning.workload import TrainingWorkload, workloads

GROUPS, ROLLOUTS, TESTS = 17, 16, 8
"""Sizes of the recipe below; one group plays a candidate."""
SIZES = (
    f"loop.tasks_per_iteration={GROUPS - 1}",
    f"loop.rollouts_per_task={ROLLOUTS}",
    f"judge.samples_per_step={TESTS}",
    "feedback.policy_window=[0, 1]",
)
MEASURED = (*(f"{role}_{name}" for role in ("policy", "judge") for name in GROWING),)
MEASURED += ("adapter_prompt_tokens",)
ALL = [*(f"{name}=100" for name in MEASURED), "environment_seconds=0.001"]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(GUESS, ["domain={name: 'helpers.at_least:AtLeast'}", *SIZES])


def test_a_task_has_as_many_judgements_as_tests_are_written_for_it(recipe):
    plan = make_plan(recipe, "l4", 1, ALL)
    assert value(plan, "steps") == value(plan, "policy: answers") == GROUPS * ROLLOUTS
    assert value(plan, "judge: answers") == GROUPS * TESTS
    assert value(plan, "judge: prompts") == GROUPS * TESTS * 100
    assert value(plan, "judge: prefilled") == GROUPS * 100
    assert value(plan, "judge: sample tokens") == round(GROUPS * 0.63) * TESTS * (
        100 + recipe.judges["judge"].max_tokens
    )
    assert value(plan, "policy: sample tokens") == GROUPS * ROLLOUTS * (
        200 + recipe.policy.max_tokens
    )


def test_every_response_runs_on_every_test(recipe):
    plan = make_plan(recipe, "l4", 1, [*ALL, "test_seconds=0.5"])
    assert value(plan, "judgements: tests run") == GROUPS * ROLLOUTS * TESTS * 0.5
    others = {f.name for section in plan.sections for f in section.quantities}
    assert "test_seconds" in others
    text = make_plan(load_recipe(GUESS, SIZES), "l4", 1, ALL)
    assert not {"test_seconds", "judgements: tests run"} & {
        f.name for section in text.sections for f in section.quantities
    }


def test_its_episodes_have_one_step_whatever_max_steps_says(recipe):
    longer = recipe.model_copy(update={"loop": recipe.loop.model_copy(update={"max_steps": 9})})
    assert make_plan(longer, "l4", 1, ALL).seconds == make_plan(recipe, "l4", 1, ALL).seconds


def test_text_games_of_one_step_train_their_share():
    quick = load_recipe(GUESS, SIZES)
    plan = make_plan(quick, "l4", 1, [*ALL, "episode_steps=1", "judge_trained=0.5"])
    assert value(plan, "judge: answers") == GROUPS * ROLLOUTS * TESTS
    length = 100 + quick.policy.max_tokens + 200 + quick.judges["judge"].max_tokens
    assert value(plan, "judge: sample tokens") == GROUPS // 2 * ROLLOUTS * TESTS * length


def completion(prompt: range, answer: range) -> Completion:
    zeros = (0.0,) * len(answer)
    return Completion(tuple(prompt), tuple(answer), zeros, ((),) * len(answer), "stop", "")


def test_a_tasks_samples_are_those_that_a_group_makes(recipe):
    """Programs and tests with prompts of 60 and 40 tokens, answers of 30 and 20."""
    task = AtLeast().tasks("train", 1, 0)[0]
    programs = [completion(range(60), range(100 * i, 100 * i + 30)) for i in range(1, 17)]
    tests = [completion(range(40), range(100 * i, 100 * i + 20)) for i in range(1, 9)]
    judged = [
        JudgedTrajectory(
            Trajectory(
                str(i), task, (Step("", program, "", True, ""),), 1 if i % 2 else -1, i / 16
            ),
            (tuple(Judgement(test, 1 if (i + j) % 3 else -1) for j, test in enumerate(tests)),),
        )
        for i, program in enumerate(programs)
    ]
    judge = UnitTestJudge(None, AtLeast(), None, TESTS)  # pyright: ignore[reportArgumentType]
    signals = judge.signals(judged, FeedbackSettings())
    group = RolloutGroup(ScheduledTask("", task, False), tuple(judged), 0.5, signals)
    lengths = ["policy_opening_tokens=60", "policy_question_tokens=0", "policy_answer_tokens=30"]
    lengths += ["judge_opening_tokens=40", "judge_question_tokens=0", "judge_answer_tokens=20"]
    lengths += ["candidates=0", "policy_trained=1", "judge_trained=1"]
    parts = {"loop": recipe.loop.model_copy(update={"tasks_per_iteration": 1})}
    recipe = recipe.model_copy(update=parts).with_role("policy", PolicyConfig(max_pack_tokens=256))
    judge = JudgeConfig(max_pack_tokens=128, samples_per_step=TESTS)
    recipe = recipe.with_role("judge", judge)
    planned = workloads(recipe, assume(recipe, [*ALL, *lengths]))
    same(planned[0].learned, list(group.samples("policy")), 256)
    same(planned[1].learned, list(group.samples("judge")), 128)


def same(planned: TrainingWorkload | None, real: list[Sample], limit: int) -> None:
    packs = pack(real, limit)
    assert planned is not None
    assert planned.samples == len(real) > 1
    assert planned.sample_tokens == sum(len(each.completion.tokens) for each in real)
    assert planned.passes == len(packs) > 1
    assert planned.computed_tokens == sum(each.computed_tokens for each in packs)
    assert planned.largest == max(each.computed_tokens for each in packs)


def test_a_window_without_bounds_leaves_no_task_out(recipe):
    assert recipe.feedback.policy_window == (0, 1)
    assumed = assume(recipe, ALL)
    assert assumed.roles["policy"].trained == 1
    assert assumed.roles["judge"].trained == 0.63


def test_the_judges_whole_prompt_is_its_opening():
    domain, (tokenize, _) = AtLeast(), tokenizer_of("no/such/model")
    task = domain.tasks("train", 1, 0)[0]
    episode, fault = play(domain, task, 1, [])
    assert fault is None
    found = measure(domain, [episode], dict.fromkeys(SHORT_FORM, tokenize), SHORT_FORM)
    assert found["judge_opening_tokens"] == len(tokenize(domain.judge_prompt(task, ())))
    assert found["judge_turn_tokens"] == found["judge_question_tokens"] == 0
    assert found["policy_turn_tokens"] == 0


class Unplayable(AtLeast):
    """Its episodes need what this machine has not."""

    def environment(self) -> Unplayable:
        return self

    def reset(self, task: Task) -> Observation:
        return Observation("Say it.", ("1", "2"))

    def step(self, response: str) -> StepResult:
        raise EpisodeError("t", "there is no sandbox")


def test_tasks_that_cannot_be_played_here_are_read_all_the_same(recipe):
    played, found = (prompt_lengths(recipe, domain) for domain in (AtLeast(), Unplayable()))
    assert "environment_seconds" in played
    assert "environment_seconds" not in found
    for name in ("policy_opening_tokens", "judge_opening_tokens"):
        value, source = found[name]
        assert "cannot be played here (task " in source
        assert "there is no sandbox)" in source
        assert value == played[name][0]


def test_episodes_that_cannot_be_played_are_guessed_within_a_factor_of_two(monkeypatch):
    recipe = load_recipe(GUESS)
    domain = load_domain(recipe.domain.name, {})
    tokenizers = dict.fromkeys(SHORT_FORM, tokenizer_of("no/such/model")[0])
    tasks = domain.tasks("train", 3, 0)
    episodes = [play(domain, task, 10, [])[0] for task in tasks]
    played = measure(domain, episodes, tokenizers, SHORT_FORM)

    def broken(self: object, response: str) -> None:
        raise EpisodeError("t", "no engine")

    monkeypatch.setattr(type(domain.environment()), "step", broken)
    episodes = [play(domain, task, 10, [])[0] for task in tasks]
    guessed = measure(domain, episodes, tokenizers, SHORT_FORM)
    assert played["policy_question_tokens"] == guessed["policy_question_tokens"] == 0
    prompts = set(MEASURED) - {"adapter_prompt_tokens", "policy_question_tokens"}
    ratios = {name: guessed[name] / played[name] for name in prompts}
    assert {name: ratio for name, ratio in ratios.items() if not 0.5 < ratio < 2} == {}


class Elsewhere(AtLeast):
    """Its data are nowhere, and it has nothing in their stead."""

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        raise MissingData("no games: download them")


class WithStandIns(Elsewhere):
    """Its data are nowhere, but it makes tasks like them."""

    def stand_ins(self, count: int) -> list[Task]:
        return AtLeast().tasks("train", count, 0)


def test_data_that_are_elsewhere_have_stand_ins(recipe, monkeypatch):
    name = "rlanything_planning.assumptions.load_domain"
    monkeypatch.setattr(name, lambda *_: WithStandIns())
    assumed = assume(recipe, [])
    assert (
        "stand-ins, a rough guide: the recipe's data are not here"
        in (assumed.sources["policy_opening_tokens"])
    )
    assert 10 < assumed.roles["policy"].opening_tokens < 100


def test_data_that_cannot_be_used_are_an_error_all_the_same(recipe):
    broken = load_recipe(recipe, ["domain.options={data: /nowhere}"])
    with pytest.raises(PlanError, match=r"domain: data: /nowhere: there is no such file"):
        assume(broken, [])


def test_without_stand_ins_lengths_can_be_given(recipe, monkeypatch):
    monkeypatch.setattr("rlanything_planning.assumptions.load_domain", lambda *_: Elsewhere())
    with pytest.raises(PlanError) as raised:
        assume(recipe, ["policy_turn_tokens=3"])
    said = str(raised.value)
    assert said.startswith(
        "domain: no games: download them; or give the lengths of prompts: --assume"
    )
    assert "judge_turn_tokens=NUMBER" in said
    assert " turn_tokens" not in said
    assert "\n" not in said
    assert assume(recipe, ALL).roles["policy"].opening_tokens == 100


def test_shipped_models_that_are_not_there_are_one_line(recipe, monkeypatch, tmp_path):
    monkeypatch.setitem(shipped.NAMES, "nano-guess", tmp_path / "none")
    with pytest.raises(PlanError) as raised:
        make_plan(recipe, "l4", 1)
    said = str(raised.value)
    assert said.startswith("policy.model: nano-guess does not come with this installation")
    assert "rlanything nano build" in said
    assert "\n" not in said


def test_a_plan_knows_no_domain_by_name():
    for file in Path(rlanything_planning.__path__[0]).glob("*.py"):
        text = file.read_text()
        assert "domain.name ==" not in text
        assert "domain.name !=" not in text
        assert '"alfworld"' not in text
        assert '"coding"' not in text
