"""The numbers of an iteration."""

from __future__ import annotations

from rlanything.evaluation.diagnostics import diagnose
from rlanything.rollout.groups import ScheduledTask, RolloutGroup
from rlanything.algorithm.feedback import FeedbackSettings, task_signals
from rlanything.loop import IterationResult
from rlanything.records import Task
from rlanything.roles.adapter import Proposal, Refusal
from rlanything.runs.metrics import iteration_metrics
from helpers.scripted import judged

SETTINGS = FeedbackSettings()


def group(name: str, outcomes: list[int], candidate: bool = False) -> RolloutGroup:
    """Rollouts of two steps with two judgements each, which disagree."""
    members = tuple(
        judged(f"{name}/{i}", [[1, -1], [1, -1]], outcome=outcome)
        for i, outcome in enumerate(outcomes)
    )
    signals = task_signals(outcomes, [each.scores for each in members], SETTINGS)
    return RolloutGroup(ScheduledTask(name, Task(name, "do"), candidate), members, signals.accuracy, signals)


def metrics_of(turn: IterationResult) -> dict[str, float | None]:
    return iteration_metrics(turn, diagnose([], [], [], 1.0), SETTINGS, {}, {}, {})


def test_the_funnel_counts_each_slot_by_the_best_of_its_tries() -> None:
    unreadable, invalid, unsolvable = (
        Refusal(stage, "why") for stage in ("unreadable", "invalid", "unsolvable")
    )
    tries = [[], [unreadable] * 2, [unreadable, invalid], [unsolvable, unreadable]]
    turn = IterationResult(1, proposals=[Proposal(str(i), None, (), tuple(t)) for i, t in enumerate(tries)])
    turn.proposals.append(Proposal("s", Task("t", "do"), (), (unreadable,)))
    found = metrics_of(turn)
    stages = ("asked", "parsed", "valid", "proposed", "refused_tries")
    assert [found[f"tasks/{stage}"] for stage in stages] == [5, 3, 2, 1, 7]


def test_what_trains_is_a_share_of_what_may_train() -> None:
    within, easy = group("a", [1, -1, -1, -1]), group("b", [1, 1, 1, 1])
    turn = IterationResult(1, groups=[within, easy, group("c", [1, -1], candidate=True)], rejected=["c"])
    turn.policy_samples = list(within.policy_samples())
    turn.judge_samples = list(within.judge_samples())
    found = metrics_of(turn)
    assert found["policy/window_share"] == found["judge/window_share"] == 1 / 2
    assert found["policy/trained_share"] == 8 / 16
    assert found["judge/trained_share"] == 16 / 32
    assert found["judge/advantage"] == 1.0, "of two that differ each is one deviation away"


def test_the_groups_of_accepted_candidates_may_train() -> None:
    turn = IterationResult(1, groups=[group("c", [1, -1], candidate=True)], accepted=["c"])
    assert metrics_of(turn)["policy/window_share"] == 1.0


def test_an_iteration_in_which_nothing_trained_has_no_advantage() -> None:
    found = metrics_of(IterationResult(1, groups=[group("b", [1, 1])]))
    assert found["policy/advantage"] is None
    assert found["policy/trained_share"] == 0.0
    assert metrics_of(IterationResult(1))["policy/trained_share"] is None
