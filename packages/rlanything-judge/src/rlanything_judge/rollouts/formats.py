"""Converters from other frameworks' rollout files to the lines that a judge reads.

verl: a line of `trainer.rollout_data_dir`; TRL: a row kept by `log_completions`; prime-rl: an
episode or a trace of verifiers v1 (`traces.jsonl`); chat: messages and a reward, as in tau-bench
and many logs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from rlanything.domains.thoughts import THOUGHT_KEYS, answer_start, bare_thought, in_think_marks

Line: TypeAlias = Mapping[str, Any]
"""The object of a line."""
_CHATS = ("messages", "traj", "conversations", "conversation")
_SHAREGPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant"}
_NO_REWARDS = ("step", "advantage")
"""TRL's numeric columns that are not rewards."""


class FormatError(ValueError):
    """A line does not fit the format; the message says what is missing."""

    def __init__(self, fault: str, remedy: str = "check --format") -> None:
        super().__init__(fault)
        self.remedy = remedy


class LineFormat:
    """A named format for one file; it numbers the rollouts of each prompt."""

    def __init__(self, name: str, rewards: Sequence[str] = ()) -> None:
        """`rewards`: TRL's reward columns, each COLUMN or COLUMN=WEIGHT; empty: the only numeric
        column. Raises `FormatError` for a name that is not in `FORMATS`, and for reward columns of
        another format."""
        if name not in FORMATS:
            known = ", ".join(FORMATS)
            raise FormatError(f"--format: there is no format {name!r}: use one of {known}")
        if rewards and name != "trl":
            raise FormatError(f"--reward: a {name} line names its reward itself: leave it out")
        weights = dict(map(_weight, rewards))
        self._read = partial(_trl, weights=weights) if weights else FORMATS[name]
        self._seen: Counter[str] = Counter()

    def __call__(self, line: Line) -> dict[str, Any]:
        """Returns a line with `task`, `trajectory`, `instruction`, `reward` and `steps`. Raises
        `FormatError` if it does not fit."""
        try:
            entry = self._read(line)
        except FormatError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
            missing = f"no {fault}" if isinstance(fault, KeyError) else f"{fault}"
            raise FormatError(f"not of this format ({missing})") from fault
        if "trajectory" not in entry:
            entry["trajectory"] = str(self._seen[entry["task"]])
            self._seen[entry["task"]] += 1
        return entry


def parquet_lines(path: Path) -> Iterator[bytes]:
    """Yields the rows of a Parquet file as lines of JSON. Raises `FormatError` without pyarrow and
    for an unreadable file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise FormatError("needs pyarrow: pip install 'rlanything[export]'") from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                yield json.dumps(row, default=str).encode() + b"\n"
    except (ArrowException, OSError) as fault:
        raise FormatError(f"not a readable Parquet file ({fault})") from fault


def _verl(line: Line) -> dict[str, Any]:
    prompt, response = _text(line["input"]), _text(line["output"])
    return _entry(prompt, [(prompt, response, "")], line["score"], line.get("step"))


def _trl(line: Line, weights: Mapping[str, float] | None = None) -> dict[str, Any]:
    prompt, said = line["prompt"], line["completion"]
    if isinstance(prompt, str):
        turns = [(prompt, _text(said), "")]
    else:
        sampled = [False] * len(prompt) + [message["role"] == "assistant" for message in said]
        turns = _turns([*prompt, *said], sampled, [None, *range(len(sampled) - 1)])
    return _entry(turns[0][0], turns, _trl_reward(line, weights), line.get("step"))


def _trl_reward(line: Line, weights: Mapping[str, float] | None) -> float:
    if weights is None:
        columns = [name for name in line if name not in _NO_REWARDS and _is_number(line[name])]
        if len(columns) > 1:
            raise FormatError(
                f"the columns {', '.join(columns)} are numbers",
                "name those that are rewards: --reward COLUMN, or --reward COLUMN=WEIGHT",
            )
        weights = dict.fromkeys(columns, 1.0)
    if missing := [name for name in weights if name not in line]:
        raise FormatError(f"there is no column {missing[0]!r}", "check --reward")
    # A TRL reward function that does not apply to a rollout leaves no number.
    scores = [
        weight * line[name]
        for name, weight in weights.items()
        if _is_number(line[name]) or isinstance(line[name], bool)
    ]
    if not scores:
        raise FormatError(
            "no column is a reward", "remove the line, or check --format and --reward"
        )
    return sum(scores)


def _prime_rl(line: Line) -> dict[str, Any]:
    traces = line.get("traces", [line])
    if len(traces) != 1:
        raise FormatError(f"{len(traces)} agents' traces in an episode: one can be judged")
    (trace,) = traces
    nodes, task = trace["nodes"], trace["task"]
    turns = _turns(
        [node["message"] for node in nodes],
        [bool(node.get("sampled")) for node in nodes],
        [node.get("parent") for node in nodes],
    )
    scored = [reward for reward in trace["rewards"].values() if reward is not None]
    if not scored:
        raise FormatError("none of its rewards was scored", "remove the line")
    reward = sum(entry["score"] * entry.get("weight", 1.0) for entry in scored)
    entry = _entry(turns[0][0], turns, reward, None)
    name = task.get("key") or task.get("hash") or entry["task"]
    return {**entry, "task": str(name), "trajectory": str(trace["id"])}


def _chat(line: Line) -> dict[str, Any]:
    messages = next((line[key] for key in _CHATS if key in line), None)
    if messages is None:
        raise FormatError(f"not of this format (no {', '.join(map(repr, _CHATS))})")
    said = [_openai(message) for message in messages]
    sampled = [message["role"] == "assistant" for message in said]
    turns = _turns(said, sampled, [None, *range(len(sampled) - 1)])
    reward = line["reward"]
    won = int(reward) if isinstance(reward, bool) else reward
    entry = _entry(turns[0][0], turns, won, None)
    name = line.get("task_id", line.get("task"))
    return entry if name is None else {**entry, "task": str(name)}


def _openai(message: Line) -> Line:
    """Returns a message with OpenAI's role names; ShareGPT has others."""
    if "role" in message:
        return message
    who = message["from"]
    return {"role": _SHAREGPT.get(who, who), "content": message["value"]}


