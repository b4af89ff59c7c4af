"""Problem files made from published ones, such as the paper's (Gen-Verse) and LiveCodeBench's.

Input: JSON lists or JSON lines of

- the paper's entries: `question`, `test_input`, `test_output`, maybe `test_method`, `difficulty`;
- LiveCodeBench's: `question_content`, `public_test_cases`, `private_test_cases`, lists as JSON. The
  private ones may be packed (base64, zlib, a pickled text), and nothing is ever unpickled;
- those of APPS and TACO: `question`, `input_output` (JSON: `inputs`, `outputs`, maybe `fn_name`);
- DeepMind's CodeContests: `description`, and `public_tests`, `private_tests`, `generated_tests`,
  each with its `input` and `output`.

Output: the lines that `dataset` reads, with the time limits of the paper's own preparation.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pickletools
import random
import reprlib
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlanything.domains.base import Use
from rlanything_coding.dataset import fail, problem_of, read_entries
from rlanything_coding.problem import Problem
from rlanything_coding.sandbox.base import TOLERANCE

TRAIN_SECONDS, EVALUATION_SECONDS = 2.0, 6.0
"""Time limits of a test in seconds, from the paper's preparation."""
HARDEST = 2
"""The paper's upper bound on CodeContests' numeric `difficulty`."""
HELD_OUT = 200
"""Problems held out for evaluation if a file serves both uses, as many as in the paper."""
_TRAIN = "_train"
_UNPACKED_BYTES = 1 << 30
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_AROUND = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP")
"""Opcodes around a text that was pickled alone."""
_FUNCTION = "with function-style tests"
_NO_TESTS = "without tests"
_FILES = "that read or write files"
_CONTESTS_TESTS = ("public_tests", "private_tests", "generated_tests")


def prepare(
    source: Path, folder: Path, use: Use | None, on_bytes: Callable[[int], None]
) -> list[str]:
    """Implements `Domain.prepare`: writes NAME_train.jsonl for training and NAME.jsonl for
    evaluation. A file named NAME_train is for training unless `use` says otherwise."""
    name = source.stem.removesuffix(_TRAIN)
    use = use or ("evaluation" if name == source.stem else "train")
    left_out: Counter[str] = Counter()
    problems = _published(source, left_out, on_bytes)
    lines: list[str] = []
    held: list[Problem] = []
    if use != "evaluation":
        training = problems if use == "train" else _hold_out(problems, held)
        path = folder / f"{name}{_TRAIN}.jsonl"
        lines.append(_write(path, training, TRAIN_SECONDS, source, left_out))
    if use != "train":
        evaluated = problems if use == "evaluation" else held
        path = folder / f"{name}.jsonl"
        lines.append(_write(path, evaluated, EVALUATION_SECONDS, source, left_out))
    lines[-1] += _counts(left_out, source)
    return lines


def _counts(left_out: Counter[str], source: Path) -> str:
    """Returns the number of omitted problems for each reason, as the end of a line; "" if none."""
    counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return f"; left out of {source.name}: {counts}" if counts else ""


def _write(
    path: Path,
    problems: Iterable[Problem],
    seconds: float,
    source: Path,
    left_out: Counter[str],
) -> str:
    """Writes problems as JSON lines; returns a line with their number. Raises `DomainError` if
    there are none, or if another source has the same name."""
    count = 0
    try:
        with path.open("x", encoding="utf-8") as file:
            for problem in problems:
                entry = {
                    "question": problem.question,
                    "test_input": [test.input for test in problem.tests],
                    "test_output": [test.output for test in problem.tests],
                    "test_time_limit": seconds,
                    "test_method": "stdio",
                }
                if problem.tolerance != TOLERANCE:
                    entry["test_tolerance"] = problem.tolerance
                file.write(f"{json.dumps(entry)}\n")
                count += 1
    except FileExistsError:
        fail(str(source), f"another file became {path.name} already", "rename one of them")
    if not count:
        fault = f"no problem is left for {path.name}{_counts(left_out, source)}"
        fail(str(source), fault, "give a file with more problems")
    return f"{path.name}: {count:,} problems, {seconds:g} s a test"


def _hold_out(problems: Iterator[Problem], held: list[Problem]) -> Iterator[Problem]:
    """Yields all problems except `HELD_OUT` random ones, always the same, which it appends to
    `held`."""
    rng = random.Random("held out")
    for number, problem in enumerate(problems):
        at = number if number < HELD_OUT else rng.randrange(number + 1)
        if number < HELD_OUT:
            held.append(problem)
        elif at < HELD_OUT:
            yield held[at]
            held[at] = problem
        else:
            yield problem


def _published(
    source: Path, left_out: Counter[str], on_bytes: Callable[[int], None]
) -> Iterator[Problem]:
    """Yields the problems of a published file, and counts the omitted ones by reason."""
    seen: set[bytes] = set()
    for place, entry in read_entries(source, on_bytes):
        if not isinstance(entry, dict):
            fail(
                place,
                f"{reprlib.repr(entry)} is not an object",
                "give the file as it was published",
            )
        tests = _tests(place, entry)
        difficulty = entry.get("difficulty")
        if isinstance(tests, str):
            left_out[tests] += 1
        elif isinstance(difficulty, int | float) and difficulty > HARDEST:
            left_out[f"harder than {HARDEST}"] += 1
        else:
            problem = problem_of(place, {**tests, "test_time_limit": EVALUATION_SECONDS})
            text = hashlib.blake2b(problem.question.encode(), digest_size=16).digest()
            if text in seen:
                left_out["met before"] += 1
            else:
                seen.add(text)
                yield problem


