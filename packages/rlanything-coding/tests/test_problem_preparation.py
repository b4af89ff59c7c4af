"""Published problem files become files that the domain plays, and nothing is left out silently."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from rlanything.domains.base import DomainError, Use
from rlanything_coding import preparation
from rlanything_coding.data_command import prepare as prepare_command
from rlanything_coding.dataset import read_problems
from rlanything_coding.domain import Coding
from rlanything_coding.preparation import prepare
from rlanything_coding.problem import Example

PAPERS: dict[str, Any] = {
    "task_id": 7,
    "question": "Read a number and print its double.",
    "test_input": ["2\n", "-3\n"],
    "test_output": ["4\n", "-6\n"],
    "example_input": ["1\n"],
    "example_output": ["2"],
    "test_time_limit": 1,
    "test_method": "stdio",
    "ground_truth_code": "print(2 * int(input()))",
}
PUBLIC = [{"input": "2\n", "output": "4\n", "testtype": "stdin"}]
PRIVATE = [{"input": "-3\n", "output": "-6\n", "testtype": "stdin"}]


def packed(value: Any) -> str:
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


LIVE: dict[str, Any] = {
    "question_title": "Double",
    "question_content": "Read a number and print its double.",
    "platform": "atcoder",
    "question_id": "abc",
    "contest_date": "2024-01-06T00:00:00",
    "starter_code": "",
    "difficulty": "hard",
    "public_test_cases": json.dumps(PUBLIC),
    "private_test_cases": packed(json.dumps(PRIVATE)),
    "metadata": "{}",
}


def written(path: Path, entries: list[Any], lines: bool = False) -> Path:
    path.write_text("\n".join(map(json.dumps, entries)) if lines else json.dumps(entries))
    return path


def prepared(source: Path, folder: Path, use: Use | None = None) -> list[str]:
    folder.mkdir(exist_ok=True)
    return prepare(source, folder, use, lambda _: None)


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [PAPERS | {"question": f"Problem {i}"} | more for i in range(count)]


@pytest.mark.parametrize(
    ("file", "made", "seconds"),
    [
        ("CodeContests_train.json", "CodeContests_train.jsonl", 2.0),
        ("LiveBench-ReasonFlux.json", "LiveBench-ReasonFlux.jsonl", 6.0),
    ],
)
def test_the_papers_files_get_the_time_limits_of_its_preparation(
    tmp_path: Path, file: str, made: str, seconds: float
) -> None:
    [line] = prepared(written(tmp_path / file, [PAPERS]), tmp_path / "out")
    assert line == f"{made}: 1 problems, {seconds:g} s a test"
    [(_, problem)] = read_problems(tmp_path / "out" / made)
    assert problem.question == PAPERS["question"]
    assert problem.tests == (Example("2\n", "4\n"), Example("-3\n", "-6\n"))
    assert problem.time_limit_seconds == seconds


@pytest.mark.parametrize(
    "private", [json.dumps(PRIVATE), packed(json.dumps(PRIVATE)), PRIVATE, packed("[]")]
)
def test_livecodebench_has_public_tests_and_then_private_ones(tmp_path: Path, private: Any) -> None:
    entry = LIVE | {"private_test_cases": private}
    prepared(written(tmp_path / "test2.jsonl", [entry], lines=True), tmp_path / "out")
    [(_, problem)] = read_problems(tmp_path / "out" / "test2.jsonl")
    kept = 1 if private == packed("[]") else 2
    assert problem.tests == (Example("2\n", "4\n"), Example("-3\n", "-6\n"))[:kept]
    assert problem.time_limit_seconds == 6.0


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_packed_text_is_read_whatever_protocol_pickled_it(tmp_path: Path, protocol: int) -> None:
    long = [{"input": "é\n" * 400, "output": "4", "testtype": "stdin"}]
    data = pickle.dumps(json.dumps(long, ensure_ascii=False), protocol)
    entry = LIVE | {"private_test_cases": base64.b64encode(zlib.compress(data)).decode()}
    prepared(written(tmp_path / "p.jsonl", [entry], lines=True), tmp_path / "out")
    [(_, problem)] = read_problems(tmp_path / "out" / "p.jsonl")
    assert problem.tests[1] == Example("é\n" * 400, "4")


APPS: dict[str, Any] = {
    "problem_id": 4,
    "question": "Read a number and print its double.",
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "input_output": json.dumps({"inputs": ["2\n", "-3\n"], "outputs": ["4\n", "-6\n"]}),
    "difficulty": "interview",
    "url": "https://example.org/4",
    "starter_code": "",
}
CONTESTS: dict[str, Any] = {
    "name": "4_A. Double",
    "description": "Read a number and print its double.",
    "public_tests": {"input": ["2\n"], "output": ["4\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["-3\n"], "output": ["-6\n"]},
    "source": 2,
    "difficulty": 2,
    "solutions": {"language": [3], "solution": ["print(2 * int(input()))"]},
    "time_limit": {"seconds": 2, "nanos": 0},
    "input_file": "",
    "output_file": "",
}


@pytest.mark.parametrize(
    "entry",
    [
        APPS,
        APPS | {"input_output": {"inputs": ["2\n", ["-3", ""]], "outputs": [["4", ""], "-6\n"]}},
        CONTESTS,
        CONTESTS | {"private_tests": None},
        CONTESTS
        | {
            "public_tests": [{"input": "2\n", "output": "4\n"}],
            "generated_tests": [{"input": "-3\n", "output": "-6\n"}],
        },
    ],
)
def test_other_published_fields_are_read(tmp_path: Path, entry: dict[str, Any]) -> None:
    [line] = prepared(written(tmp_path / "p.jsonl", [entry], lines=True), tmp_path / "out")
    assert line == "p.jsonl: 1 problems, 6 s a test"
    [(_, problem)] = read_problems(tmp_path / "out" / "p.jsonl")
    assert problem.question == PAPERS["question"]
    assert problem.tests == (Example("2\n", "4\n"), Example("-3\n", "-6\n"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (APPS | {"input_output": json.dumps({"fn_name": "f"})}, "with function-style tests"),
        (APPS | {"input_output": ""}, "without tests"),
        (APPS | {"input_output": None}, "without tests"),
        (APPS | {"input_output": '{"inputs": [], "outputs": []}'}, "without tests"),
        (CONTESTS | {"public_tests": {}, "generated_tests": {}}, "without tests"),
        (CONTESTS | {"input_file": "in.txt"}, "that read or write files"),
        (CONTESTS | {"difficulty": 3}, "harder than 2"),
    ],
)
def test_other_published_fields_are_left_out_with_their_reason(
    tmp_path: Path, entry: dict[str, Any], reason: str
) -> None:
    [line] = prepared(written(tmp_path / "p.json", [PAPERS, entry]), tmp_path / "out")
    assert line == f"p.jsonl: 1 problems, 6 s a test; left out of p.json: 1 {reason}"


def test_a_tolerance_of_the_file_is_kept(tmp_path: Path) -> None:
    entries = [PAPERS | {"test_tolerance": 0}, PAPERS | {"question": "Another."}]
    prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    kept = [problem.tolerance for _, problem in read_problems(tmp_path / "out" / "p.jsonl")]
    assert kept == [0.0, 1e-6]


def test_what_is_left_out_is_said_with_its_count(tmp_path: Path) -> None:
    functional = [{"input": "[1]", "output": "1", "testtype": "functional"}]
    entries = [
        *numbered(2),
        *numbered(1),
        *numbered(3, difficulty=3),
        PAPERS | {"difficulty": 2},
        PAPERS | {"test_method": "functional", "test_input": [[1]]},
        LIVE | {"public_test_cases": json.dumps(functional), "question_content": "Class"},
    ]
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    assert line == (
        "p.jsonl: 3 problems, 6 s a test; left out of p.json: 1 met before, "
        "3 harder than 2, 2 with function-style tests"
    )
    assert len(list(read_problems(tmp_path / "out" / "p.jsonl"))) == 3


def test_a_file_for_both_uses_holds_problems_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert preparation.HELD_OUT == 200
    monkeypatch.setattr(preparation, "HELD_OUT", 20)
    source = written(tmp_path / "CodeContests.json", numbered(90))
    lines = prepared(source, tmp_path / "out", "both")
    assert lines == [
        "CodeContests_train.jsonl: 70 problems, 2 s a test",
        "CodeContests.jsonl: 20 problems, 6 s a test",
    ]
    made = [tmp_path / "out" / line.split(":")[0] for line in lines]
    train, held = ({p.question for _, p in read_problems(file)} for file in made)
    assert (len(train), len(held)) == (70, 20)
    assert train | held == {f"Problem {i}" for i in range(90)}
    assert held != {f"Problem {i}" for i in range(20)}
    prepared(source, tmp_path / "again", "both")
    assert (tmp_path / "again" / made[1].name).read_bytes() == made[1].read_bytes()


class Harmful:
    """Would write a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "unpickled"))


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    harmful = Harmful(tmp_path / "harm")
    entry = LIVE | {"private_test_cases": packed(harmful)}
    with pytest.raises(DomainError, match="it pickles more than a text"):
        prepared(written(tmp_path / "p.jsonl", [entry], lines=True), tmp_path / "out")
    assert not harmful.path.exists()