FORMATS: Mapping[str, Callable[[Line], dict[str, Any]]] = {
    "verl": _verl,
    "trl": _trl,
    "prime-rl": _prime_rl,
    "chat": _chat,
}


def _weight(reward: str) -> tuple[str, float]:
    name, equals, weight = reward.partition("=")
    try:
        factor = float(weight) if equals else 1.0
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor):
        raise FormatError(f"--reward {reward}: use COLUMN or COLUMN=WEIGHT, a number")
    return name, factor


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _entry(
    prompt: str, turns: Sequence[tuple[str, str, str]], reward: Any, step: Any
) -> dict[str, Any]:
    """Returns a line; `turns`: (observation, response, next observation) each. The prompt is the
    instruction. The same prompt at another training step is another task, because another policy
    answered it."""
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


def _turns(
    messages: Sequence[Line], sampled: Sequence[bool], parents: Sequence[int | None]
) -> list[tuple[str, str, str]]:
    """Returns (observation, response, next observation) for each message that the model wrote.
    `parents`: index of the message before each; branches part where a conversation was cut or
    restarted."""
    # Per message: texts shown since the previous answer, and the index of that answer.
    shown: list[list[str]] = []
    answered: list[int | None] = []
    after: dict[int, list[str]] = {}
    followed: set[int] = set()
    said_at: dict[tuple[int | None, str], int] = {}
    twins: dict[int, int] = {}
    for i, (message, by_model, parent) in enumerate(zip(messages, sampled, parents, strict=True)):
        if parent is not None and not 0 <= parent < i:
            raise FormatError(f"not of this format (message {i} comes after message {parent})")
        parent = twins.get(parent, parent) if parent is not None else None
        text = _text(message)
        if by_model:
            said_at.setdefault((parent, text), i)
        elif message.get("role") == "assistant" and (parent, text) in said_at:
            # An answer that was sent back without its reasoning is the same answer.
            twins[i] = said_at[parent, text]
        if parent is None or sampled[parent]:
            before, answer = [], parent
        else:
            before, answer = shown[parent], answered[parent]
        shown.append(before if by_model else [*before, text])
        answered.append(answer)
        if answer is not None and answer not in followed and i not in twins:
            after[answer] = shown[i]
            if by_model:
                followed.add(answer)
    said = [i for i, by_model in enumerate(sampled) if by_model]
    if not said:
        raise FormatError("not of this format (no message is the model's)")
    return [(_joined(shown[i]), _whole(messages[i]), _joined(after.get(i, ()))) for i in said]


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _whole(message: Line) -> str:
    """Returns a message's reasoning in `<think>` marks, wherever the message keeps it, then its
    text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    thoughts = [_thought(part) for part in parts if _thinks(part)]
    named = next((message[name] for name in THOUGHT_KEYS if isinstance(message.get(name), str)), "")
    if isinstance(content, str):
        start = answer_start(content)
        thoughts.append(bare_thought(content[:start]))
    thought = "\n".join(dict.fromkeys(filter(None, [named, *thoughts])))
    return in_think_marks(thought, _text(message))


def _text(said: Any) -> str:
    """Returns the text of a message, or of its parts, without reasoning; a text as it is."""
    if isinstance(said, str):
        return said
    if isinstance(said, Mapping):
        content = said.get("content")
        if isinstance(content, str) and said.get("role") == "assistant":
            content = content[answer_start(content) :]
        calls = [_call(call) for call in said.get("tool_calls") or ()]
        return "\n".join(filter(None, [_text("" if content is None else content), *calls]))
    spoken = (part for part in said if not _thinks(part))
    return "\n".join(part.get("text") or f"[{part['type']}]" for part in spoken)


def _thinks(part: Line) -> bool:
    return part.get("type") in ("thinking", "reasoning")


def _thought(part: Line) -> str:
    said = part.get("thinking", part.get("reasoning", part.get("text")))
    return said if isinstance(said, str) else "\n".join(piece["text"] for piece in said or ())


def _call(call: Line) -> str:
    function = call.get("function", call)
    arguments = function["arguments"]
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"{function['name']}({given})"
