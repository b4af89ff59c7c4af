"""Problems of published data sets: what each form says, and which problems cannot be used.

- The paper's (Gen-Verse): `question`, `test_input`, `test_output`, maybe `test_method`,
  `difficulty`.
- LiveCodeBench: `question_content`, `starter_code`, `metadata`, and `public_test_cases` and
  `private_test_cases`, lists as JSON. The private ones may be packed (base64, zlib, a pickled
  text), and nothing is ever unpickled.
- LiveBench's coding questions: tests like LiveCodeBench's, the rest in `original_json`.
- APPS and TACO: `question`, `starter_code`, `solutions`, `input_output` (JSON: `inputs`, `outputs`,
  maybe `fn_name`).
- DeepMind's CodeContests: `description`, `difficulty`, `time_limit`, `solutions`, and
  `public_tests`, `private_tests`, `generated_tests`, each with its `input` and `output`.
"""

from __future__ import annotations

import base64
import json
import pickletools
import re
import reprlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlanything_coding.dataset import fail, problem_of
from rlanything_coding.problem import Problem
from rlanything_coding.sandbox.base import TOLERANCE

PAPER, LIVECODEBENCH, LIVEBENCH = "the paper's", "LiveCodeBench", "LiveBench"
APPS, CODECONTESTS = "APPS or TACO", "CodeContests"
OPEN = (APPS, CODECONTESTS)
"""Collections of problems; the other forms are benchmarks with an evaluation of their own."""
HARDEST = 2
"""The paper's upper bound on CodeContests' numeric `difficulty`."""
_LETTERS = 7
"""First value of CodeContests' `difficulty` that is a problem's letter, and no difficulty."""
_PYTHON = (3, "PYTHON3", "python3")
_UNPACKED_BYTES = 1 << 30
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_AROUND = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP")
"""Opcodes around a text that was pickled alone."""
_CONTESTS_TESTS = ("public_tests", "private_tests", "generated_tests")
_LIVE_TESTS = ("public_test_cases", "private_test_cases")
_AS_PUBLISHED = "give the file as it was published"
_ANY_ANSWER = re.compile(
    r"(?<!not )(?<!n't )\b(?:print|output|return)\s+any\b(?!\s+(?:number|amount))"
    r"|\b(?:choose|report|find)\s+any (?:of (?:them|these|those)|such)\b"
    r"|\bany\b[^.\n]{0,60}\baccepted\b"
    r"|\b(?:print|output|return)\b[^.\n]{0,80}\bin any order\b",
    re.IGNORECASE,
)
_INTERACTIVE = re.compile(
    r"\binteractive (?:problem|task)\b|^\W*interaction\W*$"
    r"|\bflush\w*\b[^.\n]{0,30}\b(?:output|stream|buffer|stdout)",
    re.IGNORECASE | re.MULTILINE,
)
_ERROR = re.compile(
    r"\b(?:errors?|precision|accuracy|inaccuracy|differs|exceed|within)\b[^.]{0,80}?"
    r"(?:\b10\s*\^?\s*[{(]?\s*[-\u2212\u2013]\s*|\b1e-)0?([2-9]|1[0-2])\b(?!\s*=)",
    re.IGNORECASE,
)
_ANY_CASE = re.compile(
    r"\b(?:in|of) (?:any|either|arbitrary) (?:letter )?(?:case|register)\b|\bcase[- ]insensitive",
    re.IGNORECASE,
)
_QUESTION = """\
{question}

Answer with one fenced program that defines {what}, with everything it needs; it reads and prints \
nothing."""
_STARTER = "\n\n```python\n{starter}\n```"


@dataclass(frozen=True, slots=True)
class Published:
    """A problem of a published data set."""

    problem: Problem
    form: str
    own_limit: bool
    """Whether the entry gives a time limit, instead of the default."""
    any_answer: bool
    """Whether the statement accepts several answers, of which the tests have only one."""
    interactive: bool
    """Whether the statement asks for a dialogue, which tests of inputs and outputs cannot have."""
    solutions: tuple[str, ...]
    """Python programs that the entry calls right."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A problem that cannot be used."""

    form: str
    reason: str
    """Words that follow a number of problems, such as "without tests"."""


