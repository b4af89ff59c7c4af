"""Coding as the loop meets it: programs win, tests score them, rewrites are held to both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlanything.domains.base import (
    DomainError,
    InvalidTask,
    ProgramDomain,
    StepResult,
    UnitTestDomain,
)
from rlanything.domains.coding import families
from rlanything.domains.coding.domain import Coding
from rlanything.domains.coding.problem import Example, Problem
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool

DOUBLE = Problem(
    "Read a number and print its double.",
    (Example("2\n", "4"), Example("-3\n", "-6"), Example("0\n", "0"), Example("10\n", "20")),
)
TASK = Task("double", DOUBLE.question, "", DOUBLE.to_data())
RIGHT, HALF, WRONG = "print(int(input()) * 2)", "print(abs(int(input()) * 2))", "print(7)"


def fenced(program: str) -> str:
    return f"Let me think.\n```python\n{program}\n```"


def written_test(given: str, expected: str) -> str:
    return f"So.\n```input\n{given}\n```\n```output\n{expected}\n```"


@pytest.fixture(scope="module")
def domain() -> Iterator[Coding]:
    made = Coding()
    yield made
    made.executor.close()


def rollout(domain: Coding, task: Task, response: str, name: str = "t") -> Trajectory:
    environment = domain.environment()
    seen = environment.reset(task)
    result = environment.step(response)
    assert result.outcome is not None
    step = Step(
        seen.text,
        Completion.unsampled(response),
        result.action,
        result.valid,
        result.observation.text,
    )
    return Trajectory(name, task, (step,), result.outcome, result.reward)


@pytest.mark.parametrize(
    ("response", "outcome", "reward", "said"),
    [
        (fenced(RIGHT), 1, 1.0, "4 of 4 tests passed."),
        (fenced(HALF), -1, 0.75, "3 of 4 tests passed. First failure: wrong on input '-3'."),
        (fenced("print("), -1, 0.0, "First failure: error"),
        ("print(4)", -1, 0.0, "no fenced Python program"),
    ],
)
def test_a_program_wins_if_it_passes_every_test(
    domain: Coding, response: str, outcome: int, reward: float, said: str
) -> None:
    trajectory = rollout(domain, TASK, response)
    assert (trajectory.outcome, trajectory.reward) == (outcome, reward)
    assert said in trajectory.steps[0].next_observation


def test_a_package_can_be_imported_where_the_recipe_names_it(domain: Coding) -> None:
    program = fenced("import numpy\nprint(int(numpy.array([int(input())]).sum()) * 2)")
    assert rollout(domain, TASK, program).outcome == -1
    # As a recipe gives it: in the workers that play the episodes.
    with EnvironmentPool("coding", {"imports": ["numpy"]}, 1, 60.0) as pool:
        pool.reset([TASK])
        result = pool.step({0: program})[0]
    assert isinstance(result, StepResult)
    assert (result.outcome, result.reward) == (1, 1.0)


@pytest.mark.parametrize("split", ["train", "tune", "in_domain", "ood"])
def test_the_reference_wins_every_embedded_problem(domain: Coding, split: str) -> None:
    tasks = domain.tasks(split, 40, 3)
    assert tasks == domain.tasks(split, 40, 3)
    assert tasks != domain.tasks(split, 40, 4)
    assert len({task.id for task in tasks}) == 40
    names = families.ood if split == "ood" else families.train
    assert {task.kind for task in tasks} == set(names)
    for task in tasks:
        response = domain.expert(task, ())
        assert response is not None
        assert rollout(domain, task, response).outcome == 1


def test_a_task_survives_json(domain: Coding) -> None:
    for task in domain.tasks("train", 30, 0):
        data = json.loads(json.dumps(task.data))
        assert Problem.from_data(data) == Problem.from_data(task.data)


def test_what_programs_print_on_generated_tests_is_shown_and_repaired(domain: Coding) -> None:
    assert isinstance(domain, ProgramDomain)
    tests = [written_test("5", "10"), "no test at all", written_test("x", "3")]
    printed = domain.test_outputs(TASK, [fenced(RIGHT), "no program", fenced("print( 7 )")], tests)
    assert printed[0][:2] == ["10", ""]
    assert printed[0][2].startswith("("), "it crashes there, and prints nothing that could be equal"
    assert printed[1:] == [["(no program)", "", "(no program)"], ["7", "", "7"]]
    [asked] = domain.repair_prompt(TASK, fenced(WRONG), tests[0], "4")
    shown = ("```input\n5\n```", "```output\n10\n```", "gave: 4")
    for part in (TASK.instruction, WRONG, *shown):
        assert part in asked.content


def test_generated_tests_score_programs(domain: Coding) -> None:
    assert isinstance(domain, UnitTestDomain)
    tests = [
        written_test("5", "10"),
        written_test("-1", "-2"),
        "no test at all",
        written_test("1", "3"),
    ]
    responses = [fenced(RIGHT), fenced(HALF), "no program", fenced(WRONG)]
    assert domain.run_tests(TASK, responses, tests) == [
        [1, 1, 0, -1],
        [1, -1, 0, -1],
        [-1, -1, 0, -1],
        [-1, -1, 0, -1],
    ]


def test_prompts_say_what_is_asked_and_nothing_of_the_answer(domain: Coding) -> None:
    [policy] = domain.policy_prompt(TASK, (), DOUBLE.question)
    [judge] = domain.judge_prompt(TASK, ())
    [adapter] = domain.adapter_prompt(TASK, "harder", ("It loops.",))
    for message in (policy, judge, adapter):
        assert DOUBLE.question in message.content
    for message in (policy, judge):
        assert "20" not in message.content
    assert "harder" in adapter.content
    assert "It loops." in adapter.content
    tau = rollout(domain, TASK, fenced(HALF))
    judgements = tuple(
        Judgement(Completion.unsampled(written_test(given, "9")), score)
        for given, score in (("1", 1), ("8", -1))
    )
    [critic] = domain.critic_prompt(JudgedTrajectory(tau, (judgements,)), [])
    assert HALF in critic.content
    assert "3 of 4 tests passed" in critic.content
    assert "```input\n8\n```" in critic.content
    assert "```input\n1\n```" not in critic.content


def rewrite(question: str, pairs: list[tuple[str, str]]) -> str:
    tests = [{"input": given, "output": expected} for given, expected in pairs]
    return f"```json\n{json.dumps({'question': question, 'tests': tests})}\n```"


TRIPLE = [("1\n", "3"), ("2\n", "6"), ("-1\n", "-3"), ("0\n", "0")]


def test_a_rewritten_problem_is_a_task_that_can_be_played(domain: Coding) -> None:
    answer = rewrite("Read a number and print three times it.", TRIPLE)
    task = domain.parse_candidate(TASK, "double@1", answer)
    assert task.id == "double@1"
    assert rollout(domain, task, fenced("print(int(input()) * 3)")).outcome == 1
    with pytest.raises(InvalidTask):
        domain.parse_candidate(TASK, "double@1", rewrite(DOUBLE.question, TRIPLE))


@pytest.mark.parametrize(
    ("programs", "objection"),
    [
        (["print(int(input()) * 3)"] * 2 + [WRONG], None),
        ([RIGHT, RIGHT, "print(int(input()) * 3)"], "test 1 expects '3', but 2 of 3"),
        (["print(int(input()) * 3)", RIGHT, WRONG], "no 2 solutions print the same"),
        (["import time; print(time.time_ns())"] * 3, "changes from run to run"),
        ([], "no 2 solutions print the same"),
    ],
)
def test_solutions_that_do_not_agree_with_the_tests_object_to_a_rewritten_problem(
    domain: Coding, programs: list[str], objection: str | None
) -> None:
    answer = rewrite("Read a number and print three times it.", TRIPLE)
    task = domain.parse_candidate(TASK, "double@1", answer)
    found = domain.objection(task, [rollout(domain, task, fenced(each)) for each in programs])
    assert (found is None) if objection is None else objection in (found or "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"difficulty": [0, 3]}, "difficulty"),
        ({"difficulty": "13"}, "difficulty"),
        ({"tests": 0}, "tests is 0"),
        ({"memory_mb": True}, "memory_mb is True"),
    ],
)
def test_options_without_meaning_are_refused(options: dict, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        Coding(**options)


def test_problems_from_files_drop_in(tmp_path: Path) -> None:
    entry = {
        "question": DOUBLE.question,
        "test_input": [test.input for test in DOUBLE.tests],
        "test_output": [test.output for test in DOUBLE.tests],
        "test_time_limit": 1,
        "test_method": "stdio",
    }
    path = tmp_path / "problems.json"
    path.write_text(json.dumps([entry]))
    domain = Coding(data={"train": str(path)}, tests=2)
    [task] = domain.tasks("train", 5, 0)
    assert len(Problem.from_data(task.data).tests) == 2
    assert rollout(domain, task, fenced(RIGHT)).outcome == 1
    assert domain.expert(task, ()) is None
    domain.executor.close()
    with pytest.raises(DomainError, match=r"'ood'.*train, humaneval"):
        domain.tasks("ood", 5, 0)
