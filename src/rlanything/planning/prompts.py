"""How long a recipe's prompts are: a few of its own episodes, played at random, in tokens."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from transformers import AutoTokenizer

from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain, MissingData, StandInDomain, UnitTestDomain
from rlanything.engines import shipped
from rlanything.engines.hf.cache import shared_length
from rlanything.engines.hf.gguf import find_gguf
from rlanything.records import Completion, JudgedTrajectory, Messages, Step, Task, Trajectory
from rlanything.seeds import derive

TASKS = 8
CHARACTERS = 3.1
"""A token, where a tokenizer is not at hand: of Qwen's on AlfWorld (benchmarks/plan.md)."""


MEASURED = (
    "opening_tokens",
    "turn_tokens",
    "question_tokens",
    "judge_opening_tokens",
    "judge_turn_tokens",
    "judge_question_tokens",
    "critic_prompt_tokens",
    "proposal_prompt_tokens",
)
"""The assumptions that are measured here."""


@dataclass(frozen=True, slots=True)
class Ruler:
    """Measures text in a model's tokens."""

    chat: Callable[[Messages], Sequence[int]]
    """Ids of a rendered chat that ends where the model is to answer."""
    text: Callable[[str], int]
    """Tokens of a response, without the one that ends it."""
    unit: float = 1.0
    """Tokens that one id stands for."""
    name: str = "its own tokenizer"


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Means, in tokens, by the name of the assumption; and where they are from."""

    values: dict[str, float]
    source: str
    step_seconds: float | None
    """Of a step with a possible action; None where there was none."""


def prompt_lengths(recipe: Recipe, domain: Domain) -> PromptLengths:
    """From `TASKS` training tasks, or what the domain has in their stead where the recipe's data
    are not on this machine. Raises `DomainError`."""
    count = min(TASKS, recipe.loop.tasks)
    try:
        tasks = domain.tasks("train", count, derive(recipe.seed, "plan"))
        whose = "of the recipe's tasks"
    except MissingData:
        if not isinstance(domain, StandInDomain):
            raise
        tasks = domain.stand_ins(count)
        whose = "stand-ins, a rough guide: the recipe's data are not here;"
    played: list[Trajectory] = []
    seconds: list[float] = []
    how = "played at random just now"
    for task in tasks:
        begun = time.perf_counter()
        try:
            episode = play(domain, task, recipe.loop.max_steps)
            valid = all(step.valid for step in episode.steps)
            seconds += [(time.perf_counter() - begun) / len(episode.steps)] if valid else []
        except Exception as fault:  # whatever it takes to play here, a plan does without it
            episode = unplayed(domain, task, recipe.loop.max_steps)
            reason = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            how = f"read, what follows a step guessed, for they cannot be played here ({reason})"
        played.append(episode)
    models = {name: getattr(recipe, name).model for name in ("policy", "judge", "adapter")}
    rulers = {name: ruler_of(shipped.resolve(model, name)) for name, model in models.items()}
    units = ", ".join(f"{role}: {ruler.name}" for role, ruler in rulers.items())
    return PromptLengths(
        measure(domain, played, rulers),
        f"{len(played)} {whose} {how} ({units})",
        statistics.median(seconds) if seconds else None,
    )


@cache
def ruler_of(model: str) -> Ruler:
    """By the tokenizer of a model that is on this machine; by characters for any other."""
    try:
        packed = find_gguf(model)
        if packed is not None:
            return by_tokenizer(AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name))
        return by_tokenizer(AutoTokenizer.from_pretrained(model, local_files_only=True))
    except (OSError, ValueError, ImportError):
        return by_characters()


def by_tokenizer(tokenizer: Any) -> Ruler:
    def chat(messages: Messages) -> Sequence[int]:
        turns = [{"role": each.role, "content": each.content} for each in messages]
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]

    return Ruler(chat, lambda text: len(tokenizer.encode(text, add_special_tokens=False)))


def by_characters() -> Ruler:
    """Roughly: a turn's markup counts as so many characters too."""

    def chat(messages: Messages) -> Sequence[int]:
        turns = [f"<|im_start|>{each.role}\n{each.content}<|im_end|>\n" for each in messages]
        return [ord(each) for each in "".join(turns) + "<|im_start|>assistant\n"]

    return Ruler(
        chat,
        lambda text: round(len(text) / CHARACTERS),
        1 / CHARACTERS,
        f"{CHARACTERS:g} characters a token",
    )


