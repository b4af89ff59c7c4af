"""Lines of other frameworks, as a judge reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlanything_judge.rollouts.formats import FORMATS, FormatError, LineFormat
from rlanything_judge.rollouts.lines import RolloutsError, open_rollouts, read_texts


def verl(**changes: Any) -> dict[str, Any]:
    return {"input": "user\n2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 7, **changes}


CHAT = [{"role": "system", "content": "Play."}, {"role": "user", "content": "A room."}]
CALL = {"type": "function", "function": {"name": "open", "arguments": {"what": "door"}}}
SAID = [
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "content": "A key."},
    {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "image_url"}]},
    {"role": "assistant", "content": "I take it."},
]


def trl(**changes: Any) -> dict[str, Any]:
    row = {"step": 3, "prompt": CHAT, "completion": SAID, "won": 0.5}
    return {**row, "advantage": 0.7, "source": "x", **changes}


def prime_rl(**changes: Any) -> dict[str, Any]:
    arguments = {"id": "1", "type": "function", "name": "open", "arguments": '{"what": "door"}'}
    said: list[dict[str, Any]] = [{**SAID[0], "tool_calls": [arguments]}, *SAID[1:]]
    nodes = [
        {"message": each, "sampled": each["role"] == "assistant", "parent": i - 1 if i else None}
        for i, each in enumerate([*CHAT, *said])
    ]
    rewards = {"won": {"score": 1.0, "weight": 0.5}, "style": None}
    trace = {"id": "abc", "task": {"type": "T", "key": "k1"}, "nodes": nodes, "rewards": rewards}
    return {"id": "e", "task": {"type": "T"}, "traces": [trace], **changes}


STEPS = [
    {
        "observation": "",
        "response": 'I look.\nopen({"what": "door"})',
        "next_observation": "A key.\n\nAnd?\n[image_url]",
    },
    {
        "observation": "A key.\n\nAnd?\n[image_url]",
        "response": "I take it.",
        "next_observation": "",
    },
]


def test_verl_has_an_answer_in_a_line_and_its_rollouts_of_a_prompt_are_a_task() -> None:
    read = LineFormat("verl")
    first, second, other, later = map(
        read, (verl(), verl(output="5", score=0), verl(input="3+3?"), verl(step=8))
    )
    assert first["steps"] == [{"observation": "", "response": "4", "next_observation": ""}]
    assert (first["instruction"], first["reward"]) == ("user\n2+2?", 1.0)
    assert first["task"] == second["task"]
    assert [first["trajectory"], second["trajectory"]] == ["0", "1"]
    assert len({first["task"], other["task"], later["task"]}) == 3
    assert read(verl(input="cut \ud83d"))["task"] != first["task"]


@pytest.mark.parametrize("name", ["trl", "prime-rl"])
def test_each_answer_of_a_conversation_is_a_step(name: str) -> None:
    entry = LineFormat(name)({"trl": trl, "prime-rl": prime_rl}[name]())
    assert entry["instruction"] == "Play.\n\nA room."
    assert entry["steps"] == STEPS
    assert entry["reward"] == 0.5
    if name == "prime-rl":
        assert (entry["task"], entry["trajectory"]) == ("k1", "abc")


def test_a_text_of_trl_is_one_step_and_a_trace_is_an_episode_too() -> None:
    [step] = LineFormat("trl")(trl(prompt="2+2?", completion="4"))["steps"]
    assert step["response"] == "4"
    [trace] = prime_rl()["traces"]
    assert LineFormat("prime-rl")(trace)["steps"] == STEPS


def test_records_of_training_are_recognised() -> None:
    [trace] = prime_rl()["traces"]
    for record, name in (
        (verl(), "verl"),
        (trl(), "trl"),
        (trl(prompt="2+2?", completion="4"), "trl"),
        (prime_rl(), "prime-rl"),
        (trace, "prime-rl"),
    ):
        read = LineFormat()
        assert read(record) == LineFormat(name)(record)
        assert (read.name, read.foreign) == (name, True)


def test_rewards_of_trl_are_named_where_several_columns_are_numbers() -> None:
    row = trl(length=120, style=-0.5, none=None)
    with pytest.raises(FormatError, match="the columns won, length, style are numbers") as refused:
        LineFormat("trl")(row)
    assert "--reward COLUMN" in refused.value.remedy
    assert LineFormat("trl", ["won", "style=2", "none"])(row)["reward"] == 0.5 - 1.0
    assert LineFormat("trl", ["right"])({**row, "right": True})["reward"] == 1.0
    for missing in (["none"], ["other"]):
        with pytest.raises(FormatError):
            LineFormat("trl", missing)(row)
    with pytest.raises(FormatError, match="there is no 'wno'"):
        LineFormat("trl", ["wno"])(row)
    for name, rewards in {"rlanything": ["won"], "trl": ["won=x"]}.items():
        with pytest.raises(FormatError, match="--reward"):
            LineFormat(name, rewards)


def test_a_reward_is_any_key_of_a_record_or_one_number_for_all() -> None:
    line = {"messages": CHAT + SAID, "metadata": {"resolved": True, "grade": "0.25"}}
    resolved = LineFormat("chat", ["metadata.resolved"])(line)
    assert (resolved["reward"], resolved["outcome"]) == (1, 1)
    assert LineFormat("chat", ["metadata.resolved=2", "metadata.grade"])(line)["reward"] == 2.25
    assert LineFormat("chat", ["0.5"])(line)["reward"] == 0.5
    assert "outcome" not in LineFormat("verl", ["0.5"])(verl())
    with pytest.raises(FormatError, match=r"there is no 'metadata\.grades'"):
        LineFormat("chat", ["metadata.grades"])(line)
    with pytest.raises(FormatError, match="'reward' is '1', no number") as refused:
        LineFormat("chat")({**line, "reward": "1"})
    assert "--reward KEY, or say with --reward 1" in refused.value.remedy


def test_a_conversation_that_was_cut_shows_each_answer_what_came_before_it() -> None:
    """An agent that forgets its middle goes on from the beginning, with a summary."""

    def node(parent: Any, role: str, content: str) -> dict[str, Any]:
        message = {"role": role, "content": content}
        return {"message": message, "sampled": role == "assistant", "parent": parent}

    nodes = [
        node(None, "user", "A room."),
        node(0, "assistant", "I look."),
        node(1, "tool", "A key."),
        node(2, "assistant", "I take it."),
        node(0, "user", "You have a key."),
        node(4, "assistant", "I leave."),
        node(5, "tool", "Outside."),
    ]
    [trace] = prime_rl()["traces"]
    steps = LineFormat("prime-rl")({**trace, "nodes": nodes})["steps"]
    assert [[*step.values()] for step in steps] == [
        ["", "I look.", "A key."],
        ["A key.", "I take it.", ""],
        ["A room.\n\nYou have a key.", "I leave.", "Outside."],
    ]
    # Sent back without thoughts, an answer is another message, and what follows follows that.
    restated = [
        node(None, "user", "A room."),
        node(0, "assistant", "I look."),
        {**node(0, "assistant", "I look."), "sampled": False},
        node(2, "tool", "A key."),
        node(3, "assistant", "I take it."),
    ]
    steps = LineFormat("prime-rl")({**trace, "nodes": restated})["steps"]
    assert [[*step.values()] for step in steps] == [
        ["", "I look.", "A key."],
        ["A key.", "I take it.", ""],
    ]
    for parent in (6, 7, -1, "x"):
        with pytest.raises(FormatError):
            LineFormat("prime-rl")({**trace, "nodes": [*nodes[:6], node(parent, "tool", "")]})


def test_a_trace_that_was_not_scored_is_not_lost_but_refused() -> None:
    [trace] = prime_rl()["traces"]
    for rewards in ({}, {"won": None}):
        with pytest.raises(FormatError, match="none of its rewards was scored") as refused:
            LineFormat("prime-rl")({**trace, "rewards": rewards})
        assert refused.value.remedy == "remove the line"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "line",
    [
        {},
        {"input": 3, "output": "4", "score": 1},
        {"prompt": "a", "completion": "b", "advantage": 1.0, "step": 1},
        {"prompt": CHAT, "completion": [], "won": 1.0},
        {"prompt": [], "completion": [], "won": 1.0},
        {"prompt": CHAT, "completion": ["x"], "won": 1.0},
        {"prompt": None, "completion": None, "won": 1.0},
        prime_rl(traces=[]),
        prime_rl(traces=[{"id": "x"}]),
        prime_rl(traces=[{**prime_rl()["traces"][0], "nodes": []}]),
        prime_rl(traces=[{**prime_rl()["traces"][0], "rewards": {"won": 1.0}}]),
    ],
)
def test_what_is_of_no_format_is_one_line(name: str, line: Any) -> None:
    with pytest.raises(FormatError) as refused:
        LineFormat(name)(line)
    assert "\n" not in str(refused.value)


TAU = [
    {"role": "system", "content": "You sell."},
    {"role": "user", "content": "I want a cup."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "open", "content": "done"},
    {"role": "assistant", "content": "Here."},
    {"role": "user", "content": "Thanks."},
]
SHAREGPT = [
    {"from": "system", "value": "You sell."},
    {"from": "human", "value": "I want a cup."},
    {"from": "gpt", "value": 'open({"what": "door"})'},
    {"from": "tool", "value": "done"},
    {"from": "gpt", "value": "Here."},
    {"from": "human", "value": "Thanks."},
]


@pytest.mark.parametrize(
    "line",
    [{"messages": TAU}, {"traj": TAU, "info": {}, "trial": 0}, {"conversations": SHAREGPT}],
)
def test_a_chat_with_a_reward_is_an_episode(line: dict[str, Any]) -> None:
    read = LineFormat("chat")
    entry = read({**line, "reward": 1.0})
    assert entry["instruction"] == "You sell.\n\nI want a cup."
    assert [[*step.values()] for step in entry["steps"]] == [
        ["", 'open({"what": "door"})', "done"],
        ["done", "Here.", "Thanks."],
    ]
    assert (entry["reward"], entry["trajectory"]) == (1.0, "0")
    again = read({**line, "reward": True})
    assert (again["task"], again["trajectory"], again["reward"]) == (entry["task"], "1", 1)
    assert read({**line, "reward": 0, "task_id": 7})["task"] == "7"
    with pytest.raises(FormatError, match="no 'reward'"):
        read(line)


THOUGHTS: list[dict[str, Any]] = [
    {"content": "<think>\nbecause\n</think>\n\na"},
    {"content": "<think>because</think>a"},
    {"content": "a", "reasoning_content": "because"},
    {"content": "a", "reasoning": "because"},
    {"content": [{"type": "thinking", "thinking": "because"}, {"type": "text", "text": "a"}]},
]


@pytest.mark.parametrize("said", THOUGHTS)
@pytest.mark.parametrize("name", ["trl", "chat", "prime-rl"])
def test_thoughts_are_kept_apart_however_they_were_written(
    name: str, said: dict[str, Any], tmp_path: Path
) -> None:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", **said}]
    chat += [{"role": "user", "content": "and?"}, {"role": "assistant", "content": "b"}]
    nodes = [
        {"message": each, "sampled": each["role"] == "assistant", "parent": i - 1 if i else None}
        for i, each in enumerate(chat)
    ]
    [trace] = prime_rl()["traces"]
    line = {
        "trl": trl(prompt=chat[:1], completion=chat[1:]),
        "chat": {"messages": chat, "reward": 1.0},
        "prime-rl": {**trace, "nodes": nodes},
    }[name]
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(line))
    with open_rollouts(path) as (file, *_):
        [(_, entry, trajectory)] = read_texts(path, file, lambda done: None, 0.5, LineFormat(name))
    assert entry["steps"][0]["response"] == "<think>\nbecause\n</think>\n\na"
    # The judge reads answers, as in a run.
    assert [step.response for step in trajectory.steps] == ["a", "b"]
    assert trajectory.steps[0].completion.text == entry["steps"][0]["response"]


def lines(path: Path, text: str, win_at: float | None = None) -> list[Any]:
    path.write_text(text)
    with open_rollouts(path) as (file, *_):
        return [*read_texts(path, file, lambda done: None, win_at)]


def test_a_file_may_be_one_list_of_records(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    step = {"observation": "", "response": "a", "next_observation": ""}
    record = {"task": "t", "trajectory": 1, "instruction": "Go.", "outcome": 1, "steps": [step]}
    for text in (json.dumps([record] * 2), f"\ufeff{json.dumps([record] * 2, indent=1)}\n"):
        assert [place.number for place, *_ in lines(path, text)] == [1, 2]
    with pytest.raises(RolloutsError, match="record 2: there is no 'task'; write it as"):
        lines(path, json.dumps([record, {}], indent=1))
    with pytest.raises(RolloutsError, match="the list on line 1: "):
        lines(path, json.dumps([record], indent=1)[:-1])


def test_a_file_may_be_documents_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    step = {"observation": "", "response": "a", "next_observation": ""}
    record = {"task": "t", "trajectory": 1, "instruction": "Go.", "outcome": 1, "steps": [step]}
    whole = json.dumps(record, indent=1)
    for text, count in ((whole, 1), (f"\ufeff{whole}\n\n{whole}\n", 2)):
        assert [place.number for place, *_ in lines(path, text)] == [*range(1, count + 1)]
    with pytest.raises(RolloutsError, match="record 1: there is no 'task'; write it as"):
        lines(path, json.dumps({"all": [record]}, indent=1))
    for cut in (-1, -20, 40):
        with pytest.raises(RolloutsError, match="the document on line 1: not complete, and the"):
            lines(path, whole[:cut])
    with pytest.raises(RolloutsError, match=r"document on line 1: not JSON \(.*, line 2\); write"):
        lines(path, whole.replace(",", ";", 1))
    with pytest.raises(RolloutsError, match=rf"\(.*, line {whole.count(chr(10)) + 4}\); write"):
        lines(path, f"{whole}\n\n{whole.replace(',', ';', 1)}")


def test_a_reward_that_misses_the_whole_by_rounding_wins(tmp_path: Path) -> None:
    step = {"observation": "", "response": "a", "next_observation": ""}
    record = {"task": "t", "trajectory": 1, "instruction": "Go.", "steps": [step]}
    for reward, outcome in ((0.7 + 0.2 + 0.1, 1), (0.999, -1), (10**400, 1), (-(10**400), -1)):
        [(*_, trajectory)] = lines(
            tmp_path / "1.jsonl", json.dumps({**record, "reward": reward}), win_at=1.0
        )
        assert trajectory.outcome == outcome


def test_the_line_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    path.write_text(f"{json.dumps(verl())}\n{json.dumps({'input': 'x'})}\n")
    with (
        open_rollouts(path) as (file, *_),
        pytest.raises(RolloutsError, match=r"line 2: .* of verl \('output' is missing\)"),
    ):
        list(read_texts(path, file, lambda done: None, 0.5, LineFormat("verl")))


def test_the_rows_of_a_parquet_file_are_lines(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "completions_00003.parquet"
    rows = [trl(completion=SAID[:1]), trl(completion=SAID[3:], won=0.0)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with open_rollouts(path) as (file, *_):
        read = list(read_texts(path, file, lambda done: None, 0.5, LineFormat("trl")))
    assert [trajectory.outcome for *_, trajectory in read] == [1, -1]
    assert read[1][2].steps[0].response == "I take it."
    path.write_bytes(b"no table")
    with (
        pytest.raises(RolloutsError, match="not a readable Parquet file"),
        open_rollouts(path) as (file, *_),
    ):
        list(file)
