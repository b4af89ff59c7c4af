"""Checks of a network when it is loaded: its decoder, causality, caches, prefix sharing, vision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from rlanything.engines.base import DivergedError, ModelError
from rlanything.engines.hf.attention import ATTENTION, trie_arguments
from rlanything.engines.hf.cache import RaggedCache
from rlanything.engines.hf.decoder_cache import cache_arguments
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.images import ImageBook, noise_png

SEE_TYPES = "docs/model-types.md lists the model types that work, and how"
"""Remedy for an unsupported architecture."""
_PROMPT, _DRAWN = 5, 8
TOLERANCE = 1e-3
"""Largest relative difference that is float32 rounding."""
CACHE_TOLERANCE = 3e-5
"""The same for a cache, where rounding gives 2e-6; Nemotron-H and Zamba2 differ by 1e-4."""
_PREFIX, _BRANCH = 5, 4


def find_decoder(network: PreTrainedModel) -> nn.Module:
    """Returns the part that computes hidden states. Raises `ModelError` if there is none."""
    decoder = network.get_decoder()
    if decoder is not network and decoder is not network.get_output_embeddings():
        return decoder
    # Llama 4's text model uses a name that transformers does not look for.
    inner = [part for part in network.children() if isinstance(part, PreTrainedModel)]
    if len(inner) != 1:
        raise ModelError(
            f"model {network.config._name_or_path!r} has no decoder separate from its output "
            f"layer; {SEE_TYPES}"
        )
    return inner[0]


def reason_of(error: Exception) -> str:
    """Returns an error's first line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@torch.no_grad()
def looks_ahead(network: PreTrainedModel, decoder: nn.Module) -> bool:
    """Whether later tokens change the states of earlier ones."""
    ids = torch.arange(2 * _PROMPT, device=network.device)[None]
    full, prefix = (
        decoder(input_ids=part, use_cache=False).last_hidden_state[0, :_PROMPT]
        for part in (ids, ids[:, :_PROMPT])
    )
    return not (full - prefix).norm() <= TOLERANCE * prefix.norm()


@torch.no_grad()
def own_cache_works(network: PreTrainedModel) -> bool:
    """Whether transformers' `generate` gives the same results with its cache as without.

    For some recurrent models it does not."""
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
        return False  # the cache is not used
    finally:
        network.train(training)
    with_cache = torch.cat(drawn.logits)
    differences = (with_cache - alone[0, -_DRAWN:]).norm(dim=-1)
    return bool((differences <= CACHE_TOLERANCE * with_cache.norm(dim=-1)).all())


@contextmanager
def own_settings_aside(network: PreTrainedModel) -> Iterator[None]:
    """Removes the model's generation settings inside the context.

    `generate` would otherwise take defaults from them, such as penalties, suppressed tokens or a
    minimum length."""
    own = network.generation_config
    network.generation_config = GenerationConfig()
    try:
        yield
    finally:
        network.generation_config = own


def sharing_problem(network: PreTrainedModel) -> str | None:
    """Returns the reason why the model cannot use prefix sharing; None: it can.

    Sliding windows and stretched positions look right on short sequences, so the configuration is
    checked first. Then two short sequences are computed as a trie, token by token from the cache,
    and separately. A model that passes keeps our attention; any other is left unchanged."""
    config = network.config.get_text_config(decoder=True)
    if not type(network).__module__.startswith("transformers."):
        return "its code is not part of transformers"
    layers = getattr(config, "layer_types", None)
    if kinds := set(layers or ()) - {"full_attention"}:
        return f"it has layers of type {', '.join(sorted(kinds))}"
    window = None if layers else getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        return f"its attention has a sliding window of {window} tokens"
    if (rope := stretched_positions(network)) is not None:
        return f"its positions ({rope} RoPE) depend on the length of a sequence"
    return _measured_problem(network, find_decoder(network))


