"""The work of a learner in an iteration: every group of rollouts is the same mean group, and the
learner's own rules cut its samples into packs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.packing import cut
from rlanything.learning.padding import row_groups


@dataclass(frozen=True, slots=True)
class Conversations:
    """The prompts and answers that one task gives rise to, in tokens.

    Prompt i (from 0) is `first + i * grown + question`; all begin with the same `opening`."""

    count: int
    """Conversations of a task: its rollouts, or one where the judge writes tests."""
    steps: float
    """Mean prompts of a conversation."""
    opening: float
    first: float
    grown: float
    question: float
    """The end of a prompt that is not in the next one."""
    answer: float
    samples: int = 1
    """Answers to each prompt."""
    answers_continue: bool = False
    """Whether the next prompt begins with this one and its answer, as in a text game."""

    def prompt(self, step: float) -> float:
        return self.first + step * self.grown + self.question


@dataclass(frozen=True, slots=True)
class Leaf:
    """A sample as the packer sees it."""

    length: int
    shared: int
    """Tokens that it shares with the sample before it, in the packer's order."""


def leaves(talk: Conversations) -> list[Leaf]:
    """Returns the samples of one task as packs are sorted: the longest of a conversation first."""
    samples: list[Leaf] = []
    steps = max(1, round(talk.steps))
    for step in [*reversed(range(steps))] * talk.count:
        prompt = talk.prompt(step)
        length = round(prompt + talk.answer)
        shared = length if talk.answers_continue else round(prompt - talk.question)
        if step == steps - 1:
            shared = round(talk.opening) if samples else 0
        samples.append(Leaf(length, shared))
        samples += [Leaf(length, round(prompt))] * (talk.samples - 1)
    return samples


@dataclass(frozen=True, slots=True)
class TrainingWorkload:
    """Samples and passes of one iteration's updates."""

    samples: int
    sample_tokens: int
    """Prompts and responses of all samples."""
    computed_tokens: int
    """Once a pack, or with their padding."""
    passes: int
    """Forward and backward passes: packs, or batches of rows."""
    updates: int
    largest: int
    """Tokens of the largest pass."""
    most_samples: int
    """Samples of the pass that has most."""
    context: float
    """Mean tokens that a computed token sees."""


def training_workload(
    task: Sequence[Leaf], tasks: int, role: TrainedRoleConfig
) -> TrainingWorkload:
    """Returns the work of so many equal tasks, divided into minibatches as the learner does."""
    updates = min(role.updates_per_iteration, tasks)
    # Minibatches of whole tasks: some have one more than others.
    sizes = [tasks // updates + (i < tasks % updates) for i in range(updates)]
    passes = [made for size in sizes for made in _passes(list(task) * size, role)]
    computed = sum(tokens for tokens, _, _ in passes)
    return TrainingWorkload(
        samples=len(task) * tasks,
        sample_tokens=sum(leaf.length for leaf in task) * tasks,
        computed_tokens=computed,
        passes=len(passes),
        updates=updates,
        largest=max((tokens for tokens, _, _ in passes), default=0),
        most_samples=max((samples for _, samples, _ in passes), default=0),
        context=sum(seen for _, _, seen in passes) / max(computed, 1),
    )


def _passes(task: Sequence[Leaf], role: TrainedRoleConfig) -> Iterator[tuple[int, int, int]]:
    """Yields the tokens of every pass, its samples, and how many tokens its tokens see in sum."""
    lengths = [leaf.length for leaf in task]
    if role.packing == "padded":
        for group in row_groups(lengths, role.max_pack_tokens):
            longest = lengths[group[0]]
            yield longest * len(group), len(group), longest**2 // 2 * len(group)
        return
    bounds = cut(lengths, [leaf.shared for leaf in task], role.max_pack_tokens)
    for start, end in pairwise(bounds):
        pairs = [(leaf.length, leaf.shared) for leaf in task[start:end]]
        pairs[0] = (pairs[0][0], 0)
        tokens = sum(length - shared for length, shared in pairs)
        yield tokens, end - start, sum(n**2 - shared**2 for n, shared in pairs) // 2