def play(domain: Domain, task: Task, max_steps: int) -> Trajectory:
    """An episode of random choices; where none are listed, of the expert's, or of none at all."""
    environment = domain.environment()
    seen, rng = environment.reset(task), random.Random(task.id)
    steps: list[Step] = []
    outcome = None
    while outcome is None and len(steps) < max_steps:
        action = rng.choice(seen.choices) if seen.choices else domain.expert(task, steps) or ""
        response = action if domain.action_marker in action else f"{domain.action_marker} {action}"
        result = environment.step(response)
        text, outcome = result.observation.text, result.outcome
        answer = Completion.unsampled(response)
        steps.append(Step(seen.text, answer, result.action, result.valid, text))
        seen = result.observation
    return Trajectory(task.id, task, tuple(steps), outcome or -1)


def unplayed(domain: Domain, task: Task, max_steps: int) -> Trajectory:
    """An episode that nobody played: whatever is done, what was seen first is seen again."""
    try:
        seen = domain.environment().reset(task).text
    except Exception:  # not even that can be seen here
        seen = task.instruction
    step = Step(seen, Completion.unsampled(domain.action_marker), None, False, seen)
    return Trajectory(task.id, task, (step,) * min(2, max_steps), -1)


@dataclass(frozen=True, slots=True)
class Growth:
    """How the prompts of an episode follow from one another, in tokens."""

    turns: list[float]
    """What each adds to the one before beside the response."""
    questions: list[float]
    """What each but the last does not share with the next: its end."""
    grown: float
    """Mean of what each adds in all; 0 if there is but one."""


def growth(prompts: Sequence[Sequence[int]], ruler: Ruler, answers: Sequence[int]) -> Growth:
    """Of the ids of consecutive prompts, and the tokens of the responses between them."""
    grown = [(len(after) - len(before)) * ruler.unit for before, after in pairwise(prompts)]
    questions = [(len(a) - shared_length(a, b)) * ruler.unit for a, b in pairwise(prompts)]
    return Growth(
        [each - answer for each, answer in zip(grown, answers, strict=True)],
        questions,
        statistics.mean(grown or [0.0]),
    )


def measure(
    domain: Domain, episodes: Sequence[Trajectory], rulers: dict[str, Ruler]
) -> dict[str, float]:
    """Means over the steps of the episodes, by the name of the assumption."""
    found: dict[str, list[float]] = {name: [] for name in MEASURED}
    policy, judge, adapter = rulers["policy"], rulers["judge"], rulers["adapter"]
    for episode in episodes:
        task, steps = episode.task, episode.steps
        prompts = [
            policy.chat(domain.policy_prompt(task, steps[:i], step.observation))
            for i, step in enumerate(steps)
        ]
        # A step's response, and the token that ends it, lie between its prompt and the next.
        answers = [policy.text(step.response) + 1 for step in steps]
        seen = growth(prompts, policy, answers[:-1])
        found["opening_tokens"].append(len(prompts[0]) * policy.unit)
        found["turn_tokens"] += seen.turns
        found["question_tokens"] += seen.questions
        if isinstance(domain, UnitTestDomain):
            # One prompt a task, whatever the rollouts did.
            asked = [judge.chat(domain.judge_prompt(task, ()))]
            answers = [0]
        else:
            ends = range(1, len(steps) + 1)
            asked = [judge.chat(domain.judge_prompt(task, steps[:end])) for end in ends]
        seen = growth(asked, judge, answers[1:])
        found["judge_turn_tokens"] += seen.turns
        found["judge_question_tokens"] += seen.questions
        first_step = seen.grown if seen.turns else answers[0]
        found["judge_opening_tokens"].append(len(asked[0]) * judge.unit - first_step)
        failed = JudgedTrajectory(episode, ((),) * len(steps))
        found["critic_prompt_tokens"].append(
            len(adapter.chat(domain.critic_prompt(failed, []))) * adapter.unit
        )
        found["proposal_prompt_tokens"].append(
            len(adapter.chat(domain.adapter_prompt(task, "easier", []))) * adapter.unit
        )
    # Episodes of one step have no turns.
    means = {name: statistics.mean(values or [0.0]) for name, values in found.items()}
    means["opening_tokens"] -= means["question_tokens"]
    means["judge_opening_tokens"] -= means["judge_question_tokens"]
    # Where a screen takes the place of the last, prompts may grow by less than a response.
    return {name: max(0.0, value) for name, value in means.items()}
