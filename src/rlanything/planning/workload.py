"""The workload of each role in an iteration, by averages: what it generates and learns from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlanything.config.recipe import Recipe
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.planning.assumptions import Assumptions
from rlanything.planning.quantities import Quantity, brief
from rlanything.planning.training import Conversations, TrainingWorkload, leaves, training_workload


@dataclass(frozen=True, slots=True)
class RoleWorkload:
    """A role and its work in an iteration. Counts are of answers, lengths in tokens."""

    name: str
    role: RoleConfig
    answers: float
    about: str
    """A description of the answers."""
    answer_tokens: float
    prompt_tokens: float
    """Prompts of all answers, as if nothing were reused."""
    prefilled_tokens: float
    """The new tokens in them: the embedded engine computes no more."""
    conversations: float
    longest_tokens: float
    """The longest conversation, with its last answers."""
    answers_per_prompt: int
    calls: float
    """Calls of the engine, one step after the other."""
    learned: TrainingWorkload | None = None
    """None for a role that does not train."""

    @property
    def sampled_tokens(self) -> float:
        return self.answers * self.answer_tokens

    @property
    def context_tokens(self) -> float:
        """Mean tokens that a new one sees."""
        return self.prompt_tokens / max(self.answers, 1) + self.answer_tokens / 2

    def quantities(self) -> Iterator[Quantity]:
        """Yields the lines of a plan: the tokens that the role reads, samples and learns from."""
        name, saved = self.name, self.prompt_tokens / max(self.prefilled_tokens, 1)
        yield Quantity(f"{name}: answers", self.answers, "", self.about)
        yield Quantity(f"{name}: prompts", self.prompt_tokens, "tokens", "of every answer")
        if not self.role.remote:
            how = f"what is new in the prompts: 1 in {saved:.1f}"
            yield Quantity(f"{name}: prefilled", self.prefilled_tokens, "tokens", how)
        how = f"{self.answers:,.0f} answers x {brief(self.answer_tokens)}"
        yield Quantity(f"{name}: sampled", self.sampled_tokens, "tokens", how)
        if learned := self.learned:
            saved = learned.sample_tokens / max(learned.computed_tokens, 1)
            how = f"prompts and answers of {learned.samples:,} samples"
            yield Quantity(f"{name}: sample tokens", learned.sample_tokens, "tokens", how)
            how = f"in {learned.passes} passes of at most {learned.largest:,}, {learned.updates} "
            how += f"updates: 1 in {saved:.1f}"
            yield Quantity(f"{name}: computed", learned.computed_tokens, "tokens", how)


def task_count(recipe: Recipe, assumed: Assumptions) -> int:
    """Returns the tasks that are rolled out in an iteration, pending candidates included."""
    return round(recipe.loop.tasks_per_iteration * (1 + assumed.candidates))


def workloads(recipe: Recipe, assumed: Assumptions, writes_tests: bool) -> list[RoleWorkload]:
    """Returns the roles in the order in which they generate; no judge where the oracle judges.

    `writes_tests`: whether the judge writes tests for a task instead of scores for its steps."""
    roles = [_policy(recipe, assumed)]
    if recipe.judge.name == "llm":
        roles.append(_judge(recipe, assumed, writes_tests))
    return [*roles, _adapter(recipe, assumed)]


def policy_conversations(recipe: Recipe, assumed: Assumptions) -> Conversations:
    """Returns the episodes of one task, as the policy reads them."""
    return Conversations(
        count=recipe.loop.rollouts_per_task,
        steps=assumed.episode_steps,
        opening=assumed.opening_tokens,
        first=assumed.opening_tokens,
        grown=assumed.turn_tokens + assumed.response_tokens,
        question=assumed.question_tokens,
        answer=assumed.response_tokens,
        answers_continue=assumed.question_tokens == 0,
    )


def judge_conversations(recipe: Recipe, assumed: Assumptions, writes_tests: bool) -> Conversations:
    """Returns the episodes of one task, as the judge reads them; one prompt for tests."""
    grown = 0.0 if writes_tests else assumed.response_tokens + assumed.judge_turn_tokens
    return Conversations(
        count=1 if writes_tests else recipe.loop.rollouts_per_task,
        steps=1 if writes_tests else assumed.episode_steps,
        opening=assumed.judge_opening_tokens,
        first=assumed.judge_opening_tokens + grown,
        grown=grown,
        question=0.0 if writes_tests else assumed.judge_question_tokens,
        answer=assumed.judgement_tokens,
        samples=recipe.judge.samples_per_step,
    )


def _policy(recipe: Recipe, assumed: Assumptions) -> RoleWorkload:
    talk, tasks = policy_conversations(recipe, assumed), task_count(recipe, assumed)
    trained = round(tasks * assumed.policy_trained)
    learned = _learning(talk, trained, recipe.policy, recipe.loop.max_steps)
    return _conversing("policy", recipe, talk, tasks, "one a step", learned)


def _judge(recipe: Recipe, assumed: Assumptions, writes_tests: bool) -> RoleWorkload:
    judge, tasks = recipe.judge, task_count(recipe, assumed)
    talk = judge_conversations(recipe, assumed, writes_tests)
    about = f"{talk.samples} judgements a step"
    if writes_tests:
        about = f"tests: {tasks} tasks x {talk.samples}, shared by the rollouts of each"
    trained = round(tasks * assumed.judge_trained)
    learned = _learning(talk, trained, judge, recipe.loop.max_steps) if judge.trains else None
    return _conversing("judge", recipe, talk, tasks, about, learned)


def _learning(
    talk: Conversations, tasks: int, role: TrainedRoleConfig, max_steps: int
) -> TrainingWorkload:
    """Returns the tokens of mean episodes, and passes as large as the longest need."""
    mean = training_workload(leaves(talk), tasks, role)
    steps = talk.steps if talk.grown == 0 else max_steps
    longest = training_workload(leaves(replace(talk, steps=steps)), 1, role)
    return replace(
        mean,
        largest=max(mean.largest, longest.largest),
        most_samples=max(mean.most_samples, longest.most_samples),
    )


def _conversing(
    name: str,
    recipe: Recipe,
    talk: Conversations,
    tasks: int,
    about: str,
    learned: TrainingWorkload | None,
) -> RoleWorkload:
    answers = tasks * talk.count * talk.steps * talk.samples
    # A task's conversations begin with the same tokens; where all of the first prompt is the same,
    # so is its question.
    same = talk.first == talk.opening
    own = 0.0 if same else talk.first - talk.opening + talk.question
    once = talk.opening + (talk.question if same else 0.0)
    # A response is cached but for its last token, unless the next prompt leaves it out.
    new = talk.grown - talk.answer + 1 if talk.answers_continue else talk.grown + talk.question
    longest = 1 if talk.grown == 0 else recipe.loop.max_steps
    return RoleWorkload(
        name=name,
        role=getattr(recipe, name),
        answers=answers,
        about=about,
        answer_tokens=talk.answer,
        prompt_tokens=answers * talk.prompt((talk.steps - 1) / 2),
        prefilled_tokens=tasks * (once + talk.count * (own + (talk.steps - 1) * new)),
        conversations=tasks * talk.count,
        # The answers to a prompt lie behind it, side by side.
        longest_tokens=talk.prompt(longest - 1) + talk.samples * talk.answer,
        answers_per_prompt=talk.samples,
        calls=talk.steps,
        learned=learned,
    )


def _adapter(recipe: Recipe, assumed: Assumptions) -> RoleWorkload:
    """Returns the adapter's work: critics of failed rollouts, then proposals that quote them,
    several tries from one prompt."""
    asked = task_count(recipe, assumed) * assumed.rewritten_tasks * recipe.curriculum.adapt_tasks
    critics, tries = recipe.adapter.critics_per_task, recipe.adapter.tries
    prompt, answer = assumed.adapter_prompt_tokens, assumed.adapter_tokens
    proposal = prompt + critics * answer
    return RoleWorkload(
        name="adapter",
        role=recipe.adapter,
        answers=asked * (critics + tries),
        about=f"{asked:.3g} tasks x ({critics} critics + {tries} tries)",
        answer_tokens=answer,
        prompt_tokens=asked * (critics * prompt + tries * proposal),
        prefilled_tokens=asked * (critics * prompt + proposal),
        conversations=asked * (critics + 1),
        longest_tokens=proposal + tries * answer,
        answers_per_prompt=tries,
        calls=2,
    )
