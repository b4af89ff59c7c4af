"""Formats of other frameworks' rollouts: one table, with a small reader for each.

A reader makes a `ChatRollout` of a record; `LineFormat` makes of that the object that a judge
reads, and recognises the format of a file by the keys of its first record.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from rlanything_judge.rollouts.messages import (
    ChatRollout,
    FormatError,
    Line,
    Turn,
    missing,
    turns_of,
)

__all__ = ["AUTO", "FORMATS", "OWN", "FormatError", "LineFormat", "parquet_lines"]

AUTO, OWN = "auto", "rlanything"
_OWN_KEYS = ("task", "trajectory", "steps.scores|steps.response")
_CHATS = ("messages", "traj", "conversations", "conversation")
_STEPS = ("steps", "trajectory", "traj")
_RESPONSES = ("response", "model_output", "raw_output", "action")
_GOALS = ("task_description", "goal", "instruction", "task")
_GOAL = re.compile(r"[Yy]our task is to:? *(.+)")
_NO_REWARDS = ("step", "advantage")
"""TRL's numeric columns that are not rewards."""
_WON = ("won", "success", "reward", "score", "final_reward", "total_reward")


@dataclass(frozen=True, slots=True)
class Format:
    """A format of rollouts: one record is one rollout."""

    read: Callable[[Line], ChatRollout]
    keys: tuple[str, ...]
    """Keys by which a record is recognised: `a.b` is the key b of a, or of the first member of
    the list a; `a|b` is either."""
    rewards: tuple[str, ...] = ("reward",)
    """Keys of the reward, a number or whether it was won; the first that is there."""
    reward: Callable[[Line], Any] | None = None
    """Returns the reward of a record that has none of the keys; None if there is none."""
    task: tuple[str, ...] = ()
    """Keys of the name of its task, the first that is there; the prompt's digest if there is
    none."""
    trajectory: tuple[str, ...] = ()
    """Keys of its name among those of the task; its number among them if there is none."""
    step: str = ""
    """Key of its training step."""


class LineFormat:
    """The format of one file; it numbers the rollouts of each prompt."""

    def __init__(self, name: str = AUTO, rewards: Sequence[str] = ()) -> None:
        """`rewards`: keys that hold the reward, each KEY or KEY=WEIGHT, or one number that every
        rollout earned; empty: those of the format. Raises `FormatError` for a name that is not in
        `FORMATS`, and for rewards of the own format."""
        if name not in (AUTO, OWN, *FORMATS):
            known = ", ".join((AUTO, OWN, *FORMATS))
            raise FormatError(f"--format: there is no format {name!r}: use one of {known}")
        self.name = name
        """Name of the format; AUTO before the first record."""
        self.dropped: Counter[str] = Counter()
        """Counts of what had no text that a judge can read, by type."""
        self._weights = dict(map(_weight, rewards))
        self._seen: Counter[str] = Counter()
        self._refuse_rewards()

    @property
    def foreign(self) -> bool:
        """Whether the records are another program's."""
        return self.name in FORMATS

    def describe(self, rollouts: int) -> str:
        """Returns what a file of this number of rollouts is, and what a judge cannot read in it."""
        dropped = ", ".join(f"{count} x {what}" for what, count in self.dropped.most_common())
        counted = f"{rollouts} rollout{'' if rollouts == 1 else 's'}"
        return f"{self.name}, {counted}{f' (left out: {dropped})' if dropped else ''}"

    def __call__(self, line: Line) -> dict[str, Any]:
        """Returns a line with `task`, `trajectory`, `instruction`, `reward` and `steps`, and with
        `outcome` if the record says whether it was won. Raises `FormatError` if it does not fit."""
        if self.name == AUTO:
            self.name = _recognised(line)
            self._refuse_rewards()
        if self.name == OWN:
            return dict(line)
        try:
            return self._entry(FORMATS[self.name], line)
        except FormatError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
            raise FormatError(f"not a rollout of {self.name} ({missing(fault)})") from fault

    def _refuse_rewards(self) -> None:
        if self._weights and self.name == OWN:
            raise FormatError("--reward: these lines have an outcome or a reward; leave it out")

    def _reward(self, rules: Format, line: Line) -> float | bool:
        if self._weights:
            reward = _weighted(line, self._weights)
        else:
            reward = _first(line, *rules.rewards)
            if reward is None and rules.reward is not None:
                reward = rules.reward(line)
        if not (isinstance(reward, bool) or _is_number(reward)):
            keys = " or ".join(map(repr, self._weights or rules.rewards))
            fault = f"there is no {keys}" if reward is None else f"{keys} is {reward!r}, no number"
            raise FormatError(
                f"{fault} in this rollout of {self.name}",
                "name the key with --reward KEY, or say with --reward 1 what each rollout earned",
            )
        return reward

    def _entry(self, rules: Format, line: Line) -> dict[str, Any]:
        chat = rules.read(line)
        turns, dropped = turns_of(chat)
        reward = self._reward(rules, line)
        self.dropped += dropped
        shown = turns[0][0]
        whole = shown if chat.instruction is None else f"{chat.instruction}\n\n{shown}"
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = _first(line, *rules.task)
        task = (chat.task or digest) if name is None else str(name)
        if (step := line.get(rules.step)) is not None:
            # Another policy answered the same prompt at another training step.
            task = f"{step}/{task}"
        number = _first(line, *rules.trajectory)
        if number is None:
            number = self._seen[task]
            self._seen[task] += 1
        entry = {
            "task": task,
            "trajectory": str(number),
            "instruction": shown if chat.instruction is None else chat.instruction,
            "reward": reward,
            "steps": _steps(turns, chat.instruction is not None),
        }
        if type(reward) is bool:
            entry |= {"reward": int(reward), "outcome": 1 if reward else -1}
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


