"""Coding as the loop meets it: programs win, tests score them, rewrites are held to both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.coding_episodes import fenced, rollout, written_test
from rlanything.domains.base import (
    DomainError,
    InvalidTask,
    RewriteRequest,
    StepResult,
)
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything_coding import families
from rlanything_coding.domain import Coding
from rlanything_coding.problem import Example, Problem
from rlanything_coding.sandbox.base import SandboxUnavailable

DOUBLE = Problem(
    "Read a number and print its double.",
    (Example("2\n", "4"), Example("-3\n", "-6"), Example("0\n", "0"), Example("10\n", "20")),
)
TASK = Task("double", DOUBLE.question, "", DOUBLE.to_data())
RIGHT, HALF, WRONG = "print(int(input()) * 2)", "print(abs(int(input()) * 2))", "print(7)"


@pytest.fixture(scope="module")
def domain() -> Iterator[Coding]:
    made = Coding()
    yield made
    made.executor.close()


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
    assert domain.capabilities.repairs_programs
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
    assert domain.capabilities.judge == "tests"
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
    [adapter] = domain.adapter_prompt(RewriteRequest.of(TASK, "harder", ("It loops.",)))
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
    # A judge of one's own says why, and writes no test.
    reason = Judgement(Completion.unsampled("too long"), -1)
    [critic] = domain.critic_prompt(JudgedTrajectory(tau, ((reason,),)), [])
    assert "3 of 4 tests passed" in critic.content
    assert "too long" not in critic.content


def judged(trajectory: Trajectory, tests: list[str], scores: list[int]) -> JudgedTrajectory:
    row = zip(tests, scores, strict=True)
    return JudgedTrajectory(
        trajectory, (tuple(Judgement(Completion.unsampled(text), score) for text, score in row),)
    )


def rollouts(domain: Coding, task: Task, programs: list[str]) -> list[JudgedTrajectory]:
    """Programs on two generated tests of the same words, one wrong and one unreadable."""
    tests = [written_test("5", "10"), written_test("5", "10"), written_test("1", "3"), "none"]
    responses = [fenced(program) for program in programs]
    table = domain.run_tests(task, responses, tests)
    return [
        judged(rollout(domain, task, response), tests, scores)
        for response, scores in zip(responses, table, strict=True)
    ]


def test_the_adapter_reads_pass_rates_of_every_test_in_both_directions() -> None:
    domain = Coding(style="paper")
    [easier] = domain.adapter_prompt(
        RewriteRequest.of(TASK, "easier", (), rollouts(domain, TASK, [RIGHT, HALF, WRONG, HALF]))
    )
    [harder] = domain.adapter_prompt(
        RewriteRequest.of(TASK, "harder", (), rollouts(domain, TASK, [RIGHT] * 2))
    )
    domain.executor.close()
    for line in (
        "1 of 4 programs pass every test (accuracy 0.25); a program passes 62% of them on average",
        '{"input": "2", "output": "4", "passed_by": 0.75}',
        '{"input": "-3", "output": "-6", "passed_by": 0.25}',
        '{"input": "5", "output": "10", "passed_by": 0.75}',
        '{"input": "1", "output": "3", "passed_by": 0.0}',
        "(1 more could not be read)",
        "It is the original.",
    ):
        assert line in easier.content
    assert easier.content.count('"input": "5"') == 1
    assert "2 of 2 programs pass every test (accuracy 1.00)" in harder.content
    assert '{"input": "-3", "output": "-6", "passed_by": 1.0}' in harder.content
    assert '{"input": "1", "output": "3", "passed_by": 0.0}' in harder.content


def test_the_adapter_reads_the_active_task_beside_the_root() -> None:
    domain = Coding(style="paper")
    answer = rewrite("Read a number and print three times it.", TRIPLE)
    active = domain.parse_candidate(TASK, "double@1", answer)
    [prompt] = domain.adapter_prompt(
        RewriteRequest.of(TASK, "easier", (), rollouts(domain, active, [RIGHT]))
    )
    domain.executor.close()
    assert DOUBLE.question in prompt.content
    assert active.instruction in prompt.content
    assert '{"input": "1", "output": "3", "passed_by": 0.0}' in prompt.content
    assert "It is the original." not in prompt.content


def test_the_adapter_is_told_what_is_not_known() -> None:
    domain = Coding(style="paper")
    [without] = domain.adapter_prompt(RewriteRequest.of(TASK, "easier", ()))
    assert "How the model's programs did on it: nothing is known." in without.content
    assert '{"input": "2", "output": "4"}' in without.content
    # A response that broke its episode: no test is said to have passed or failed.
    step = Step("q", Completion.unsampled(fenced(HALF)), None, False, "The environment failed.")
    lost = JudgedTrajectory(Trajectory("t", TASK, (step,), -1), ((),))
    [broken] = domain.adapter_prompt(RewriteRequest.of(TASK, "easier", (), [lost]))
    assert '{"input": "2", "output": "4"}' in broken.content
    assert "0 of 1 programs" in broken.content


def test_the_adapter_reads_the_beginning_of_a_long_test() -> None:
    long = Problem(DOUBLE.question, (Example("7" * 500, "\n".join("ab" * 300)),))
    task = Task("long", long.question, "", long.to_data())
    [prompt] = Coding(style="paper").adapter_prompt(RewriteRequest.of(task, "harder", ()))
    assert f'{{"input": "{"7" * 100}...", "output": "' in prompt.content


@pytest.mark.parametrize("style", ["paper", "rlanything-release"])
def test_every_failed_test_is_numbered_where_the_adapter_reads_pass_rates(style: str) -> None:
    domain = Coding(style=style)
    said = rollout(domain, TASK, fenced(HALF)).steps[0].next_observation
    domain.executor.close()
    assert said.startswith("3 of 4 tests passed. Failed: 2. First failure: wrong on input '-3'")


def test_a_template_of_the_users_replaces_that_of_any_style(tmp_path: Path) -> None:
    (tmp_path / "judge.txt").write_text("Test this: $question")
    (tmp_path / "adapter.txt").write_text("$direction, $accuracy")
    domain = Coding(style="paper", prompts=str(tmp_path))
    assert domain.judge_prompt(TASK, ())[0].content == f"Test this: {DOUBLE.question}"
    assert (
        domain.adapter_prompt(RewriteRequest.of(TASK, "easier", ()))[0].content
        == "easier, nothing is known"
    )
    # What neither the user nor the style has is that of every style.
    [policy], [shipped] = (each.policy_prompt(TASK, (), "Q") for each in (domain, Coding()))
    assert policy == shipped


NANO_ADAPTER = """\
Rewrite a programming problem to make it harder. Keep its topic. Programs read from standard input \
and print to standard output, and for every input there is exactly one right output.

