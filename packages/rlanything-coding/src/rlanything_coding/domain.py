"""The coding domain: episodes of one step, and a judge that writes tests."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlanything.domains.base import (
    Capabilities,
    Domain,
    DomainError,
    DomainOptions,
    File,
    Finding,
    RewriteRequest,
    Use,
)
from rlanything.domains.templates import Templates
from rlanything.records import (
    JudgedTrajectory,
    Judgement,
    Message,
    Messages,
    Step,
    Task,
    Trajectory,
)
from rlanything.seeds import dealt, derive
from rlanything.terminal import warn_of_damage
from rlanything_coding import families
from rlanything_coding.answers import (
    InvalidTest,
    program_in,
    unit_test_in,
    unit_test_under_headings,
)
from rlanything_coding.checking import disagreement, run_table, score, shown
from rlanything_coding.dataset import sample_problems
from rlanything_coding.environment import CodingEnvironment
from rlanything_coding.humaneval import humaneval_problems
from rlanything_coding.pass_rates import accuracy, generated_tests, ground_truth_tests
from rlanything_coding.problem import Example, Problem
from rlanything_coding.rewriting import MOST_TESTS, rewritten
from rlanything_coding.sandbox.base import (
    MOST,
    Executor,
    Job,
    RunResult,
    SandboxUnavailable,
    Verdict,
)
from rlanything_coding.sandbox.local import LocalExecutor
from rlanything_coding.sandbox.remote import RemoteExecutor

if TYPE_CHECKING:
    from rlanything_nano.teaching import UnitTestTeacher

EMBEDDED = {"train": families.train, "tune": families.train, "in_domain": families.train} | {
    "ood": families.ood
}
HUMANEVAL = "humaneval"
SHOWN_EXAMPLES = 2
"""Number of tests of the root problem that the adapter reads."""
SHOWN_TESTS = 2
"""Number of generated tests shown to the critic of a program that fails them."""
SHOWN_CHARACTERS = 1000
"""Characters of a program's output that the policy sees when it repairs the program."""
NO_PROGRAM = "(no program)"
"""Stands for the output of a response without a program."""

PLACEHOLDERS: dict[str, frozenset[str]] = {
    "policy": frozenset({"question"}),
    "function": frozenset({"question"}),
    "judge": frozenset({"question"}),
    "repair": frozenset({"question", "response", "test", "output"}),
    "judge_headings": frozenset({"question"}),
    "critic": frozenset({"question", "response", "summary", "tests"}),
    "critic_test": frozenset({"test"}),
    "adapter": frozenset({"direction", "question", "examples", "critics", "least"})
    | {"active", "accuracy", "tests", "generated"},
}