def read_published(place: str, entry: Any, seconds: float) -> Published | LeftOut:
    """Returns the problem of an entry, or the reason why it cannot be used.

    `seconds`: the time limit of a test if the entry has none. Raises `DomainError` with the place
    if the entry is not understood."""
    if not isinstance(entry, dict):
        fail(place, f"{reprlib.repr(entry)} is not an object", _AS_PUBLISHED)
    form = _form(place, entry)
    fields = _READERS[form](place, entry)
    if isinstance(fields, str):
        return LeftOut(form, fields)
    if not fields.get("test_input", True):
        return LeftOut(form, "without tests")
    difficulty = entry.get("difficulty")
    if isinstance(difficulty, int | float) and HARDEST < difficulty < (
        _LETTERS if form == CODECONTESTS else float("inf")
    ):
        return LeftOut(form, f"harder than {HARDEST}")
    question = fields.get("question")
    statement = question if isinstance(question, str) else ""
    limit = _time_limit(place, entry) if form == CODECONTESTS else None
    fields["test_time_limit"] = limit or seconds
    if form != PAPER:
        fields |= _grading(statement, form)
    function = fields.get("test_function")
    if isinstance(function, str) and fields.get("test_method") == "function":
        fields["question"] = _about_function(statement, function, fields.get("starter_code"))
    elif isinstance(fields.get("test_input"), list):
        fields["test_input"] = [
            f"{text}\n" if isinstance(text, str) and text and text[-1] != "\n" else text
            for text in fields["test_input"]
        ]
    return Published(
        problem_of(place, fields),
        form,
        limit is not None,
        _ANY_ANSWER.search(statement) is not None,
        _INTERACTIVE.search(statement) is not None,
        _solutions(entry, form),
    )


def _form(place: str, entry: Mapping[str, Any]) -> str:
    if "question_content" in entry:
        return LIVECODEBENCH
    if "original_json" in entry and "public_test_cases" in entry:
        return LIVEBENCH
    if "description" in entry and any(key in entry for key in _CONTESTS_TESTS):
        return CODECONTESTS
    if "question" in entry:
        return APPS if "input_output" in entry and "test_input" not in entry else PAPER
    fault = "there is neither 'question' nor 'question_content' nor 'public_tests'"
    fail(place, fault, "give a file of the paper's, LiveCodeBench's, APPS, TACO or CodeContests")


def _grading(statement: str, form: str) -> dict[str, Any]:
    """Returns how the statement says that outputs are compared. A tolerance is never below the
    default: expected numbers may be rounded as well."""
    said: dict[str, Any] = {}
    if error := _ERROR.search(statement):
        said["test_tolerance"] = max(TOLERANCE, 10.0 ** -int(error[1]))
        said["test_real_numbers"] = True
    if form == CODECONTESTS or _ANY_CASE.search(statement):
        said["test_ignore_case"] = True  # as CodeContests' own comparison does
    return said


def _about_function(statement: str, function: str, starter: Any) -> str:
    """Returns the statement with the request for a function instead of a whole program."""
    starter = starter.strip("\n") if isinstance(starter, str) and starter.strip() else ""
    name, _, method = function.partition(".")
    what = f"the class `{name}` with the method `{method}`" if method else f"the function `{name}`"
    question = _QUESTION.format(question=statement.strip(), what=what)
    return question + (_STARTER.format(starter=starter) if starter else "")


def _solutions(entry: Mapping[str, Any], form: str) -> tuple[str, ...]:
    said = entry.get("solutions")
    try:
        said = json.loads(said) if isinstance(said, str) and said else said
    except (ValueError, RecursionError):
        return ()
    if form == CODECONTESTS:
        if isinstance(said, list):
            said = [each for each in said if isinstance(each, dict)]
        languages, programs = _columns(said, ("language", "solution"))
        pairs = zip(languages or [], programs or [], strict=False)
        said = [program for language, program in pairs if language in _PYTHON]
    elif form != APPS or not isinstance(said, list):
        return ()
    return tuple(dict.fromkeys(program for program in said if isinstance(program, str)))


