"""Pretraining on copying: sequences of random tokens in which a string occurs twice.

To read a page, a model mostly has to find what the task names, letter by letter, and repeat it. A
model this small learns that late and abruptly (as induction heads, arXiv 2209.11895). It learns it
much sooner from random strings than from pages, where only a few tokens require it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rlanything.engines.hf.model import LanguageModel
from rlanything_nano.tokenizer import MARKS
from rlanything_nano.updates import run_updates

SEQUENCES, TOKENS = 16, 48
"""Sequences per update, and tokens per sequence."""
WARMUP = 60
"""Number of updates with a rising learning rate."""
SPECIAL = len(MARKS)
"""The first token that is text."""


def pretrain_copying(
    model: LanguageModel,
    updates: int,
    learning_rate: float,
    seed: int,
    on_update: Callable[[int], None],
) -> float:
    """Trains next-token prediction on sequences [16, 48] in which a string of 4 to 23 tokens occurs
    twice, among others. Returns the mean loss of predictable tokens, in nats, over the last tenth
    of the updates. `on_update` is called with 1 after every update."""
    rng = np.random.default_rng(seed)

    def losses(update: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, again = sequences(len(model.tokenizer), rng)
        logits = model.network(input_ids=torch.from_numpy(ids)).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), torch.from_numpy(ids[:, 1:]), reduction="none"
        )
        return loss.mean(), loss.detach()[torch.from_numpy(again[:, 1:])].mean()

    rates = [learning_rate * min(1.0, (update + 1) / WARMUP) for update in range(updates)]
    return run_updates(model.network, rates, losses, lambda update: on_update(1))


def sequences(vocabulary: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids [16, 48] and a mask [16, 48] of the predictable tokens: the second
    occurrence of the string without its first token."""
    length = int(rng.integers(4, TOKENS // 2))
    ids = rng.integers(SPECIAL, vocabulary, size=(SEQUENCES, TOKENS))
    again = np.zeros((SEQUENCES, TOKENS), dtype=bool)
    for row, marks in zip(ids, again, strict=True):
        at = length + int(rng.integers(0, TOKENS - 2 * length + 1))
        row[at : at + length] = row[:length]
        marks[at + 1 : at + length] = True
    return ids, again
