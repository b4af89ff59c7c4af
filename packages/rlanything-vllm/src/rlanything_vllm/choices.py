"""Restricted responses in vLLM: `Choices`, token by token, and tokens that are never sampled.

vLLM applies this to logits before temperature and log-probs, so that log-probs are renormalised
over the possible tokens, like `restricted_logprobs` for the other engines and the learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import (  # pyright: ignore[reportMissingImports]
    LogitsProcessor,
)
from vllm.v1.sample.logits_processor.builtin import (  # pyright: ignore[reportMissingImports]
    process_dict_updates,
)

from rlanything.engines.hf.choices import ChoiceWalker

CHOICES = "rlanything_choices"
"""Key of a request's choices in its `extra_args`."""


@dataclass(slots=True)
class _Response:
    """A partial response."""

    walker: ChoiceWalker
    token_ids: list[int]
    """vLLM's own list, which grows."""
    walked: int = 0


class ChoiceLimits(LogitsProcessor):
    """Masks tokens that a row's choices do not allow, and `closed` tokens in all rows."""

    closed: tuple[int, ...] = ()

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Response] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        process_dict_updates(self._rows, batch_update, _begin)

    def apply(self, logits: Tensor) -> Tensor:
        if self.closed:
            logits[:, list(self.closed)] = float("-inf")
        for row, response in self._rows.items():
            for token in response.token_ids[response.walked :]:
                response.walker.advance(token)
            response.walked = len(response.token_ids)
            allowed = response.walker.allowed()
            if allowed:
                kept = torch.tensor(allowed, device=logits.device)
                values = logits[row, kept]
                logits[row] = float("-inf")
                logits[row, kept] = values
        return logits


def limits(closed: tuple[int, ...]) -> type[ChoiceLimits]:
    """Returns a logits processor class, which vLLM instantiates, with these `closed` tokens."""
    return type(ChoiceLimits.__name__, (ChoiceLimits,), {"closed": closed})


def _begin(parameters: Any, prompt_ids: Any, token_ids: list[int]) -> _Response | None:
    choices = (parameters.extra_args or {}).get(CHOICES)
    # A preempted request returns with its tokens, which are walked again.
    return None if choices is None else _Response(ChoiceWalker(choices), token_ids)
