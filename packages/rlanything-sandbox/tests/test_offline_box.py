"""A box for a program: what is in it, and what the kernel refuses to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

import pytest

from rlanything_sandbox.bpf import no_debuggers
from rlanything_sandbox.bubblewrap import (
    bubblewrap,
    offline_box,
    refusal,
    resource_limits,
    shown_in_place,
)

LOOK = """
import ctypes, json, os, socket

def fault(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return None

libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    "files": os.listdir("."),
    "write": fault(lambda: open("mine.txt", "w")),
    "temporary": fault(lambda: open("/tmp/mine.txt", "w")),
    "network": fault(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
    "root": os.getuid() == 0,
    "secret": os.environ.get("SECRET"),
    "traced": libc.ptrace(0, 0, 0, 0) == 0,
}))
"""


def seen_inside(
    folder: Path, options: list[str], descriptors: tuple[int, ...]
) -> dict[str, object]:
    program = bubblewrap()
    assert program is not None
    folder.chmod(0o755)  # a box that root starts belongs to another user
    start = [sys.executable, "-I", "-S", "-c", LOOK]
    command = offline_box(program, "box", folder, [], 64, start, options)
    done = subprocess.run(
        command, capture_output=True, timeout=60, pass_fds=descriptors, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_box_has_the_folder_but_no_network_no_environment_and_no_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "4711")
    (tmp_path / "given.txt").touch()
    assert seen_inside(tmp_path, [], ()) == {
        "files": ["given.txt"],
        "write": "OSError",  # a read-only file system
        "temporary": None,
        "network": "OSError",  # unreachable
        "root": False,
        "secret": None,
        "traced": True,  # only a filter refuses that
    }
    assert not (tmp_path / "mine.txt").exists()


def test_a_filter_refuses_debuggers(tmp_path: Path) -> None:
    code = no_debuggers()
    assert code is not None
    with tempfile.TemporaryFile() as file:
        file.write(code)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        inside = seen_inside(tmp_path, ["--seccomp", str(file.fileno())], (file.fileno(),))
    assert inside["traced"] is False
    assert inside["temporary"] is None


def test_paths_are_shown_once_and_only_if_they_exist(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    other = tmp_path.with_name("other")
    other.mkdir()
    places = [(tmp_path, PurePosixPath(tmp_path))]
    paths = [inner, other, other, tmp_path / "missing"]
    assert shown_in_place(paths, places) == [(other, PurePosixPath(other))]


def test_limits_are_bytes_by_the_names_of_resource() -> None:
    limits = resource_limits(512, file_bytes=1000)
    assert limits["RLIMIT_DATA"] == 512 * 2**20
    assert limits["RLIMIT_FSIZE"] == 1000


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [("a\nbwrap: No permissions\n", "No permissions"), ("", "it printed nothing")],
)
def test_a_refused_box_is_one_line_with_the_remedy(stderr: str, reason: str) -> None:
    line = refusal(stderr)
    assert "\n" not in line
    assert reason in line
    assert "allow unprivileged user namespaces" in line
