"""The iteration of a recipe, made up: how long its episodes are, and what its samples share.

Nothing here is random. Every group of rollouts is the same mean group, so that a plan can be
followed with a pencil; the packs are cut by the learner's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.packing import cut
from rlanything.learning.padding import row_groups
from rlanything.planning.assumptions import Assumptions


def episode_lengths(recipe: Recipe, assumed: Assumptions) -> list[int]:
    """Steps of the episodes of one group, [G]: lost ones end at max_steps, won ones spread evenly
    around their mean."""
    steps, rollouts = recipe.loop.max_steps, recipe.loop.rollouts_per_task
    won = round(rollouts * assumed.success)
    mean = assumed.won_length * steps
    spread = min(mean, steps - mean)
    lengths = [round(mean - spread + 2 * spread * (i + 0.5) / won) for i in range(won)]
    return [max(1, each) for each in lengths] + [steps] * (rollouts - won)


def group_count(recipe: Recipe, assumed: Assumptions) -> int:
    """Tasks that are rolled out in an iteration, candidates included."""
    return round(recipe.loop.tasks_per_iteration * (1 + assumed.candidates))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A sample as the packer sees it: its tokens, and how many of them it shares with the sample
    before it in the order of the trie."""

    length: int
    shared: int


def policy_leaves(recipe: Recipe, assumed: Assumptions) -> list[Leaf]:
    """The trained samples of one task. A step's prompt begins with the step before it, but for the
    question that ended that one's."""
    opening, grown = assumed.opening_tokens, assumed.response_tokens + assumed.turn_tokens
    question = assumed.question_tokens
    leaves: list[Leaf] = []
    for trained in _spread(episode_lengths(recipe, assumed), assumed.policy_steps):
        for number, step in enumerate(reversed(trained)):
            history = opening + step * grown
            length = round(history + question + assumed.response_tokens)
            # Backwards, as the packer sorts: the longest first, and the others lie within it.
            within = round(history) if question else length
            shared = within if number else round(opening) if leaves else 0
            leaves.append(Leaf(length, shared))
    return leaves


def judge_leaves(recipe: Recipe, assumed: Assumptions) -> list[Leaf]:
    """The trained samples of one task. Every step asks its question behind the history so far."""
    opening, grown = (
        assumed.judge_opening_tokens,
        assumed.response_tokens + assumed.judge_turn_tokens,
    )
    question, answer = assumed.judge_question_tokens, assumed.judgement_tokens
    leaves: list[Leaf] = []
    lengths = episode_lengths(recipe, assumed)
    for trained in _judged(recipe, lengths, assumed.judge_judgements):
        before: int | None = None
        for step in reversed(trained):
            prompt = opening + (step + 1) * grown + question
            if step == before:
                shared = prompt + answer * assumed.judgement_shared
            elif before is not None:
                shared = opening + (step + 1) * grown
            else:
                shared = opening if leaves else 0
            leaves.append(Leaf(round(prompt + answer), round(shared)))
            before = step
    return leaves


def written_test_leaves(recipe: Recipe, assumed: Assumptions) -> list[Leaf]:
    """The trained samples of one task where the judge writes tests: all answer one prompt."""
    prompt, answer = assumed.judge_opening_tokens, assumed.judgement_tokens
    count = round(recipe.judge.samples_per_step * assumed.judge_judgements)
    shared = round(prompt + answer * assumed.judgement_shared)
    return [Leaf(round(prompt + answer), shared if number else 0) for number in range(count)]


def _judged(recipe: Recipe, lengths: Sequence[int], share: float) -> list[list[int]]:
    """The step of every judgement that trains, by episode."""
    samples = recipe.judge.samples_per_step
    if recipe.feedback.judge_normalization == "step":
        # Where a step's judgements agree none has an advantage; where they do not, all have.
        return [
            [step for step in steps for _ in range(samples)] for steps in _spread(lengths, share)
        ]
    return [
        _share([step for step in range(length) for _ in range(samples)], share)
        for length in lengths
    ]


def _spread(lengths: Sequence[int], share: float) -> list[list[int]]:
    """The steps that train, by episode: a share of each, or of all where an episode is one step."""
    if max(lengths) > 1:
        return [_share(range(length), share) for length in lengths]
    kept = _share(range(len(lengths)), share)
    return [[0] if number in kept else [] for number in range(len(lengths))]


def _share(items: Sequence[int], share: float) -> list[int]:
    """Evenly spread over the items."""
    return [item for i, item in enumerate(items) if int((i + 1) * share) > int(i * share)]


@dataclass(frozen=True, slots=True)
class Batches:
    """What a learner computes in an iteration."""

    samples: int
    sample_tokens: int
    """Prompts and responses of all samples."""
    distinct_tokens: int
    """Of them, once each."""
    computed_tokens: int
    """Once a pack, or with their padding."""
    passes: int
    """Forward and backward passes: packs, or batches of rows."""
    updates: int
    largest: int
    """Tokens of the largest pass."""
    most_samples: int
    """Samples of the pass that has most."""
    depth: float
    """Mean tokens that a computed token sees."""


def batches(leaves: Sequence[Leaf], tasks: int, role: TrainedRoleConfig) -> Batches:
    """The samples of so many equal tasks, divided into minibatches as the learner does."""
    updates = min(role.updates_per_iteration, tasks)
    # Minibatches of whole tasks: some have one more than others.
    sizes = [tasks // updates + (i < tasks % updates) for i in range(updates)] if updates else []
    passes = [each for size in sizes for each in _passes(list(leaves) * size, role)]
    computed = sum(tokens for tokens, _, _ in passes)
    return Batches(
        samples=len(leaves) * tasks,
        sample_tokens=sum(leaf.length for leaf in leaves) * tasks,
        distinct_tokens=sum(leaf.length - leaf.shared for leaf in leaves) * tasks,
        computed_tokens=computed,
        passes=len(passes),
        updates=updates,
        largest=max((tokens for tokens, _, _ in passes), default=0),
        most_samples=max((samples for _, samples, _ in passes), default=0),
        depth=sum(seen for _, _, seen in passes) / max(computed, 1),
    )


def _passes(leaves: Sequence[Leaf], role: TrainedRoleConfig) -> list[tuple[int, int, int]]:
    """Of every pass: tokens computed, samples, and tokens seen by those tokens in sum."""
    lengths = [leaf.length for leaf in leaves]
    found: list[tuple[int, int, int]] = []
    if role.packing == "padded":
        for group in row_groups(lengths, role.max_pack_tokens):
            longest = lengths[group[0]]
            found.append((longest * len(group), len(group), longest**2 // 2 * len(group)))
        return found
    for start, end in pairwise(
        cut(lengths, [leaf.shared for leaf in leaves], role.max_pack_tokens)
    ):
        tokens = seen = 0
        for i in range(start, end):
            shared = leaves[i].shared if i > start else 0
            tokens += lengths[i] - shared
            seen += (lengths[i] ** 2 - shared**2) // 2
        found.append((tokens, end - start, seen))
    return found
