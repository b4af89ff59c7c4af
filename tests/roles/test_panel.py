"""Several judges of the same steps."""

from __future__ import annotations

import numpy as np
import pytest

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.roles.judges.base import FunctionJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import RolloutGroup, ScheduledTask

TASK = Task("t", "do")
SEEDS = {"first": 1, "second": 2}
ALWAYS = FeedbackSettings(policy_window=(0, 1), judge_window=(0, 1))


def trajectory(name: str, outcome: int, actions: str) -> Trajectory:
    completion = Completion((1,), (2,), (-0.5,), ((),), "stop", "x")
    steps = tuple(Step("see", completion, action, True, "see") for action in actions)
    return Trajectory(name, TASK, steps, outcome)


EPISODES = [trajectory("a", 1, "gb"), trajectory("b", -1, "bg")]


def first(trajectory: Trajectory, i: int) -> int:
    return 1 if trajectory.steps[i].action == "g" else -1


def second(trajectory: Trajectory, i: int) -> int:
    return 0 if i == 0 else 1


def panel(**weights: float) -> JudgePanel:
    return JudgePanel({"first": FunctionJudge(first), "second": FunctionJudge(second)}, weights)


def test_judgements_stand_judge_by_judge_and_say_who_wrote_them() -> None:
    judged = panel().judge(EPISODES, SEEDS)
    assert judged[0].scores == ((1, 0), (-1, 1))
    assert [[j.by for j in step] for step in judged[0].judgements] == [["first", "second"]] * 2
    assert judged[1].scores_by("first") == ((-1,), (1,))
    assert judged[1].scores_by("second") == ((0,), (1,))


def test_the_policy_learns_from_the_weighted_mean_of_judges_that_can_be_read() -> None:
    changed = {"policy_reward": "judge", "advantage": "leave_one_out"}
    settings = FeedbackSettings.model_validate({"policy_window": (0, 1), **changed})
    judges = panel(first=3.0, second=1.0)
    signals = judges.signals(judges.judge(EPISODES, SEEDS), settings)
    # Means of a: 1, (3 * -1 + 1) / 4; of b: -1, (3 + 1) / 4. Each less the mean of the other.
    assert signals.policy[0] == pytest.approx([1.0 - 0.0, -0.5 - 0.0])
    assert signals.policy[1] == pytest.approx([-1.0 - 0.25, 1.0 - 0.25])


def test_a_judge_whose_lambda_is_0_changes_nothing_for_the_policy() -> None:
    adaptive = ALWAYS.model_copy(update={"policy_lambda_control": "adaptive"})
    both, alone = panel(), JudgePanel({"first": FunctionJudge(first)})
    judged = both.judge(EPISODES, SEEDS)
    heard = both.signals(judged, adaptive, {"first": 0.8, "second": 0.0})
    # Half of the weight belongs to the judge that is not heard.
    own = alone.signals(alone.judge(EPISODES, SEEDS), ALWAYS.with_lambda(0.4))
    assert all(map(np.array_equal, heard.policy, own.policy))
    unheard = both.signals(judged, adaptive, {"first": 0.0, "second": 0.0})
    outcome = both.signals(judged, ALWAYS.model_copy(update={"policy_reward": "outcome"}))
    assert all(map(np.array_equal, unheard.policy, outcome.policy))
    for one, other in zip(heard.judges["second"], outcome.judges["second"], strict=True):
        assert all(map(np.array_equal, one, other))


def test_each_judge_learns_what_it_would_learn_alone() -> None:
    both = panel()
    together = both.signals(both.judge(EPISODES, SEEDS), ALWAYS)
    assert [*together.judges] == ["first", "second"]
    for name, judge in both.judges.items():
        alone = JudgePanel({name: judge})
        own = alone.signals(alone.judge(EPISODES, SEEDS), ALWAYS)
        for one, other in zip(together.judges[name], own.judges[name], strict=True):
            assert all(np.array_equal(*rows) for rows in zip(one, other, strict=True))


def test_a_judges_samples_are_its_own_and_are_numbered_among_all() -> None:
    judges = panel()
    judged = tuple(judges.judge(EPISODES, SEEDS))
    signals = judges.signals(judged, ALWAYS)
    one = tuple(tuple(np.ones(1) for _ in member.judgements) for member in judged)
    signals = type(signals)(signals.accuracy, signals.policy, {"first": one, "second": one})
    written = Completion((1,), (2,), (-0.5,), ((),), "stop", "y")
    judged = tuple(
        type(m)(
            m.trajectory,
            tuple(tuple(type(j)(written, j.score, j.by) for j in row) for row in m.judgements),
        )
        for m in judged
    )
    group = RolloutGroup(ScheduledTask("t", TASK, False), judged, 0.5, signals)
    assert [sample.source for sample in group.samples("second")] == [
        *("a/0/1", "a/1/1", "b/0/1", "b/1/1")
    ]
    assert [sample.source for sample in group.samples("first")][:2] == ["a/0/0", "a/1/0"]


def test_without_judges_the_outcome_teaches_the_policy() -> None:
    nobody = JudgePanel({})
    judged = nobody.judge(EPISODES, {})
    assert judged[0].judgements == ((), ())
    signals = nobody.signals(judged, ALWAYS)
    assert not signals.judges
    assert [steps.tolist() for steps in map(np.asarray, signals.policy)] == [[1, 1], [-1, -1]]
