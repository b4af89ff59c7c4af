"""Files of other programs, recognised by their keys: made here in the published shapes, and real
ones if RLANYTHING_ROLLOUTS_DATA names their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.command import call, refused
from rlanything_judge.rollouts.formats import FORMATS, LineFormat
from rlanything_judge.rollouts.lines import (
    RolloutsError,
    limited_lines,
    open_rollouts,
    read_texts,
)

DATA = os.environ.get("RLANYTHING_ROLLOUTS_DATA", "")
SHOWN = [
    {"role": "system", "content": "You look things up."},
    {"role": "user", "content": "What is a zeugma?"},
]
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "z"}'}}
ANSWERS = [
    {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "A figure of speech."},
    {"role": "assistant", "content": "A figure of speech."},
]
STEPS = [
    ["", '<think>\nHm.\n</think>\n\nlook_up({"q": "z"})', "A figure of speech."],
    ["A figure of speech.", "A figure of speech.", ""],
]
ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "function_call", "name": "look_up", "arguments": '{"q": "z"}', "call_id": "1"},
    {"type": "function_call_output", "call_id": "1", "output": "A figure of speech."},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "A figure of speech."}],
    },
]
SWE = {
    "trajectory": [{"action": "look_up z", "observation": "A figure of speech."}],
    "history": [
        {"role": "user", "content": "An example.", "is_demo": True, "agent": "main"},
        *SHOWN,
        *ANSWERS,
    ],
    "info": {"exit_status": "submitted"},
    "replay_config": json.dumps({"problem_statement": {"id": "z-1"}}),
}
ROOM = "-= Welcome =-\n\nYou see a drawer 1.\n\nYour task is to: put a mug in drawer."
GAME = {
    "gamefile": "valid_seen/put-Mug-Drawer/trial_1/game.tw-pddl",
    "won": False,
    "steps": [
        {"observation": ROOM, "action": "go to drawer 1", "reasoning": "Hm.", "reward": 0.0},
        {"observation": "It is closed.", "action": "open drawer 1", "reward": 0.0},
    ],
}
"""Like the traces of verl-agent and of many evaluations: an observation, then the action on it."""
RESULT = {
    "example_id": 3,
    "prompt": SHOWN,
    "completion": [{**ANSWERS[0], "tool_calls": [json.dumps(CALL)]}, *ANSWERS[1:]],
    "reward": 1.0,
    "metrics": {"won": 1.0, "length": 9.0},
    "won": 1.0,
    "length": 9.0,
    "is_completed": True,
}
"""A line of verifiers' results.jsonl, with calls as texts and each metric as a key."""
GYM = {
    "responses_create_params": {"input": SHOWN, "tools": [{"type": "function"}]},
    "response": {"output": ITEMS},
    "reward": 1.0,
    "_ng_task_index": 3,
    "_ng_rollout_index": 5,
}
MADE: Mapping[str, dict[str, Any]] = {
    "tau-bench": {"traj": SHOWN + ANSWERS, "task_id": 3, "trial": 5, "reward": 1.0, "info": {}},
    "mini-swe-agent": {
        "messages": [*SHOWN, *ANSWERS, {"role": "exit", "content": ""}],
        "info": {"exit_status": "Submitted"},
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "z-1",
        "reward": 1.0,
    },
    "chat": {"messages": SHOWN + ANSWERS, "reward": 1.0},
    "responses": GYM,
    "verifiers": RESULT,
    "swe-agent": {**SWE, "reward": 1.0},
}
NAMES = {
    "tau-bench": ("3", "5"),
    "mini-swe-agent": ("z-1", "0"),
    "responses": ("3", "5"),
    "verifiers": ("3", "0"),
    "swe-agent": ("z-1", "0"),
}


def read(path: Path, *rewards: str) -> tuple[LineFormat, list[dict[str, Any]]]:
    read_as = LineFormat(rewards=rewards)
    with open_rollouts(path) as (file, *_):
        rows = read_texts(path, limited_lines(path, file), lambda done: None, 1.0, read_as)
        return read_as, [entry for _, entry, _ in rows]


def written(folder: Path, *records: Any) -> Path:
    path = folder / "made.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", MADE)
def test_each_shape_is_recognised_and_gives_the_same_steps(name: str, tmp_path: Path) -> None:
    read_as, [entry] = read(written(tmp_path, MADE[name]))
    assert read_as.name == name
    assert entry["instruction"] == "You look things up.\n\nWhat is a zeugma?"
    assert [[*step.values()] for step in entry["steps"]] == STEPS
    assert (entry["reward"], entry["outcome"]) == (1.0, 1)
    if name in NAMES:
        assert (entry["task"], entry["trajectory"]) == NAMES[name]


