"""A language model and its tokenizer, shared by engine and learner."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlanything.engines.base import ModelError
from rlanything.engines.hf.attention import trie_arguments
from rlanything.engines.hf.decoder_cache import cache_arguments
from rlanything.engines.hf.loading import open_files, put
from rlanything.engines.hf.probing import (
    SEE_TYPES,
    find_decoder,
    looks_ahead,
    own_cache_works,
    reason_of,
    sharing_problem,
    vision_problems,
)
from rlanything.engines.hf.text import ModelText, end_of_turn
from rlanything.engines.hf.vision_spec import VisionSpec, find_vision
from rlanything.engines.hf.vision_tower import VisionTower, tower_weights
from rlanything.engines.images import ImageBook


class LanguageModel(ModelText):
    """A decoder from transformers with its tokenizer.

    `hidden_states` and `logits` are separate, so that logits are only computed where needed."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        autocast: torch.dtype | None = None,
        vision: VisionSpec | None = None,
        no_vision_reason: str = "it was loaded without its image processor",
    ) -> None:
        """`autocast`: compute dtype, while weights keep theirs; `vision`: its image handling;
        `no_vision_reason`: reason for having none.

        Raises `ModelError` for a network without an output layer."""
        eos = network.generation_config.eos_token_id if network.generation_config else None
        listed = eos if isinstance(eos, list) else [eos]
        stops = {i for i in (*listed, tokenizer.eos_token_id) if isinstance(i, int)}
        end = end_of_turn(tokenizer, stops)
        stop_ids = tuple(sorted(stops | (set() if end is None else {end})))
        super().__init__(str(network.config._name_or_path), tokenizer, end, stop_ids)
        self.network = network
        self.autocast = autocast
        self.sharing_problem: str | None = sharing_problem(network)
        """Reason why it cannot use prefix sharing; None: it can."""
        self.own_cache_works: bool = self.sharing_problem is None or own_cache_works(network)
        """Whether `generate` of transformers gives the same results with its cache."""
        head = network.get_output_embeddings()
        if head is None:
            raise ModelError(
                f"model {self.name!r} has no output layer; choose a causal language model"
            )
        self.head: nn.Module = head
        self.decoder: nn.Module = find_decoder(network)
        self.vision = vision
        self.no_vision_reason = no_vision_reason
        self.context = _context_of(network)
        self._vision_tower: VisionTower | None = None
        if vision is not None:
            self._vision_tower = VisionTower(network, vision)
            shares = self.sharing_problem is None
            problem, unusable = vision_problems(self, vision, shares)
            self.sharing_problem = self.sharing_problem or problem
            if unusable is not None:
                self.no_vision_reason = unusable
                self.vision = self._vision_tower = None

    @property
    def text(self) -> ModelText:
        """The text side, for processes that do not compute with the model."""
        end, stops = self.end_of_turn, self.stop_ids
        return ModelText(
            self.name, self.tokenizer, end, stops, self.vision, self.no_vision_reason, self.context
        )

    @property
    def device(self) -> torch.device:
        return self.network.device

    def hidden_states(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Any | None = None
    ) -> Tensor:
        """Returns [batch, tokens, hidden] for ids [batch, tokens], at positions [batch, tokens] or
        [3, batch, tokens].

        `mask`: [batch, 1, tokens, keys], True for keys that a token sees; None: causal."""
        body = self.decoder if self._vision_tower is None else self.network.base_model
        arguments = cache_arguments(body, cache)
        if mask is not None:
            # Convert to additive form and repeat for groups of heads once, not in every layer.
            closed = ~mask.to(self.device)
            mask = closed.new_zeros(closed.shape, dtype=self.network.dtype)
            mask = mask.masked_fill(closed, float("-inf"))
            arguments["repeated_masks"] = {}
        return self._decode(ids, positions, attention_mask=mask, **arguments)

    def trie_hidden_states(self, ids: Tensor, positions: Tensor, ends: np.ndarray) -> Tensor:
        """Returns [nodes, hidden] of a trie in depth-first order; all arguments are [nodes],
        positions also [3, nodes].

        Only for models without a `sharing_problem`; `ends`: see hf/attention.py."""
        arguments = trie_arguments(ends, self.device)
        return self._decode(ids[None], positions[..., None, :], **arguments)[0]

    def _decode(self, ids: Tensor, positions: Tensor, **more: Any) -> Tensor:
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            if self._vision_tower is not None and self.vision is not None:
                if self.vision.in_grid and positions.dim() == 2:
                    positions = positions.expand(3, -1, -1)
                return self._vision_tower.body(ids, position_ids=positions.to(self.device), **more)
            out = self.decoder(
                input_ids=ids.to(self.device), position_ids=positions.to(self.device), **more
            )
        return out.last_hidden_state

    def positions(self, ids: Sequence[int] | np.ndarray) -> Tensor:
        """Returns the positions [tokens] of a sequence from its first token on, or [3, tokens]."""
        if self.vision is None:
            return torch.arange(len(ids))
        return torch.from_numpy(self.vision.positions(ids))

    def shift(self, ids: Sequence[int]) -> int:
        """Returns the difference of position and token count after a sequence."""
        return 0 if self.vision is None else self.vision.shift(ids)

    @property
    def in_grid(self) -> bool:
        """Whether positions are [3, tokens] instead of token indices."""
        return self.vision is not None and self.vision.in_grid

    def forget_images(self) -> None:
        """Drops image features, which new weights may change."""
        if self._vision_tower is not None:
            self._vision_tower.forget()

    def plain_inputs(self, ids: Sequence[int]) -> tuple[Tensor, dict[str, Any]]:
        """Returns ids [1, tokens] and further arguments for transformers' own methods: pixels, if
        there are images."""
        if self._vision_tower is None:
            return torch.tensor([list(ids)], device=self.device), {}
        return self._vision_tower.plain(ids)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns [..., vocab] in float32 (float64 for float64 weights), with -inf for image
        placeholders."""
        return self.possible(self.raw_logits(hidden))

    def raw_logits(self, hidden: Tensor) -> Tensor:
        """Returns [..., vocab] from the output layer, in the same dtype."""
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            logits = self.head(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def possible(self, logits: Tensor) -> Tensor:
        """Returns logits [..., vocab] with -inf for image placeholders, which cannot be computed if
        they are sampled."""
        if self.vision is None:
            return logits
        closed = torch.tensor(self.vision.closed, device=logits.device)
        return logits.index_fill(-1, closed, float("-inf"))

    def save(self, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Writes the model in Hugging Face format, for `from_pretrained(folder)`. A model with
        adapters only writes these and the name of its base model. `weights`: those of an earlier
        `snapshot`, also by an outline; None: its own."""
        weights = self.snapshot() if weights is None else weights
        # Several files, whose checksums are computed side by side.
        self.network.save_pretrained(folder, state_dict=weights, max_shard_size="5GB")
        self.tokenizer.save_pretrained(folder)
        if self.vision is not None:
            self.vision.processor.save_pretrained(folder)

    def snapshot(self, keeps: bool = True) -> dict[str, Tensor]:
        """Returns the weights to save, in host memory, where training does not change them. All
        processes with a shard of the model call it; one of them `keeps` them."""
        network = self.network
        parameters = dict(network.named_parameters(remove_duplicate=False))
        frozen = {id(weights) for weights in parameters.values() if not weights.requires_grad}
        left_out, kept = set[int](), dict[str, Tensor]()
        if has_adapters(network):  # peft saves no frozen weights but those of adapted embeddings
            ends = (network.get_input_embeddings(), network.get_output_embeddings())
            adapted: list[Any] = [layer for layer in ends if hasattr(layer, "base_layer")]
            left_out = frozen - {id(weights) for layer in adapted for weights in layer.parameters()}
        state: dict[str, Tensor] = network.state_dict()
        names: dict[int, list[str]] = {}
        for name, tensor in state.items():
            names.setdefault(id(parameters.get(name, tensor)), []).append(name)
        for number, tied in names.items():
            tensor = full_tensor(state[tied[0]]) if number not in left_out else None
            if keeps and tensor is not None:  # one at a time saves memory; a CPU trains in place
                kept |= dict.fromkeys(tied, tensor.to("cpu", copy=number not in frozen))
        return kept

    def outline(self) -> LanguageModel:
        """Returns the model without weights, small enough to send to other processes, which then
        need not repeat its checks."""
        return self.empty("meta")

    def empty(self, device: str, dtype: torch.dtype | None = None) -> LanguageModel:
        """Returns a copy on a device with uninitialised weights (in `dtype`; None: in their own)
        and buffers; tied weights stay tied."""
        made: dict[int, Any] = {}
        for weights in self.network.parameters():
            room = torch.empty_like(weights, device=device, dtype=dtype)
            made[id(weights)] = nn.Parameter(room, requires_grad=weights.requires_grad)
        # Buffers such as RoPE angles need full precision.
        for buffer in self.network.buffers():
            made[id(buffer)] = torch.empty_like(buffer, device=device)
        return copy.deepcopy(self, made)


