"""Restricted responses in vLLM: what `Choices` allows, token by token, and what none may hold.

vLLM calls this on the logits before temperature and log-probs, so that those are renormalised over
what was possible, as `restricted_logprobs` does it for the other engines and for the learner.
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
"""Under this name the choices of a request travel in its `extra_args`."""


@dataclass(slots=True)
class _Response:
    """A response in the making."""

    walker: ChoiceWalker
    token_ids: list[int]
    """vLLM's own list, which grows."""
    walked: int = 0


class ChoiceLimits(LogitsProcessor):
    """Forbids what a row's choices do not allow next, and in all rows what is `closed`."""

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
    """Returns the class for a model some of whose tokens are never sampled: vLLM makes its own
    objects of it."""
    return type(ChoiceLimits.__name__, (ChoiceLimits,), {"closed": closed})


def _begin(parameters: Any, prompt_ids: Any, token_ids: list[int]) -> _Response | None:
    choices = (parameters.extra_args or {}).get(CHOICES)
    # A request that was set aside for want of memory comes back with tokens: they are walked again.
    return None if choices is None else _Response(ChoiceWalker(choices), token_ids)
