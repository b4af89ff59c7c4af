"""Tests of benchmarks/rewrites.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.benchmark_module import load_benchmark
from rlanything_alfworld.goal import Goal

PUT = "pick_and_place_simple"


def event(path: Path, goal: Goal, kind: str = "accepted") -> dict[str, Any]:
    return {
        "event": kind,
        "data": {"path": str(path), "goal": goal.to_json()},
        "direction": "harder",
        "parent_accuracy": 1.0,
        "candidate_accuracy": 0.5,
    }


def test_a_rewrite_that_is_a_held_out_game_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrites = load_benchmark("rewrites")
    game = tmp_path / "train" / f"{PUT}-Mug-None-Desk-301" / "trial" / "game.tw-pddl"
    for split, name in (("valid_seen", f"{PUT}-Pen-None-Desk-301"), ("valid_unseen", "other")):
        (tmp_path / split / name).mkdir(parents=True)
    seen, other = (Goal.of(PUT, thing, "Desk") for thing in ("Pen", "Book"))
    history = [event(game, seen), event(game, other), event(game, seen, "rejected")]
    found = list(rewrites.accepted([{"history": history}]))
    assert [each.goal for each in found] == [seen, other]
    published = SimpleNamespace(goal=Goal.of(PUT, "Mug", "Desk"))
    monkeypatch.setattr(rewrites, "read_game", lambda path: published)
    text = rewrites.section(found, tmp_path, "command")
    assert "2 accepted, 2 of them harder and 0 easier" in text
    assert "in `valid_seen`: 1; in `valid_unseen`: 0" in text
    assert "| put a mug in desk | put a book in desk | 100%, 50% |" in text
