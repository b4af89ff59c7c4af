"""The metrics of an iteration, and metrics that others bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.events import points
from helpers.scripted import judged
from rlanything import plugins
from rlanything.algorithm.curriculum import Pool
from rlanything.algorithm.feedback import FeedbackSettings, RewardConfig
from rlanything.algorithm.signals import task_signals
from rlanything.config.recipe import load_recipe
from rlanything.loop import IterationResult
from rlanything.records import Task
from rlanything.roles.adapter import Proposal, Refusal
from rlanything.rollout.groups import RolloutGroup, ScheduledTask
from rlanything.runs.metrics import registry
from rlanything.runs.metrics.measuring import Meter, read
from rlanything.runs.metrics.registry import find_metric, metrics
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.payload import build
from rlanything.runs.results import IterationRecord, Numbers
from rlanything.runs.store.store import Store
from rlanything.runs.trackers import tracking

SETTINGS = FeedbackSettings(judge_reward=RewardConfig(options={"balance": "none"}))


def group(name: str, outcomes: list[int], candidate: bool = False) -> RolloutGroup:
    """Rollouts of two steps with two judgements each, which disagree."""
    members = tuple(
        judged(f"{name}/{i}", [[1, -1], [1, -1]], outcome=outcome)
        for i, outcome in enumerate(outcomes)
    )
    signals = task_signals(outcomes, [each.scores for each in members], SETTINGS)
    return RolloutGroup(
        ScheduledTask(name, Task(name, "do"), candidate), members, signals.accuracy, signals
    )


def refuse(line: str) -> None:
    raise AssertionError(line)


def record_of(result: IterationResult) -> IterationRecord:
    return IterationRecord(result=result, pool=Pool([Task("t", "do")], 0.2, 0.8))


def metrics_of(result: IterationResult) -> Numbers:
    return Meter(refuse).measure(record_of(result)).metrics


def test_the_funnel_counts_each_slot_by_the_best_of_its_tries() -> None:
    unreadable, invalid, unsolvable = (
        Refusal(stage, "why") for stage in ("unreadable", "invalid", "unsolvable")
    )
    tries = [[], [unreadable] * 2, [unreadable, invalid], [unsolvable, unreadable]]
    result = IterationResult(
        1, proposals=[Proposal(str(i), None, (), tuple(t)) for i, t in enumerate(tries)]
    )
    result.proposals.append(Proposal("s", Task("t", "do"), (), (unreadable,)))
    found = metrics_of(result)
    stages = ("asked", "parsed", "valid", "proposed", "refused_tries")
    assert [found[f"tasks/{stage}"] for stage in stages] == [5, 3, 2, 1, 7]


def test_what_trains_is_a_share_of_what_may_train() -> None:
    within, easy = group("a", [1, -1, -1, -1]), group("b", [1, 1, 1, 1])
    result = IterationResult(
        1, groups=[within, easy, group("c", [1, -1], candidate=True)], rejected=["c"]
    )
    result.samples = {role: list(within.samples(role)) for role in ("policy", "judge")}
    found = metrics_of(result)
    assert found["policy/window_share"] == found["judge/window_share"] == 1 / 2
    assert found["policy/trained_share"] == 8 / 16
    assert found["judge/trained_share"] == 16 / 32
    assert found["judge/advantage"] == 1.0, "of two that differ each is one deviation away"


def test_a_test_that_programs_share_is_one_judgement() -> None:
    one = group("a", [1, -1, -1, -1])
    shared = one.judged[0].judgements
    members = tuple(replace(each, judgements=shared) for each in one.judged)
    result = IterationResult(1, groups=[replace(one, judged=members)])
    result.samples = {"judge": [*one.samples("judge")][:2]}
    assert metrics_of(result)["judge/trained_share"] == 2 / 4


def test_the_groups_of_accepted_candidates_may_train() -> None:
    result = IterationResult(1, groups=[group("c", [1, -1], candidate=True)], accepted=["c"])
    assert metrics_of(result)["policy/window_share"] == 1.0


def test_an_iteration_in_which_nothing_trained_has_no_advantage() -> None:
    found = metrics_of(IterationResult(1, groups=[group("b", [1, 1])]))
    assert found["policy/advantage"] is None
    assert found["policy/trained_share"] == 0.0
    assert metrics_of(IterationResult(1))["policy/trained_share"] is None


# --- metrics from outside


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "REGISTERED", dict(registry.REGISTERED))
    monkeypatch.setattr("rlanything.runs.metrics.measuring.REGISTERED", registry.REGISTERED)
    yield
    find_metric.cache_clear()


def register_groups() -> object:
    @metrics(IterationRecord, "Mine", {"mine/groups": ("groups", "rollout groups with judgements")})
    def groups(record: IterationRecord) -> Numbers:
        return {"mine/groups": len(record.groups)}

    return groups


@pytest.mark.usefixtures("registered")
def test_a_metric_that_numpy_computed_is_a_number_to_the_store() -> None:
    @metrics(IterationRecord, "Mine", {"mine/most": ("groups", "the most")})
    def most(record: IterationRecord) -> Numbers:
        return {"mine/most": np.max([3, 4])}  # type: ignore[dict-item]

    assert most
    assert type(metrics_of(IterationResult(1))["mine/most"]) is float


def test_a_judge_that_does_not_learn_has_no_window() -> None:
    for samples, share in (({"judge": []}, 0.0), ({}, None)):
        record = record_of(IterationResult(1, groups=[group("a", [1, 1])], samples=samples))
        measured = Meter(refuse).measure(record).metrics
        assert measured["judge/window_share"] == share


@pytest.mark.usefixtures("registered")
def test_a_metric_from_outside_is_in_store_tracker_and_report(tmp_path: Path) -> None:
    register_groups()
    pool = Pool([Task("a", "do"), Task("b", "do")], 0.2, 0.8)
    result = IterationResult(1, groups=[replace(group("a", [1, -1]), judged=())])
    record = Meter(refuse).measure(
        IterationRecord(result=result, pool=pool, finished="2026-01-01T00:00:00+00:00")
    )
    assert record.number == 1
    assert record.metrics["mine/groups"] == 1
    store = Store.create(tmp_path / "run.sqlite")
    recipe = load_recipe({"name": "r", "domain": {"name": "text"}})
    with tracking(recipe, tmp_path, store, print) as track:
        store.record_iteration(record)
        track(record.number, record.metrics)
    assert store.metrics(1)["mine/groups"] == 1
    assert ("mine/groups", 1, 1.0) in points(tmp_path / "tensorboard")
    facts = build([Reader(store, tmp_path)]).facts
    assert facts["runs"][0]["metrics"]["mine/groups"] == [1]
    assert facts["meanings"]["mine/groups"] == "rollout groups with judgements (groups)"
    store.close()
    assert read(record.metrics, "mine/groups") == 1


@pytest.mark.usefixtures("registered")
def test_a_package_brings_metrics_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> EntryPoints:
        entries = [EntryPoint("mine", "their_metrics:groups", "rlanything.metrics")]
        return EntryPoints(entries if group == "rlanything.metrics" else [])

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    said: list[str] = []
    Meter(said.append)
    assert len(said) == 1
    assert "their_metrics" in said[0], "a package that is broken ends no run"
    monkeypatch.setitem(sys.modules, "their_metrics", SimpleNamespace(groups=register_groups()))
    found = Meter(refuse).measure(record_of(IterationResult(1))).metrics
    assert found["mine/groups"] == 0


@pytest.mark.usefixtures("registered")
def test_a_metric_that_raises_is_reported_once_and_left_out() -> None:
    @metrics(IterationRecord, "Mine", {"mine/broken": ("-", "nothing")})
    def broken(record: IterationRecord) -> Numbers:
        return {"mine/broken": 1 / len(record.groups)}

    said: list[str] = []
    meter = Meter(said.append)
    for number in (1, 2):
        measured = meter.measure(record_of(IterationResult(number))).metrics
        assert "mine/broken" not in measured
        assert measured["rollouts/episodes"] == 0
    assert len(said) == 1
    assert "broken" in said[0]
    assert "ZeroDivisionError" in said[0]
    again = meter.measure(record_of(IterationResult(3, groups=[group("a", [1])])))
    assert again.metrics["mine/broken"] == 1


@pytest.mark.usefixtures("registered")
def test_a_name_belongs_to_one_function_which_may_be_registered_again() -> None:
    register_groups()
    register_groups()
    with pytest.raises(ValueError, match=r"mine/groups is .*groups's: choose another name"):

        @metrics(IterationRecord, "Other", {"mine/groups": ("-", "other")})
        def other(record: IterationRecord) -> Numbers:
            return {}


def test_a_name_that_nobody_registered_cannot_be_read() -> None:
    assert read({"judge/mu": 1.0}, "judge/mu") == 1.0
    assert read({}, "evaluation/ood/success") is None
    with pytest.raises(KeyError, match="judge/nu"):
        read({"judge/nu": 1.0}, "judge/nu")