def load_model(
    source: str | Path,
    dtype: str,
    device: str = "cpu",
    trains: bool = True,
    images: Sequence[Path] = (),
    train_vision: bool = False,
) -> LanguageModel:
    """Returns a model from a folder (a full model, or adapters that name their base model), a
    Hugging Face id, or a GGUF file. `dtype`: compute dtype. Weights are float32, because training
    steps are too small for less; those of a model that never `trains` are in `dtype` too. `images`:
    folders with image files; `train_vision`: the vision tower learns too.

    Raises `ModelError` if it cannot be loaded, put on the device, or used."""
    opened = open_files(str(source))
    network = opened.network
    put(network, str(source), device)
    _choose_trained(network, str(source), train_vision)
    autocast = torch.bfloat16 if dtype == "bfloat16" else None
    vision, no_vision_reason = find_vision(
        network.config, opened.tokenizer, opened.load_processor, ImageBook(images)
    )
    model = LanguageModel(network, opened.tokenizer, autocast, vision, no_vision_reason)
    _check_logits(model, str(source))
    if not trains:
        _freeze(network, autocast)
    return model


def _context_of(network: PreTrainedModel) -> int | None:
    """Returns a model's context length; None: unlimited. Purely recurrent models have no positions,
    though some, such as RWKV, state a training length."""
    config = network.config.get_text_config()
    if getattr(network, "_is_stateful", False) and not getattr(config, "num_attention_heads", None):
        return None
    context = getattr(config, "max_position_embeddings", None)
    return context if context and context > 0 else None