def stretched_positions(network: PreTrainedModel) -> str | None:
    """Returns the type of a RoPE whose angles depend on the longest sequence of a batch; None: the
    network has none."""
    rope = getattr(network.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    for layer in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if layer.get("rope_type") in ("dynamic", "longrope"):
            return layer["rope_type"]
    return None


@torch.inference_mode()
def _measured_problem(network: PreTrainedModel, decoder: Any) -> str | None:
    before, training = _attention(network), network.training
    size = _PREFIX + 2 * _BRANCH
    ids = torch.arange(size, device=network.device) % network.config.get_text_config().vocab_size
    second = np.r_[:_PREFIX, _PREFIX + _BRANCH : size]
    network.eval()
    problem: str | None = None
    doing = "compute a trie"
    try:
        alone: Tensor = decoder(input_ids=ids[None, second], use_cache=False).last_hidden_state[0]
        if not alone.isfinite().all():
            raise DivergedError
        _set_attention(network, ATTENTION)
        problem = _difference("as a trie", _as_trie(decoder, ids)[second], alone)
        doing = "continue from a cache"
        problem = problem or _difference("from a cache", _from_cache(decoder, ids), alone)
    except DivergedError:
        raise
    except Exception as error:
        problem = f"it cannot {doing} ({reason_of(error)})"
    finally:
        network.train(training)
    if problem is not None and before is not None:
        _set_attention(network, before)
    return problem


def _attention(network: PreTrainedModel) -> str | None:
    return network.config.get_text_config(decoder=True)._attn_implementation


def _set_attention(network: PreTrainedModel, name: str) -> None:
    # A vision tower keeps its own bidirectional attention.
    sees = getattr(network.config, "vision_config", None) is not None
    network.set_attn_implementation({"text_config": name} if sees else name)


def _difference(how: str, states: Tensor, alone: Tensor) -> str | None:
    difference = (states - alone).norm() / alone.norm()
    if difference <= TOLERANCE:
        return None
    return f"{how} its states are different (relative difference {difference:.1g})"


def _as_trie(decoder: Any, ids: Tensor) -> Tensor:
    """Returns the states [nodes, hidden] of a prefix and two branches in one pass."""
    ends = np.full(len(ids), len(ids))
    ends[_PREFIX : _PREFIX + _BRANCH] = _PREFIX + _BRANCH
    positions = np.r_[: _PREFIX + _BRANCH, _PREFIX : _PREFIX + _BRANCH]
    return decoder(
        input_ids=ids[None],
        position_ids=torch.from_numpy(positions)[None].to(ids.device),
        **trie_arguments(ends, ids.device),
    ).last_hidden_state[0]


def _from_cache(decoder: Any, ids: Tensor) -> Tensor:
    """Returns the states [tokens, hidden] of the prefix and the second branch, computed like the
    engine: next to a row of another length, then one token of each branch at a time."""
    cache = RaggedCache()
    rows = cache.assign(("long", "short"), (ids[:_PREFIX].tolist(), ids[: _PREFIX - 2].tolist()))

    def compute(tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return decoder(
            input_ids=tokens,
            position_ids=positions.to(ids.device),
            attention_mask=mask.to(ids.device),
            **cache_arguments(decoder, cache),
        ).last_hidden_state

    begun = compute(ids[None, :_PREFIX].repeat(2, 1), *cache.begin(rows, _PREFIX))
    for row, length in zip(rows, (_PREFIX, _PREFIX - 2), strict=True):
        cache.tokens[row] += ids[:length].tolist()
    branches = ids[_PREFIX:].view(2, _BRANCH).T
    states = [
        compute(tokens.repeat(2, 1), *cache.begin_branches(rows, 2, drawn))[0, 1:]
        for drawn, tokens in enumerate(branches)
    ]
    return torch.cat([begun[0], *states])


class VisionModel(Protocol):
    """The part of `LanguageModel` that the vision check needs."""

    autocast: torch.dtype | None

    @property
    def network(self) -> PreTrainedModel: ...
    def positions(self, ids: Sequence[int]) -> Tensor: ...
    def plain_inputs(self, ids: Sequence[int]) -> tuple[Tensor, dict[str, Any]]: ...
    def forget_images(self) -> None: ...
    def hidden_states(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Any | None = None
    ) -> Tensor: ...
    def trie_hidden_states(self, ids: Tensor, positions: Tensor, ends: np.ndarray) -> Tensor: ...


def vision_problems(
    model: VisionModel, spec: VisionSpec, shares: bool
) -> tuple[str | None, str | None]:
    """Returns the reasons why a model cannot use prefix sharing with images, and why it cannot be
    shown images at all; None each: it can.

    Two branches after a random image are compared with transformers' own computation from pixels.
    `shares`: whether the model can use prefix sharing with text; otherwise it is not checked."""
    network: Any = model.network
    own, training, autocast = spec.book, network.training, model.autocast
    network.eval()
    # In full precision, to tell rounding from errors.
    spec.book, model.autocast = ImageBook(), None
    try:
        with torch.inference_mode():
            return _measured_vision_problems(model, spec, shares)
    except Exception as error:
        return None, f"it cannot compute an image ({reason_of(error)})"
    finally:
        spec.book, model.autocast = own, autocast
        network.train(training)
        model.forget_images()


def _measured_vision_problems(
    model: VisionModel, spec: VisionSpec, shares: bool
) -> tuple[str | None, str | None]:
    network: Any = model.network
    image = spec.virtual(spec.book.add(noise_png(0, 64, 96 if spec.in_grid else 64)))
    words = [token for token in range(64) if token not in spec.closed][: 2 * _BRANCH + 2]
    begun = [*words[:2], *image]
    branches = [words[2 : 2 + _BRANCH], words[2 + _BRANCH :]]
    sequences = [[*begun, *branch] for branch in branches]
    second = sequences[1]
    ids, pixels = model.plain_inputs(second)
    alone = network.base_model(input_ids=ids, use_cache=False, **pixels).last_hidden_state[0]
    positions = model.positions(second)[..., None, :]
    states = model.hidden_states(torch.tensor([second]), positions, None)[0]
    if (problem := _difference("images", states, alone)) is not None or not shares:
        return None, problem
    size, common = len(begun) + 2 * _BRANCH, len(begun)
    ends = np.full(size, size)
    ends[common : common + _BRANCH] = common + _BRANCH
    places = torch.cat(
        [model.positions(sequences[0]), model.positions(second)[..., common:]], dim=-1
    )
    nodes = torch.tensor([*sequences[0], *branches[1]])
    trie = model.trie_hidden_states(nodes, places, ends)
    trie = torch.cat([trie[:common], trie[-_BRANCH:]])
    if (problem := _difference("images as a trie", trie, alone)) is not None:
        return problem, None
    cached = _seen_from_cache(model, second, common)
    return _difference("images from a cache", cached, alone), None


def _seen_from_cache(model: VisionModel, ids: Sequence[int], begun: int) -> Tensor:
    """Returns the states [tokens, hidden] of a sequence whose prefix is cached."""
    cache, positions = RaggedCache(), model.positions(ids)
    rows = cache.assign(("",), (ids,))
    parts: list[Tensor] = []
    for start, end in ((0, begun), (begun, len(ids))):
        _, mask = cache.begin(rows, end - start)
        part, places = torch.tensor([list(ids[start:end])]), positions[..., None, start:end]
        parts.append(model.hidden_states(part, places, mask, cache)[0])
        cache.tokens[rows[0]] += ids[start:end]
    return torch.cat(parts)
