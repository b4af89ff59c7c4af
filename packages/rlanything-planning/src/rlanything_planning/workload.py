"""Work of each role in an iteration: every task is the same mean task, and the learner's own
functions divide its samples into passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

from rlanything.config.recipe import Recipe
from rlanything.config.roles import (
    AdapterConfig,
    AnyRoleConfig,
    JudgeConfig,
    PolicyConfig,
    TrainedRoleConfig,
)
from rlanything.learning.packing import cut
from rlanything.learning.padding import row_groups
from rlanything_planning.assumptions import Assumptions
from rlanything_planning.screenshots import JUDGED

Answer: TypeAlias = tuple[float, float, float]
"""Tokens of a prompt, tokens of prompt and answer, and length of the prefix shared with the
previous answer, in the order in which packs are sorted."""


class TrainingWorkload(NamedTuple):
    """One iteration's updates in all epochs: samples (their prompt and response tokens), passes
    (packs, or batches of rows with padding), and the largest tokens and samples of a pass."""

    samples: int
    sample_tokens: int
    computed_tokens: int
    passes: int
    updates: int
    largest: int
    most_samples: int

    def turns(self, seats: int) -> int:
        """Returns the largest number of passes on any seat; others pad with dummy passes."""
        return self.updates * ceil(self.passes / self.updates / seats) if self.passes else 0


@dataclass(frozen=True, slots=True)
class RoleWorkload:
    """A role and its work in an iteration: `tasks` equal tasks, each with the same answers in a
    number of conversations, `samples` answers per prompt, and the number of successive engine
    calls. The longest conversation includes its last answers, side by side."""

    name: str
    role: AnyRoleConfig
    tasks: float
    task: list[Answer]
    answer_tokens: float
    conversations: int
    samples: int
    calls: int
    longest_tokens: float
    learned: TrainingWorkload | None = None
    """Updates of the role; None if it does not train."""
    images: float = 0.0
    """Screenshots per prompt."""
    image_tokens: float = 0.0
    """Tokens per screenshot."""

    @property
    def answers(self) -> float:
        return self.tasks * len(self.task)

    @property
    def shown(self) -> float:
        """Screenshots in all prompts, each computed again: with many parallel episodes the cache no
        longer has those that a policy sees again at its next step."""
        return self.answers / self.samples * self.images

    @property
    def sampled_tokens(self) -> float:
        return self.answers * self.answer_tokens

    @property
    def prompt_tokens(self) -> float:
        """Prompt tokens of all answers, without any reuse."""
        return self.tasks * sum(prompt for prompt, _, _ in self.task)

    @property
    def prefilled_tokens(self) -> float:
        """New prompt tokens, which are all that the embedded engine computes. (After an answer, the
        answer's last token is not cached.)"""
        continued = sum(whole == shared for _, whole, shared in self.task)
        return self.tasks * (continued + sum(prompt - shared for prompt, _, shared in self.task))

    @property
    def context_tokens(self) -> float:
        """Mean number of tokens that a new token attends to."""
        return sum(prompt + whole for prompt, whole, _ in self.task) / (2 * len(self.task))


def task_count(recipe: Recipe, assumed: Assumptions) -> int:
    """Returns the number of tasks rolled out in an iteration, including pending candidates."""
    candidates = assumed.candidates * recipe.curriculum.adapt_tasks
    return round(recipe.loop.tasks_per_iteration * (1 + candidates))


def elsewhere(role: AnyRoleConfig) -> str | None:
    """Returns the holder of a role's model that is not in this process; None: it is."""
    if role.remote:
        return "an endpoint"
    learner = role.learner if isinstance(role, TrainedRoleConfig) else None
    return None if learner is None else f"the learner {learner.name}"


def workloads(recipe: Recipe, assumed: Assumptions) -> list[RoleWorkload]:
    """Returns the roles in the order in which they generate; leaves out judges without a language
    model."""
    roles: list[RoleWorkload] = []
    for name, role in recipe.roles.items():
        if isinstance(role, AdapterConfig):
            roles.append(_rewriting(name, role, recipe, assumed))
        elif isinstance(role, PolicyConfig) or (isinstance(role, JudgeConfig) and role.by_model):
            roles.append(_conversing(name, role, recipe, assumed))
    return roles


def _rewriting(
    name: str, role: AdapterConfig, recipe: Recipe, assumed: Assumptions
) -> RoleWorkload:
    """Returns the work of a role that rewrites: critics of failed rollouts, then proposals that
    quote them."""
    own = assumed.roles[name]
    asked = task_count(recipe, assumed) * assumed.rewritten_tasks * recipe.curriculum.adapt_tasks
    prompt, answer = own.prompt_tokens, own.answer_tokens
    tries, critics = role.tries, role.most_critics
    if critics is None:  # upper bound; tasks to be made harder have hardly any
        critics = recipe.loop.rollouts_per_task
    proposal = prompt + critics * answer
    # With two stages, at most one summary per step before the critic.
    asked_once = critics * (1 + (role.critic_stages - 1) * round(assumed.episode_steps))
    task = [(prompt, prompt + answer, 0.0)] * asked_once + [(proposal, proposal + answer, 0.0)]
    task += [(proposal, proposal + answer, proposal)] * (tries - 1)
    return RoleWorkload(
        name,
        role,
        tasks=asked,
        task=task,
        answer_tokens=answer,
        conversations=asked_once + 1,
        samples=tries,
        calls=1 + role.critic_stages,
        longest_tokens=proposal + tries * answer,
    )


def evaluation_workloads(recipe: Recipe, assumed: Assumptions) -> list[RoleWorkload]:
    """Returns the work of an evaluation: the policy plays the held-out tasks of all splits, and
    judges read some of these episodes. Splits with fewer tasks than `evaluation.episodes` count as
    if they had as many."""
    settings = recipe.evaluation
    tasks, limit = settings.episodes * len(recipe.splits), settings.max_steps
    steps = assumed.episode_steps
    if limit and not assumed.writes_tests:
        steps = max(1, round(steps * limit / recipe.loop.max_steps))
    loop = recipe.loop.model_copy(
        update={
            "rollouts_per_task": settings.rollouts_per_task,
            "max_steps": limit or recipe.loop.max_steps,
        }
    )
    played = tasks * settings.rollouts_per_task
    # A judge of steps reads single episodes; one that writes tests reads tasks.
    judged = min(settings.judged_episodes, played) / settings.rollouts_per_task
    recipe = recipe.model_copy(update={"loop": loop})
    assumed = replace(assumed, episode_steps=steps)
    counts = {"acts": tasks, "scores": judged}
    return [
        replace(_conversing(name, role, recipe, assumed, learns=False), tasks=counts[role.does])
        for name, role in recipe.roles.items()
        if isinstance(role, PolicyConfig) or (isinstance(role, JudgeConfig) and role.by_model)
    ]


def _conversing(
    name: str,
    role: PolicyConfig | JudgeConfig,
    recipe: Recipe,
    assumed: Assumptions,
    learns: bool = True,
) -> RoleWorkload:
    """Returns the work of the policy or a judge, which reads an episode after each step, or one
    prompt per task if it writes tests."""
    judge, one = isinstance(role, JudgeConfig), assumed.writes_tests
    own, response = assumed.roles[name], assumed.roles[recipe.acting].answer_tokens
    opening, turn, asked = own.opening_tokens, own.turn_tokens, own.question_tokens
    quoted, image, answer = own.quoted, own.image_tokens, own.answer_tokens
    samples = role.samples_per_step if isinstance(role, JudgeConfig) else 1
    # A judge's first prompt already has a step.
    count, lead = recipe.loop.rollouts_per_task, int(judge)
    if judge and one:
        count, lead, asked, image = 1, 0, 0.0, 0.0
    steps, most = round(assumed.episode_steps), 1 if one else recipe.loop.max_steps

    def images(step: int) -> int:
        most = min(role.screenshots, step + 1) if isinstance(role, PolicyConfig) else JUDGED
        return most if image else 0

    def task(steps: int) -> list[Answer]:
        """Returns a task's answers, the longest first in each conversation."""
        answers: list[Answer] = []
        for step in [*reversed(range(steps))] * count:
            question = asked + images(step) * image
            prompt = opening + (step + lead) * turn + (step * quoted + lead) * response + question
            # The next prompt either continues this one and its answer, or leaves out the question
            # and unquoted parts. First prompts are the same in all conversations.
            left_out = question + (1 - quoted) * lead * response
            whole, shared = prompt + answer, prompt - left_out
            if not lead and not question:
                shared = whole
            if step == steps - 1:
                shared = opening if answers else 0.0
            if step == 0 and not lead and question and len(answers) >= steps:
                shared = prompt
            answers += [(prompt, whole, shared), *[(prompt, whole, prompt)] * (samples - 1)]
        return answers

    # A judge that training does not depend on is loaded but not asked.
    asked_of = task_count(recipe, assumed) if recipe.reads_scores or not judge else 0
    tasks, mean, longest = asked_of, task(steps), task(most)
    learned = None
    if role.trains and learns:
        learned = training(mean, round(tasks * own.trained), longest, role)
    return RoleWorkload(
        name,
        role,
        tasks=tasks,
        task=mean,
        answer_tokens=answer,
        conversations=count,
        samples=samples,
        calls=steps,
        longest_tokens=max(prompt for prompt, _, _ in longest) + samples * answer,
        learned=learned,
        images=sum(map(images, range(steps))) / steps,
        image_tokens=image,
    )


def training(
    task: list[Answer], tasks: int, longest: list[Answer], role: TrainedRoleConfig
) -> TrainingWorkload:
    """Returns the passes of this many equal tasks, divided into minibatches as in the learner; the
    largest pass has the longest episodes."""
    updates = min(role.minibatches, tasks)
    parts = [task * len(range(i, tasks, updates)) for i in range(updates)] * role.epochs
    passes = [made for part in parts for made in _passes(part, role)]
    every = passes + _passes(longest, role)
    read = tasks * role.epochs
    samples, sample_tokens = len(task) * read, sum(round(whole) for _, whole, _ in task) * read
    computed, most = sum(tokens for tokens, _ in passes), map(max, zip(*every, strict=True))
    return TrainingWorkload(samples, sample_tokens, computed, len(passes), len(parts), *most)


def _passes(answers: Sequence[Answer], role: TrainedRoleConfig) -> list[tuple[int, int]]:
    """Returns the tokens and samples of every pass."""
    lengths = [round(whole) for _, whole, _ in answers]
    shared = [round(beginning) for _, _, beginning in answers]
    if role.packing == "padded":
        groups = row_groups(lengths, role.max_pack_tokens)
        return [(lengths[group[0]] * len(group), len(group)) for group in groups]
    bounds = pairwise(cut(lengths, shared, role.max_pack_tokens))
    return [(sum(lengths[a:b]) - sum(shared[a + 1 : b]), b - a) for a, b in bounds]