def _steps(turns: Sequence[Turn], first_shown: bool) -> list[dict[str, str]]:
    """`first_shown`: the first observation is not part of the instruction."""
    return [
        {
            "observation": before if i or first_shown else "",
            "response": said,
            "next_observation": after,
        }
        for i, (before, said, after) in enumerate(turns)
    ]


def _verl(line: Line) -> ChatRollout:
    return ChatRollout([_message("user", line, "input"), _message("assistant", line, "output")])


def _completion(line: Line) -> ChatRollout:
    """Reads a prompt and a completion, each a text or messages (TRL, verifiers)."""
    prompt, written = line["prompt"], line["completion"] or []
    if isinstance(prompt, str):
        prompt = [_message("user", line, "prompt")]
    if isinstance(written, str):
        written = [_message("assistant", line, "completion")]
    sampled = [False] * len(prompt) + [message.get("role") == "assistant" for message in written]
    return ChatRollout([*prompt, *written], sampled)


def _trace(line: Line) -> ChatRollout:
    nodes = _one_trace(line)["nodes"]
    return ChatRollout(
        [node["message"] for node in nodes],
        [bool(node.get("sampled")) for node in nodes],
        [node.get("parent") for node in nodes],
    )


def _one_trace(line: Line) -> Line:
    traces = line.get("traces", [line])
    if len(traces) != 1:
        raise FormatError(f"{len(traces)} agents' traces in an episode: one can be judged")
    return traces[0]


def _chat(line: Line, keys: Sequence[str] = _CHATS) -> ChatRollout:
    key = next((key for key in keys if key in line), keys[0])
    return ChatRollout(line[key], left_out=_tools(line))


def _call_log(line: Line) -> ChatRollout:
    """Reads a request to OpenAI's Chat Completions with its response."""
    request, choices = line.get("request", line), line.get("response", line)["choices"]
    if len(choices) != 1:
        raise FormatError(f"{len(choices)} choices: one can be judged")
    messages = [*request["messages"], choices[0]["message"]]
    return ChatRollout(messages, [False] * (len(messages) - 1) + [True], left_out=_tools(request))


def _responses(line: Line) -> ChatRollout:
    """Reads a request to OpenAI's Responses with its response, as NeMo Gym writes them."""
    request = line.get("responses_create_params", line.get("request", line))
    given, written = request["input"], line.get("response", line)["output"]
    shown = [_message("user", request, "input")] if isinstance(given, str) else _items(given)
    if request.get("instructions"):
        shown.insert(0, _message("system", request, "instructions"))
    written = _items(written)
    sampled = [False] * len(shown) + [message["role"] == "assistant" for message in written]
    return ChatRollout([*shown, *written], sampled, left_out=_tools(request))


