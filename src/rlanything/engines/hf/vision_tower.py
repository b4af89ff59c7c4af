"""The computing side of a vision model: encodes each image once and inserts its features."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from rlanything.engines.base import ModelError
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.images import split_ids

KEPT_FEATURES = 1 << 29
"""Cache size for features in bytes; a 1920 x 1080 screenshot has 67 MB in an 8B model."""
KEPT_PIXELS = 1 << 28
"""Cache size for pixels in bytes."""
_READ = ("pixel_values", "image_grid_thw", "pixel_attention_mask")
"""Outputs of image processors that towers use."""
T = TypeVar("T")


class Kept(Generic[T]):
    """An LRU cache of results by name with a limit in bytes. Copies of it are empty."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes = 0
        """Size of all results."""

    def get(self, name: str, make: Callable[[], tuple[T, int]]) -> T:
        """Returns a result; a missing one, and its size, comes from `make`."""
        if name not in self._results:
            self._results[name] = made = make()
            self.bytes += made[1]
        self._results.move_to_end(name)
        result, _ = self._results[name]
        while self.bytes > self._limit:
            self.bytes -= self._results.popitem(last=False)[1][1]
        return result

    def clear(self) -> None:
        self._results.clear()
        self.bytes = 0

    def __reduce__(self) -> tuple[type[Kept[T]], tuple[int]]:
        return Kept, (self._limit,)


@dataclass(frozen=True, slots=True)
class Features:
    """An image's features for the text model."""

    rows: Tensor
    """Features [tokens, hidden]."""
    deep: tuple[Tensor, ...]
    """Features [levels][tokens, hidden] added in the first layers (DeepStack, arXiv 2406.04334);
    empty for models without."""

    @property
    def bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in (self.rows, *self.deep))