def _tests(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    """Returns question, inputs and outputs, or the reason to omit a problem."""
    if "question_content" not in entry:
        if "description" in entry and "public_tests" in entry:
            return _of_contests(place, entry)
        if "question" not in entry:
            fault = "there is neither 'question' nor 'question_content' nor 'public_tests'"
            remedy = "give a file of the paper's, LiveCodeBench's, APPS, TACO or CodeContests"
            fail(place, fault, remedy)
        if "input_output" in entry and "test_input" not in entry:
            return _of_apps(place, entry)
        if str(entry.get("test_method", "stdio")).startswith("function"):
            return _FUNCTION
        keys = ("question", "test_input", "test_output", "test_method", "test_tolerance")
        return {key: entry[key] for key in keys if key in entry}
    cases = [
        case
        for key in ("public_test_cases", "private_test_cases")
        for case in _cases(f"{place}, {key}", entry.get(key, "[]"))
    ]
    if any(case.get("testtype") == "functional" for case in cases):
        return _FUNCTION
    for case in cases:
        if case.get("testtype", "stdin") != "stdin" or not {"input", "output"} <= case.keys():
            fault = f"a test is not understood ({reprlib.repr(case)})"
            fail(place, fault, "give tests with 'input', 'output' and 'testtype': 'stdin'")
    return {
        "question": entry["question_content"],
        "test_input": [case["input"] for case in cases],
        "test_output": [case["output"] for case in cases],
    }


def _of_apps(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    """Returns the same as `_tests`, for an entry of APPS or TACO."""
    tests = entry["input_output"] or {}
    try:
        tests = json.loads(tests or "{}") if isinstance(tests, str) else tests
    except (ValueError, RecursionError) as error:
        tests = _first_line(error)
    if not isinstance(tests, dict):
        fault = f"'input_output' is not a JSON object ({reprlib.repr(tests)})"
        fail(place, fault, "give the file as it was published")
    if tests.get("fn_name"):
        return _FUNCTION
    if not tests.get("inputs"):
        return _NO_TESTS
    inputs, outputs = (_texts(tests.get(key)) for key in ("inputs", "outputs"))
    return {"question": entry["question"], "test_input": inputs, "test_output": outputs}


def _texts(tests: Any) -> Any:
    """Returns texts; some may be given as lists of lines."""
    if not isinstance(tests, list):
        return tests
    return ["\n".join(map(str, test)) if isinstance(test, list) else test for test in tests]


def _of_contests(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    """Returns the same as `_tests`, for an entry of DeepMind's CodeContests."""
    if entry.get("input_file") or entry.get("output_file"):
        return _FILES
    inputs: list[Any] = []
    outputs: list[Any] = []
    for key in _CONTESTS_TESTS:
        tests = entry.get(key) or {}
        if isinstance(tests, list) and all(isinstance(test, dict) for test in tests):
            # Tests as objects instead of lists of inputs and outputs.
            tests = {side: [test.get(side) for test in tests] for side in ("input", "output")}
        given, expected = (
            (tests.get("input"), tests.get("output")) if isinstance(tests, dict) else (None, None)
        )
        if tests and not (isinstance(given, list) and isinstance(expected, list)):
            fault = f"{key!r} is not a list of inputs and outputs ({reprlib.repr(tests)})"
            fail(place, fault, "give the file as it was published")
        inputs += given or []
        outputs += expected or []
    if not inputs:
        return _NO_TESTS
    return {"question": entry["description"], "test_input": inputs, "test_output": outputs}


def _cases(place: str, text: Any) -> list[dict[str, Any]]:
    """Returns LiveCodeBench's test cases, a JSON list that may be packed."""
    remedy = "give the file as LiveCodeBench published it"
    try:
        if isinstance(text, str):
            text = json.loads(text if text.lstrip()[:1] == "[" else _unpacked(text))
    except (ValueError, RecursionError, zlib.error, struct.error, LookupError) as error:
        fail(place, f"no list of tests can be read ({_first_line(error)})", remedy)
    if not isinstance(text, list) or not all(isinstance(case, dict) for case in text):
        fail(place, f"{reprlib.repr(text)} is not a list of tests", remedy)
    return text


def _unpacked(text: str) -> str:
    """Returns the text from a pickled, compressed, base64-encoded string. Its opcodes are read but
    never executed; anything but a single text raises ValueError."""
    unzip = zlib.decompressobj()
    data = unzip.decompress(base64.b64decode(text, validate=True), _UNPACKED_BYTES)
    if not unzip.eof:
        raise ValueError(f"cut off, or more than {_UNPACKED_BYTES} bytes")
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _TEXTS:
            texts.append(str(argument))
        elif opcode.name not in _AROUND:
            raise ValueError(f"it pickles more than a text: {opcode.name}")
    if len(texts) != 1:
        raise ValueError(f"it pickles {len(texts)} texts")
    return texts[0]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
