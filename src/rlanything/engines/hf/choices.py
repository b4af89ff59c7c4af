"""The tokens that `Choices` allow next, and the distribution over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rlanything.engines.base import Choices


class ChoiceWalker:
    """Tracks the tokens that may come next."""

    def __init__(self, choices: Choices) -> None:
        if not all(choices.options) or not choices.options:
            raise ValueError("choices need options, each with a token; leave choices out otherwise")
        self._marker = choices.marker
        self._free_left = choices.free_tokens
        self._root: dict[int, dict] = {}
        self._node: dict[int, dict] | None = None
        for option in choices.options:
            node = self._root
            for token in option:
                node = node.setdefault(token, {})

    def allowed(self) -> tuple[int, ...]:
        """Sorted token ids that may come next; empty: the whole vocabulary."""
        if self._node is not None:
            return tuple(sorted(self._node))
        return () if self._free_left > 0 else (self._marker,)

    def forced(self) -> Iterator[int]:
        """Yields the tokens that must come next, up to the next choice."""
        node = self._node
        if node is None:
            if self._free_left > 0:
                return
            yield self._marker
            node = self._root
        while len(node) == 1:
            [(token, node)] = node.items()
            yield token

    def advance(self, token: int) -> None:
        if self._node is not None:
            self._node = self._node[token]
        elif token == self._marker:
            self._node = self._root
        else:
            self._free_left -= 1


def restricted_logprobs(
    logits: Tensor, allowed: Sequence[tuple[int, ...]], temperature: float
) -> Tensor:
    """Returns log-probs [positions, vocab] at a temperature over the allowed tokens (empty:
    all)."""
    logits = logits / temperature
    limited = [i for i, tokens in enumerate(allowed) if tokens]
    if limited:
        lines = torch.tensor([i for i in limited for _ in allowed[i]])
        tokens = torch.tensor([token for i in limited for token in allowed[i]])
        closed = torch.zeros_like(logits, dtype=torch.bool)
        closed[limited] = True
        closed[lines, tokens] = False
        logits = logits.masked_fill(closed, float("-inf"))
    return logits.log_softmax(-1)