class VisionTower:
    """A network's vision tower, with a cache of image features."""

    def __init__(self, network: PreTrainedModel, spec: VisionSpec) -> None:
        self._spec = spec
        self._body: Any = network.base_model
        self._weights = list(tower_weights(network).values())
        self._features: Kept[Features] = Kept(KEPT_FEATURES)
        self._pixels: Kept[dict[str, Tensor]] = Kept(KEPT_PIXELS)

    def forget(self) -> None:
        """Drops all features, because the tower's weights may have changed."""
        self._features.clear()

    def body(self, ids: Tensor, **more: Any) -> Tensor:
        """Returns the last hidden states of ids [rows, tokens], which may be virtual and on any
        device. `more` is passed to the network."""
        ids, images = self._arguments(ids)
        device = self._body.device
        return self._body(input_ids=ids.to(device), **images, **more).last_hidden_state

    def _arguments(self, ids: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Returns ids with placeholders instead of virtual ids, and the features of these. Raises
        `ModelError` for placeholders without an image."""
        placeholder = self._spec.placeholder
        if (ids == placeholder).any():
            raise ModelError(
                f"token ids contain the image placeholder {self._spec.token!r} without an image: "
                "use its virtual ids (engines/images.py)"
            )
        virtual = ids < 0
        if not virtual.any():
            return ids, {}
        keys, offsets = split_ids(ids[virtual].cpu().numpy())
        images = [self.features(self._spec.book.name(key)) for key in np.unique(keys).tolist()]
        starts = np.cumsum([0, *(len(image.rows) for image in images)])[:-1]
        _, numbers = np.unique(keys, return_inverse=True)
        places = torch.from_numpy(starts[numbers] + offsets).to(self._body.device)
        rows = _gathered([image.rows for image in images], places)
        levels = zip(*(image.deep for image in images), strict=True)
        seen = SimpleNamespace(
            pooler_output=rows if self._spec.family.in_one else (rows,),
            deepstack_features=[[_gathered(level, places)] for level in levels],
        )
        return ids.masked_fill(virtual, placeholder), {"mm_encoder_outputs": {"image": seen}}

    def features(self, name: str) -> Features:
        """Returns an image's features. A tower that trains computes them again whenever gradients
        may be needed, or weights may have changed."""
        if self._trains and not torch.is_inference_mode_enabled():
            return self._encode(name)
        return self._features.get(name, lambda: self._kept(name))

    @property
    def _trains(self) -> bool:
        return any(weights.requires_grad for weights in self._weights)

    def _kept(self, name: str) -> tuple[Features, int]:
        # Inference tensors could not be used in a later pass with gradients.
        with torch.inference_mode(False), torch.no_grad():
            features = self._encode(name)
        return features, features.bytes

    def _encode(self, name: str) -> Features:
        out = self._body.get_image_features(**self.inputs([name]), return_dict=True)
        pooled, hidden = out.pooler_output, self._body.get_input_embeddings().embedding_dim
        parts = pooled if isinstance(pooled, list | tuple) else [pooled]
        rows = torch.cat([part.reshape(-1, hidden) for part in parts])
        deep = getattr(out, "deepstack_features", None) or ()
        if len(rows) != (tokens := self._spec.image_tokens(name).tokens):
            raise ModelError(
                f"image {name} has {tokens} tokens but {len(rows)} features: preprocessor_config"
                ".json and config.json do not match; take both from one model"
            )
        levels = (level if isinstance(level, list | tuple) else [level] for level in deep)
        return Features(rows, tuple(torch.cat([*level]) for level in levels))

    def inputs(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Returns the network's own arguments for images, in order, such as pixels."""
        device, family = self._body.device, self._spec.family
        read = [self._pixels.get(name, lambda name=name: self._process(name)) for name in names]
        # Grids have one row per image, whatever the dimension of pixels is.
        dimensions = {"image_grid_thw": 0}
        return {
            key: torch.cat([part[key] for part in read], dimensions.get(key, family.joined)).to(
                device
            )
            for key in (read[0] if read else ())
        }

    def plain(self, ids: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns ids [1, tokens] with placeholders, and the further arguments that transformers
        needs for images."""
        tokens = torch.tensor([list(ids)])
        virtual = tokens < 0
        names = [name for _, name in self._spec.images_of(tokens[0].numpy())]
        more = self.inputs(names)
        if more and self._spec.in_grid:
            more["mm_token_type_ids"] = virtual.int().to(self._body.device)
        return tokens.masked_fill(virtual, self._spec.placeholder).to(self._body.device), more

    def _process(self, name: str) -> tuple[dict[str, Tensor], int]:
        read = pixels(self._spec, [opened(self._spec, name)])
        return read, sum(part.numel() * part.element_size() for part in read.values())


def opened(spec: VisionSpec, name: str) -> Any:
    """Returns an image of a model's image book, opened by Pillow."""
    # The extra `vision`, only needed for images.
    import PIL.Image

    with PIL.Image.open(io.BytesIO(spec.book.data(name)), formats=["PNG"]) as image:
        return image.convert("RGB")


def pixels(spec: VisionSpec, images: Sequence[Any]) -> dict[str, Tensor]:
    """Returns a tower's inputs for opened images: pixels, resized for the model, and more."""
    given = spec.processor([*images], return_tensors="pt", **spec.family.asked)
    return {key: given[key] for key in _READ if key in given}


def _gathered(parts: Sequence[Tensor], places: Tensor) -> Tensor:
    # An embedding, because its gradient is summed in a fixed order.
    return functional.embedding(places, torch.cat([*parts]))


def tower_weights(network: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Returns the weights that only process images, by name: the vision tower and its projector.
    Empty for a text-only model."""
    if getattr(network.config, "vision_config", None) is None:
        return {}
    stand_in: Any = network
    parts = (stand_in.get_decoder(), stand_in.get_output_embeddings())
    text = {id(weights) for part in parts if part is not None for weights in part.parameters()}
    named = network.named_parameters()
    return {name: weights for name, weights in named if id(weights) not in text}
