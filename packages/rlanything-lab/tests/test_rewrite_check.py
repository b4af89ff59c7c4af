"""Rewrites against chance: controls without a model, movements and intervals, the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.command import call
from helpers.guess import GUESS
from helpers.paths import ROOT
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import Domain, RewriteRequest
from rlanything.domains.registry import load_domain
from rlanything.domains.text import TextRollouts
from rlanything.plugins import PluginError
from rlanything.progress import Progress
from rlanything.records import Direction
from rlanything.roles.baselines import RandomAgent
from rlanything.rollout.workers import EnvironmentPool
from rlanything.terminal import Terminal
from rlanything_lab.rewrite_check import check
from rlanything_lab.rewrite_check.adapters import RuleAdapter, SameTask
from rlanything_lab.rewrite_check.check import ArmResult, Moved, table, write_page

Captured = pytest.CaptureFixture[str]
BOUNDS = (0.2, 0.8)
QUIET = Progress(Terminal(quiet=True))


@pytest.fixture(scope="module")
def guess() -> Iterator[Domain]:
    sys.path.insert(0, str(ROOT / "examples"))
    yield load_domain("guess:Guess", {})
    sys.path.remove(str(ROOT / "examples"))


def asked(domain: Domain, makes: Direction, count: int) -> list[RewriteRequest]:
    return [RewriteRequest.of(task, makes) for task in domain.tasks("train", count, 0)]


def moved(seed: int, makes: Direction, chosen: float, parent: float, candidate: float) -> Moved:
    return Moved(seed, f"t{seed}", makes, chosen, parent, candidate, candidate)


def test_the_null_control_proposes_the_active_task_under_a_new_id(guess: Domain) -> None:
    [request] = asked(guess, "harder", 1)
    [proposal] = SameTask().propose([request], 3, 0)
    assert proposal.task == replace(request.active, id=f"{request.slot}@3")


def test_rules_propose_the_domains_rewrites(guess: Domain) -> None:
    harder, any_way = (
        [
            p.task.data["tries"]
            for p in RuleAdapter(guess, by).propose(asked(guess, "harder", 20), 1, 0)
            if p.task
        ]
        for by in ("direction", "any")
    )
    assert {*harder} == {2, 3}
    assert {*any_way} == {2, 3, 5, 6}
    [largest] = RuleAdapter(guess, "accuracy").propose(asked(guess, "harder", 1), 1, 0)
    assert largest.task is not None
    assert largest.task.data["tries"] == 3


def test_a_rule_needs_rewrites() -> None:
    with pytest.raises(PluginError, match="no rewrites"):
        RuleAdapter(TextRollouts(), "any")


def test_movement_counts_in_the_wanted_direction_and_against_the_null() -> None:
    null = ArmResult(
        "null", 2, [moved(0, "harder", 1.0, 0.8, 0.7), moved(1, "easier", 0.0, 0.2, 0.3)], BOUNDS
    )
    own = ArmResult(
        "adapter",
        3,
        [moved(0, "harder", 1.0, 0.8, 0.5), moved(1, "easier", 0.0, 0.2, 0.6)],
        BOUNDS,
    )
    assert own.points is not None
    assert own.points.estimate == pytest.approx(0.35)
    beyond = own.against(null)
    assert beyond is not None
    assert beyond.estimate == pytest.approx(0.25)
    opposite = ArmResult("random", 1, [moved(0, "harder", 1.0, 0.5, 0.9)], BOUNDS)
    assert opposite.points is not None
    assert opposite.points.estimate == pytest.approx(-0.4)
    assert opposite.accepted is not None
    assert opposite.accepted.estimate == 1  # though it became easier
    lines = table([null, own])
    assert "| `adapter` | 2 of 3 | +35.0 " in lines[3]
    assert "won 100.0% of the rollouts that chose them and 80.0% of fresh ones" in lines[-1]


def test_tasks_that_cannot_be_played_are_left_out_and_the_first_rollouts_are_as_many(
    guess: Domain,
) -> None:
    recipe = load_recipe(GUESS, ["loop.rollouts_per_task=6", "loop.max_steps=4"])
    with EnvironmentPool(guess, {}, 0, 60.0) as environments:
        player = check._Player(RandomAgent(guess), environments, recipe, 0, QUIET)
        broken, fine = guess.tasks("train", 2, 0)
        broken = replace(broken, data={})
        assert [task.id for task, _, _ in player.rollouts([broken, fine], "x")] == [fine.id]
        found = player.accuracies([broken, fine], "x", 3)
    [(won, first)] = found.values()
    assert (won * 6) % 1 == (first * 6) % 1 == 0
    assert won == first, "all of the loop's six rollouts"


def test_a_page_keeps_its_plan(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Plan\n\n## Results\n\nnone yet\n")
    write_page(page, ["| a |"], "rlanything rewrite-check x")
    assert page.read_text() == "# Plan\n\n## Results\n\n`rlanything rewrite-check x`\n\n| a |\n"


def test_the_command_plays_parents_and_candidates_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    page = tmp_path / "page.md"
    told = ["rewrite-check", str(GUESS), "--seeds=1", "--candidates=4", "--rollouts=8"]
    assert call(monkeypatch, *told, f"--page={page}", "--json") == 0
    arms = {each["arm"]: each for each in json.loads(capsys.readouterr().out)["arms"]}
    assert [*arms] == ["null", "random", "rule", "adapter", "adapter_critics"]
    assert len(arms["null"]["moved"]) == arms["null"]["asked"] == 4
    parents = {name: {m["slot"]: m["parent"] for m in each["moved"]} for name, each in arms.items()}
    assert all(parents["null"][slot] == p for each in parents.values() for slot, p in each.items())
    assert "| `null` | 4 of 4 |" in page.read_text()
    assert call(monkeypatch, *told, "--arms=mine") == 2
    assert "--arms: no arm is called 'mine'" in capsys.readouterr().err


def test_arms_that_need_rewrites_are_left_out_and_refused_before_anything_is_played(
    guess: Domain, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.delattr(type(guess), "rewrites")
    told = ["rewrite-check", str(GUESS), "--seeds=1", "--candidates=1", "--rollouts=8"]
    assert call(monkeypatch, *told, "--json") == 0
    arms = [each["arm"] for each in json.loads(capsys.readouterr().out)["arms"]]
    assert arms == ["null", "adapter", "adapter_critics"]
    monkeypatch.setattr(check, "_Player", None)
    assert call(monkeypatch, *told, "--arms=null,rule") == 2
    assert "domain Guess has no rewrites(root, direction)" in capsys.readouterr().err