def _items(items: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns messages of items of OpenAI's Responses: reasoning, text and calls that follow each
    other are one answer."""
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(items, start=1):
        try:
            message = _item(item)
        except KeyError as fault:
            raise FormatError(f"item {i}: {missing(fault)}") from fault
        if messages and message["role"] == messages[-1]["role"] == "assistant":
            for key in ("content", "tool_calls"):
                messages[-1][key] += message[key]
        else:
            messages.append(message)
    return messages


def _item(item: Line) -> dict[str, Any]:
    kind = item.get("type", "message")
    content, calls, role = [{"type": kind}], [], "assistant"
    if kind == "message":
        role, content = item["role"], item["content"]
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item["arguments" if kind == "function_call" else "input"]
        content, calls = [], [{"name": item["name"], "arguments": arguments}]
    elif kind.endswith("_output"):
        role, content = "tool", item.get("output", content)
    elif kind == "reasoning":
        pieces = [*(item.get("summary") or ()), *(item.get("content") or ())]
        content = [{"type": kind, "text": "\n".join(piece["text"] for piece in pieces)}]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {"role": role, "content": list(content), "tool_calls": calls}


def _swe_agent(line: Line) -> ChatRollout:
    history = line["history"]
    own = [message for message in history if not message.get("is_demo")]
    demonstrations = len(history) - len(own)
    left_out = {"message of a demonstration": demonstrations} if demonstrations else None
    config = line.get("replay_config") or {}
    config = json.loads(config) if isinstance(config, str) else config  # text since release 1.0
    name = _first(config, "problem_statement.id")
    return ChatRollout(own, task=None if name is None else str(name), left_out=left_out)


def _acts(line: Line) -> ChatRollout:
    """Reads steps of an observation and an action, as in traces of AlfWorld. Observations come
    after actions in traces that keep the initial one apart."""
    steps = line[next((key for key in _STEPS if isinstance(line.get(key), list)), _STEPS[0])]
    initial = line.get("initial_observation")
    after = initial is not None and bool(steps) and steps[0]["observation"] != initial
    messages = [_message("user", line, "initial_observation")] if after else []
    for i, step in enumerate(steps, start=1):
        key = next((key for key in _RESPONSES if isinstance(step.get(key), str)), _RESPONSES[-1])
        try:
            shown, answer = _message("user", step, "observation"), _message("assistant", step, key)
        except (FormatError, KeyError) as fault:
            raise FormatError(f"step {i}: {missing(fault)}") from fault
        answer["reasoning"] = step.get("thought") or step.get("reasoning")
        messages += [answer, shown] if after else [shown, answer]
    if not after and steps and "next_observation" in steps[-1]:
        messages.append(_message("user", steps[-1], "next_observation"))
    return ChatRollout(messages, instruction=_goal(line, messages))


def _goal(line: Line, messages: Sequence[Line]) -> str:
    """Returns the goal of a game: the one that the record names, the one in what was shown first,
    or all of that."""
    for key in _GOALS:
        goal = line.get(key)
        goal = goal.get("text") if isinstance(goal, Mapping) else goal
        if isinstance(goal, str):
            return goal
    first = messages[0]["content"] if messages else ""
    named = _GOAL.search(first)
    return named[1] if named else first


def _sum_of_steps(line: Line) -> float | None:
    """Returns the sum of the rewards of a game's steps."""
    steps = next((line[key] for key in _STEPS if isinstance(line.get(key), list)), ())
    earned = [step["reward"] for step in steps if _is_number(step.get("reward"))]
    return sum(earned) if earned and len(earned) == len(steps) else None


def _column(line: Line) -> float:
    """Returns the only numeric column of TRL's table."""
    columns = [name for name in line if name not in _NO_REWARDS and _is_number(line[name])]
    if len(columns) > 1:
        raise FormatError(
            f"the columns {', '.join(columns)} are numbers",
            "name those that are rewards: --reward COLUMN, or --reward COLUMN=WEIGHT",
        )
    if not columns:
        raise FormatError(
            "no column is a reward", "remove the line, or check --format and --reward"
        )
    return line[columns[0]]


def _sum_of_trace(line: Line) -> float:
    scored = [each for each in _one_trace(line)["rewards"].values() if each is not None]
    if not scored:
        raise FormatError("none of its rewards was scored", "remove the line")
    return sum(each["score"] * each.get("weight", 1.0) for each in scored)


FORMATS: Mapping[str, Format] = {
    "prime-rl": Format(
        _trace,
        ("nodes.message|traces.nodes.message", "rewards|traces.rewards"),
        (),
        _sum_of_trace,
        ("traces.task.key", "traces.task.hash", "task.key", "task.hash"),
        ("traces.id", "id"),
    ),
    "responses": Format(
        _responses,
        ("responses_create_params.input|request.input|input", "response.output|output.type"),
        task=("_ng_task_index",),
        trajectory=("_ng_rollout_index",),
    ),
    "swe-agent": Format(_swe_agent, ("history.role", "trajectory.action", "info")),
    "mini-swe-agent": Format(
        _chat, ("messages.role", "info", "trajectory_format"), task=("instance_id",)
    ),
    "tau-bench": Format(
        partial(_chat, keys=("traj",)),
        ("traj.role", "task_id", "trial"),
        task=("task_id",),
        trajectory=("trial",),
    ),
    "alfworld": Format(
        _acts,
        (
            "|".join(f"{steps}.observation" for steps in _STEPS),
            "|".join(f"{steps}.{key}" for steps in _STEPS for key in _RESPONSES),
            "|".join((*_WON, *(f"{steps}.reward" for steps in _STEPS))),
        ),
        _WON,
        _sum_of_steps,
        ("gamefile", "game_file", "task_id", "task.task_id", "game_id"),
        ("trajectory_id",),
    ),
    "verl": Format(_verl, ("input", "output", "score|step"), ("score",), step="step"),
    "verifiers": Format(
        _completion,
        ("prompt", "completion", "example_id|is_completed|generation_ms"),
        task=("example_id",),
    ),
    "trl": Format(_completion, ("prompt", "completion"), (), _column, step="step"),
    "openai": Format(
        _call_log,
        ("request.messages.role|messages.role", "response.choices.message|choices.message"),
    ),
    "chat": Format(
        _chat,
        ("|".join(f"{key}.{role}" for key in _CHATS for role in ("role", "from")),),
        task=("task_id", "instance_id", "task"),
    ),
}
"""The formats by name; the first whose keys a record has is recognised."""


def _recognised(line: Line) -> str:
    """Returns the name of a record's format. Raises `FormatError` with the nearest one if none
    fits."""
    lacks = {name: _lacking(line, keys) for name, keys in _all_keys()}
    best = min(lacks, key=lambda name: lacks[name][0])
    share, lacking = lacks[best]
    if share == 1 or (share and best != OWN):
        raise FormatError(
            f"of no known format; the nearest is {best}, but {lacking!r} is missing",
            f"add it, or name the format with --format: {', '.join((OWN, *FORMATS))}",
        )
    return best


def _all_keys() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield OWN, _OWN_KEYS
    for name, rules in FORMATS.items():
        yield name, rules.keys


def _lacking(line: Line, keys: Sequence[str]) -> tuple[float, str]:
    """Returns the share of keys that a record lacks, and the first of them."""
    shares = [max(_reached(line, path) for path in key.split("|")) for key in keys]
    lacking = [key.partition("|")[0] for key, share in zip(keys, shares, strict=True) if share < 1]
    return 1 - sum(shares) / len(keys), lacking[0] if lacking else ""


def _reached(value: Any, path: str) -> float:
    """Returns the share of a path's keys that a record has, from the first on."""
    keys = path.split(".")
    for i, key in enumerate(keys):
        if isinstance(value, list):
            if not value:
                return 1.0
            value = value[0]
        if not isinstance(value, Mapping) or key not in value:
            return i / len(keys)
        value = value[key]
    return 1.0


def _first(line: Line, *paths: str) -> Any:
    """Returns the first value that is there and no object or list; None if there is none."""
    for path in paths:
        value: Any = line
        for key in path.split("."):
            value = value[0] if isinstance(value, list) and value else value
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None and not isinstance(value, Mapping | list):
            return value
    return None


def _message(role: str, line: Line, key: str) -> dict[str, Any]:
    """Returns a message of the text that a record has at a key."""
    if not isinstance(line[key], str):
        raise FormatError(f"{key!r} is {reprlib.repr(line[key])}, no text")
    return {"role": role, "content": line[key]}


def _tools(line: Line) -> dict[str, int] | None:
    """Returns a count of the definitions of tools, which a judge does not read."""
    return {"list of tools": 1} if line.get("tools") else None


def _weight(reward: str) -> tuple[str, float]:
    name, equals, weight = reward.partition("=")
    try:
        factor = float(weight) if equals else 1.0
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor):
        raise FormatError(f"--reward {reward}: use KEY or KEY=WEIGHT, a number")
    return name, factor


def _weighted(line: Line, weights: Mapping[str, float]) -> Any:
    """Returns the weighted sum of the rewards that have a value: a reward function that does not
    apply to a rollout leaves none."""
    if absent := [name for name in weights if _reached(line, name) < 1 and not _is_literal(name)]:
        raise FormatError(f"there is no {absent[0]!r}", "check --reward")
    values = {name: _value(line, name) for name in weights}
    if len(values) == 1:
        [(name, value)] = values.items()
        if type(value) is bool and weights[name] == 1:
            return value
    scores = [weights[name] * value for name, value in values.items() if value is not None]
    return sum(scores) if scores else None


def _value(line: Line, name: str) -> float | bool | None:
    value = _first(line, name)
    if value is None and _is_literal(name):
        return float(name)
    if isinstance(value, str) and _is_literal(value):  # OpenAI's metadata are texts
        return float(value)
    return value if isinstance(value, bool) or _is_number(value) else None


def _is_literal(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is int or (type(value) is float and math.isfinite(value))
