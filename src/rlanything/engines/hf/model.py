"""A language model and its tokenizer, as engines and learners share them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
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

    `hidden_states` and `logits` are kept apart so that logits exist only where somebody needs them.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        autocast: torch.dtype | None = None,
        vision: VisionSpec | None = None,
        no_vision_reason: str = "it was loaded without its image processor",
    ) -> None:
        """`autocast`: computes in this type while the weights stay in theirs; `spec`: how it takes
        in images, `blind`: why it does not.

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
        """Why sequences cannot share their beginnings in a trie; None if they can."""
        self.own_cache_works: bool = self.sharing_problem is None or own_cache_works(network)
        """Whether transformers' own cache can be generated with."""
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
        """The part that may travel to a process that does not compute with the model."""
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

        mask [batch, 1, tokens, keys] is True where a token may look; None: at all before it."""
        if mask is not None:
            # As numbers to be added: otherwise every layer's attention makes them of it again.
            closed = ~mask.to(self.device)
            mask = closed.new_zeros(closed.shape, dtype=self.network.dtype)
            mask = mask.masked_fill(closed, float("-inf"))
        body = self.decoder if self._vision_tower is None else self.network.base_model
        return self._decode(ids, positions, attention_mask=mask, **cache_arguments(body, cache))

    def trie_hidden_states(self, ids: Tensor, positions: Tensor, ends: np.ndarray) -> Tensor:
        """Returns [nodes, hidden] of a trie whose nodes lie depth first; all arguments [nodes],
        positions also [3, nodes].

        Only for models without a `sharing_problem`; `ends` as in engines/attention.py."""
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
        """Returns by how much positions differ, behind a sequence, from the number of tokens."""
        return 0 if self.vision is None else self.vision.shift(ids)

    @property
    def in_grid(self) -> bool:
        """Whether positions are [3, tokens], and not a token's number in its sequence."""
        return self.vision is not None and self.vision.in_grid

    def forget_images(self) -> None:
        """Drops what images were computed to be, which new weights may not compute."""
        if self._vision_tower is not None:
            self._vision_tower.forget()

    def plain_inputs(self, ids: Sequence[int]) -> tuple[Tensor, dict[str, Any]]:
        """Returns ids [1, tokens] and what else transformers' own methods take with them: pixels,
        where images are among them."""
        if self._vision_tower is None:
            return torch.tensor([list(ids)], device=self.device), {}
        return self._vision_tower.plain(ids)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns [..., vocab] in float32, or float64 where the weights are; -inf for tokens that
        stand for images."""
        return self.possible(self.raw_logits(hidden))

    def raw_logits(self, hidden: Tensor) -> Tensor:
        """Returns [..., vocab] as the output layer gives them, in that type."""
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            logits = self.head(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def possible(self, logits: Tensor) -> Tensor:
        """Returns logits [..., vocab] of which those of tokens that stand for images are -inf: one
        that was sampled could not be computed."""
        if self.vision is None:
            return logits
        closed = torch.tensor(self.vision.closed, device=logits.device)
        return logits.index_fill(-1, closed, float("-inf"))

    def save(self, folder: Path, writes: bool = True) -> None:
        """Writes the Hugging Face format: `from_pretrained(folder)` opens it. Of a model with
        adapters it is these, and where the rest lies.

        Processes that hold the model's shards all call it; one of them `writes`."""
        state: dict[str, Tensor] = {}
        for names, tensor in full_state(self.network):
            if writes:
                state |= dict.fromkeys(names, tensor.cpu())
        if writes:
            self.network.save_pretrained(folder, state_dict=state)
            self.tokenizer.save_pretrained(folder)
            if self.vision is not None:
                self.vision.processor.save_pretrained(folder)

    def outline(self) -> LanguageModel:
        """Returns all of the model but its weights, small enough to be sent to other processes:
        what was measured of it need not be measured there again."""
        return self.empty("meta")

    def empty(self, device: str, dtype: torch.dtype | None = None) -> LanguageModel:
        """Returns a copy on a device, with room for weights (in `dtype`; None: in theirs) and for
        buffers, tied ones once, whose contents are anything."""
        made: dict[int, Any] = {}
        for weights in self.network.parameters():
            room = torch.empty_like(weights, device=device, dtype=dtype)
            made[id(weights)] = nn.Parameter(room, requires_grad=weights.requires_grad)
        # Angles of positions are no weights, and wrong in fewer bits.
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
    """Returns a model from a folder (also one of adapters, which names what they belong to), a
    Hugging Face id, or a GGUF file. `dtype` is for computing. Weights are float32, for a step of
    training is too small for less; those of a model that never `trains` are kept in `dtype` too.
    `images`: folders with the files of images; with `train_vision` the tower learns too.

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
    """Returns the most tokens that a model was made for; None where nothing bounds them: purely
    recurrent models have no positions, though some, such as RWKV, name a length of training."""
    config = network.config.get_text_config()
    if getattr(network, "_is_stateful", False) and not getattr(config, "num_attention_heads", None):
        return None
    context = getattr(config, "max_position_embeddings", None)
    return context if context and context > 0 else None


def _choose_trained(network: PreTrainedModel, source: str, train_vision: bool) -> None:
    """Says which weights learn: adapters alone where there are any, the tower only if asked."""
    tower = tower_weights(network)
    if train_vision and not tower:
        raise ModelError(
            f"model {source!r} has no tower that reads images; leave train_vision out, or choose a "
            "model that sees."
        )
    for name, weights in network.named_parameters():
        if has_adapters(network):
            weights.requires_grad_(".lora_" in name)
        else:
            weights.requires_grad_(train_vision or name not in tower)


def _freeze(network: nn.Module, dtype: torch.dtype | None) -> None:
    """Takes the weights' gradients away, and all precision beyond this type.

    After all checks, which tell in float32 what is rounding and what is not. Buffers stay: angles
    of positions are no weights, and wrong in fewer bits."""
    for weights in network.parameters():
        weights.requires_grad_(False)
        if dtype is not None:
            weights.data = weights.data.to(dtype)


def has_adapters(network: PreTrainedModel) -> bool:
    """Whether LoRA adapters are what trains, and what is saved."""
    return bool(getattr(network, "_hf_peft_config_loaded", False))


@torch.inference_mode()
def _check_logits(model: LanguageModel, source: str) -> None:
    """Refuses architectures whose logits ours would not be: those that look ahead, and those that
    scale or cap their logits after the head."""
    ids = torch.tensor([[0, 1, 2, 3]], device=model.device)
    positions = torch.arange(4)[None]
    try:
        ahead = looks_ahead(model.network, model.decoder)
        ours = model.raw_logits(model.hidden_states(ids, positions, None))
        with torch.autocast(model.device.type, model.autocast, enabled=model.autocast is not None):
            theirs = model.network(input_ids=ids, position_ids=positions.to(model.device)).logits
    except Exception as error:
        # Whatever a model needs beside tokens and positions, it gets none of it here.
        raise ModelError(
            f"model {source!r} cannot compute tokens alone ({reason_of(error)}); {SEE_TYPES}"
        ) from error
    if ahead:
        raise ModelError(
            f"model {source!r} does not go from left to right: its tokens see those behind them; "
            "choose a causal language model"
        )
    if not torch.allclose(ours, theirs.float(), atol=1e-3, rtol=1e-3):
        raise ModelError(
            f"model {source!r} changes its logits after the output layer, which is not supported; "
            f"{SEE_TYPES}"
        )


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns a tensor in full. Of one that several processes hold together (a `DTensor`) they
    gather it, so all of them ask for the same ones in the same order."""
    sharded: Any = tensor
    return sharded.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def full_state(network: nn.Module) -> Iterator[tuple[list[str], Tensor]]:
    """Yields each tensor of a network's state dict in full, with its names: tied ones have several.

    One at a time: whoever drops what it does not need never holds all."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    state: dict[str, Tensor] = network.state_dict()
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(parameters.get(name, tensor)), []).append(name)
    for alike in names.values():
        yield alike, full_tensor(state[alike[0]])