def test_a_request_to_openai_with_its_response_is_one_step(tmp_path: Path) -> None:
    """Its earlier answers are judged in the records of their own requests."""
    request = {"messages": [*SHOWN, *ANSWERS[:2]], "tools": [CALL]}
    response = {"object": "chat.completion", "choices": [{"index": 0, "message": ANSWERS[2]}]}
    for record in ({"request": request, "response": response}, {**request, **response}):
        read_as, [entry] = read(written(tmp_path, {**record, "reward": 1.0}))
        assert read_as.describe(1) == "openai, 1 rollout (left out: 1 x list of tools)"
        assert [[*step.values()] for step in entry["steps"]] == [["", "A figure of speech.", ""]]
        assert entry["instruction"].endswith('look_up({"q": "z"})\n\nA figure of speech.')


def test_a_trace_of_a_game_keeps_its_room_and_its_goal(tmp_path: Path) -> None:
    acts = [
        {"observation": step["observation"], "action": step["action"]} for step in GAME["steps"]
    ]
    later = [
        {"observation": "It is closed.", "raw_output": "go to drawer 1", "thought": "Hm."},
        {"observation": "A mug.", "raw_output": "open drawer 1"},
    ]
    last = [*acts[:1], {**acts[1], "next_observation": "A mug."}]
    first = [ROOM, "go to drawer 1", "It is closed."]
    for record, after in (
        (GAME, ""),
        ({**GAME, "steps": last}, "A mug."),
        (
            {"trajectory": later, "initial_observation": ROOM, "success": False, "steps": 2},
            "A mug.",
        ),
        ({"traj": acts, "task": {"text": "put a mug in drawer."}, "score": 0.5}, ""),
        ({"steps": [{**act, "reward": 0.25} for act in acts]}, ""),
    ):
        read_as, [entry] = read(written(tmp_path, record))
        assert read_as.name == "alfworld"
        assert (entry["instruction"], entry["outcome"]) == ("put a mug in drawer.", -1)
        one, two = ([*step.values()] for step in entry["steps"])
        thought = "<think>\nHm.\n</think>\n\n" if "Hm." in json.dumps(record) else ""
        assert one == [first[0], thought + first[1], first[2]]
        assert two == ["It is closed.", "open drawer 1", after]


def test_a_list_of_messages_is_one_rollout(tmp_path: Path) -> None:
    path = tmp_path / "mini.traj.json"
    path.write_text(json.dumps(SHOWN + ANSWERS, indent=2))
    read_as, [entry] = read(path, "1")
    assert (read_as.describe(1), entry["reward"]) == ("chat, 1 rollout", 1.0)
    assert [[*step.values()] for step in entry["steps"]] == STEPS


def test_what_a_judge_cannot_read_is_named_in_its_place_and_counted(tmp_path: Path) -> None:
    screen = {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "And?"}]}
    search = {"type": "web_search_call", "status": "completed"}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    chat = {"messages": [*SHOWN, *ANSWERS, screen], "reward": 1, "tools": [CALL, CALL]}
    gym = {**GYM, "response": {"output": [hidden, search, *ITEMS]}}
    for record, counts in (
        (chat, {"image_url": 1, "list of tools": 1}),
        (gym, {"list of tools": 1, "web_search_call": 1, "hidden reasoning": 1}),
        ({**SWE, "reward": 1}, {"message of a demonstration": 1}),
    ):
        read_as, [entry] = read(written(tmp_path, record))
        assert read_as.dropped == counts
        for name in counts.keys() & {"image_url", "web_search_call"}:
            assert f"[{name}]" in json.dumps(entry["steps"])


def test_stdin_is_recognised_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    path = written(tmp_path, MADE["tau-bench"])
    more = ["threads=1", "judge.max_tokens=2", "judge.samples_per_step=1", "--win-at", "1"]
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        out = str(tmp_path / "scored")
        assert call(monkeypatch, "judge", "-", "--judge", "nano-guess", "--out", out, *more) == 0
    assert "stdin: tau-bench, 1 rollout\n" in capsys.readouterr().err