class Coding(Domain):
    """Programming problems whose judge writes unit tests; the split `humaneval` is always there."""

    class Options(DomainOptions):
        data: Mapping[str, str] | None = None
        """Files with problems by split, in the paper's format; None: problems of the embedded
        families."""
        difficulty: Sequence[int] = (1, 3)
        """Lowest and highest level of embedded problems."""
        tests: Annotated[int, Field(ge=1)] = 8
        """Number of ground-truth tests of each problem (for problems from a file, the most)."""
        memory_mb: Annotated[int, Field(ge=1, le=MOST["memory_mb"])] = 1024
        """Memory limit of a program."""
        imports: Sequence[str] = ()
        """Packages that a program may import, such as numpy."""
        sandbox: str | None = None
        """Address of a SandboxFusion-style server; None: programs run in local boxes."""
        rewritten_tests: Annotated[int, Field(ge=1, le=MOST_TESTS)] = 4
        """Fewest tests of a rewritten problem."""
        programs_agree: bool = True
        """Whether a rewrite is also rejected if programs contradict its tests (see `objection`);
        the paper checks only the accuracy."""
        style: Literal["nano", "paper", "rlanything-release"] = "nano"
        """Prompts: `nano` for short ones; `paper` for the paper's content, such as the pass rate of
        every test; `rlanything-release` for those of `paper` with the judge format of the
        checkpoints released with the paper."""
        prompts: File | None = None
        """Folder whose .txt files replace the shipped prompts."""

    action_marker = "```python"

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = self.Options.read(options)
        if chosen.imports and chosen.sandbox is not None:
            raise DomainError("imports: a remote sandbox has its own packages; leave it out")
        for name in chosen.imports:
            if not name.isidentifier():  # finding `a.b` would run `a` outside the box
                raise DomainError(f"imports: {name!r:.80}: name the package itself, as numpy")
        self._data = chosen.data
        self._difficulty = _difficulties(chosen.difficulty)
        self._tests = chosen.tests
        self._memory_mb = chosen.memory_mb
        self._imports = tuple(chosen.imports)
        self._sandbox = chosen.sandbox
        self._rewritten_tests = chosen.rewritten_tests
        self._programs_agree = chosen.programs_agree
        self._style = chosen.style
        self._read_test = unit_test_in
        if self._style == "rlanything-release":
            self._read_test = unit_test_under_headings
        folder = "" if self._style == "nano" else "paper"
        package = "rlanything_coding"
        self._templates = Templates(package, PLACEHOLDERS, chosen.prompts, folder)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, judge="tests", repairs_programs=True)

    @staticmethod
    def checks() -> list[Finding]:
        """Runs a trial program in the sandbox, which only this domain needs."""
        try:
            with LocalExecutor(1) as executor:
                result = executor.run(Job("print(6 * 7)", expected="42"))
        except SandboxUnavailable as error:
            return [Finding("sandbox", "missing", f"not available: {error}")]
        if result.verdict is not Verdict.OK:
            return [Finding("sandbox", "error", f"a trial program failed: {result.line()}")]
        return [Finding("sandbox", "ok", "runs model-written programs in bubblewrap")]

    @staticmethod
    def prepare(
        source: Path, folder: Path, use: Use | None, on_bytes: Callable[[int], None]
    ) -> list[str]:
        """Writes problem files from published ones, such as the paper's (see `preparation`)."""
        from rlanything_coding.preparation import prepare

        return prepare(source, folder, use, on_bytes)

    @functools.cached_property
    def executor(self) -> Executor:
        """The executor that runs programs. Raises `SandboxUnavailable` if programs cannot be
        contained."""
        if self._sandbox is not None:
            return RemoteExecutor(self._sandbox)
        return LocalExecutor(imports=self._imports)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        drawn = derive(seed, "coding", split)
        if split == HUMANEVAL:
            problems = list(humaneval_problems().items())
            random.Random(drawn).shuffle(problems)
            return [_task(*each) for each in problems[:count]]
        if self._data is not None:
            if split not in self._data:
                known = ", ".join([*self._data, HUMANEVAL])
                raise DomainError(
                    f"unknown split {split!r}: `data` has {known}; for held-out ones set "
                    "evaluation.splits"
                )
            sampled = sample_problems(self._data[split], count, drawn, self._tests)
            if split == "train" and any(problem.entry_point for _, problem in sampled):
                file = self._data[split]
                raise DomainError(f"{file} has problems about functions: use them in evaluation")
            return [_task(*each) for each in sampled]
        if split not in EMBEDDED:
            known = ", ".join([*EMBEDDED, HUMANEVAL])
            raise DomainError(f"unknown split {split!r}: use one of {known}")
        return self._embedded(split, count, seed, self._difficulty)

    def stand_ins(self, count: int) -> list[Task]:
        """Returns the hardest embedded problems; problems from data files may be longer."""
        hardest = families.DIFFICULTIES[-1]
        return self._embedded("train", count, 0, (hardest, hardest))

    def _embedded(
        self, split: str, count: int, seed: int, difficulty: tuple[int, int]
    ) -> list[Task]:
        rng = random.Random(derive(seed, "coding", split))
        tasks: list[Task] = []
        for number, name in enumerate(dealt(EMBEDDED[split], count, rng)):
            level = rng.randint(*difficulty)
            made = derive(seed, "coding", split, number)
            problem = families.make_problem(name, level, made, self._tests)
            task_id = f"{split}-{name.replace(' ', '-')}-{level}-{made % 2**32}"
            tasks.append(_task(task_id, problem))
        return tasks

    def environment(self) -> CodingEnvironment:
        return CodingEnvironment(lambda: self.executor, self._memory_mb, self._style != "nano")

    @staticmethod
    def nano_teacher() -> UnitTestTeacher:
        from rlanything_coding.teacher import CodingTeacher

        return CodingTeacher()

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        name = "function" if "entry_point" in task.data else "policy"
        return self._ask(name, question=observation)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        name = "judge_headings" if self._style == "rlanything-release" else "judge"
        return self._ask(name, question=task.instruction)

    def critic_prompt(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> Messages:
        [step] = failed.trajectory.steps
        failures = [self._test_in(each) for each in failed.judgements[0] if each.score == -1]
        return self._ask(
            "critic",
            question=failed.trajectory.task.instruction,
            response=step.response,
            summary=step.next_observation,
            tests="".join(
                self._templates.render("critic_test", test=_shown(test))
                for test in [test for test in failures if test is not None][:SHOWN_TESTS]
            ),
        )

    def _test_in(self, judgement: Judgement) -> Example | None:
        """The test in a judgement; None if the judge writes no tests."""
        try:
            return self._read_test(judgement.completion.answer)
        except InvalidTest:
            return None

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        problem, active = map(Problem.from_data, (request.root.data, request.active.data))
        rollouts = request.rollouts
        return self._ask(
            "adapter",
            direction=request.direction,
            question=problem.question,
            examples="\n".join(map(_shown, problem.tests[:SHOWN_EXAMPLES])),
            active="It is the original." if active == problem else active.question,
            accuracy=accuracy(rollouts),
            tests=ground_truth_tests(active, rollouts),
            generated=generated_tests(rollouts, self._read_test),
            critics=" ".join(request.critics) or "nothing is known",
            least=str(self._rewritten_tests),
        )

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        problem = Problem.from_data(root.data)
        return _task(task_id, rewritten(completion, problem, self._rewritten_tests))

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        """Returns how the sampled solutions contradict the tests, which may then be wrong. None if
        they agree, or if `programs_agree` is off."""
        if not self._programs_agree:
            return None
        answers = (program_in(trajectory.steps[0].response) for trajectory in trajectories)
        programs = [program for program in answers if program is not None]
        problem = Problem.from_data(task.data)
        try:
            return disagreement(self.executor, problem, programs, self._memory_mb)
        except SandboxUnavailable as fault:
            return f"its tests could not be run: {fault}"

    def run_tests(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[int]]:
        if "entry_point" in task.data:
            return [[] for _ in responses]  # a stdin/stdout test does not apply to a function
        table = [[0] * len(tests) for _ in responses]
        readable, runs = self._runs(task, responses, tests)
        for row in range(len(responses)):
            # A response without a program passes no test.
            row_scores = [-1] * len(readable)
            if row in runs:
                row_scores = [score(run) for run in runs[row]]
            for column, value in zip(readable, row_scores, strict=True):
                table[row][column] = value
        return table

    def test_outputs(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> list[list[str]]:
        table = [[""] * len(tests) for _ in responses]
        readable, runs = self._runs(task, responses, tests)
        for row in range(len(responses)):
            printed = map(shown, runs[row]) if row in runs else [NO_PROGRAM] * len(readable)
            for column, text in zip(readable, printed, strict=True):
                table[row][column] = text
        return table

    def repair_prompt(self, task: Task, response: str, test: str, output: str) -> Messages:
        return self._ask(
            "repair",
            question=task.instruction,
            response=response,
            test=_shown(self._read_test(test)),
            output=output[:SHOWN_CHARACTERS],
        )

    def _runs(
        self, task: Task, responses: Sequence[str], tests: Sequence[str]
    ) -> tuple[dict[int, Example], dict[int, list[RunResult]]]:
        """Returns the readable tests by column, and the runs of each existing program on them by
        row."""
        problem = Problem.from_data(task.data)
        readable: dict[int, Example] = {}
        for column, text in enumerate(tests):
            try:
                readable[column] = self._read_test(text)
            except InvalidTest:
                continue
        if problem.entry_point or not readable:
            return {}, {}
        rows = {
            row: program
            for row, program in enumerate(map(program_in, responses))
            if program is not None
        }
        programs, examples = list(rows.values()), list(readable.values())
        executor = self.executor
        try:
            runs = run_table(executor, problem, programs, examples, self._memory_mb)
        except SandboxUnavailable as fault:  # nothing is known of these tests, and the run goes on
            warn_of_damage(f"{task.id}: its tests were not run: {fault}")
            return {}, {}
        return readable, dict(zip(rows, runs, strict=True))

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the solution of an embedded problem, or None for other problems, whose solution
        is unknown."""
        problem = Problem.from_data(task.data)
        if problem.spec is None:
            return None
        return f"```python\n{families.reference(problem)}\n```"

    def _ask(self, template: str, **values: str) -> Messages:
        return (Message("user", self._templates.render(template, **values).rstrip("\n")),)


def _task(task_id: str, problem: Problem) -> Task:
    kind = problem.family or ("function" if problem.entry_point else "")
    return Task(task_id, problem.question, kind, problem.to_data())


def _difficulties(given: Sequence[int]) -> tuple[int, int]:
    low, high = families.DIFFICULTIES[0], families.DIFFICULTIES[-1]
    if len(given) != 2 or not low <= given[0] <= given[1] <= high:
        raise DomainError(f"difficulty is {given!r}: give [fewest, most] from {low} to {high}")
    return given[0], given[1]


def _shown(test: Example) -> str:
    return f"```input\n{test.input.rstrip()}\n```\n```output\n{test.output}\n```"
