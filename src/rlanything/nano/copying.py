"""A drill before all lessons: strings of random tokens that come twice.

Reading a page is above all finding what the task names, letter by letter, and saying it again. A
model this small learns that late and all at once (as induction heads, arXiv 2209.11895), and from
random strings far sooner than from pages, of which only a few tokens ask for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rlanything.engines.hf.model import LanguageModel
from rlanything.nano.descent import descend
from rlanything.nano.tokenizer import MARKS

SEQUENCES, TOKENS = 16, 48
"""Of an update."""
WARMUP = 60
"""Updates."""
SPECIAL = len(MARKS)
"""The first token that is text."""


def practise_copying(
    model: LanguageModel,
    updates: int,
    learning_rate: float,
    seed: int,
    on_update: Callable[[int], None],
) -> float:
    """Next-token prediction on sequences [16, 48] in which a string of 4 to 23 tokens comes twice,
    amid others; returns the mean loss of predictable tokens, in nats, in the last tenth."""
    rng = np.random.default_rng(seed)

    def losses(update: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, again = sequences(len(model.tokenizer), rng)
        logits = model.network(input_ids=torch.from_numpy(ids)).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), torch.from_numpy(ids[:, 1:]), reduction="none"
        )
        return each.mean(), each.detach()[torch.from_numpy(again[:, 1:])].mean()

    rates = [learning_rate * min(1.0, (update + 1) / WARMUP) for update in range(updates)]
    return descend(model.network, rates, losses, lambda update: on_update(1))


def sequences(vocabulary: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [16, 48], and which of them follow from what came before: all of a string's second
    coming but its first token."""
    length = int(rng.integers(4, TOKENS // 2))
    ids = rng.integers(SPECIAL, vocabulary, size=(SEQUENCES, TOKENS))
    again = np.zeros((SEQUENCES, TOKENS), dtype=bool)
    for row, marks in zip(ids, again, strict=True):
        at = length + int(rng.integers(0, TOKENS - 2 * length + 1))
        row[at : at + length] = row[:length]
        marks[at + 1 : at + length] = True
    return ids, again