def without(name: str, key: str) -> dict[str, Any]:
    return {kept: value for kept, value in MADE[name].items() if kept != key}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (without("tau-bench", "reward"), "no 'reward' in this rollout of tau-bench; name the key"),
        ({**SWE, "history": None}, "nearest is swe-agent, but 'history.role' is missing; add it"),
        (
            without("responses", "response"),
            "nearest is responses, but 'response.output' is missing",
        ),
        (without("verifiers", "completion"), "verifiers, but 'completion' is missing"),
        ({**GAME, "steps": [{"observation": ""}]}, "alfworld, but 'steps.response' is missing"),
        ({**GAME, "steps": [*GAME["steps"], {}]}, "step 3: 'observation' is missing"),
        ({"input": 3, "output": "4", "score": 1}, "'input' is 3, no text"),
        ({"messages": "q", "reward": 1}, "nearest is chat, but 'messages.role' is missing"),
        ({"messages": SHOWN, "reward": 1}, "no message is the model's"),
        ({"messages": [*SHOWN, {"role": "narrator"}]}, "message 3: the role 'narrator' is unknown"),
        ({"messages": [*SHOWN, {"content": ""}], "reward": 1}, "message 3: 'role' is missing"),
        ({"messages": [*SHOWN, 3], "reward": 1}, "message 3: 3 is not an object"),
        ({**RESULT, "completion": None}, "no message is the model's"),
        ({**GYM, "response": {"output": [{"type": "function_call"}]}}, "item 1: 'arguments' is"),
        ({"good": 1}, "of no known format; the nearest is rlanything, but 'task' is missing; add"),
        ({"task": "q", "steps": [{"scores": []}]}, "'reward' is missing; give a number"),
    ],
)
def test_damage_is_one_line_that_names_the_line_and_the_key(
    record: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(RolloutsError) as caught:
        read(written(tmp_path, record))
    assert fault in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'made.jsonl'}, line 1: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MADE)
def test_a_second_record_of_another_shape_or_cut_off_is_named(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, MADE[name], {"other": 1})
    with pytest.raises(RolloutsError, match=f"line 2: .*{name}"):
        read(path)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(RolloutsError, match="line 2: not complete, and the file ends; remove"):
        read(path)


def test_both_commands_say_what_they_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tau = MADE["tau-bench"]
    lost = {**tau, "trial": 6, "reward": 0.0}
    path, scored, signals = written(tmp_path, tau, lost), tmp_path / "scored", tmp_path / "signals"
    judge = ["judge", str(path), "--judge", "nano-guess", "--out", str(scored), "threads=1"]
    said = refused(monkeypatch, capsys, *judge)
    assert "line 1: a rollout of tau-bench with reward 1.0; say with --win-at" in said
    more = ["--win-at", "1", "judge.max_tokens=8", "judge.samples_per_step=1"]
    assert call(monkeypatch, *judge, *more) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "made.jsonl: tau-bench, 2 rollouts, 4 steps to judge" in said
    assert call(monkeypatch, "feedback", str(scored), "--out", str(signals)) == 0
    assert len(signals.read_text().splitlines()) == 2
    assert "not judged" not in capsys.readouterr().err
    unjudged = ["feedback", str(path), "--out", str(signals), "--force", "--win-at", "1"]
    assert call(monkeypatch, *unjudged) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "tau-bench, 2 rollouts; not judged, so each step counts by the outcome alone" in said
    won, other = map(json.loads, signals.read_text().splitlines())
    assert won["policy"] == [1, 1]
    assert other["policy"] == [-1, -1]
    assert won["judge"] == [[], []]


@pytest.mark.skipif(not DATA, reason="RLANYTHING_ROLLOUTS_DATA names no folder")
@pytest.mark.parametrize(
    ("file", "name", "rollouts", "steps", "won", "reward"),
    [
        ("tau_bench_airline.json", "tau-bench", 12, 167, 2, ()),
        ("swe_agent_fc.traj", "swe-agent", 1, 11, 1, ("1",)),
        ("mini_swe.traj.json", "chat", 1, 10, 1, ("1",)),
        ("nemo_gym_mini_swe_agent_2.jsonl", "responses", 5, 62, 1, ()),
        ("nemo_gym_tales.jsonl", "responses", 5, 91, 1, ()),
        ("nemo_gym_workplace_assistant.jsonl", "responses", 5, 13, 4, ()),
        ("tinker_conversations.jsonl", "chat", 128, 128, 128, ("1",)),
    ],
)
def test_real_files_are_read_whole(
    file: str, name: str, rollouts: int, steps: int, won: int, reward: tuple[str, ...]
) -> None:
    [path] = Path(DATA).rglob(file)
    read_as, entries = read(path, *reward)
    assert (read_as.name, len(entries)) == (name, rollouts)
    assert sum(len(entry["steps"]) for entry in entries) == steps
    assert sum(entry["outcome"] == 1 for entry in entries) == won
    assert all(step["response"] for entry in entries for step in entry["steps"])
    if not reward:
        assert len({(entry["task"], entry["trajectory"]) for entry in entries}) == rollouts


def test_the_readme_has_a_row_for_every_format() -> None:
    page = Path(__file__).parents[1] / "README.md"
    rows = [line.split("|")[1].strip(" `") for line in page.read_text().splitlines() if "|" in line]
    assert [name for name in FORMATS if name not in rows] == []
