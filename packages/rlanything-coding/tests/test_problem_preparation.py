"""Published problem files become files that the domain plays, and nothing is left out silently."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlanything.domains.base import DomainError, Use
from rlanything_coding import preparation, published
from rlanything_coding.data_command import prepare as prepare_command
from rlanything_coding.dataset import read_problems
from rlanything_coding.domain import Coding
from rlanything_coding.preparation import prepare
from rlanything_coding.problem import Example
from rlanything_coding.sandbox.base import Grading

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
CALL = {"input": "[1, 2, 3]\n1", "output": "[2, 0.5]", "testtype": "functional"}
FUNCTIONAL: dict[str, Any] = LIVE | {
    "question_content": "Count the numbers above k.",
    "starter_code": "class Solution:\n    def f(self, xs: List[int], k: int) -> int:\n        ",
    "public_test_cases": json.dumps([CALL]),
    "private_test_cases": json.dumps([CALL | {"input": "[4]\n3", "output": "[1, 0.5]"}]),
    "metadata": json.dumps({"func_name": "f"}),
}
LIVEBENCH: dict[str, Any] = {
    "question_id": "c1",
    "category": "coding",
    "task": "LCB_generation",
    "turns": ["### Instructions: you are an expert."],
    "question_title": "count",
    "original_json": {
        key: FUNCTIONAL[key] for key in ("question_content", "starter_code", "metadata")
    },
    "public_test_cases": FUNCTIONAL["public_test_cases"],
    "private_test_cases": packed(FUNCTIONAL["private_test_cases"]),
    "partial_solution": "",
}
APPS_FUNCTION: dict[str, Any] = {
    "question": "Count the numbers above k.",
    "input_output": json.dumps(
        {
            "fn_name": "f",
            "inputs": [[[1, 2, 3], 1], [[4], 3]],
            "outputs": [[[2, 0.5]], [[1, 0.5]]],
        }
    ),
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
    assert line == f"{made}: 1 problems, {seconds:g} s a test; read: 1 as the paper's"
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
    if "description" in entry:
        assert line == (
            "p.jsonl: 1 problems, 6 s a test, or a limit of their own (1); read: 1 as CodeContests"
        )
    else:
        assert line == "p.jsonl: 1 problems, 6 s a test; read: 1 as APPS or TACO"
    [(_, problem)] = read_problems(tmp_path / "out" / "p.jsonl")
    assert problem.question == PAPERS["question"]
    assert problem.tests == (Example("2\n", "4\n"), Example("-3\n", "-6\n"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
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
    form = "CodeContests" if "description" in entry else "APPS or TACO"
    assert line == (
        f"p.jsonl: 1 problems, 6 s a test; read: 1 as the paper's, 1 as {form}; "
        f"left out of p.json: 1 {reason}"
    )


def test_a_tolerance_of_the_file_is_kept(tmp_path: Path) -> None:
    entries = [PAPERS | {"test_tolerance": 0}, PAPERS | {"question": "Another."}]
    prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    kept = [problem.grading.tolerance for _, problem in read_problems(tmp_path / "out" / "p.jsonl")]
    assert kept == [0.0, 1e-6]


def test_what_is_left_out_is_said_with_its_count(tmp_path: Path) -> None:
    entries = [
        *numbered(2),
        *numbered(1),
        *numbered(3, difficulty=3),
        PAPERS | {"difficulty": 2},
        PAPERS | {"test_method": "functional", "test_input": [[1]]},
        FUNCTIONAL,
    ]
    out = "; read: 8 as the paper's, 1 as LiveCodeBench; left out of p.json: 1 met before, "
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    assert line == (
        f"p.jsonl: 4 problems, 6 s a test{out}3 harder than 2, 1 with function-style tests"
    )
    assert len(list(read_problems(tmp_path / "out" / "p.jsonl"))) == 4
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "train", "train")
    assert line == (
        f"p_train.jsonl: 3 problems, 2 s a test{out}3 harder than 2, 1 with function-style tests, "
        "1 with function-style tests (for evaluation only)"
    )


def test_a_file_for_both_uses_holds_problems_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert preparation.HELD_OUT == 200
    monkeypatch.setattr(preparation, "HELD_OUT", 20)
    source = written(tmp_path / "CodeContests.json", numbered(90))
    lines = prepared(source, tmp_path / "out", "both")
    assert lines == [
        "CodeContests_train.jsonl: 70 problems, 2 s a test",
        "CodeContests.jsonl: 20 problems, 6 s a test; read: 90 as the paper's",
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
    with pytest.raises(DomainError, match=r"1 not understood.*it pickles more than a text"):
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
        (PAPERS | {"test_input": ["1"]}, "1 inputs and 2 outputs"),
        (
            PAPERS | {"test_method": "function", "test_function": float("nan")},
            "'test_function' is nan",
        ),
        (APPS | {"input_output": {"inputs": ["1"], "outputs": [2], "fn_name": "f"}}, "not lists"),
        (FUNCTIONAL | {"metadata": "{}"}, "'metadata' has no 'func_name'"),
        (FUNCTIONAL | {"metadata": "{"}, "'metadata' has no 'func_name'"),
        (FUNCTIONAL | {"private_test_cases": PRIVATE}, "a test is not understood"),
        (FUNCTIONAL | {"metadata": {"func_name": "a b"}}, "'test_function' is 'Solution.a b'"),
        (FUNCTIONAL | {"private_test_cases": [CALL | {"input": "x"}]}, "'x' is not JSON"),
        (CONTESTS | {"time_limit": "2 s"}, "'time_limit' is '2 s'"),
        (CONTESTS | {"time_limit": {"seconds": 10**400}}, "'time_limit' is {'seconds': 1000"),
        (LIVEBENCH | {"original_json": {}}, "'original_json' has no 'question_content'"),
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
def test_what_is_not_understood_is_named_in_one_line_and_the_rest_is_read(
    tmp_path: Path, entry: Any, reason: str
) -> None:
    source = written(tmp_path / "p.jsonl", [PAPERS, entry, *numbered(1)], lines=True)
    [said] = prepared(source, tmp_path / "out")
    summary, line = said.splitlines()
    assert summary.startswith("p.jsonl: 2 problems, 6 s a test; read: 2 as the paper's; ")
    assert summary.endswith("left out of p.jsonl: 1 not understood")
    assert line.startswith(f"{source}, line 2")
    assert reason in line
    assert len(line) < len(str(source)) + 300
    assert len(list(read_problems(tmp_path / "out" / "p.jsonl"))) == 2
    # Alone, it leaves nothing, and that is an error.
    only = written(tmp_path / "q.jsonl", [entry], lines=True)
    with pytest.raises(DomainError, match="1 not understood; the first fault: ") as caught:
        prepared(only, tmp_path / "only")
    [line] = str(caught.value).splitlines()
    assert reason in line


def test_a_function_that_no_test_calls_is_not_asked_for(tmp_path: Path) -> None:
    strange = [PAPERS | {"test_function": function} for function in ("f", 5, ["f"], float("nan"))]
    source = written(tmp_path / "p.jsonl", [PAPERS, *strange], lines=True)
    [said] = prepared(source, tmp_path / "out")
    # All are the same problem.
    assert said.startswith("p.jsonl: 1 problems, ")
    assert "4 met before" in said


def test_a_truncated_file_is_read_as_far_as_possible(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, [*numbered(2), {}, {}, {}, *numbered(4)[2:]]))
    source = tmp_path / "p.jsonl"
    source.write_text(lines.replace('"Problem 1"', '"Problem', 1)[:-9])
    [said] = prepared(source, tmp_path / "out")
    summary, *faults, more = said.splitlines()
    assert summary.startswith("p.jsonl: 2 problems, ")
    assert summary.endswith("left out of p.jsonl: 5 not understood")
    assert [fault.split(":")[0] for fault in faults] == [f"{source}, line {n}" for n in (2, 3, 4)]
    assert more == "and 2 more like these"
    whole = json.dumps(numbered(5))
    (tmp_path / "list.json").write_text(whole[: whole.index("Problem 3")])
    summary, fault = prepared(tmp_path / "list.json", tmp_path / "list")[0].splitlines()
    assert summary.startswith("list.jsonl: 3 problems, ")
    assert fault.startswith(f"{tmp_path / 'list.json'}, item 3: not JSON")


def test_parquet_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "test-00000.parquet").write_bytes(b"PAR1\x15\xff")
    with pytest.raises(DomainError, match=r"is Parquet: write JSON lines, such as by .*to_json"):
        prepared(tmp_path / "test-00000.parquet", tmp_path / "out")


ANY_ORDER = "Read a number and print its divisors. You may print them in any order."
SORTED = "n = int(input())\nprint(*[i for i in range(1, n + 1) if n % i == 0])"
REVERSED = SORTED.replace("n % i == 0])", "n % i == 0][::-1])")


def divisors(*programs: str) -> dict[str, Any]:
    return CONTESTS | {
        "description": ANY_ORDER,
        "public_tests": {"input": ["6\n"], "output": ["1 2 3 6\n"]},
        "generated_tests": {"input": ["1\n"], "output": ["1\n"]},
        "solutions": {"language": [3] * len(programs) + [2], "solution": [*programs, "int main;"]},
    }


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (divisors(), "with more than one right answer"),
        (divisors(SORTED), "with more than one right answer"),
        (divisors(SORTED, SORTED), "with more than one right answer"),
        (divisors(SORTED, REVERSED), "with more than one right answer"),
        (divisors(SORTED, f"{SORTED}\n"), None),
        (CONTESTS | {"description": "This is an interactive problem."}, "interactive"),
        (CONTESTS | {"description": "Guess.\n\nInteraction\n\nAsk first."}, "interactive"),
        (CONTESTS | {"description": "Guess. Do not forget to flush the output."}, "interactive"),
        (CONTESTS | {"description": "You can choose any two numbers. Print -1."}, None),
        (CONTESTS | {"description": "Choose any number of them. Do not print any of it."}, None),
        (APPS | {"question": "If there are several answers, print any of them."}, "with more than"),
    ],
)
def test_problems_without_one_right_answer_are_left_out_of_collections(
    tmp_path: Path, entry: dict[str, Any], reason: str | None
) -> None:
    source = written(tmp_path / "p.json", [PAPERS, entry])
    [line] = prepared(source, tmp_path / "out")
    if reason is None:
        assert line.startswith("p.jsonl: 2 problems, ")
        assert "left out" not in line
    else:
        assert f"; left out of p.json: 1 {reason}" in line


def test_benchmarks_keep_what_their_own_evaluation_has(tmp_path: Path) -> None:
    entries = [PAPERS | {"question": ANY_ORDER}, LIVE | {"question_content": "Print any of them."}]
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    assert line.startswith("p.jsonl: 2 problems, ")
    assert line.endswith("; kept as published: 2 with more than one right answer")


@pytest.mark.parametrize(
    ("statement", "grading"),
    [
        ("The answer is right if its relative error does not exceed 10^{-6}.", Grading(1e-6, True)),
        ("Its absolute error must not exceed 10 - 4.", Grading(1e-4, True)),
        ("An error of at most 10 ^ {-5} is allowed.", Grading(1e-5, True)),
        ("A relative error below 1e-9 is accepted.", Grading(1e-6, True)),
        ("Answers within 10-5 of the actual answer will be accepted.", Grading(1e-5, True)),
        ("Their sums have a difference of 10 - 6 = 4.", Grading()),
        ("You can print each letter in any case.", Grading(ignore_case=True)),
    ],
)
def test_the_statement_says_how_outputs_are_compared(
    tmp_path: Path, statement: str, grading: Grading
) -> None:
    for entry, expected in (
        (LIVE | {"question_content": statement}, grading),
        (CONTESTS | {"description": statement}, replace(grading, ignore_case=True)),
        (PAPERS | {"question": statement}, Grading()),
    ):
        source = written(tmp_path / "p.json", [entry])
        prepared(source, tmp_path / f"out-{len(entry)}")
        [(_, problem)] = read_problems(tmp_path / f"out-{len(entry)}" / "p.jsonl")
        assert problem.grading == expected


@pytest.mark.parametrize(
    ("entry", "program"),
    [
        (FUNCTIONAL, "class Solution:\n    def f(self, xs: List[int], k):\n        return "),
        (FUNCTIONAL | {"starter_code": ""}, "def f(xs, k):\n    return "),
        (LIVEBENCH, "class Solution:\n    def f(self, xs, k):\n        return "),
        (APPS_FUNCTION, "def f(xs, k):\n    return "),
        (
            APPS_FUNCTION | {"starter_code": "class Solution:\n    def f(self, xs, k):\n"},
            "class Solution:\n    def f(self, xs, k):\n        return ",
        ),
    ],
)
def test_tests_that_call_a_function_decide(
    tmp_path: Path, entry: dict[str, Any], program: str
) -> None:
    source = written(tmp_path / "p.jsonl", [entry], lines=True)
    [line] = prepared(source, tmp_path / "out")
    assert line.startswith("p.jsonl: 1 problems, 6 s a test; read: 1 as ")
    domain = Coding(data={"in_domain": str(tmp_path / "out" / "p.jsonl")})
    [task] = domain.tasks("in_domain", 1, 0)
    assert task.instruction.startswith("Count the numbers above k.\n\nAnswer with one fenced ")
    environment = domain.environment()
    for value, reward in (
        ("[sum(x > k for x in xs), 0.5]", 1.0),
        ("(sum(x > k for x in xs), 0.50000001)", 1.0),
        ("(pow(sum(x > k for x in xs), 1, 7), max(Counter([0.5])))", 1.0),
        ("[len(xs), 0.5]", 0.5),
        ("[sum(x > k for x in xs), 0.6]", 0.0),
        ("1 / 0", 0.0),
        ("{1}", 0.0),
        ("exit()", 0.0),
        ("print([[0, 0.5]])", 0.0),
    ):
        environment.reset(task)
        result = environment.step(f"```python\n{program}{value}\n```")
        assert (value, result.reward) == (value, reward)
    assert domain.run_tests(task, ["a"], ["b"]) == [[]]
    domain.executor.close()
    training = Coding(data={"train": str(tmp_path / "out" / "p.jsonl")})
    with pytest.raises(DomainError, match="has problems about functions: use them in evaluation"):
        training.tasks("train", 1, 0)


def test_questions_that_continue_a_program_are_left_out(tmp_path: Path) -> None:
    entries = [PAPERS, LIVEBENCH | {"partial_solution": "class Solution:", "task": "completion"}]
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    assert line.endswith("; left out of p.json: 1 that continue a given program")


def test_letters_of_codeforces_are_no_difficulty(tmp_path: Path) -> None:
    entries = [CONTESTS | {"difficulty": level, "description": f"{level}"} for level in range(9)]
    [line] = prepared(written(tmp_path / "p.json", entries), tmp_path / "out")
    assert line.startswith("p.jsonl: 5 problems, ")
    assert line.endswith("; left out of p.json: 4 harder than 2")


def test_an_input_ends_with_its_line(tmp_path: Path) -> None:
    tests = {"input": ["3 4", "", "1\n"], "output": ["", "", "1"]}
    entry = CONTESTS | {"public_tests": tests, "generated_tests": None}
    prepared(written(tmp_path / "p.json", [entry]), tmp_path / "out")
    [(_, problem)] = read_problems(tmp_path / "out" / "p.jsonl")
    assert problem.tests == (Example("3 4\n", ""), Example("", ""), Example("1\n", "1"))


def test_a_packed_text_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "_UNPACKED_BYTES", 1000)
    source = written(tmp_path / "p.jsonl", [private(packed(" " * 2000 + "[]"))], lines=True)
    with pytest.raises(DomainError, match="cut off, or more than 1000 bytes"):
        prepared(source, tmp_path / "out")


def test_a_file_without_a_problem_left_is_refused(tmp_path: Path) -> None:
    function = numbered(3, test_method="functional")
    cases: list[tuple[list[Any], Use, str]] = [
        (
            numbered(2, difficulty=9),
            "evaluation",
            "p.jsonl; read: 2 as the paper's; left out of p.json: 2 harder than 2: ",
        ),
        (
            function,
            "train",
            "p_train.jsonl; read: 3 as the paper's; "
            "left out of p.json: 3 with function-style tests: ",
        ),
        (numbered(5), "both", "p_train.jsonl; read: 5 as the paper's: "),
    ]
    for entries, use, name in cases:
        with pytest.raises(DomainError, match=f"no problem is left for {name}give a file with"):
            prepared(written(tmp_path / "p.json", entries), tmp_path / use, use)


def test_prepared_problems_are_played_by_the_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = written(tmp_path / "test.jsonl", [LIVE, "x", FUNCTIONAL], lines=True)
    files = [written(tmp_path / "CodeContests_train.json", [PAPERS]), live]
    out = tmp_path / "data"
    prepare_command("coding", files, out)
    assert capsys.readouterr().out.splitlines() == [
        f"{out}/CodeContests_train.jsonl: 1 problems, 2 s a test; read: 1 as the paper's",
        f"{out}/test.jsonl: 2 problems, 6 s a test; read: 2 as LiveCodeBench; left out of "
        "test.jsonl: 1 not understood",
        f"{live}, line 2: 'x' is not an object: give the file as it was published",
    ]
    splits = {"train": "CodeContests_train.jsonl", "livecodebench": "test.jsonl"}
    domain = Coding(data={split: str(out / name) for split, name in splits.items()})
    for split in splits:
        [task] = [each for each in domain.tasks(split, 9, 0) if "entry_point" not in each.data]
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
        ("coding", [good, bad], "b.json: no problem is left for b.jsonl"),
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
