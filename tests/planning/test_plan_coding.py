"""Plans where the judge writes tests, where data are missing, and where nothing can be played."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlanything.planning
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import SHORT_FORM, JudgeConfig, PolicyConfig
from rlanything.domains.alfworld.domain import AlfWorld
from rlanything.domains.alfworld.environment import AlfWorldEnvironment
from rlanything.domains.base import EpisodeError, MissingData
from rlanything.domains.coding.domain import Coding
from rlanything.domains.coding.sandbox.base import SandboxUnavailable
from rlanything.domains.coding.sandbox.local import LocalExecutor
from rlanything.engines import shipped
from rlanything.learning.packing import pack
from rlanything.planning.assumptions import (
    GROWING,
    assume,
    measure,
    play,
    prompt_lengths,
    tokenizer_of,
)
from rlanything.planning.plan import make_plan
from rlanything.planning.report import Plan, PlanError
from rlanything.planning.workload import TrainingWorkload, workloads
from rlanything.records import Completion, JudgedTrajectory, Judgement, Sample, Step, Trajectory
from rlanything.roles.judges.unit_test import UnitTestJudge
from rlanything.rollout.groups import RolloutGroup, ScheduledTask

CODING = "domain.name=rlanything.domains.coding.domain:Coding"
NANO = ("policy.model=nano", "judge.model=nano", "adapter.model=nano")
GROUPS, ROLLOUTS, TESTS = 17, 16, 8
"""Of the recipe below, a candidate among the groups."""
SIZES = (
    f"loop.tasks_per_iteration={GROUPS - 1}",
    f"loop.rollouts_per_task={ROLLOUTS}",
    f"judge.samples_per_step={TESTS}",
)
MEASURED = (*(f"{role}_{name}" for role in ("policy", "judge") for name in GROWING),)
MEASURED += ("adapter_prompt_tokens",)
ALL = [*(f"{name}=100" for name in MEASURED), "environment_seconds=0.001"]


@pytest.fixture(scope="module")
def recipes(request: pytest.FixtureRequest) -> Path:
    return request.config.rootpath / "recipes"


@pytest.fixture(scope="module")
def recipe(recipes: Path) -> Recipe:
    return load_recipe(recipes / "coding-nano.yaml", [CODING, *NANO, *SIZES])


def value(plan: Plan, name: str) -> float:
    [found] = [q.value for section in plan.sections for q in section.quantities if q.name == name]
    assert found is not None
    return found


def test_a_task_has_as_many_judgements_as_tests_are_written_for_it(recipe):
    plan = make_plan(recipe, "l4", 1, ALL)
    assert value(plan, "steps") == value(plan, "policy: answers") == GROUPS * ROLLOUTS
    assert value(plan, "judge: answers") == GROUPS * TESTS
    assert value(plan, "judge: prompts") == GROUPS * TESTS * 100
    assert value(plan, "judge: prefilled") == GROUPS * 100
    assert value(plan, "judge: sample tokens") == round(GROUPS * 0.63) * TESTS * (100 + 13.3 // 1)
    assert value(plan, "policy: sample tokens") == GROUPS * ROLLOUTS * round(200 + 8.7)


def test_every_response_runs_on_every_test(recipe):
    plan = make_plan(recipe, "l4", 1, [*ALL, "test_seconds=0.5"])
    assert value(plan, "judgements: tests run") == GROUPS * ROLLOUTS * TESTS * 0.5
    others = {f.name for section in plan.sections for f in section.quantities}
    quick = recipe.model_copy(update={"domain": recipe.domain.model_copy(update=TEXT)})
    assert "test_seconds" in others
    text = make_plan(quick, "l4", 1, ALL)
    assert not {"test_seconds", "judgements: tests run"} & {
        f.name for section in text.sections for f in section.quantities
    }


TEXT = {"name": "alfworld", "options": {}}


def test_its_episodes_have_one_step_whatever_max_steps_says(recipe):
    longer = recipe.model_copy(update={"loop": recipe.loop.model_copy(update={"max_steps": 9})})
    assert make_plan(longer, "l4", 1, ALL).seconds == make_plan(recipe, "l4", 1, ALL).seconds


def test_text_games_of_one_step_train_their_share(recipe):
    quick = recipe.model_copy(update={"domain": recipe.domain.model_copy(update=TEXT)})
    plan = make_plan(quick, "l4", 1, [*ALL, "episode_steps=1", "judge_trained=0.5"])
    assert value(plan, "judge: answers") == GROUPS * ROLLOUTS * TESTS
    length = round(100 + 8.7 + 100 + 100 + 13.3)
    assert value(plan, "judge: sample tokens") == GROUPS // 2 * ROLLOUTS * TESTS * length


def completion(prompt: range, answer: range) -> Completion:
    zeros = (0.0,) * len(answer)
    return Completion(tuple(prompt), tuple(answer), zeros, ((),) * len(answer), "stop", "")


def test_a_tasks_samples_are_those_that_a_group_makes(recipe):
    """Programs and tests with prompts of 60 and 40 tokens, answers of 30 and 20."""
    task = Coding().stand_ins(1)[0]
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
    judge = UnitTestJudge(None, Coding(), None, TESTS)  # pyright: ignore[reportArgumentType]
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


def test_the_judges_whole_prompt_is_its_opening(monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    domain, (tokenize, _) = Coding(), tokenizer_of("no/such/model")
    task = domain.stand_ins(1)[0]
    episode, fault = play(domain, task, 1, [])
    assert fault is not None
    assert fault.endswith("there is no sandbox: bwrap is missing: install bubblewrap")
    found = measure(domain, [episode], dict.fromkeys(SHORT_FORM, tokenize), SHORT_FORM)
    whole = len(tokenize(domain.judge_prompt(task, ())))
    assert found["judge_opening_tokens"] == whole
    assert found["judge_turn_tokens"] == found["judge_question_tokens"] == 0
    assert found["policy_turn_tokens"] == 0


def test_a_window_without_bounds_leaves_no_task_out(recipe):
    assert recipe.feedback.policy_window == (0, 1)
    assumed = assume(recipe, ALL)
    assert assumed.roles["policy"].trained == 1
    assert assumed.roles["judge"].trained == 0.63


def no_sandbox(*_: object, **__: object) -> None:
    raise SandboxUnavailable("bwrap is missing: install bubblewrap")


def test_nothing_needs_a_sandbox(recipe, monkeypatch):
    played = prompt_lengths(recipe, Coding())
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    found = prompt_lengths(recipe, Coding())
    assert "environment_seconds" not in found
    for name in ("policy_opening_tokens", "judge_opening_tokens"):
        value, source = found[name]
        assert "cannot be played here (task " in source
        assert "there is no sandbox: bwrap is missing: install bubblewrap)" in source
        assert value == played[name][0]
    assert assume(recipe, []).environment_seconds == 0.0004


def test_episodes_that_cannot_be_played_are_guessed_within_a_factor_of_two(monkeypatch):
    domain = AlfWorld()
    tokenizers = dict.fromkeys(SHORT_FORM, tokenizer_of("no/such/model")[0])
    tasks = domain.tasks("train", 3, 0)
    episodes = [play(domain, task, 10, [])[0] for task in tasks]
    played = measure(domain, episodes, tokenizers, SHORT_FORM)

    def broken(self: object, response: str) -> None:
        raise EpisodeError("t", "no engine")

    monkeypatch.setattr(AlfWorldEnvironment, "step", broken)
    episodes = [play(domain, task, 10, [])[0] for task in tasks]
    guessed = measure(domain, episodes, tokenizers, SHORT_FORM)
    assert played["policy_question_tokens"] == guessed["policy_question_tokens"] == 0
    prompts = set(MEASURED) - {"adapter_prompt_tokens", "policy_question_tokens"}
    ratios = {name: guessed[name] / played[name] for name in prompts}
    assert {name: ratio for name, ratio in ratios.items() if not 0.5 < ratio < 2} == {}


def test_data_that_are_elsewhere_have_stand_ins(recipes, monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    assumed = assume(load_recipe(recipes / "coding-qwen2.5-7b.yaml", [CODING]), [])
    assert (
        "stand-ins, a rough guide: the recipe's data are not here"
        in (assumed.sources["policy_opening_tokens"])
    )
    assert 50 < assumed.roles["policy"].opening_tokens < 1000
    assert assumed.roles["policy"].answer_tokens == 2048


def test_data_that_cannot_be_used_are_an_error_all_the_same(recipes, tmp_path):
    file = tmp_path / "train.json"
    file.write_text("[{}]")
    options = f"domain.options={{data: {{train: {file}}}}}"
    broken = load_recipe(recipes / "coding-nano.yaml", [CODING, *NANO, options])
    with pytest.raises(PlanError, match=r"domain: .*train.json, item 0: there is no 'question'"):
        assume(broken, [])


class Elsewhere(AlfWorld):
    """Its data are nowhere, and it has nothing in their stead."""

    stand_ins = None  # pyright: ignore[reportAssignmentType]

    def tasks(self, split: str, count: int, seed: int) -> list:
        raise MissingData("no games: download them")


def test_without_stand_ins_lengths_can_be_given(recipe, monkeypatch):
    monkeypatch.setattr("rlanything.planning.assumptions.load_domain", lambda *_: Elsewhere())
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


def test_shipped_models_that_are_not_there_are_one_line(recipes, monkeypatch, tmp_path):
    monkeypatch.setitem(shipped.NAMES, "nano-coding", tmp_path / "none")
    with pytest.raises(PlanError) as raised:
        make_plan(load_recipe(recipes / "coding-nano.yaml", [CODING]), "l4", 1)
    said = str(raised.value)
    assert said.startswith("policy.model: nano-coding does not come with this installation")
    assert "rlanything nano build" in said
    assert "\n" not in said


def test_the_papers_coding_recipe_fits_as_its_head_says(recipes, monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    loaded = load_recipe(recipes / "coding-qwen2.5-7b.yaml", [CODING])
    assert not make_plan(loaded, "h200", 1).fits
    plan = make_plan(loaded, "h200")
    assert plan.fits
    assert plan.count == loaded.cluster.seats == 8
    assert value(plan, "judge: answers") == 67 * 32


def test_the_papers_coding_recipe_has_the_papers_settings(recipes):
    recipe = load_recipe(recipes / "coding-qwen2.5-7b.yaml", [CODING])
    for role in (recipe.policy, recipe.judges["judge"]):
        assert (role.kl_weight, role.learning_rate) == (0.01, 1e-6)
        assert (role.loss.name, role.loss.options) == ("clipped", {"clip_range": 0.2})
    assert (recipe.policy.temperature, recipe.judges["judge"].temperature) == (1.0, 0.8)
    assert recipe.judges["judge"].samples_per_step == recipe.loop.rollouts_per_task == 32
    assert (recipe.loop.tasks_per_iteration, recipe.loop.iterations) == (64, 300)
    assert recipe.evaluation.rollouts_per_task == 16
    assert recipe.feedback.policy_window == (0, 1)
    assert recipe.domain.options["programs_agree"] is False
    assert recipe.domain.options["style"] == "paper"


def test_where_the_paper_is_silent_its_coding_recipe_has_what_was_published(recipes):
    recipe = load_recipe(recipes / "coding-qwen2.5-7b.yaml", [CODING])
    for role in (recipe.policy, recipe.judges["judge"]):
        assert (role.max_tokens, role.minibatches) == (2048, 2)
    adapter = recipe.adapter
    assert (adapter.temperature, adapter.tries, adapter.max_tokens) == (0.8, 3, 8096)
    assert (recipe.evaluation.temperature, recipe.evaluation.every) == (0.0, 10)
    assert recipe.domain.options["tests"] == 8
    # Every split that is evaluated has its data.
    assert {"train", *recipe.evaluation.splits} == set(recipe.domain.options["data"])


def test_the_lengths_of_the_papers_prompts_are_planned(recipes, monkeypatch):
    monkeypatch.setattr(LocalExecutor, "__init__", no_sandbox)
    recipe = load_recipe(recipes / "coding-qwen2.5-7b.yaml", [CODING])
    nano = load_recipe(recipe, ["domain.options.style=nano"])
    planned, short = assume(recipe, []).values, assume(nano, []).values
    assert planned["adapter_prompt_tokens"] > 1.5 * short["adapter_prompt_tokens"]
    assert planned["judge_opening_tokens"] > short["judge_opening_tokens"]
    assert planned["adapter_answer_tokens"] == 8096


def test_a_plan_knows_no_domain_by_name():
    for file in Path(rlanything.planning.__path__[0]).glob("*.py"):
        text = file.read_text()
        assert "domain.name ==" not in text
        assert "domain.name !=" not in text
        assert '"alfworld"' not in text
        assert '"coding"' not in text
