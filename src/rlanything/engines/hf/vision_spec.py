"""The text side of a model that sees: what stands for an image in a chat, which token ids it has,
and which positions. Nothing here computes with the model; it travels to other processes."""

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
    """An image as a model takes it in."""

    text: str
    """What stands for it in a chat, every token written out."""
    tokens: int
    """How many of those tokens have features."""
    grid: tuple[int, int] | None = None
    """The rows and columns that they form, where positions follow them; None: they follow one
    another like text."""


@dataclass(frozen=True, slots=True)
class VisionFamily:
    """The ways of a kind of models with images."""

    image_tokens: Callable[[VisionSpec, int, int], ImageTokens]
    """Returns how an image of a height and a width in pixels is taken in."""
    joined: int = 0
    """The dimension of pixels along which several images lie behind one another."""
    in_one: bool = False
    """Whether the features of all images are one tensor; otherwise each has its own."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What the family's own processor asks of the one for images."""


class VisionSpec:
    """Where a model's images are, and how it takes them in."""

    def __init__(
        self, config: Any, tokenizer: PreTrainedTokenizerBase, processor: Any, book: ImageBook
    ) -> None:
        """Raises `ModelError` for models of other kinds, and for a tokenizer without the token that
        stands for an image."""
        if config.model_type not in FAMILIES:
            raise ModelError(f"models of type {config.model_type} are not shown images here")
        self.family = FAMILIES[config.model_type]
        self.processor, self.book, self.config = processor, book, config
        self.placeholder: int = config.image_token_id
        token: Any = tokenizer.convert_ids_to_tokens(self.placeholder)
        if token is None or tokenizer.encode(token, add_special_tokens=False) != [self.placeholder]:
            raise ModelError(
                f"its tokenizer has no token of id {self.placeholder}, which stands for an image"
            )
        self.token: str = token
        """The text that a chat template writes where an image is."""
        marks = ("image", "video", "vision_start", "vision_end")
        named = (getattr(config, f"{mark}_token_id", None) for mark in marks)
        self.closed = tuple(sorted({token for token in named if isinstance(token, int)}))
        """Tokens that are never sampled: a placeholder without an image cannot be computed."""
        self.in_grid = config.model_type in IN_GRID
        """Whether positions have three axes: time, row and column."""
        self._sizes: dict[str, tuple[int, int]] = {}
        self._by_size: dict[tuple[int, int], ImageTokens] = {}
        """By height and width: a run has many images, and few sizes."""

    def image_tokens(self, name: str) -> ImageTokens:
        """Returns how an image is taken in. Raises `ModelError` where it cannot be."""
        if name not in self._sizes:
            self._sizes[name] = png_size(self.book.data(name), name)
        size = self._sizes[name]
        if size not in self._by_size:
            tokens = self.family.image_tokens(self, *size)
            if tokens.tokens > MOST_TOKENS:
                raise ModelError(
                    f"image {name} would be {tokens.tokens} tokens, at most {MOST_TOKENS} can be; "
                    "lower the largest size in preprocessor_config.json"
                )
            self._by_size[size] = tokens
        return self._by_size[size]

    def virtual(self, name: str) -> range:
        """Returns the ids of an image's tokens."""
        return virtual_ids(self.book.key(name), self.image_tokens(name).tokens)

    def placed(self, ids: Sequence[int], names: Sequence[str]) -> list[int]:
        """Returns token ids in which placeholders stand for images, these in their order, with the
        images' own in their place. Raises `ModelError` where they are more, or fewer."""
        own = [token for name in names for token in self.virtual(name)]
        if ids.count(self.placeholder) != len(own):
            raise ModelError(
                f"the chat has {ids.count(self.placeholder)} places for tokens of images, and its "
                f"{len(names)} images have {len(own)}; give the model's folder the chat template "
                "that it was published with"
            )
        left = iter(own)
        return [next(left) if token == self.placeholder else token for token in ids]

    def images_of(self, ids: np.ndarray) -> list[tuple[int, str]]:
        """Returns where in token ids [tokens] images begin, and their names, in their order."""
        keys, offsets = split_ids(ids)
        starts = np.flatnonzero((ids < 0) & (offsets == 0)).tolist()
        return [(start, self.book.name(int(keys[start]))) for start in starts]

    def positions(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns the positions [3, tokens] of a sequence from its first token on; [tokens] where
        those of images follow one another like text.

        Text counts on in all axes. The tokens of an image of h x w are at (n, n + row, n + column),
        n being the next position, and what follows begins at n + max(h, w) (M-RoPE, arXiv
        2409.12191)."""
        if not self.in_grid:
            return np.arange(len(ids))
        tokens = np.array(ids, dtype=np.int64)
        depths = np.arange(len(tokens))
        positions = np.tile(depths, (3, 1))
        for start, name in self.images_of(tokens):
            picture = self.image_tokens(name)
            assert picture.grid is not None
            rows, columns = picture.grid
            base, end = positions[0, start], start + picture.tokens
            places = np.arange(picture.tokens)
            grid = np.stack([0 * places, places // columns, places % columns])
            # It may be cut off.
            positions[:, start:end] = base + grid[:, : len(tokens) - start]
            positions[:, end:] = base + max(rows, columns) + depths[end:] - end
        return positions

    def shift(self, ids: Sequence[int]) -> int:
        """Returns by how much the position of text behind a sequence of whole images differs from
        the number of tokens before it."""
        if not self.in_grid:
            return 0
        pictures = [
            self.image_tokens(name) for _, name in self.images_of(np.array(ids, dtype=np.int64))
        ]
        return sum(max(each.grid or (0, 0)) - each.tokens for each in pictures)


def find_vision(
    config: Any, tokenizer: PreTrainedTokenizerBase, load: Callable[[], Any], book: ImageBook
) -> tuple[VisionSpec | None, str]:
    """Returns how a model sees, or None and why it does not. `load` gives its image processor."""
    if getattr(config, "vision_config", None) is None:
        return None, "it is a model of text alone"
    if config.model_type not in FAMILIES:
        return None, f"models of type {config.model_type} are not shown images here"
    if importlib.util.find_spec("PIL") is None:
        return None, "reading images needs Pillow (pip install 'rlanything[vision]')"
    try:
        return VisionSpec(config, tokenizer, load(), book), ""
    except (OSError, ValueError, ImportError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return None, f"its image processor cannot be used ({reason})"


def _qwen(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    # Loaded with the processor already, and so is Pillow.
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    processor = spec.processor
    merged = processor.patch_size * processor.merge_size
    least, most = processor.size["shortest_edge"], processor.size["longest_edge"]
    pixels = smart_resize(height, width, merged, least, most)
    rows, columns = (side // merged for side in pixels)
    return ImageTokens(spec.token * rows * columns, rows * columns, (rows, columns))


def _tiles(spec: VisionSpec, height: int, width: int) -> ImageTokens:
    """Idefics3 and SmolVLM: tiles row by row, then the whole image, each as a square of tokens."""
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
    # CLIP's towers have a token of their own before those of the patches.
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
"""The kinds of models that are shown images, by their `model_type`. Others are not: where tokens of
an image see those behind them (Gemma 3, PaliGemma), or layers are recurrent (Qwen3.5), what is
computed once for all is not what each sequence computes."""
IN_GRID = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