def _of_paper(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    if str(entry.get("test_method", "stdio")).startswith("function") and (
        "test_function" not in entry
    ):
        return "with function-style tests"
    keys = ("question", "test_input", "test_output", "test_method", "test_function", "starter_code")
    more = ("test_tolerance", "test_real_numbers", "test_ignore_case")
    return {key: entry[key] for key in (*keys, *more) if key in entry}


def _of_livebench(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    if entry.get("partial_solution"):
        return "that continue a given program"
    original = entry["original_json"]
    if not isinstance(original, dict) or "question_content" not in original:
        fail(place, "'original_json' has no 'question_content'", _AS_PUBLISHED)
    tests = {key: entry[key] for key in _LIVE_TESTS if key in entry}
    return _of_livecodebench(place, {**original, **tests})


def _of_livecodebench(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    cases = [
        case for key in _LIVE_TESTS for case in _cases(f"{place}, {key}", entry.get(key, "[]"))
    ]
    kinds = {str(case.get("testtype", "stdin")) for case in cases}
    for case in cases:
        if len(kinds) > 1 or not {"input", "output"} <= case.keys():
            fault = f"a test is not understood ({reprlib.repr(case)})"
            fail(place, fault, "give tests with 'input', 'output' and one 'testtype'")
    fields = {
        "question": entry["question_content"],
        "test_input": [case["input"] for case in cases],
        "test_output": [case["output"] for case in cases],
    }
    if kinds <= {"stdin"}:
        return fields
    if kinds != {"functional"}:
        fault = f"a test is not understood ({reprlib.repr(cases[0])})"
        fail(place, fault, "give tests whose 'testtype' is 'stdin' or 'functional'")
    name = _function_name(place, entry.get("metadata"))
    return fields | _function(name, entry)


def _function_name(place: str, metadata: Any) -> str:
    try:
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    except (ValueError, RecursionError):
        metadata = None
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        fail(place, "'metadata' has no 'func_name'", "give the file as LiveCodeBench published it")
    return name


def _function(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    starter = entry.get("starter_code")
    in_class = "class Solution" in str(starter or "")
    function = f"Solution.{name}" if in_class and "." not in name else name
    return {"test_method": "function", "test_function": function, "starter_code": starter}


def _of_apps(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    tests = entry["input_output"] or {}
    try:
        tests = json.loads(tests or "{}") if isinstance(tests, str) else tests
    except (ValueError, RecursionError) as error:
        tests = _first_line(error)
    if not isinstance(tests, dict):
        fault = f"'input_output' is not a JSON object ({reprlib.repr(tests)})"
        fail(place, fault, _AS_PUBLISHED)
    if not tests.get("inputs"):
        return "without tests"
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    name = tests.get("fn_name")
    fields = {"question": entry["question"]}
    if not name:
        return fields | {"test_input": _texts(inputs), "test_output": _texts(outputs)}
    if (
        not isinstance(inputs, list)
        or not isinstance(outputs, list)
        or not all(isinstance(each, list) for each in inputs)
    ):
        fault = f"arguments of {reprlib.repr(name)} are not lists ({reprlib.repr(inputs)})"
        fail(place, fault, _AS_PUBLISHED)
    if all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]  # as most of APPS has them
    arguments = ["\n".join(map(json.dumps, each)) for each in inputs]
    values = [json.dumps(output) for output in outputs]
    return fields | {"test_input": arguments, "test_output": values} | _function(str(name), entry)


def _texts(tests: Any) -> Any:
    """Returns texts; some may be given as lists of lines."""
    if not isinstance(tests, list):
        return tests
    return ["\n".join(map(str, test)) if isinstance(test, list) else test for test in tests]


def _of_contests(place: str, entry: Mapping[str, Any]) -> dict[str, Any] | str:
    if entry.get("input_file") or entry.get("output_file"):
        return "that read or write files"
    inputs: list[Any] = []
    outputs: list[Any] = []
    for key in _CONTESTS_TESTS:
        tests = entry.get(key) or {}
        given, expected = _columns(tests, ("input", "output"))
        if tests and (given is None or expected is None):
            fault = f"{key!r} is not a list of inputs and outputs ({reprlib.repr(tests)})"
            fail(place, fault, _AS_PUBLISHED)
        inputs += given or []
        outputs += expected or []
    return {"question": entry["description"], "test_input": inputs, "test_output": outputs}


def _columns(table: Any, keys: Sequence[str]) -> list[list[Any] | None]:
    """Returns columns of a table of CodeContests, which is an object of lists or a list of objects;
    None for each that is not a list."""
    if isinstance(table, list) and all(isinstance(row, dict) for row in table):
        return [[row.get(key) for row in table] for key in keys]
    columns = [table.get(key) if isinstance(table, dict) else None for key in keys]
    return [column if isinstance(column, list) else None for column in columns]


def _time_limit(place: str, entry: Mapping[str, Any]) -> float | None:
    """Returns CodeContests' time limit in seconds; None if it is unknown."""
    limit = entry.get("time_limit")
    if limit is None:
        return None
    try:
        return float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9 or None
    except (AttributeError, TypeError, ValueError, OverflowError):
        fail(place, f"'time_limit' is {reprlib.repr(limit)}", _AS_PUBLISHED)


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


_READERS = {
    PAPER: _of_paper,
    LIVECODEBENCH: _of_livecodebench,
    LIVEBENCH: _of_livebench,
    APPS: _of_apps,
    CODECONTESTS: _of_contests,
}