def private(value: Any) -> dict[str, Any]:
    return LIVE | {"private_test_cases": value}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("text", "'text' is not an object"),
        ({"prompt": "x"}, "neither 'question' nor 'question_content'"),
        (APPS | {"input_output": "{"}, "'input_output' is not a JSON object"),
        (APPS | {"input_output": "[1]"}, "'input_output' is not a JSON object"),
        (APPS | {"input_output": {"inputs": ["1"], "outputs": ["1", "2"]}}, "1 inputs and 2"),
        (APPS | {"input_output": {"inputs": "1", "outputs": ["1"]}}, "not a list of texts"),
        (CONTESTS | {"private_tests": "x"}, "'private_tests' is not a list of inputs"),
        (CONTESTS | {"public_tests": {"input": ["1"]}}, "'public_tests' is not a list of inputs"),
        ({k: v for k, v in PAPERS.items() if k != "test_output"}, "there is no 'test_output'"),
        (PAPERS | {"test_method": "mystery"}, "'test_method' is 'mystery'"),
        (PAPERS | {"test_input": []}, "0 inputs and 2 outputs"),
        (private("nonsense!"), "no list of tests can be read"),
        (private(base64.b64encode(b"plain").decode()), "no list of tests can be read"),
        (private(packed("[]")[:-8]), "no list of tests can be read"),
        (private(packed(["a", "b"])), "it pickles more than a text"),
        (private(packed(json.dumps({"input": "1"}))), "is not a list of tests"),
        (private(packed("{}")), "is not a list of tests"),
        (private(base64.b64encode(zlib.compress(b"\x80\x04")).decode()), "no list of tests"),
        (private(json.dumps([{"input": "1", "testtype": "stdin"}])), "a test is not understood"),
        (private(json.dumps([PRIVATE[0] | {"testtype": "file"}])), "a test is not understood"),
        (private(json.dumps([PRIVATE[0] | {"input": 1}])), "'test_input' is not a list of texts"),
        (private("[" * 100_000), "no list of tests can be read"),
        (private(7), "7 is not a list of tests"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(
    tmp_path: Path, entry: Any, reason: str
) -> None:
    source = written(tmp_path / "p.jsonl", [PAPERS, entry], lines=True)
    with pytest.raises(DomainError) as caught:
        prepared(source, tmp_path / "out")
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{source}, line 2")
    assert reason in line
    assert len(line) < len(str(source)) + 300


def test_a_packed_text_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_UNPACKED_BYTES", 1000)
    source = written(tmp_path / "p.jsonl", [private(packed(" " * 2000 + "[]"))], lines=True)
    with pytest.raises(DomainError, match="cut off, or more than 1000 bytes"):
        prepared(source, tmp_path / "out")


def test_a_file_without_a_problem_left_is_refused(tmp_path: Path) -> None:
    function = numbered(3, test_method="functional")
    cases: list[tuple[list[Any], Use, str]] = [
        (numbered(2, difficulty=9), "evaluation", "p.jsonl; left out of p.json: 2 harder than 2: "),
        (function, "train", "p_train.jsonl; left out of p.json: 3 with function-style tests: "),
        (numbered(5), "both", "p_train.jsonl: "),
    ]
    for entries, use, name in cases:
        with pytest.raises(DomainError, match=f"no problem is left for {name}give a file with"):
            prepared(written(tmp_path / "p.json", entries), tmp_path / use, use)


def test_prepared_problems_are_played_by_the_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        written(tmp_path / "CodeContests_train.json", [PAPERS]),
        written(tmp_path / "test.jsonl", [LIVE], lines=True),
    ]
    out = tmp_path / "data"
    prepare_command("coding", files, out)
    assert capsys.readouterr().out.splitlines() == [
        f"{out}/CodeContests_train.jsonl: 1 problems, 2 s a test",
        f"{out}/test.jsonl: 1 problems, 6 s a test",
    ]
    splits = {"train": "CodeContests_train.jsonl", "livecodebench": "test.jsonl"}
    domain = Coding(data={split: str(out / name) for split, name in splits.items()})
    for split in splits:
        [task] = domain.tasks(split, 9, 0)
        environment = domain.environment()
        environment.reset(task)
        result = environment.step("```python\nprint(2 * int(input()))\n```")
        assert (result.outcome, result.reward) == (1, 1.0)
    domain.executor.close()


def test_what_cannot_be_prepared_leaves_nothing_behind(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "a.json", [PAPERS]), written(tmp_path / "b.json", [{}])
    out = tmp_path / "data"
    same = tmp_path / "more"
    same.mkdir()
    again = written(same / "a.json", [PAPERS])
    for domain, files, reason in (
        ("coding", [good, bad], "b.json, item 0"),
        ("coding", [good, tmp_path / "none.json"], "none.json cannot be read"),
        ("coding", [good, again], "another file became a.jsonl already"),
        ("miniwob", [good], "domain miniwob has no data to prepare"),
    ):
        with pytest.raises(DomainError, match=reason):
            prepare_command(domain, files, out)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "more"]
    out.mkdir()
    with pytest.raises(DomainError, match="exists already: name a new folder"):
        prepare_command("coding", [good], out)


def test_bytes_read_are_told_as_they_are_read(tmp_path: Path) -> None:
    source = written(tmp_path / "p.json", numbered(3000))
    told: list[int] = []
    (tmp_path / "out").mkdir()
    prepare(source, tmp_path / "out", None, told.append)
    assert told == sorted(told)
    assert told[-1] == source.stat().st_size
