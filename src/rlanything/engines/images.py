"""Images in token ids: every token of an image has an id made of the image's name and its place in
it, outside every vocabulary.

Two prompts that differ in an image alone so differ in their ids, and whatever compares ids (caches,
packs, hashes) tells them apart. Only where a network is called do such ids become its placeholder.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlanything.engines.base import ModelError

_DIGITS, _OFFSET_BITS = 12, 15
MOST_TOKENS = 1 << _OFFSET_BITS
"""An image has no more tokens than this."""
MOST_PIXELS = 1 << 25
"""Nor more pixels: a few bytes of a stranger's may say that they are gigabytes. 8K has fewer."""
IMAGE_NAME = re.compile(r"[0-9a-f]{32}\.png")
"""The form of `domains.base.Image.name`. A store may name anything; no other file is read."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def key_of(name: str) -> int:
    """Returns the 48 bits of an image's name that its ids are made of: of 100,000 images two share
    theirs with a probability of 2e-5, and a book that meets two such refuses them."""
    return int(name[:_DIGITS], 16)


def virtual_ids(key: int, count: int) -> range:
    """Returns the ids of an image's tokens, all of them negative."""
    first = -1 - (key << _OFFSET_BITS)
    return range(first, first - count, -1)


def split_ids(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys [tokens] of the images that virtual ids [tokens] belong to, and the offsets
    [tokens] of the tokens in them."""
    numbers = -1 - ids
    return numbers >> _OFFSET_BITS, numbers & (MOST_TOKENS - 1)


class ImageBook:
    """Images by name, each a PNG file in one of some folders, read when it is asked for.

    Folders may be there later than the book, and get new files at any time."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._names: dict[int, str] = {}
        self._added: dict[str, bytes] = {}

    def add(self, data: bytes) -> str:
        """Keeps an image that lies in no folder, and returns its name."""
        name = f"{hashlib.sha256(data).hexdigest()[:32]}.png"
        self._added[name] = data
        self.key(name)  # a copy of the book, elsewhere, finds it by its ids
        return name

    def key(self, name: str) -> int:
        """Returns the key of an image. Raises `ModelError` for a name that is none of an image's,
        and where another image has the same key."""
        if not IMAGE_NAME.fullmatch(name):
            raise ModelError(f"{name!r:.80} names no image; give what domains.base.Image.name says")
        key = key_of(name)
        if self._names.setdefault(key, name) != name:
            raise ModelError(
                f"images {self._names[key]} and {name} would have the same token ids; change a "
                "pixel of one of them, or leave its task out"
            )
        return key

    def name(self, key: int) -> str:
        """Returns the name of the image with a key, which may have been given in another process.
        Raises `ModelError` where none is here."""
        if key not in self._names:
            for folder in self._folders:
                for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                    if IMAGE_NAME.fullmatch(path.name):
                        self.key(path.name)
        if key not in self._names:
            raise self._missing(f"{key:0{_DIGITS}x}....png")
        return self._names[key]

    def data(self, name: str) -> bytes:
        """Returns an image as PNG. Raises `ModelError` where it is not here, or no such file."""
        self.key(name)
        data = self._added.get(name) or self._read(name)
        png_size(data, name)
        return data

    def _read(self, name: str) -> bytes:
        for folder in self._folders:
            try:
                # A run directory may come from somebody else: what it links to is not opened.
                number = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                continue
            with open(number, "rb") as file:
                return file.read()
        raise self._missing(name)

    def _missing(self, name: str) -> ModelError:
        where = ", ".join(map(str, self._folders)) or "any folder of images"
        return ModelError(
            f"image {name} is not in {where}; put it back from a copy of the run, or, where seats "
            "are on several machines, put the run on a file system that all of them see"
        )


def png_size(data: bytes, name: str) -> tuple[int, int]:
    """Returns the height and width in pixels of a PNG, from its first bytes. Raises `ModelError`
    for other files, and for one of more than `MOST_PIXELS`."""
    if data[:8] != _SIGNATURE or data[12:16] != b"IHDR" or len(data) < 24:
        raise ModelError(f"image {name} is no PNG; have the domain give PNG files")
    width, height = struct.unpack(">II", data[16:24])
    if not 0 < width * height <= MOST_PIXELS:
        raise ModelError(
            f"image {name} has {width} x {height} pixels, at most {MOST_PIXELS:,} are read; have "
            "the domain give smaller ones"
        )
    return height, width


def noise_png(seed: int, height: int, width: int) -> bytes:
    """Returns a PNG of random pixels, to measure with."""
    return _png(np.random.default_rng(seed).integers(0, 256, (height, 3 * width), dtype=np.uint8))


def blank_png(height: int, width: int) -> bytes:
    """Returns a white PNG, for who shall see nothing."""
    return _png(np.full((height, 3 * width), 255, dtype=np.uint8))


def _png(pixels: np.ndarray) -> bytes:
    """Returns pixels [height, 3 * width] as a PNG."""
    height, width = pixels.shape[0], pixels.shape[1] // 3
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each with the number of its filter, none
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
