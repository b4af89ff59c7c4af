"""The text side of a vision model: an image's text in a chat, its token ids and positions.

Nothing here computes with the model, so it can be sent to other processes."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from rlanything.engines.base import ModelError
from rlanything.engines.images import MOST_TOKENS, ImageBook, png_size, split_ids, virtual_ids


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """The tokens of an image."""

    text: str
    """Its text in a chat, with all placeholders and marks."""
    tokens: int
    """Number of placeholders, the tokens with features."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the tokens, for positions in a grid; None: positions count like text."""


@dataclass(frozen=True, slots=True)
class VisionFamily:
    """How one model family handles images."""

    image_tokens: Callable[[VisionSpec, int, int], ImageTokens]
    """Returns the tokens of an image with a height and a width in pixels."""
    joined: int = 0
    """Dimension along which the pixels of several images are concatenated."""
    in_one: bool = False
    """Whether the features of all images are one tensor instead of one each."""
    asked: dict[str, Any] = field(default_factory=dict)
    """Extra arguments that its processor passes to the image processor."""


class VisionSpec:
    """A model's image handling: its images, processor and tokens."""

    def __init__(
        self, config: Any, tokenizer: PreTrainedTokenizerBase, processor: Any, book: ImageBook
    ) -> None:
        """Raises `ModelError` for unsupported model types, and for a tokenizer without the image
        placeholder."""
        if config.model_type not in FAMILIES:
            raise ModelError(f"images are not supported for models of type {config.model_type}")
        self.family = FAMILIES[config.model_type]
        self.processor = processor
        self.book = book
        self.config = config
        self.placeholder: int = config.image_token_id
        token: Any = tokenizer.convert_ids_to_tokens(self.placeholder)
        if token is None or tokenizer.encode(token, add_special_tokens=False) != [self.placeholder]:
            raise ModelError(
                f"its tokenizer has no token of id {self.placeholder}, the image placeholder"
            )
        self.token: str = token
        """The placeholder's text, which a chat template writes for an image."""
        marks = ("image", "video", "vision_start", "vision_end")
        named = (getattr(config, f"{mark}_token_id", None) for mark in marks)
        self.closed = tuple(sorted({token for token in named if isinstance(token, int)}))
        """Tokens that are never sampled, because a placeholder without an image cannot be
        computed."""
        self.in_grid = config.model_type in IN_GRID
        """Whether positions have three axes: time, row and column."""
        self._sizes: dict[str, tuple[int, int]] = {}
        self._by_size: dict[tuple[int, int], ImageTokens] = {}
        """Image tokens by height and width; a run has many images but few sizes."""

    def image_tokens(self, name: str) -> ImageTokens:
        """Returns the tokens of an image. Raises `ModelError` for a bad or too large image."""
        if name not in self._sizes:
            self._sizes[name] = png_size(self.book.data(name), name)
        size = self._sizes[name]
        if size not in self._by_size:
            tokens = self.family.image_tokens(self, *size)
            if tokens.tokens > MOST_TOKENS:
                raise ModelError(
                    f"image {name} has {tokens.tokens} tokens, more than the limit of "
                    f"{MOST_TOKENS}; lower the largest size in preprocessor_config.json"
                )
            self._by_size[size] = tokens
        return self._by_size[size]

    def virtual(self, name: str) -> range:
        """Returns the ids of an image's tokens."""
        return virtual_ids(self.book.key(name), self.image_tokens(name).tokens)

    def placed(self, ids: Sequence[int], names: Sequence[str]) -> list[int]:
        """Returns token ids with placeholders replaced by the virtual ids of images, in order.
        Raises `ModelError` if their numbers differ."""
        own = [token for name in names for token in self.virtual(name)]
        if ids.count(self.placeholder) != len(own):
            raise ModelError(
                f"the chat has {ids.count(self.placeholder)} image placeholders, but its "
                f"{len(names)} images have {len(own)} tokens; restore the chat template that the "
                "model was published with"
            )
        left = iter(own)
        return [next(left) if token == self.placeholder else token for token in ids]

    def images_of(self, ids: np.ndarray) -> list[tuple[int, str]]:
        """Returns the start and name of each image in token ids [tokens], in order."""
        keys, offsets = split_ids(ids)
        starts = np.flatnonzero((ids < 0) & (offsets == 0)).tolist()
        return [(start, self.book.name(int(keys[start]))) for start in starts]

    def positions(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns the positions [3, tokens] of a sequence from its first token on, or [tokens] if
        image tokens count like text.

        Text counts up in all axes. The tokens of an h x w image are at (n, n + row, n + column) for
        the next position n, and the following text begins at n + max(h, w) (M-RoPE, arXiv
        2409.12191)."""
        if not self.in_grid:
            return np.arange(len(ids))
        tokens = np.array(ids, dtype=np.int64)
        depths = np.arange(len(tokens))
        positions = np.tile(depths, (3, 1))
        for start, name in self.images_of(tokens):
            image = self.image_tokens(name)
            assert image.grid is not None
            rows, columns = image.grid
            base, end = positions[0, start], start + image.tokens
            places = np.arange(image.tokens)
            grid = np.stack([0 * places, places // columns, places % columns])
            # The image may be cut off.
            positions[:, start:end] = base + grid[:, : len(tokens) - start]
            positions[:, end:] = base + max(rows, columns) + depths[end:] - end
        return positions

    def shift(self, ids: Sequence[int]) -> int:
        """Returns the difference of position and token count after a sequence with complete
        images."""
        if not self.in_grid:
            return 0
        pictures = [
            self.image_tokens(name) for _, name in self.images_of(np.array(ids, dtype=np.int64))
        ]
        return sum(max(each.grid or (0, 0)) - each.tokens for each in pictures)


def find_vision(
    config: Any, tokenizer: PreTrainedTokenizerBase, load: Callable[[], Any], book: ImageBook
) -> tuple[VisionSpec | None, str]:
    """Returns a model's image handling, or None and the reason. `load` opens its image
    processor."""
    if getattr(config, "vision_config", None) is None:
        return None, "it is a text-only model"
    if config.model_type not in FAMILIES:
        return None, f"images are not supported for models of type {config.model_type}"
    if importlib.util.find_spec("PIL") is None:
        return None, "reading images needs Pillow (pip install 'rlanything[vision]')"
    try:
        return VisionSpec(config, tokenizer, load(), book), ""
    except (OSError, ValueError, ImportError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return None, f"its image processor cannot be used ({reason})"


def _qwen(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    # Already imported with the processor, like Pillow.
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    processor = spec.processor
    merged = processor.patch_size * processor.merge_size
    least, most = processor.size["shortest_edge"], processor.size["longest_edge"]
    pixels = smart_resize(height, width, merged, least, most)
    rows, columns = (side // merged for side in pixels)
    return ImageTokens(spec.token * rows * columns, rows * columns, (rows, columns))


def _tiles(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    """Idefics3 and SmolVLM: tiles row by row, then the whole image, each a square of tokens."""
    vision = spec.config.vision_config
    tokens = (vision.image_size // vision.patch_size) ** 2 // spec.config.scale_factor**2
    _, rows, columns = spec.processor.get_number_of_image_patches(height, width)
    around, tile = "<fake_token_around_image>", spec.token * tokens
    text = ""
    for row in range(1, rows + 1):
        line = (f"{around}<row_{row}_col_{column}>{tile}" for column in range(1, columns + 1))
        text += "".join(line) + "\n"
    text += "\n" if text else ""
    text += f"{around}<global-img>{tile}{around}"
    return ImageTokens(text, (rows * columns + 1) * tokens)


def _llava(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    config, vision = spec.config, spec.config.vision_config
    tokens = (vision.image_size // vision.patch_size) ** 2
    # CLIP towers have a class token before the patches.
    tokens += vision.model_type.startswith("clip")
    tokens -= config.vision_feature_select_strategy == "default"
    return ImageTokens(spec.token * tokens, tokens)


def _internvl(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    config, vision = spec.config, spec.config.vision_config
    patches = zip(vision.image_size, vision.patch_size, strict=True)
    tokens = math.prod(size // patch for size, patch in patches)
    tokens = int(tokens * config.downsample_ratio**2)
    asked = spec.family.asked
    tokens *= spec.processor.get_number_of_image_patches(height, width, asked)
    return ImageTokens(f"<img>{spec.token * tokens}</img>", tokens)


FAMILIES = {
    "qwen2_vl": VisionFamily(_qwen),
    "qwen2_5_vl": VisionFamily(_qwen),
    "qwen3_vl": VisionFamily(_qwen),
    "smolvlm": VisionFamily(_tiles, joined=1),
    "idefics3": VisionFamily(_tiles, joined=1),
    "llava": VisionFamily(_llava),
    "internvl": VisionFamily(_internvl, in_one=True, asked={"crop_to_patches": True}),
}
"""Supported vision models by `model_type`. Prefix sharing would be wrong for others: image tokens
that see later ones (Gemma 3, PaliGemma), or recurrent layers (Qwen3.5)."""
IN_GRID = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
