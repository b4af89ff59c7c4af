"""Questions to a network of transformers before it is used: which part is its decoder, whether it
looks ahead, and whether its own cache can be relied on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedModel

from rlanything.engines.base import ModelError

SEE_TYPES = "docs/model-types.md lists the model types that work, and how"
"""The remedy where the architecture of a model is the problem."""
_PROMPT, _DRAWN = 5, 8
TOLERANCE = 1e-3
"""Relative differences beyond this are no rounding in float32."""
CACHE_TOLERANCE = 3e-5
"""The same of a cache, through which rounding is 2e-6: Nemotron-H and Zamba2 are off by 1e-4."""


def find_decoder(network: PreTrainedModel) -> nn.Module:
    """Returns the part that computes hidden states. Raises `ModelError` where there is none."""
    decoder = network.get_decoder()
    if decoder is not network and decoder is not network.get_output_embeddings():
        return decoder
    # Llama 4's text model calls it by a name under which transformers does not look for it.
    inner = [part for part in network.children() if isinstance(part, PreTrainedModel)]
    if len(inner) != 1:
        raise ModelError(
            f"model {network.config._name_or_path!r} has no decoder apart from its output layer; "
            f"{SEE_TYPES}"
        )
    return inner[0]


def reason_of(error: Exception) -> str:
    """Returns what is wrong, in one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@torch.no_grad()
def looks_ahead(network: PreTrainedModel, decoder: nn.Module) -> bool:
    """Whether what stands later in a sequence changes what is computed before."""
    ids = torch.arange(2 * _PROMPT, device=network.device)[None]
    whole, begun = (
        decoder(input_ids=part, use_cache=False).last_hidden_state[0, :_PROMPT]
        for part in (ids, ids[:, :_PROMPT])
    )
    return not (whole - begun).norm() <= TOLERANCE * begun.norm()


@torch.no_grad()
def own_cache_works(network: PreTrainedModel) -> bool:
    """Whether transformers' `generate` computes with its cache what it computes without one.

    In some recurrent models it does not."""
    stand_in: Any = network
    training = network.training
    network.eval()
    prompt = torch.arange(_PROMPT, device=network.device)[None]
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=_DRAWN,
        use_cache=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
    try:
        with own_settings_aside(network):
            drawn = stand_in.generate(prompt, generation_config=settings)
        alone = stand_in(input_ids=drawn.sequences[:, :-1], use_cache=False).logits
    except Exception:
        # Whatever it is that its cache cannot do, it is not used.
        return False
    finally:
        network.train(training)
    with_cache = torch.cat(drawn.logits)
    differences = (with_cache - alone[0, -_DRAWN:]).norm(dim=-1)
    return bool((differences <= CACHE_TOLERANCE * with_cache.norm(dim=-1)).all())


@contextmanager
def own_settings_aside(network: PreTrainedModel) -> Iterator[None]:
    """Takes the model's own settings away inside the context.

    `generate` would fill in penalties, suppressed tokens, a least length, ... from them wherever it
    is given none."""
    own = network.generation_config
    network.generation_config = GenerationConfig()
    try:
        yield
    finally:
        network.generation_config = own
