"""Whether a model can compute many sequences as one trie: asked once, when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlanything.engines.hf.attention import ATTENTION, trie_arguments

_PREFIX, _BRANCH = 5, 4
_TOLERANCE = 1e-3


def sharing_problem(network: PreTrainedModel) -> str | None:
    """Returns why the model's sequences cannot share their beginnings; None if they can.

    A window of thousands of tokens or positions that are stretched for long texts look right on
    short ones, so configuration is asked first; then two sequences of a few tokens are computed as
    a trie and alone. A model that passes is left with our attention, another as it was."""
    config = network.config.get_text_config(decoder=True)
    if not type(network).__module__.startswith("transformers."):
        return "its code is not part of transformers"
    layers = getattr(config, "layer_types", None)
    if kinds := set(layers or ()) - {"full_attention"}:
        return f"it has layers of type {', '.join(sorted(kinds))}"
    window = None if layers else getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        return f"its attention slides over a window of {window} tokens"
    if (rope := stretched_positions(network)) is not None:
        return f"its positions ({rope} RoPE) depend on the length of a sequence"
    return _measured_problem(network)


def stretched_positions(network: PreTrainedModel) -> str | None:
    """Returns the kind of RoPE whose angles change with the longest sequence of a batch; None: it
    has none."""
    rope = getattr(network.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    for layer in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if layer.get("rope_type") in ("dynamic", "longrope"):
            return layer["rope_type"]
    return None


@torch.inference_mode()
def _measured_problem(network: PreTrainedModel) -> str | None:
    decoder: Any = network.get_decoder()
    before, training = network.config._attn_implementation, network.training
    size = _PREFIX + 2 * _BRANCH
    ids = torch.arange(size, device=network.device) % network.config.get_text_config().vocab_size
    second = np.r_[:_PREFIX, _PREFIX + _BRANCH : size]
    ends = np.full(size, size)
    ends[_PREFIX : _PREFIX + _BRANCH] = _PREFIX + _BRANCH
    positions = np.r_[: _PREFIX + _BRANCH, _PREFIX : _PREFIX + _BRANCH]
    network.eval()
    problem: str | None = None
    try:
        alone: Tensor = decoder(input_ids=ids[None, second], use_cache=False).last_hidden_state
        network.set_attn_implementation(ATTENTION)
        together: Tensor = decoder(
            input_ids=ids[None],
            position_ids=torch.from_numpy(positions)[None].to(network.device),
            **trie_arguments(ends, network.device),
        ).last_hidden_state
        difference = (together[:, second] - alone).norm() / alone.norm()
        if not difference <= _TOLERANCE:
            problem = f"as a trie it computes something else (relative difference {difference:.1g})"
    except Exception as error:
        # Whatever a model does that does not fit a trie, it cannot share, and says why.
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        problem = f"it cannot compute a trie ({reason})"
    finally:
        network.train(training)
    if problem is not None and before is not None:
        network.set_attn_implementation(before)
    return problem