def _choose_trained(network: PreTrainedModel, source: str, train_vision: bool) -> None:
    """Selects the weights that learn: adapters if there are any, the vision tower only if asked."""
    tower = tower_weights(network)
    if train_vision and not tower:
        raise ModelError(
            f"model {source!r} has no vision tower; leave train_vision out, or choose a vision "
            "model."
        )
    for name, weights in network.named_parameters():
        if has_adapters(network):
            weights.requires_grad_(".lora_" in name)
        else:
            weights.requires_grad_(train_vision or name not in tower)


def _freeze(network: nn.Module, dtype: torch.dtype | None) -> None:
    """Disables gradients and converts weights to `dtype`.

    It runs after all checks, which need float32 to tell rounding from errors. Buffers such as RoPE
    angles keep their full precision."""
    for weights in network.parameters():
        weights.requires_grad_(False)
        if dtype is not None:
            weights.data = weights.data.to(dtype)


def has_adapters(network: PreTrainedModel) -> bool:
    """Whether the network has LoRA adapters, which then are what trains and is saved."""
    return bool(getattr(network, "_hf_peft_config_loaded", False))


@torch.inference_mode()
def _check_logits(model: LanguageModel, source: str) -> None:
    """Raises `ModelError` for architectures whose logits would differ here: those that are not
    causal, and those that change their logits after the head."""
    ids = torch.tensor([[0, 1, 2, 3]], device=model.device)
    positions = torch.arange(4)[None]
    try:
        ahead = looks_ahead(model.network, model.decoder)
        ours = model.raw_logits(model.hidden_states(ids, positions, None))
        with torch.autocast(model.device.type, model.autocast, enabled=model.autocast is not None):
            theirs = model.network(input_ids=ids, position_ids=positions.to(model.device)).logits
    except Exception as error:
        # It may need other inputs than tokens and positions.
        raise ModelError(
            f"model {source!r} cannot compute from tokens alone ({reason_of(error)}); {SEE_TYPES}"
        ) from error
    if ahead:
        raise ModelError(
            f"model {source!r} is not causal: its tokens see later ones; choose a causal language "
            "model"
        )
    if not torch.allclose(ours, theirs.float(), atol=1e-3, rtol=1e-3):
        raise ModelError(
            f"model {source!r} changes its logits after the output layer, which is not supported; "
            f"{SEE_TYPES}"
        )


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns a full tensor. A sharded one (`DTensor`) is gathered, so all processes must call this
    for the same tensors in the same order."""
    sharded: Any = tensor
    return sharded.full_tensor() if hasattr(tensor, "full_tensor") else tensor
