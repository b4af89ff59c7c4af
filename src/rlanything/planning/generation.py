"""What the engines compute in an iteration: prompts once, responses token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlanything.config.recipe import Recipe
from rlanything.engines.hf.cache import KEPT_ROWS
from rlanything.engines.hf.engine import BATCH_ROWS, PREFILL_TOKENS
from rlanything.planning.assumptions import Assumptions
from rlanything.planning.episodes import episode_lengths, group_count
from rlanything.roles.judges.llm import PARALLEL_TRAJECTORIES

FIRST_ROOM = 64
"""Tokens that a new cache has beyond those it was made for; it then grows by half."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The work of one role's engine."""

    answers: int
    prompt_tokens: float
    """Of every answer, as if nothing were reused."""
    prefilled: float
    """What is computed of them."""
    sampled: float
    """Tokens of the answers."""
    prefill_passes: int
    decode_passes: int
    keys: float
    """Mean tokens that a new one sees."""
    batch_prompts: int
    """That are answered together, at most."""
    batch_rows: int
    """Answers to them."""
    prefill_batch: int
    """Tokens of the largest prefill pass, padding aside."""
    longest: float
    """Prompt and answer of the longest."""
    cache_rows: int
    cache_columns: int


def policy_generation(recipe: Recipe, assumed: Assumptions) -> Generation:
    """Rollouts: the episodes of one call answer together, step by step."""
    lengths = episode_lengths(recipe, assumed)
    groups = group_count(recipe, assumed)
    turn, question = assumed.turn_tokens + assumed.response_tokens, assumed.question_tokens
    return _stepwise(
        lengths * groups,
        len(lengths),
        recipe.environment.parallel_episodes,
        1,
        assumed.opening_tokens + question,
        # Behind a question nothing goes on: the response is read again. Otherwise it is known but
        # for its last token, which is only computed when something follows it.
        turn + question if question else assumed.turn_tokens + 1,
        lambda step: assumed.opening_tokens + step * turn + question,
        assumed.response_tokens,
        assumed.longest_response_tokens,
        own_first=1,
    )


def judge_generation(recipe: Recipe, assumed: Assumptions) -> Generation:
    """Judgements: m answers a step, from one prompt."""
    lengths = episode_lengths(recipe, assumed)
    step_tokens = assumed.response_tokens + assumed.judge_turn_tokens
    own = step_tokens + assumed.judge_question_tokens
    return _stepwise(
        sorted(lengths * group_count(recipe, assumed), reverse=True),
        len(lengths),
        PARALLEL_TRAJECTORIES,
        recipe.judge.samples_per_step,
        assumed.judge_opening_tokens,
        own,
        lambda step: assumed.judge_opening_tokens + step * step_tokens + own,
        assumed.judgement_tokens,
        assumed.longest_judgement_tokens,
        own_first=own,
    )


def written_test_generation(recipe: Recipe, assumed: Assumptions) -> Generation:
    """Tests: m answers a task, from one prompt; all tasks are asked together."""
    groups = group_count(recipe, assumed)
    return _stepwise(
        [1] * groups,
        1,
        groups,
        recipe.judge.samples_per_step,
        assumed.judge_opening_tokens,
        0,
        lambda step: assumed.judge_opening_tokens,
        assumed.judgement_tokens,
        assumed.longest_judgement_tokens,
        own_first=0,
    )


def adapter_generation(recipe: Recipe, assumed: Assumptions) -> Generation:
    """Critics of failed rollouts, then proposals: only the samples of a request share a prompt."""
    lost = round(recipe.loop.rollouts_per_task * (1 - assumed.success))
    asks = round(group_count(recipe, assumed) * assumed.asked_tasks)
    asks = asks if recipe.curriculum.adapt_tasks else 0
    critics = asks * min(recipe.adapter.critics_per_task, lost)
    tries = recipe.adapter.tries
    answer = assumed.adapter_tokens
    prefilled = critics * assumed.critic_prompt_tokens + asks * assumed.proposal_prompt_tokens
    batches = math.ceil(critics / BATCH_ROWS), math.ceil(asks / BATCH_ROWS)
    explained, proposed = min(BATCH_ROWS, critics), min(BATCH_ROWS, asks)
    longest = max(assumed.critic_prompt_tokens, assumed.proposal_prompt_tokens) + answer
    answers = critics + asks * tries
    return Generation(
        answers=answers,
        prompt_tokens=critics * assumed.critic_prompt_tokens
        + asks * tries * assumed.proposal_prompt_tokens,
        prefilled=prefilled,
        sampled=answers * answer,
        prefill_passes=sum(batches),
        decode_passes=round(sum(batches) * max(answer - 1, 0)),
        keys=longest,
        batch_prompts=max(explained, proposed),
        batch_rows=max(explained, proposed * tries),
        prefill_batch=round(min(PREFILL_TOKENS, prefilled)),
        longest=longest,
        cache_rows=min(critics + asks, KEPT_ROWS),
        cache_columns=math.ceil(longest + (tries - 1) * answer) + (FIRST_ROOM if asks else 0),
    )


def _stepwise(
    lengths: Sequence[int],
    group: int,
    parallel: int,
    samples: int,
    shared_opening: float,
    new_tokens: float,
    prompt_at: Callable[[int], float],
    answer: float,
    longest_answer: float,
    own_first: float,
) -> Generation:
    """Episodes of these lengths, `parallel` at a time, `group` of a task.

    At its first step a task's opening is computed once and each episode adds `own_first` tokens;
    at later ones `new_tokens`."""
    prompts = prefilled = 0.0
    prefill_passes = decode_passes = answers = prefill_batch = 0
    for start in range(0, len(lengths), parallel):
        chunk = lengths[start : start + parallel]
        for step in range(max(chunk)):
            alive = sum(length > step for length in chunk)
            calls = math.ceil(alive / BATCH_ROWS)
            new = alive * new_tokens
            if step == 0:
                new = math.ceil(len(chunk) / group) * shared_opening + alive * own_first
            answers += alive * samples
            prompts += alive * samples * prompt_at(step)
            prefilled += new
            prefill_batch = max(prefill_batch, round(min(new / calls, PREFILL_TOKENS)))
            prefill_passes += calls * (2 if step == 0 and own_first else 1)
            decode_passes += round(calls * max(longest_answer - 1, 0))
    longest = prompt_at(max(lengths) - 1) + longest_answer
    first = min(parallel, len(lengths))
    return Generation(
        answers=answers,
        prompt_tokens=prompts,
        prefilled=prefilled,
        sampled=answers * answer,
        prefill_passes=prefill_passes,
        decode_passes=decode_passes,
        keys=prompts / answers + answer / 2,
        batch_prompts=min(BATCH_ROWS, first),
        batch_rows=min(BATCH_ROWS, first) * samples,
        prefill_batch=prefill_batch,
        longest=longest,
        cache_rows=_grown(min(BATCH_ROWS, first), min(len(lengths), max(KEPT_ROWS, first))),
        # The samples of a prompt lie behind it, side by side.
        cache_columns=_columns(
            prompt_at(0), prompt_at(1) - prompt_at(0), longest + (samples - 1) * longest_answer
        ),
    )


def _grown(capacity: int, needed: int) -> int:
    """As the cache grows: by half at least."""
    return capacity if capacity >= needed else max(needed, capacity * 3 // 2)


def _columns(first: float, turn: float, longest: float) -> int:
    """Tokens a row has room for in the end."""
    capacity = round(first) + FIRST_ROOM
    held = first
    while held < longest:
        held = min(held + max(turn, 1), longest)
        capacity = _grown(capacity, math.ceil(held))
    return capacity
