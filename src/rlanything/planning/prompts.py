"""The lengths of a recipe's prompts, in tokens, from a few of its episodes played at random."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Characters in a token, where there is no tokenizer: Qwen's on AlfWorld (benchmarks/plan.md)."""
_CONVERSATION = ("opening_tokens", "turn_tokens", "question_tokens")
MEASURED = (*_CONVERSATION, *(f"judge_{name}" for name in _CONVERSATION), "adapter_prompt_tokens")
"""The assumptions that are measured here."""


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Measures chats in a model's tokens."""

    ids: Callable[[Messages], Sequence[int]]
    """Returns the ids of a rendered chat that ends where the model is to answer."""
    unit: float
    """Tokens that one id stands for."""
    name: str

    def count(self, chat: Messages) -> float:
        return len(self.ids(chat)) * self.unit


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Means, in tokens, by the name of the assumption; and their source."""

    values: dict[str, float]
    source: str
    step_seconds: float | None
    """Median of the steps taken; None where none could be taken."""


def prompt_lengths(recipe: Recipe, domain: Domain) -> PromptLengths:
    """Returns lengths in `TASKS` training tasks, or in the domain's stand-ins where the recipe's
    data are not on this machine. Raises `DomainError`."""
    count, max_steps = min(TASKS, recipe.loop.tasks), recipe.loop.max_steps
    try:
        tasks = domain.tasks("train", count, derive(recipe.seed, "plan"))
        source = "of the recipe's tasks"
    except MissingData:
        if not isinstance(domain, StandInDomain):
            raise
        tasks = domain.stand_ins(count)
        source = "stand-ins, a rough guide: the recipe's data are not here;"
    episodes: list[Trajectory] = []
    seconds: list[float] = []
    how = "played at random just now"
    for task in tasks:
        try:
            episodes.append(play(domain, task, max_steps, seconds))
        except Exception as fault:  # a missing sandbox or browser must not stop a plan
            episodes.append(unplayed(domain, task, max_steps))
            reason = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            how = f"read, their later steps guessed, as they cannot be played here ({reason})"
    models = {name: getattr(recipe, name).model for name in ("policy", "judge", "adapter")}
    counters = {name: counter_of(shipped.resolve(model, name)) for name, model in models.items()}
    names = ", ".join(f"{role}: {counter.name}" for role, counter in counters.items())
    return PromptLengths(
        measure(domain, episodes, counters),
        f"{len(episodes)} {source} {how} ({names})",
        statistics.median(seconds) if seconds else None,
    )


@cache
def counter_of(model: str) -> TokenCounter:
    """Returns a counter by the tokenizer of a model on this machine, else by characters."""
    try:
        packed = find_gguf(model)
        tokenizer: Any = (
            AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
            if packed is not None
            else AutoTokenizer.from_pretrained(model, local_files_only=True)
        )
    except (OSError, ValueError, ImportError):
        return by_characters()

    def ids(messages: Messages) -> Sequence[int]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]

    return TokenCounter(ids, 1.0, "its own tokenizer")


def by_characters() -> TokenCounter:
    """Returns a rough counter: the markup of a chat counts as so many characters too."""

    def ids(messages: Messages) -> Sequence[int]:
        turns = [f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in messages]
        return [ord(letter) for letter in "".join(turns) + "<|im_start|>assistant\n"]

    return TokenCounter(ids, 1 / CHARACTERS, f"{CHARACTERS:g} characters a token")


def play(domain: Domain, task: Task, max_steps: int, seconds: list[float]) -> Trajectory:
    """Plays a task with random choices, or the expert's where the environment lists none.

    Adds the time of each step to `seconds`."""
    environment = domain.environment()
    seen, rng = environment.reset(task), random.Random(task.id)
    steps: list[Step] = []
    outcome = None
    while outcome is None and len(steps) < max_steps:
        action = rng.choice(seen.choices) if seen.choices else domain.expert(task, steps) or ""
        response = action if domain.action_marker in action else f"{domain.action_marker} {action}"
        begun = time.perf_counter()
        result = environment.step(response)
        seconds.append(time.perf_counter() - begun)
        text, outcome = result.observation.text, result.outcome
        answer = Completion.unsampled(response)
        steps.append(Step(seen.text, answer, result.action, result.valid, text))
        seen = result.observation
    return Trajectory(task.id, task, tuple(steps), outcome or -1)


def unplayed(domain: Domain, task: Task, max_steps: int) -> Trajectory:
    """Returns an episode as if played: each step sees the first observation."""
    try:
        seen = domain.environment().reset(task).text
    except Exception:  # without a first observation its instruction has to do
        seen = task.instruction
    step = Step(seen, Completion.unsampled(domain.action_marker), None, False, seen)
    return Trajectory(task.id, task, (step,) * min(2, max_steps), -1)


def growth(
    prompts: Sequence[Messages], counter: TokenCounter
) -> tuple[float, list[float], list[float]]:
    """Returns the tokens of the first of consecutive prompts, what each other one adds to the one
    before it, and what ends each but the last and is not in the next."""
    ids = [counter.ids(prompt) for prompt in prompts]
    turns = [(len(after) - len(before)) * counter.unit for before, after in pairwise(ids)]
    ends = [(len(a) - shared_length(a, b)) * counter.unit for a, b in pairwise(ids)]
    return len(ids[0]) * counter.unit, turns, ends


def measure(
    domain: Domain, episodes: Sequence[Trajectory], counters: Mapping[str, TokenCounter]
) -> dict[str, float]:
    """Returns means over the steps of the episodes, by the name of the assumption."""
    lengths: dict[str, list[float]] = defaultdict(list)
    policy, judge, adapter = counters["policy"], counters["judge"], counters["adapter"]

    def add(role: str, first: float, turns: list[float], ends: list[float]) -> None:
        # Episodes of one step have no turns.
        question = statistics.mean(ends or [0.0])
        values = ([first - question], turns, ends)
        for name, tokens in zip(_CONVERSATION, values, strict=True):
            lengths[role + name] += tokens

    for episode in episodes:
        # Without responses, whose lengths are assumed apart, prompts grow by turns alone.
        task, silent = episode.task, Completion.unsampled("")
        steps = [replace(step, completion=silent) for step in episode.steps]
        histories = [(steps[:i], step.observation) for i, step in enumerate(steps)]
        add("", *growth([domain.policy_prompt(task, *history) for history in histories], policy))
        if isinstance(domain, UnitTestDomain):
            # One prompt a task, the same for all rollouts.
            add("judge_", *growth([domain.judge_prompt(task, ())], judge))
        else:
            ends = range(1, len(steps) + 1)
            chats = [domain.judge_prompt(task, steps[:end]) for end in ends]
            first, turns, questions = growth(chats, judge)
            # The first prompt holds a step already, as long as the others.
            add("judge_", first - statistics.mean(turns or [0.0]), turns, questions)
        failed = JudgedTrajectory(episode, ((),) * len(steps))
        for chat in (domain.critic_prompt(failed, []), domain.adapter_prompt(task, "easier", [])):
            lengths["adapter_prompt_tokens"].append(adapter.count(chat))
    means = {name: statistics.mean(lengths[name] or [0.0]) for name in MEASURED}
    # Where a screen takes the place of the last, a prompt may be shorter than the one before.
    return {name: max(0.0, value) for name, value in means.items()}
