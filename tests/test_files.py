"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rlanything.files import new_folder, replace_file


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for content in (b"one", b"two"):
        replace_file(path, content, synced=content == b"two")
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "page").symlink_to(tmp_path / "mine")
    replace_file(tmp_path / "page", b"theirs")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "page").read_bytes() == b"theirs"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "page", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "run") as partial:
        (partial / "file").write_text("text")
        assert not (tmp_path / "deep" / "run").exists()
    assert (tmp_path / "deep" / "run" / "file").is_file()
    with pytest.raises(RuntimeError), new_folder(tmp_path / "deep" / "other"):
        raise RuntimeError
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]


def test_of_two_who_make_a_folder_the_second_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with pytest.raises(FileExistsError), new_folder(place), new_folder(place) as first:
        (first / "file").write_text("of the first")
    assert (place / "file").read_text() == "of the first"
    assert list(tmp_path.iterdir()) == [place]
