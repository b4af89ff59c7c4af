"""The tokens that `Choices` allow next, and the distribution over them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rlanything.engines.base import Choices


class ChoiceWalker:
    """Tracks the tokens that may come next.

    The options that are still possible are a range of the sorted options. A tree of dicts would be
    large enough for the garbage collector to be noticed."""

    def __init__(self, choices: Choices) -> None:
        if not all(choices.options) or not choices.options:
            raise ValueError("choices need options, each with a token; leave choices out otherwise")
        self._marker = choices.marker
        self._free_left = choices.free_tokens
        self._options = sorted(choices.options)
        self._low, self._high = 0, len(self._options)
        self._depth: int | None = None
        """Number of tokens after the marker; None before it."""

    def allowed(self) -> tuple[int, ...]:
        """Sorted token ids that may come next; empty: the whole vocabulary."""
        if self._depth is not None:
            return tuple(dict.fromkeys(self._next_tokens(self._depth)))
        return () if self._free_left > 0 else (self._marker,)

    def forced(self) -> Iterator[int]:
        """Yields the tokens that must come next, up to the next choice."""
        depth = self._depth
        if depth is None:
            if self._free_left > 0:
                return
            yield self._marker
            depth = 0
        while len(only := set(self._next_tokens(depth))) == 1:
            yield only.pop()
            depth += 1

    def advance(self, token: int) -> None:
        """Raises `ValueError` for a token that is not allowed."""
        depth = self._depth
        if depth is not None:
            possible = self._options, token, self._low, self._high

            def next_token(option: tuple[int, ...]) -> int:
                return option[depth] if len(option) > depth else -1  # -1: the option has ended

            self._low = bisect_left(*possible, key=next_token)
            self._high = bisect_right(*possible, key=next_token)
            if self._low == self._high:
                raise ValueError(f"token {token} is not allowed here")
            self._depth = depth + 1
        elif token == self._marker:
            self._depth = 0
        else:
            self._free_left -= 1

    def _next_tokens(self, depth: int) -> Iterator[int]:
        """Yields the token after `depth` tokens of each option that goes on, in order."""
        for option in self._options[self._low : self._high]:
            if len(option) > depth:
                yield option[depth]


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
