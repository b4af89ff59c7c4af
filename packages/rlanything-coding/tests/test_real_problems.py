"""Real problem files and programs with a published verdict, and made files of the same sizes.

`RLANYTHING_CODING_DATA` names the folder with the real ones: NAME.json or NAME.jsonl as published,
and NAME.programs.jsonl (or programs.jsonl for APPS.json) with `task_id`, `program`, `is_solved`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.domains.base import DomainError
from rlanything_coding.checking import ground_truth
from rlanything_coding.dataset import read_entries, read_problems
from rlanything_coding.preparation import EVALUATION_SECONDS, prepare, undecided
from rlanything_coding.problem import Problem
from rlanything_coding.published import LeftOut, read_published
from rlanything_coding.sandbox.base import Verdict
from rlanything_coding.sandbox.local import LocalExecutor

KEYS = st.sampled_from(
    [
        *("question", "question_content", "description", "public_tests", "generated_tests"),
        *("solutions", "input_output", "inputs", "outputs", "fn_name", "input", "output"),
        *("testtype", "metadata", "public_test_cases", "private_test_cases", "original_json"),
        *("starter_code", "time_limit", "seconds", "func_name", "language", "solution"),
        *("difficulty", "test_input", "test_output"),
    ]
)
FOLDER = os.environ.get("RLANYTHING_CODING_DATA")
IDS = ("task_id", "question_id", "problem_id", "name", "id")
EACH = 2
"""Right and wrong programs of each file to run."""
SEVERAL_ANSWERS = ("1076_D. Edge Deletion", "1118_F1. Tree Cutting (Easy Version)")
"""Problems of CodeContests whose right programs fail their tests: see real-problems.md."""


@pytest.fixture(scope="module")
def boxes() -> Iterator[LocalExecutor]:
    with LocalExecutor() as executor:
        yield executor


def folder() -> Path:
    if FOLDER is None:
        pytest.skip("RLANYTHING_CODING_DATA names no folder of real problems")
    return Path(FOLDER)


def programs_of(file: Path) -> Path:
    own = file.with_name(f"{file.stem}.programs.jsonl")
    return own if own.exists() or file.name != "APPS.json" else file.with_name("programs.jsonl")


def real_files() -> list[Path]:
    files = [*folder().glob("*.json"), *folder().glob("*.jsonl")]
    return sorted(file for file in files if not file.name.endswith("programs.jsonl"))


def test_each_real_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    forms = 0
    for file in real_files():
        out = tmp_path / file.name
        out.mkdir()
        try:
            [line] = prepare(file, out, "evaluation", lambda _: None)
        except DomainError as fault:
            [line] = str(fault).splitlines()
            assert "not understood; the first fault: " in line
            continue
        assert "; read: " in line
        forms += 1
        count = int(line.split(": ")[1].split()[0].replace(",", ""))
        assert len(list(read_problems(out / line.split(":")[0]))) == count
    assert forms


def test_real_programs_get_their_published_verdicts(boxes: LocalExecutor) -> None:
    checked = 0
    for file in real_files():
        if not programs_of(file).exists():
            continue
        left = {True: EACH, False: EACH}
        problems = usable_problems(file, boxes)
        for line in programs_of(file).read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            right = entry["is_solved"]
            if entry["task_id"] in SEVERAL_ANSWERS:
                continue
            if left[right] and str(entry["task_id"]) in problems:
                left[right] -= 1
                problem = problems[str(entry["task_id"])]
                runs = ground_truth(boxes, problem, entry["program"], 1024)
                passed = all(run.verdict is Verdict.OK for run in runs)
                assert passed == right, (file.name, entry["task_id"], runs)
                checked += 1
    assert checked


def usable_problems(file: Path, boxes: LocalExecutor) -> dict[str, Problem]:
    problems: dict[str, Problem] = {}
    for place, entry in read_entries(file):
        published = read_published(place, entry, EVALUATION_SECONDS)
        if not isinstance(published, LeftOut) and not undecided(published, lambda: boxes):
            problems[str(next(entry[key] for key in IDS if key in entry))] = published.problem
    return problems


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["", "[", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=9))
def test_no_entry_crashes(entry: dict[str, Any]) -> None:
    try:
        read_published("p.jsonl, line 1", entry, EVALUATION_SECONDS)
    except DomainError as fault:
        [line] = str(fault).splitlines()
        assert line.startswith("p.jsonl, line 1")


LINES = 100_000


@pytest.mark.parametrize(
    ("program", "verdicts"),
    [
        (f"n = int(input())\nprint(*range({LINES} * n), sep='\\n')", "ok ok"),
        (f"n = int(input())\nprint(*range({LINES} * n))\nprint()", "ok ok"),
        (f"n = int(input())\nprint(*range({LINES} * n - n), *[n] * n)", "wrong ok"),
        (f"n = int(input())\nif n: print(*range({LINES}))\nelse: print(0)", "ok wrong"),
        ("pass", "wrong ok"),
    ],
)
def test_hundreds_of_kilobytes_and_empty_outputs_are_compared(
    tmp_path: Path, boxes: LocalExecutor, program: str, verdicts: str
) -> None:
    entry: dict[str, Any] = {
        "name": "4_A. Count",
        "description": "Print the first numbers.",
        "public_tests": {"input": ["1"], "output": ["\n".join(map(str, range(LINES)))]},
        "generated_tests": {"input": ["0"], "output": [""]},
    }
    (tmp_path / "p.jsonl").write_text(json.dumps(entry))
    (tmp_path / "out").mkdir()
    prepare(tmp_path / "p.jsonl", tmp_path / "out", "evaluation", lambda _: None)
    [(_, problem)] = read_problems(tmp_path / "out" / "p.jsonl")
    assert len(problem.tests[0].output) > 500_000
    runs = ground_truth(boxes, problem, program, 1024)
    assert " ".join(run.verdict for run in runs) == verdicts
