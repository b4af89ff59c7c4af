"""What environments of other libraries share: seeds by split, horizons, scores, faults, ends."""

from __future__ import annotations

import random
import re
import sys
from typing import Any

import numpy as np
import pytest

from helpers.paths import PACKAGES
from rlanything.config.recipe import load_recipe
from rlanything.config.yaml import read_yaml
from rlanything.domains.base import DomainError, EpisodeError
from rlanything.domains.registry import load_domain
from rlanything.plugins import plugin_names
from rlanything.records import Completion, Task
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.ecosystem import (
    SPLITS,
    EcosystemDomain,
    EcosystemEnvironment,
    EcosystemOptions,
    EpisodeRules,
    GameTurn,
    action_names,
    split_seeds,
)
from rlanything_gyms.winning import WinRule

CLOSED: list[str] = []
GONE: list[str] = []
"""Faults that the next actions `break` meet; `for good`: no game begins."""


class DiceGame:
    """A game that draws from the process's global random numbers, and does what it is told."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def begin(self, task: Task) -> GameTurn:
        if self.fault == "reset" or "for good" in GONE:
            raise ConnectionError("the table is gone")
        return GameTurn(self.throw(), over=self.fault == "over")

    def play(self, action: str) -> GameTurn:
        if action == "raise":
            raise ValueError("the dice fell off")
        if action == "leave":
            GONE.append("for good")
        if action in ("leave", "break") and GONE:
            raise ConnectionError(f"the table is gone {GONE.pop() if action == 'break' else ''}")
        reward: Any = {"nan": float("nan"), "text": "much", "huge": 7.0}.get(action, 0.25)
        return GameTurn(self.throw(), None, reward, over=action in ("stop", "huge"))

    def close(self) -> None:
        CLOSED.append(self.fault)

    def throw(self) -> str:
        return f"{random.randint(1, 10**6)} {np.random.randint(10**6)}"


class Dice(EcosystemDomain):
    class Options(EcosystemOptions):
        fault: str = ""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        super().__init__("dice", None, chosen.ood)
        self.fault = chosen.fault
        self.rules = EpisodeRules.read(WinRule.at(0.5), [0, 1], chosen.horizon)

    def environment(self) -> EcosystemEnvironment:
        return EcosystemEnvironment(DiceGame(self.fault), self.rules)


class Saying:
    """Says the same at every step."""

    def __init__(self, *says: str) -> None:
        self.says = says

    def respond(self, episodes: Any, seeds: Any) -> list[Completion]:
        del seeds
        texts = [self.says[min(len(e.steps), len(self.says) - 1)] for e in episodes]
        return [Completion((1,), (2,), (-0.5,), ((),), "stop", text) for text in texts]

    def release_cache(self) -> None: ...


def played(domain: EcosystemDomain, *says: str, workers: int = 0, max_steps: int = 6) -> Rollouts:
    with EnvironmentPool(domain, {}, workers, 20.0) as pool:
        tasks = domain.tasks("train", 2, 0)
        requests = [RolloutRequest(task.id, task, 0) for task in tasks]
        return rollout(Saying(*says), pool, requests, max_steps, 8)


def test_no_two_splits_share_a_seed_and_the_same_seed_gives_the_same() -> None:
    drawn = {split: set(split_seeds(split, 5000, 3)) for split in SPLITS}
    assert all(len(seeds) == 5000 for seeds in drawn.values())
    assert len(set.union(*drawn.values())) == 5000 * len(SPLITS)
    assert max(set.union(*drawn.values())) < 2**32
    assert split_seeds("tune", 9, 1) == split_seeds("tune", 9, 1) != split_seeds("tune", 9, 2)
    with pytest.raises(DomainError, match="split 'dev' has no tasks; use one of train, tune"):
        split_seeds("dev", 1, 0)


def test_out_of_domain_needs_something_that_differs() -> None:
    with pytest.raises(DomainError, match=r"domain\.options\.ood, or set evaluation\.splits="):
        Dice().tasks("ood", 1, 0)
    domain = Dice(ood={"size": 2})
    [task] = domain.tasks("ood", 1, 0)
    assert domain.settings(task.data, {"size": 1, "colour": "red"}) == {"size": 2, "colour": "red"}
    [usual] = domain.tasks("train", 1, 0)
    assert domain.settings(usual.data, {"size": 1}) == {"size": 1}
    for ood in ({}, [], "big"):
        with pytest.raises(DomainError, match=r"domain\.options\.ood: "):
            Dice(ood=ood)


def test_an_episode_is_scored_at_its_horizon_and_lost_at_the_loops_limit() -> None:
    won = played(Dice(horizon=2), "> roll").trajectories[0]
    assert (len(won.steps), won.outcome, won.reward) == (2, 1, 0.5)
    lost = played(Dice(horizon=1), "> roll").trajectories[0]
    assert (lost.outcome, lost.reward) == (-1, 0.25)
    cut = played(Dice(), "> roll", max_steps=4).trajectories[0]
    assert (len(cut.steps), cut.outcome, cut.reward) == (4, -1, 1.0)
    for horizon in (0, -1, 1.5, "long", True):
        with pytest.raises(DomainError, match=r"domain\.options\.horizon: "):
            Dice(horizon=horizon)


def test_a_response_without_an_action_is_told_so_and_counts_as_a_step() -> None:
    trajectory = played(Dice(horizon=3), "hm", "> roll", "> roll").trajectories[0]
    assert [step.valid for step in trajectory.steps] == [False, True, True]
    assert "write > and one action" in trajectory.steps[0].next_observation
    assert trajectory.outcome == 1


@pytest.mark.parametrize("action", ["raise", "nan", "text", "huge"])
def test_a_fault_costs_its_own_episode_and_is_counted(action: str) -> None:
    CLOSED.clear()
    rollouts = played(Dice(), f"> {action}")
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1, -1]
    assert len(rollouts.crashes) == 2
    assert "\n" not in str(rollouts.crashes[0])


def test_a_fault_that_does_not_come_back_changes_no_episode() -> None:
    undisturbed = played(Dice(horizon=4), "> roll", "> break", "> roll", "> roll")
    GONE.append("once")
    again = played(Dice(horizon=4), "> roll", "> break", "> roll", "> roll")
    assert not GONE
    assert again.trajectories == undisturbed.trajectories
    assert not again.failures
    assert not again.crashes


def test_a_fault_after_which_nothing_can_be_played_masks_the_episode() -> None:
    try:
        rollouts = played(Dice(), "> leave")
    finally:
        GONE.clear()
    assert not rollouts.trajectories
    assert not rollouts.crashes
    assert [(f.masked, f.reason) for f in rollouts.failures] == [
        (True, "ConnectionError: the table is gone")
    ] * 2


def test_what_cannot_begin_counts_neither_way() -> None:
    for fault, said in (("reset", "the table is gone"), ("over", "over before it began")):
        rollouts = played(Dice(fault=fault), "> roll")
        assert not rollouts.trajectories
        assert [said in failure.reason for failure in rollouts.failures] == [True, True]


def test_games_are_closed_after_a_fault_and_at_the_end() -> None:
    CLOSED.clear()
    played(Dice(), "> roll", "> stop")
    assert CLOSED == ["", ""]
    CLOSED.clear()
    played(Dice(fault="reset"), "> roll")
    assert CLOSED == ["reset", "reset"]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_global_random_numbers_are_an_environments_own(workers: int) -> None:
    random.seed(workers)
    expected = played(Dice(), "> roll", max_steps=3)
    state = random.getstate()
    again = played(Dice(), "> roll", workers=workers, max_steps=3)
    assert random.getstate() == state
    texts = [[s.next_observation for s in t.steps] for t in expected.trajectories]
    assert texts == [[s.next_observation for s in t.steps] for t in again.trajectories]
    assert texts[0] != texts[1]


def test_its_tasks_are_not_rewritten_and_nobody_is_asked() -> None:
    assert not Dice().capabilities.rewrites_tasks


def test_names_of_actions_can_be_told_apart_in_a_response() -> None:
    assert action_names(["left", "two words"]) == ("left", "two words")
    for names in ("left", [], ["a", "a"], [1, 2], [True], ["a > b"], [" a"], ["a\nb"], [""], 3):
        with pytest.raises(DomainError, match="actions is"):
            action_names(names)


def test_the_fault_of_an_episode_names_its_task() -> None:
    environment = Dice(fault="over").environment()
    with pytest.raises(EpisodeError, match="task train-"):
        environment.reset(Dice().tasks("train", 1, 0)[0])


PAGE = (PACKAGES / "rlanything-gyms" / "README.md").read_text(encoding="utf-8")
RECIPES = [b for b in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if b.startswith("name:")]


@pytest.mark.parametrize("text", RECIPES, ids=lambda text: text.split()[1])
def test_recipes_of_the_page_are_read_and_short(text: str) -> None:
    data: Any = read_yaml(text)
    assert load_recipe(data, allow_code=True).domain.name in plugin_names("domain")
    assert len(text.splitlines()) <= 12


def test_the_page_has_a_recipe_for_each() -> None:
    assert len(RECIPES) == 9


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("gymnasium", "gymnasium", "gymnasium"),
        ("openenv", "openenv", "openenv"),
        ("reasoning_gym", "reasoning_gym", "reasoning-gym"),
        ("textarena", "nltk", "textarena"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"rlanything_gyms.{name}"
    gone = [m for m in sys.modules if f"{m}.".startswith((f"{own}.", f"{module}."))]
    for loaded in gone:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DomainError, match=rf"pip install 'rlanything-gyms\[{extra}\]'"):
        load_domain(name, {})
