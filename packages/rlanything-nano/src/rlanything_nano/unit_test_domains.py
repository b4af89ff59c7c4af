"""Builds the nano models of a domain whose judge writes tests: teach, measure, save.

The policy learns from solutions, some with typical mistakes. The judge learns from tests, some with
wrong outputs. Both use training problems and drills, which combine the same parts in more ways. The
adapter learns from explained failures and from the families' own harder and easier problems. Each
ends useful but imperfect. They are measured on the `tune` split and on held-out families.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlanything.config.roles import PolicyConfig
from rlanything.domains.base import Domain, DomainError, RewriteRequest
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.evaluation.intervals import wilson
from rlanything.progress import Progress
from rlanything.records import (
    Completion,
    Direction,
    JudgedTrajectory,
    Judgement,
    Messages,
    Sample,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_policy
from rlanything.seeds import derive
from rlanything_nano.making import (
    DIRECTIONS,
    ROLES,
    RoleName,
    Shape,
    measurements,
    merge_groups,
    new_model,
    save_in_bfloat16,
    student,
    teach,
)
from rlanything_nano.measuring import measure_adapter, measure_policy
from rlanything_nano.samples import SampleWriter
from rlanything_nano.sft import Renaming
from rlanything_nano.teaching import UnitTestPlan, UnitTestTeacher
from rlanything_nano.tokenizer import train_tokenizer

TOKENIZED = 3_000
"""Number of problems whose texts train the tokenizer."""


class UnitTestDomainBuilder:
    """A build of the three models of a domain whose judge writes tests."""

    def __init__(
        self,
        plan: UnitTestPlan,
        teacher: UnitTestTeacher,
        out: Path,
        workers: int,
        progress: Progress,
    ) -> None:
        """Raises `DomainError` for a domain whose judge does not write tests."""
        self._plan = plan
        self._teacher = teacher
        self._out = out
        self._progress = progress
        options = {
            "difficulty": list(plan.difficulty),
            "rewritten_tests": plan.rewritten_tests,
        }
        domain = load_domain(plan.domain, options)
        if domain.capabilities.judge != "tests":
            raise DomainError(
                f"domain {plan.domain} has a judge of steps: say judge='tests' in its "
                "capabilities, or let nano_teacher() return a StepTeacher"
            )
        self._domain: Domain = domain
        self._pool = EnvironmentPool(plan.domain, options, workers, 120.0)
        self._shape = Shape(plan.hidden, plan.layers, plan.heads)

    def build(self, roles: Sequence[RoleName] = ROLES) -> dict[str, Any]:
        """Builds the models and returns the measurements. `roles`: roles to build; the others are
        read from the folder unchanged."""
        plan = self._plan
        with (
            measurements(plan, self._out, roles) as measured,
            self._progress.live(),
            self._pool,
        ):
            rng = random.Random(derive(plan.seed, "teacher"))
            tasks = [
                *self._domain.tasks("train", plan.problems, derive(plan.seed, "problems")),
                *self._teacher.drills(plan.problems, plan.difficulty, derive(plan.seed, "drills")),
            ]
            rng.shuffle(tasks)
            solutions = [[self._teacher.solution(task, rng, plan.slip)] for task in tasks]
            tests = [
                [self._teacher.unit_test(task, rng, plan.error) for _ in range(plan.tests)]
                for task in tasks
            ]
            if "policy" in roles:
                tokenizer = train_tokenizer(self._texts(tasks, solutions, tests), plan.vocabulary)
                policy = new_model(self._shape, tokenizer, derive(plan.seed, "policy"))
                writer = SampleWriter(policy, self._domain)
                asked = [self._domain.policy_prompt(t, (), t.instruction) for t in tasks]
                samples = merge_groups(_samples(writer, tasks, asked, solutions), plan.together)
                self._teach(policy, samples, "policy")
                measured["policy"] = self._measure_policy(policy)
            else:
                policy = load_model(self._out / "policy", "float32")
                writer = SampleWriter(policy, self._domain)

            if "judge" in roles:
                judge = student(policy)
                asked = [self._domain.judge_prompt(t, ()) for t in tasks]
                samples = merge_groups(_samples(writer, tasks, asked, tests), plan.together)
                self._teach(judge, samples, "judge")
                measured["judge"] = self._measure_judge(judge)

            if "adapter" in roles:
                adapter = student(policy)
                self._teach(adapter, self._adapter_samples(writer), "adapter")
                measured["adapter"] = self._measure_adapter(adapter)
        return measured

    def _texts(
        self,
        tasks: Sequence[Task],
        solutions: Sequence[Sequence[str]],
        tests: Sequence[Sequence[str]],
    ) -> list[str]:
        """Returns every kind of text that the models will read or write, for the tokenizer."""
        rng = random.Random(self._plan.seed)
        texts: list[str] = []
        for task, *answers in zip(tasks[:TOKENIZED], solutions, tests, strict=False):
            texts += [m.content for m in self._domain.policy_prompt(task, (), task.instruction)]
            texts += [m.content for m in self._domain.judge_prompt(task, ())]
            texts += [text for texts_of_kind in answers for text in texts_of_kind]
        for task in self._domain.tasks("train", TOKENIZED, derive(self._plan.seed, "texts")):
            texts += self._rewrites(task, rng).values()
        return texts

    def _rewrites(self, task: Task, rng: random.Random) -> dict[Direction, str]:
        proposals: dict[Direction, str] = {}
        for direction in DIRECTIONS:
            text = self._teacher.proposal(task, direction, rng, self._plan.rewritten_tests)
            if text is not None:
                proposals[direction] = text
        return proposals

    def _teach(
        self, model: LanguageModel, examples: Sequence[Sequence[Sample]], role: RoleName
    ) -> None:
        plan = self._plan
        teach(
            model,
            examples,
            role,
            epochs=plan.epochs,
            learning_rate=plan.learning_rate,
            seed=derive(plan.seed, "order", role),
            renaming=Renaming([], len(model.tokenizer)),
            progress=self._progress,
        )
        save_in_bfloat16(model, self._out / role)

    def _adapter_samples(self, writer: SampleWriter) -> list[list[Sample]]:
        """Returns explained failures, and harder and easier problems with and without
        explanations."""
        plan = self._plan
        domain = self._domain
        rng = random.Random(derive(plan.seed, "adapter"))
        environment = domain.environment()
        samples: list[list[Sample]] = []
        tasks = domain.tasks("train", plan.adapter_problems, derive(plan.seed, "adapter"))
        with self._progress.phase("failures", len(tasks), "programs") as advance:
            for task in tasks:
                answers: list[Sample] = []
                response = self._teacher.solution(task, rng, 1.0)
                observation = environment.reset(task)
                result = environment.step(response)
                critics: tuple[str, ...] = ()
                if result.outcome == -1:
                    step = Step(
                        observation.text,
                        Completion.unsampled(response),
                        result.action,
                        result.valid,
                        result.observation.text,
                    )
                    text = self._teacher.critic(task, response, result.observation.text)
                    test = self._teacher.unit_test(task, rng, plan.error)
                    failed = JudgedTrajectory(
                        Trajectory(task.id, task, (step,), -1),
                        ((Judgement(Completion.unsampled(test), rng.choice((1, -1))),),),
                    )
                    answers.append(writer.answer(task.id, domain.critic_prompt(failed, ()), text))
                    critics = (text,) * rng.randint(0, 2)
                for direction, text in self._rewrites(task, rng).items():
                    messages = domain.adapter_prompt(RewriteRequest.of(task, direction, critics))
                    answers.append(writer.answer(task.id, messages, text))
                samples.append(answers)
                advance(1)
        return samples

    def _measure_policy(self, policy: LanguageModel) -> dict[str, Any]:
        config = PolicyConfig(max_tokens=160)
        chat_model = LocalChatModel(policy, embedded_engine(policy))
        return measure_policy(
            lambda temperature: build_policy(chat_model, self._domain, config, temperature),
            self._domain,
            self._pool,
            episodes=self._plan.episodes,
            max_steps=1,
            seed=self._plan.seed,
            progress=self._progress,
        )

    def _measure_judge(self, judge: LanguageModel) -> dict[str, Any]:
        """Returns the share of single tests that the reference solution passes, and of unreadable
        ones."""
        measured: dict[str, Any] = {}
        for split in ("tune", "ood"):
            seed = derive(self._plan.seed, "judged")
            tasks = self._domain.tasks(split, self._plan.episodes, seed)
            chat_model = LocalChatModel(judge, embedded_engine(judge))
            requests = [
                ChatRequest(self._domain.judge_prompt(t, ()), (derive(seed, t.id),)) for t in tasks
            ]
            answers = chat_model.answer(requests, Sampling(0.8, 192))
            scores = Counter[int]()
            for task, (answer,) in zip(tasks, answers, strict=True):
                right = self._domain.expert(task, ()) or ""
                [row] = self._domain.run_tests(task, [right], [answer.text])
                scores.update(row)
            right_share = wilson(scores[1], len(tasks))
            measured[f"{split} right tests at temperature 0.8"] = (
                asdict(right_share) if right_share else None
            )
            measured[f"{split} unreadable tests"] = scores[0] / len(tasks)
        self._progress.log(f"judge: {measured}")
        return measured

    def _measure_adapter(self, adapter: LanguageModel) -> dict[str, Any]:
        seed = derive(self._plan.seed, "adapter check")
        return measure_adapter(
            adapter,
            self._domain,
            self._domain.tasks("tune", self._plan.episodes // 2, seed),
            critics=(),
            max_tokens=256,
            seed=self._plan.seed,
            progress=self._progress,
        )


def _samples(
    writer: SampleWriter,
    tasks: Sequence[Task],
    asked: Sequence[Messages],
    answers: Sequence[Sequence[str]],
) -> list[list[Sample]]:
    """Returns every answer to its prompt, with those of a problem in one group."""
    return [
        [writer.answer(task.id, messages, text) for text in texts]
        for task, messages, texts in zip(tasks, asked, answers, strict=True)
    ]