Problem:
Read a number and print its double.

Example tests:
```input
2
```
```output
4
```
```input
-3
```
```output
-6
```

What went wrong so far: nothing is known

Answer with one fenced block that begins with ```json and holds {"question": "...", "tests": \
[{"input": "...", "output": "..."}, ...]} with at least 4 different tests. Each output must be \
exactly what a correct program prints."""


def test_the_nano_models_read_what_they_were_taught_to_read(domain: Coding) -> None:
    [prompt] = domain.adapter_prompt(
        RewriteRequest.of(TASK, "harder", (), rollouts(domain, TASK, [RIGHT]))
    )
    assert prompt.content == NANO_ADAPTER


def test_released_test_writers_are_asked_and_read_in_their_own_format() -> None:
    domain = Coding(style="rlanything-release")
    [asked] = domain.judge_prompt(TASK, ())
    assert "**Test Input:**" in asked.content
    assert "**Test Output:**" in asked.content
    tests = ["**Test Input:**\n```-1```\n\n**Test Output:**\n```-2```", written_test("1", "2")]
    table = domain.run_tests(TASK, [fenced(RIGHT), fenced(HALF)], tests)
    domain.executor.close()
    assert table == [[1, 0], [-1, 0]]
    assert "**Test Input:**" not in Coding(style="paper").judge_prompt(TASK, ())[0].content


def test_programs_that_contradict_the_tests_matter_only_where_the_recipe_says() -> None:
    task = Task("wrong", DOUBLE.question, "", DOUBLE.to_data())
    domain = Coding(programs_agree=False)
    programs = [rollout(domain, task, fenced(WRONG)) for _ in range(3)]
    assert domain.objection(task, programs) is None
    assert "solutions print '7'" in (Coding().objection(task, programs) or "")
    domain.executor.close()


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


def test_a_sandbox_that_falls_silent_ends_no_run(
    domain: Coding, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise SandboxUnavailable("it does not answer")

    monkeypatch.setattr(domain.executor, "run_all", silent)
    task = domain.parse_candidate(TASK, "double@1", rewrite("Print three times it.", TRIPLE))
    objection = domain.objection(task, [rollout(Coding(), task, fenced(RIGHT))])
    assert objection == "its tests could not be run: it does not answer"
    with pytest.warns(UserWarning, match="were not run: it does not answer"):
        assert domain.run_tests(TASK, [fenced(RIGHT)], [written_test("1\n", "2")]) == [[0]]


@pytest.mark.parametrize(
    ("programs", "objection"),
    [
        (["print(int(input()) * 3)"] * 2 + [WRONG], None),
        ([RIGHT, RIGHT, "print(int(input()) * 3)"], "test 1 expects '3', but 2 of 3"),
        (["print(int(input()) * 3)", RIGHT, WRONG], "no 2 solutions print the same"),
        (["print(int(input()) * 3)"] * 2 + [RIGHT] * 2, "test 1 expects '3', but 2 of 4"),
        ([RIGHT] * 2 + ["print(int(input()) * 3)"] * 2, "test 1 expects '3', but 2 of 4"),
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
        ({"tests": 0}, r"tests: input should be greater than or equal to 1 \(got 0\)"),
        ({"memory_mb": True}, r"memory_mb: input should be a valid integer \(got True\)"),
        ({"rewritten_tests": "4"}, r"rewritten_tests: input should be a valid integer \(got '4'\)"),
        (
            {"rewritten_tests": 100},
            r"rewritten_tests: input should be less than or equal to 64 \(got 100\)",
        ),
        ({"imports": "numpy"}, r"imports: write a list, as \[numpy\]"),
        ({"imports": ["this.x"]}, "imports: 'this.x': name the package itself, as numpy"),
        ({"imports": ["numpy"], "sandbox": "http://there"}, "imports: a remote sandbox has"),
        ({"programs_agree": "no"}, r"programs_agree: input should be a valid boolean \(got 'no'\)"),
        (
            {"style": "papers"},
            r"style: input should be 'nano', 'paper' or 'rlanything-release'.*papers",
        ),
    ],
)
def test_options_without_meaning_are_refused(options: dict, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        Coding(**options)


def test_a_generated_test_says_nothing_of_a_function(domain: Coding) -> None:
    function = Problem("Double n.", (), 3.0, check="check(f)\n", entry_point="f")
    task = Task("f", function.question, "function", function.to_data())
    tests = [written_test("2\n", "4")]
    assert domain.run_tests(task, [fenced(RIGHT), "no program"], tests) == [[], []]


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
