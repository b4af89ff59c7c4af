"""Problem files in the paper's format: what is read, and how what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.domains.base import DomainError
from rlanything_coding import dataset
from rlanything_coding.dataset import read_problems, sample_problems
from rlanything_coding.problem import Example

ENTRY: dict[str, Any] = {
    "task_id": 4,
    "question": "Add the numbers.\r\nPrint the sum.\n",
    "test_input": ["2\n1 2\n", "1\n5\n", "0\n\n"],
    "test_output": ["3\n", "5", ""],
    "test_time_limit": 2,
    "test_method": "stdio",
    "example_input": ["1\n1\n"],
    "example_output": ["1"],
}


def numbered(count: int) -> list[dict[str, Any]]:
    return [ENTRY | {"question": f"Problem {i}: {'x' * (i % 50)}"} for i in range(count)]


def write(path: Path, entries: list[Any], lines: bool = False, end: str = "\n") -> Path:
    text = end.join(map(json.dumps, entries)) if lines else json.dumps(entries, indent=2)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("lines", [True, False])
def test_a_file_is_read(tmp_path: Path, lines: bool) -> None:
    path = write(tmp_path / "CodeContests.json", [ENTRY, ENTRY | {"question": "Other"}], lines)
    (name, problem), (other, _) = read_problems(path)
    assert name.startswith("CodeContests-")
    assert other != name
    assert problem.question == "Add the numbers.\nPrint the sum."
    assert problem.tests == (
        Example("2\n1 2\n", "3\n"),
        Example("1\n5\n", "5"),
        Example("0\n\n", ""),
    )
    assert problem.time_limit_seconds == 2.0
    assert (problem.check, problem.spec, problem.family) == (None, None, "")


def test_lists_and_lines_of_any_layout_are_the_same(tmp_path: Path) -> None:
    entries = numbered(5)
    expected = list(read_problems(write(tmp_path / "p.json", entries)))
    layouts = (
        json.dumps(entries).encode(),
        b"\xef\xbb\xbf \r\n\t" + json.dumps(entries, indent=1).replace("\n", "\r\n").encode(),
        "\r\n\r\n".join(map(json.dumps, entries)).encode() + b"\r\n\n",
        b"\xef\xbb\xbf" + "\n".join(map(json.dumps, entries)).encode(),
    )
    for layout in layouts:
        (tmp_path / "p.json").write_bytes(layout)
        assert list(read_problems(tmp_path / "p.json")) == expected


def test_no_layout_of_chunks_changes_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "p.json", numbered(12))
    expected = list(read_problems(path))
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr(dataset, "_CHUNK_CHARACTERS", size)
        assert list(read_problems(path)) == expected


def test_ids_outlive_changes_elsewhere_and_are_unique(tmp_path: Path) -> None:
    entries = numbered(4)
    names = [name for name, _ in read_problems(write(tmp_path / "p.json", entries))]
    shorter = [entries[3], entries[1], entries[3]]
    again = [name for name, _ in read_problems(write(tmp_path / "p.json", shorter))]
    assert again == [names[3], names[1], f"{names[3]}-2"]
    assert len(set(names)) == 4


def test_samples_follow_the_seed_and_hold_everything_if_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", numbered(30), lines=True)
    drawn = [name for name, _ in sample_problems(path, 10, 0)]
    assert drawn == [name for name, _ in sample_problems(path, 10, 0)]
    assert drawn != [name for name, _ in sample_problems(path, 10, 1)]
    assert len(set(drawn)) == 10
    every = {name for name, _ in read_problems(path)}
    assert {name for name, _ in sample_problems(path, 99, 0)} == every
    counts = dict.fromkeys(every, 0)
    for seed in range(200):
        for name, _ in sample_problems(path, 3, seed):
            counts[name] += 1
    assert 5 <= min(counts.values()) <= max(counts.values()) <= 40  # 20 expected


def test_only_so_many_tests_are_kept(tmp_path: Path) -> None:
    ((_, problem),) = read_problems(write(tmp_path / "p.json", [ENTRY]), most_tests=2)
    assert [test.output for test in problem.tests] == ["3\n", "5"]


def test_strange_characters_are_kept_and_half_ones_replaced(tmp_path: Path) -> None:
    strange = "日本語 🎉 \u2028 \ufeff e\u0301"
    entry = ENTRY | {
        "question": f"{strange} \ud83d.",
        "test_input": [f"{strange}\r\n"],
        "test_output": ["\udc00"],
    }
    for lines in (True, False):
        ((_, problem),) = read_problems(write(tmp_path / "p.json", [entry], lines))
        assert problem.question == f"{strange} \ufffd."
        assert problem.tests == (Example(f"{strange}\r\n", "\ufffd"),)
        assert json.dumps(problem.to_data()).encode()


FAULTS: tuple[tuple[Any, str], ...] = (
    ("text", "is not an object: write one"),
    ([ENTRY], "is not an object: write one"),
    *(({k: v for k, v in ENTRY.items() if k != key}, f"no {key!r}") for key in list(ENTRY)[1:5]),
    (ENTRY | {"test_method": "functional"}, "only 'stdio'"),
    (ENTRY | {"test_method": None}, "only 'stdio'"),
    (ENTRY | {"question": " \n"}, "'question'"),
    (ENTRY | {"question": ["a"]}, "'question'"),
    (ENTRY | {"test_time_limit": 0}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": True}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": "1"}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": float("inf")}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": float("nan")}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": 3601}, "give seconds above 0, 3600 at most"),
    (ENTRY | {"test_time_limit": 1e9}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": 1e308}, "'test_time_limit'"),
    (ENTRY | {"test_time_limit": 10**400}, "'test_time_limit'"),
    *(
        (ENTRY | {"test_tolerance": value}, "give a number from 0 to below 1")
        for value in (-1, 1, "0", True, float("nan"), float("inf"), [])
    ),
    (ENTRY | {"test_input": "1\n"}, "'test_input'"),
    (ENTRY | {"test_output": [3, 5, 0]}, "'test_output'"),
    (ENTRY | {"test_output": ["3"]}, "3 inputs and 1 outputs"),
    (ENTRY | {"test_input": [], "test_output": []}, "0 inputs"),
)


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize(("entry", "reason"), FAULTS)
def test_a_wrong_entry_is_named_in_one_line(
    tmp_path: Path, entry: Any, reason: str, lines: bool
) -> None:
    path = write(tmp_path / "p.json", [ENTRY, entry], lines)
    with pytest.raises(DomainError) as caught:
        list(read_problems(path))
    (message,) = str(caught.value).splitlines()
    assert message.startswith(f"{path}, {'line 2' if lines else 'item 1'}: ")
    assert reason in message


GOOD = json.dumps(ENTRY).encode()
BROKEN: tuple[bytes, ...] = (
    *(b"", b" \n", b"[]", b"[", b"nonsense", b"{", b"[" + GOOD, b"[" + GOOD + b","),
    *(b"[" + GOOD + b" " + GOOD + b"]", b"[," + GOOD + b"]", b"[" + GOOD[:-9] + b"]"),
    *(b"[" + GOOD + b",}" + b" " * 4000, b"[" * 100_000, b'{"a":' * 100_000),
    *(GOOD + b" " + GOOD, GOOD + b"\n" + GOOD[:30], b"\xff\xfe" + GOOD, b"[" + GOOD + b",\xe2]"),
    *(b"[" + b"9" * 5000 + b"]", b'["\\u12'),
)


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(DomainError) as caught:
        list(read_problems(path))
    (message,) = str(caught.value).splitlines()
    assert str(path) in message
    assert len(message) < len(str(path)) + 200


def test_a_list_that_goes_wrong_early_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(b"[" + GOOD + b",}" + b"\xff" * 100_000)  # reading on finds no UTF-8
    monkeypatch.setattr(dataset, "_CHUNK_CHARACTERS", 1000)
    with pytest.raises(DomainError):
        list(read_problems(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(DomainError, match="cannot be read"):
            list(read_problems(path))


@given(st.binary(max_size=300))
def test_no_bytes_crash(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    with pytest.raises(DomainError):
        list(read_problems(path))
