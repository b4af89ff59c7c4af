"""Token ids of images, and the book that finds images again by them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.domains.base import Image
from rlanything.engines.base import ModelError
from rlanything.engines.images import (
    MOST_TOKENS,
    ImageBook,
    key_of,
    noise_png,
    png_size,
    split_ids,
    virtual_ids,
)

NAME = f"{'0123456789abcdef' * 2}.png"


@given(st.binary(min_size=1, max_size=8), st.integers(1, MOST_TOKENS))
def test_ids_of_an_image_are_its_own_outside_every_vocabulary(data: bytes, count: int) -> None:
    name = Image(data).name
    ids = np.array(virtual_ids(key_of(name), count), dtype=np.int64)
    assert ids.max() < 0
    keys, offsets = split_ids(ids)
    assert set(keys.tolist()) == {key_of(name)}
    assert offsets.tolist() == list(range(count))


def test_the_largest_key_fits_into_64_bits() -> None:
    key = (1 << 48) - 1
    ids = np.array(virtual_ids(key, MOST_TOKENS)[-1:], dtype=np.int64)
    assert [each.tolist() for each in split_ids(ids)] == [[key], [MOST_TOKENS - 1]]


def test_two_images_with_one_virtual_id_are_refused() -> None:
    book = ImageBook()
    other = f"{NAME[:12]}{'0' * 20}.png"
    assert book.key(NAME) == book.key(NAME)
    with pytest.raises(ModelError, match="same token ids"):
        book.key(other)


def test_another_process_finds_an_image_by_its_ids_when_its_file_is_there(tmp_path: Path) -> None:
    folder, image = tmp_path / "images", Image(noise_png(0, 20, 30))
    book = ImageBook((folder,))
    key = key_of(image.name)
    with pytest.raises(ModelError, match="not in"):
        book.name(key)
    folder.mkdir()
    (folder / image.name).write_bytes(image.data)
    (folder / "notes.txt").write_text("no image")
    assert book.name(key) == image.name
    assert book.data(image.name) == image.data


def test_a_book_opens_no_links_and_no_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(noise_png(0, 8, 8))
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / NAME).symlink_to(secret)
    book = ImageBook((folder,))
    for name in (NAME, "../secret", f"../{NAME}", ""):
        with pytest.raises(ModelError):
            book.data(name)


def test_only_png_files_of_a_bearable_size_are_images() -> None:
    assert png_size(noise_png(0, 20, 30), NAME) == (20, 30)
    bomb = bytearray(noise_png(0, 20, 30))
    bomb[16:24] = b"\x00\x01\x00\x00" * 2
    book = ImageBook()
    for data in (b"", b"GIF89a" + bytes(40), bytes(bomb)):
        with pytest.raises(ModelError, match=r"image [0-9a-f]{32}.png"):
            book.data(book.add(data))


def test_images_take_neither_torch_nor_pillow() -> None:
    code = (
        "import sys, rlanything.engines.images; sys.exit(bool({'torch', 'PIL'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        ImageBook((tmp_path,)).data(NAME)
    assert re.fullmatch(rf"image {NAME} is not in .*; restore it[^\n]*", str(caught.value))
