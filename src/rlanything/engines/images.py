"""Images as virtual token ids: each token's id, outside every vocabulary, encodes the image's name
and the token's offset in it.

Prompts that differ only in an image thus differ in their ids, so that caches, packing and hashing
need no special case. The ids become the model's placeholder only when a network is called.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlanything.domains.base import Image
from rlanything.engines.base import ModelError

_DIGITS, _OFFSET_BITS = 12, 15
MOST_TOKENS = 1 << _OFFSET_BITS
"""Largest number of tokens of an image."""
MOST_PIXELS = 1 << 25
"""Largest accepted image in pixels (above 8K); guards against decompression bombs."""
IMAGE_NAME = re.compile(r"[0-9a-f]{32}\.png")
"""The form of `Image.name`; other names, which a store may contain, are never opened."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def key_of(name: str) -> int:
    """Returns the 48 bits of an image's name that its ids encode. Among 100,000 images two share a
    key with a probability of 2e-5; an `ImageBook` refuses them."""
    return int(name[:_DIGITS], 16)


def virtual_ids(key: int, count: int) -> range:
    """Returns the ids of an image's tokens, which are negative."""
    first = -1 - (key << _OFFSET_BITS)
    return range(first, first - count, -1)


def split_ids(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the image keys [tokens] of virtual ids [tokens], and the token offsets [tokens] in
    the images."""
    numbers = -1 - ids
    return numbers >> _OFFSET_BITS, numbers & (MOST_TOKENS - 1)


class ImageBook:
    """Images by name, PNG files in one of several folders, read on demand.

    Folders may be created later, and may get new files at any time."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._names: dict[int, str] = {}
        self._added: dict[str, bytes] = {}

    def add(self, data: bytes) -> str:
        """Keeps an image that is in none of the folders, and returns its name."""
        name = Image(data).name
        self._added[name] = data
        self.key(name)  # so that a copy of the book in another process finds it by its ids
        return name

    def key(self, name: str) -> int:
        """Returns the key of an image. Raises `ModelError` for a name of another form, and if
        another image has the same key."""
        if not IMAGE_NAME.fullmatch(name):
            raise ModelError(f"{name!r:.80} names no image; use domains.base.Image.name")
        key = key_of(name)
        if self._names.setdefault(key, name) != name:
            raise ModelError(
                f"images {self._names[key]} and {name} would have the same token ids; change a "
                "pixel of one of them, or leave its task out"
            )
        return key

    def name(self, key: int) -> str:
        """Returns the name of the image with a key, which may come from another process. Raises
        `ModelError` if there is no such image."""
        if key not in self._names:
            for folder in self._folders:
                for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                    if IMAGE_NAME.fullmatch(path.name):
                        self.key(path.name)
        if key not in self._names:
            raise self._missing(f"{key:0{_DIGITS}x}....png")
        return self._names[key]

    def data(self, name: str) -> bytes:
        """Returns an image as PNG. Raises `ModelError` if it is missing or not a PNG."""
        self.key(name)
        data = self._added.get(name) or self._read(name)
        png_size(data, name)
        return data

    def _read(self, name: str) -> bytes:
        for folder in self._folders:
            try:
                # A run directory may be untrusted, so links in it are not followed.
                number = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                continue
            with open(number, "rb") as file:
                return file.read()
        raise self._missing(name)

    def _missing(self, name: str) -> ModelError:
        where = ", ".join(map(str, self._folders)) or "any folder of images"
        return ModelError(
            f"image {name} is not in {where}; restore it from a copy of the run, or, with seats on "
            "several machines, put the run on a file system that all of them see"
        )


def png_size(data: bytes, name: str) -> tuple[int, int]:
    """Returns the height and width in pixels from a PNG's header. Raises `ModelError` for other
    files, and for more than `MOST_PIXELS`."""
    if data[:8] != _SIGNATURE or data[12:16] != b"IHDR" or len(data) < 24:
        raise ModelError(f"image {name} is not a PNG; make the domain return PNG files")
    width, height = struct.unpack(">II", data[16:24])
    if not 0 < width * height <= MOST_PIXELS:
        raise ModelError(
            f"image {name} has {width} x {height} pixels, more than the limit of {MOST_PIXELS:,}; "
            "make the domain return smaller ones"
        )
    return height, width


def noise_png(seed: int, height: int, width: int) -> bytes:
    """Returns a PNG of random pixels, for measurements."""
    return _png(np.random.default_rng(seed).integers(0, 256, (height, 3 * width), dtype=np.uint8))


def blank_png(height: int, width: int) -> bytes:
    """Returns a white PNG."""
    return _png(np.full((height, 3 * width), 255, dtype=np.uint8))


def _png(pixels: np.ndarray) -> bytes:
    """Returns pixels [height, 3 * width] as a PNG."""
    height, width = pixels.shape[0], pixels.shape[1] // 3
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each line begins with filter type 0
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
