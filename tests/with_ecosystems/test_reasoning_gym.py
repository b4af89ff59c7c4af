"""reasoning-gym's datasets as they are: questions, answers, scores, and what is refused."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from reasoning_gym.factory import DATASETS

from helpers.ecosystems import trained
from helpers.playing import play
from rlanything.domains.base import DomainError, EpisodeError
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.reasoning_gym.domain import ReasoningGymDomain

SUMS: dict[str, Any] = {
    "dataset": "chain_sum",
    "config": {"min_terms": 2, "max_terms": 2, "max_digits": 2},
}
# Their own answers score 0, or there are none.
WITHOUT_ANSWERS = {"composite", "graph_color", "jugs", "rubiks_cube", "boxnet", "futoshiki"}
WITHOUT_ANSWERS |= {"rush_hour", "propositional_logic"}


def test_a_question_is_answered_in_one_step() -> None:
    domain = ReasoningGymDomain(**SUMS)
    [task] = domain.tasks("train", 1, 0)
    assert task.instruction.startswith("State the final answer")
    environment = domain.environment()
    environment.reset(task)
    right = domain.expert(task, ())
    assert right is not None
    result = environment.step(right)
    assert (result.outcome, result.reward) == (1, 1.0)
    assert "answer was taken" in result.observation.text, "the judge is not told"
    environment.reset(task)
    wrong = environment.step("so > it is none")
    assert (wrong.outcome, wrong.valid) == (-1, True)
    environment.reset(task)
    assert environment.step("no answer").outcome == -1
    assert domain.oracle(task, play(domain, task, [right])) == [1]
    assert domain.oracle(task, play(domain, task, ["x > -"])) == [-1]


@pytest.mark.parametrize(
    "dataset", ["spiral_matrix", "binary_matrix", "string_insertion", "n_queens"]
)
def test_an_answer_that_is_a_program_does_not_run(dataset: str, tmp_path: Path) -> None:
    domain, ran = ReasoningGymDomain(dataset=dataset), tmp_path / "ran"
    [task] = domain.tasks("train", 1, 0)
    for program in (f"[open({str(ran)!r}, 'w')]", f"__import__('os').mkdir({str(ran)!r})"):
        assert domain.oracle(task, play(domain, task, [f"x > {program}"])) == [-1]
    assert not ran.exists()


def test_a_list_in_place_of_text_is_still_read() -> None:
    domain = ReasoningGymDomain(dataset="spiral_matrix")
    [task] = domain.tasks("train", 1, 0)
    numbers = [*map(int, domain.asked(task)[1]["answer"].split())]
    assert (domain.score(task, str(numbers)), domain.score(task, str(numbers[1:]))) == (0.1, 0)


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [("countdown", "9**9**9"), ("puzzle24", "10**10**10"), ("coin_flip", "1e999999999")],
)
def test_an_answer_of_a_huge_number_scores_at_once(dataset: str, answer: str) -> None:
    domain = ReasoningGymDomain(dataset=dataset)
    [task] = domain.tasks("train", 1, 0)
    assert domain.score(task, answer) == 0


def test_an_answer_that_takes_too_long_scores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = ReasoningGymDomain(**SUMS)
    [task] = domain.tasks("train", 1, 0)

    def forever(self: Any, answer: str, entry: Any) -> float:
        while True:
            with suppress(Exception):
                sum(range(99))

    monkeypatch.setattr("rlanything_gyms.reasoning_gym.domain._SECONDS", 0.2)
    monkeypatch.setattr(type(domain.asked(task)[0]), "score_answer", forever)
    assert domain.score(task, "1") == 0


def test_an_answer_may_have_several_lines() -> None:
    domain = ReasoningGymDomain(dataset="mini_sudoku")
    [task] = domain.tasks("train", 1, 0)
    right = domain.expert(task, ())
    assert right is not None
    assert right.count("\n") == 3
    environment = domain.environment()
    environment.reset(task)
    assert environment.step(right).outcome == 1


def test_a_question_is_in_one_split_only() -> None:
    few = ReasoningGymDomain(
        dataset="chain_sum", config={"min_terms": 2, "max_terms": 2, "max_digits": 1}
    )
    questions = {
        split: {task.instruction for task in few.tasks(split, 300, 0)}
        for split in ("train", "tune", "in_domain")
    }
    assert sum(map(len, questions.values())) == len(set.union(*questions.values())) > 150
    assert [t.id for t in few.tasks("tune", 9, 4)] == [t.id for t in few.tasks("tune", 9, 4)]


def test_a_worker_scores_the_question_that_was_asked() -> None:
    """This dataset makes another question of a seed in every process."""
    domain = ReasoningGymDomain(dataset="polynomial_multiplication")
    tasks = domain.tasks("train", 8, 0)
    answers = [domain.expert(task, ()) for task in tasks]
    with EnvironmentPool("reasoning_gym", {"dataset": "polynomial_multiplication"}, 1, 60) as pool:
        pool.reset(tasks)
        results = pool.step({i: answer for i, answer in enumerate(answers) if answer is not None})
    assert len(results) > 4
    assert [getattr(result, "outcome", result) for result in results.values()] == [1] * len(results)


def test_no_question_of_training_is_out_of_domain() -> None:
    config = {"min_terms": 2, "max_terms": 3, "max_digits": 1}
    domain = ReasoningGymDomain(dataset="chain_sum", config=config, ood={"max_terms": 5})
    trained = {task.instruction for task in domain.tasks("train", 300, 0)}
    assert not trained & {task.instruction for task in domain.tasks("ood", 100, 0)}


def test_out_of_domain_has_its_own_config() -> None:
    domain = ReasoningGymDomain(**SUMS, ood={"min_terms": 5, "max_terms": 5})
    longer, usual = (domain.tasks(split, 1, 0)[0].instruction for split in ("ood", "in_domain"))
    assert sum(sign in "+-" for sign in longer) > sum(sign in "+-" for sign in usual)
    with pytest.raises(DomainError, match=r"domain\.options\.ood"):
        ReasoningGymDomain(**SUMS).tasks("ood", 1, 0)


@pytest.mark.parametrize("dataset", sorted(DATASETS))
def test_every_dataset_gives_questions_and_takes_its_own_answers(dataset: str) -> None:
    if dataset == "composite":
        with pytest.raises(DomainError, match="Must specify at least one dataset"):
            ReasoningGymDomain(dataset=dataset)
        return
    domain = ReasoningGymDomain(dataset=dataset)
    [task] = domain.tasks("in_domain", 1, 0)
    right = domain.expert(task, ())
    assert (right is None) == (dataset in WITHOUT_ANSWERS)
    environment = domain.environment()
    environment.reset(task)
    assert environment.step(right or "> I do not know").outcome == (1 if right else -1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "chain"}, "no dataset 'chain': use one of its 1.*chain_sum"),
        ({"config": {"depth": 3}}, "unexpected keyword argument 'depth'"),
        ({"config": {"min_terms": 0}}, "min_terms must be positive"),
        ({"config": {"seed": 3}}, "config names seed, which tasks choose"),
        ({"win_at": "all"}, "win_at compares with 'all'"),
        ({"answers": [1, 2]}, "quote numbers"),
        ({"ood": {"size": 3}}, "config names size"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DomainError, match=said) as error:
        ReasoningGymDomain(**{**SUMS, **changes})
    assert "\n" not in str(error.value)


def test_a_score_out_of_range_loses_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = ReasoningGymDomain(**SUMS)
    [task] = domain.tasks("train", 1, 0)
    for score, said in ((float("nan"), "finite"), (2.0, r"outside of \[0, 1\]")):
        monkeypatch.setattr(domain, "score", lambda task, answer, score=score: score)
        environment = domain.environment()
        environment.reset(task)
        with pytest.raises(EpisodeError, match=said) as error:
            environment.step("so > 1")
        assert error.value.lost


def test_a_dataset_that_fails_at_an_answer_is_no_end_of_the_run() -> None:
    domain = ReasoningGymDomain(**SUMS)
    broken = Task("t", "?", data={"seed": -1, "ood": False})
    steps = play(domain, domain.tasks("train", 1, 0)[0], ["> 1"])
    assert domain.oracle(broken, steps) in ([1], [-1])


def test_the_recipe_of_reasoning_gym_trains(tmp_path: Path) -> None:
    run = trained("reasoning-gym", tmp_path / "run")
    assert (run.steps, run.failures) == (4, 0)
    assert run.recipe_lines <= 12
