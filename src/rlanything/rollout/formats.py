"""Rollouts as other frameworks write them, as the lines that a judge reads.

verl: a line of `trainer.rollout_data_dir`; TRL: a row that `log_completions` keeps; prime-rl: an
episode or a trace of verifiers v1, which are what its `traces.jsonl` have.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = Mapping[str, Any]
"""The object of a line."""
_NO_REWARDS = ("step", "advantage")
"""Columns of TRL that are numbers, and no reward."""


class FormatError(ValueError):
    """A line is not what the format has; the message says what is missing."""


class LineFormat:
    """A format by name, one for each file: it counts the rollouts of a prompt to name them."""

    def __init__(self, name: str) -> None:
        """Raises `FormatError` for a name that is not in `FORMATS`."""
        if name not in FORMATS:
            raise FormatError(f"there is no format {name!r}: use one of {', '.join(FORMATS)}")
        self._read = FORMATS[name]
        self._seen: Counter[str] = Counter()

    def __call__(self, line: Line) -> dict[str, Any]:
        """Returns a line with `task`, `trajectory`, `instruction`, `reward` and `steps`. Raises
        `FormatError` for one of another format."""
        try:
            entry = self._read(line)
        except (KeyError, TypeError, IndexError, AttributeError) as fault:
            missing = f"no {fault}" if isinstance(fault, KeyError) else f"{fault}"
            raise FormatError(f"not of this format ({missing})") from fault
        if "trajectory" not in entry:
            entry["trajectory"] = str(self._seen[entry["task"]])
            self._seen[entry["task"]] += 1
        return entry


def parquet_lines(path: Path) -> Iterator[bytes]:
    """Yields the rows of a Parquet file as lines of JSON. Raises `FormatError` without pyarrow, and
    for a file that is none."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise FormatError("needs pyarrow: pip install 'rlanything[export]'") from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                yield json.dumps(row, default=str).encode() + b"\n"
    except (ArrowException, OSError) as fault:
        raise FormatError(f"is no readable Parquet file ({fault})") from fault


def _verl(line: Line) -> dict[str, Any]:
    prompt, response = _text(line["input"]), _text(line["output"])
    return _entry(prompt, [(prompt, response, "")], line["score"], line.get("step"))


def _trl(line: Line) -> dict[str, Any]:
    rewards = [
        value
        for name, value in line.items()
        if name not in _NO_REWARDS and type(value) in (int, float) and math.isfinite(value)
    ]
    if not rewards:
        raise FormatError("not of this format (no column is a reward)")
    prompt, said = line["prompt"], line["completion"]
    if isinstance(prompt, str):
        turns = [(prompt, _text(said), "")]
    else:
        turns = _turns([*prompt, *said], [message["role"] == "assistant" for message in said])
    return _entry(turns[0][0], turns, sum(rewards), line.get("step"))


def _prime_rl(line: Line) -> dict[str, Any]:
    traces = line.get("traces", [line])
    if len(traces) != 1:
        raise FormatError(f"{len(traces)} agents' traces in an episode: one can be judged")
    (trace,) = traces
    nodes, task = trace["nodes"], trace["task"]
    turns = _turns(
        [node["message"] for node in nodes], [bool(node.get("sampled")) for node in nodes]
    )
    rewards = [each for each in trace["rewards"].values() if each is not None]
    reward = sum(each["score"] * each.get("weight", 1.0) for each in rewards)
    entry = _entry(turns[0][0], turns, reward, None)
    name = task.get("key") or task.get("hash") or entry["task"]
    return {**entry, "task": str(name), "trajectory": str(trace["id"])}


FORMATS: Mapping[str, Callable[[Line], dict[str, Any]]] = {
    "verl": _verl,
    "trl": _trl,
    "prime-rl": _prime_rl,
}


def _entry(
    prompt: str, turns: Sequence[tuple[str, str, str]], reward: Any, step: Any
) -> dict[str, Any]:
    """Returns a line; `turns`: what was shown, said, and shown next. The prompt is the instruction,
    and prompts of other training steps are other tasks: another policy answered."""
    digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    steps = [
        {"observation": shown if i else "", "response": said, "next_observation": after}
        for i, (shown, said, after) in enumerate(turns)
    ]
    return {
        "task": digest if step is None else f"{step}/{digest}",
        "instruction": prompt,
        "reward": reward,
        "steps": steps,
    }


def _turns(messages: Sequence[Line], sampled: Sequence[bool]) -> list[tuple[str, str, str]]:
    """Returns what was shown, said and shown next at each sampled message. `sampled`: whether the
    model wrote it, for the last messages or for all."""
    shown: list[list[str]] = [[]]
    said: list[str] = []
    written = [*[False] * (len(messages) - len(sampled)), *sampled]
    for message, by_model in zip(messages, written, strict=True):
        if by_model:
            said.append(_text(message))
            shown.append([])
        else:
            shown[-1].append(_text(message))
    if not said:
        raise FormatError("not of this format (no message is the model's)")
    texts = ["\n\n".join(filter(None, parts)) for parts in shown]
    return [(texts[i], response, texts[i + 1]) for i, response in enumerate(said)]


def _text(said: Any) -> str:
    """Returns the text of a message, of its parts, or of what is text already."""
    if isinstance(said, str):
        return said
    if isinstance(said, Mapping):
        content = said.get("content")
        calls = [_call(call) for call in said.get("tool_calls") or ()]
        return "\n".join(filter(None, [_text("" if content is None else content), *calls]))
    return "\n".join(part.get("text") or f"[{part['type']}]" for part in said)


def _call(call: Line) -> str:
    function = call.get("function", call)
    arguments = function["arguments"]
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"{function['name']}({given})"
