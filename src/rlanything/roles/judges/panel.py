"""A panel of judges that score the same steps, each under its role's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

from rlanything.algorithm.agreement import Agreements, agreements, weighed
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.signals import TaskSignals, task_accuracy
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.roles.judges.base import Judge, OnJudgements, group_signals

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """The judges of a run, each of which scores every step. An empty panel gives no scores.

    An episode of several players is judged, and compared, as each of them saw it."""

    judges: Mapping[str, Judge]
    """Judges by role name, in the order of the recipe."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each judge's mean score of a step, by name; default 1."""
    elsewhere: bool = False
    """Whether all of them answer from endpoints, so that they can judge while episodes play."""

    @property
    def samples(self) -> int:
        """Number of judgements of each step."""
        return sum(judge.samples for judge in self.judges.values())

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seeds: Mapping[str, int],
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories with the judgements of all judges, [trajectories][steps][m].
        `seeds` by judge."""
        views = [view for trajectory in trajectories for view in trajectory.views]
        given = [
            [_signed(one, name) for one in judge.judge(views, seeds[name], on_judgements)]
            for name, judge in self.judges.items()
        ]
        joined = (
            _joined(view, [by_judge[i] for by_judge in given]) for i, view in enumerate(views)
        )
        return [
            JudgedTrajectory(
                one, one.in_order({view.player: next(joined).judgements for view in one.views})
            )
            for one in trajectories
        ]

    def agreements(self, judged: Sequence[JudgedTrajectory]) -> Agreements:
        """Returns the agreement of each judge with the outcomes, task by task."""
        scores = [{name: one.scores_by(name) for name in self.judges} for one in judged]
        played = [(one.trajectory.task.id, one.trajectory.outcome) for one in judged]
        return agreements((*pair, own) for pair, own in zip(played, scores, strict=True))

    def signals(
        self,
        judged: Sequence[JudgedTrajectory],
        settings: FeedbackSettings,
        lambdas: Mapping[str, float] = MappingProxyType({}),
    ) -> TaskSignals:
        """Returns the advantages of what acts and, from its own scores, of each judge for the
        judged trajectories of one task. A single judge also decides the policy's. `lambdas`: lambda
        of each judge if it is adaptive.

        Each player is compared with itself, by its own outcomes, steps and accuracy."""
        weights = {name: self.weights.get(name, 1.0) for name in self.judges}
        if settings.policy_lambda_control == "adaptive":
            policy_lambda, weights = weighed(lambdas, weights)
            settings = settings.with_lambda(policy_lambda)
        views = [view for one in judged for view in one.views]
        by_player = {
            player: self._signals(
                [view for view in views if view.trajectory.player == player], settings, weights
            )
            for player in dict.fromkeys(view.trajectory.player for view in views)
        }
        if by_player.keys() == {""}:
            return by_player[""]
        whole = [one.trajectory for one in judged]
        return TaskSignals(
            task_accuracy([trajectory.outcome for trajectory in whole]),
            _together(whole, {player: own.policy for player, own in by_player.items()}),
            {
                judge: _together(whole, {p: own.judges[judge] for p, own in by_player.items()})
                for judge in self.judges
            },
        )

    def _signals(
        self,
        judged: Sequence[JudgedTrajectory],
        settings: FeedbackSettings,
        weights: Mapping[str, float],
    ) -> TaskSignals:
        """Returns the signals of trajectories of one player, with the weights of the judges whose
        scores count."""
        if not self.judges:
            return replace(group_signals(judged, {"": judged}, settings), judges={})
        given = {name: [one.only(name) for one in judged] for name in self.judges}
        own = {name: judge.signals(given[name], settings) for name, judge in self.judges.items()}
        judges = {name: _of_one(signals) for name, signals in own.items()}
        if len(own) == 1:
            [signals] = own.values()
            return replace(signals, judges=judges)
        heard = {name: given[name] for name in weights}
        combined = group_signals(judged, heard, settings, weights)
        return replace(combined, judges=judges)

    def counts(
        self, judged: Sequence[JudgedTrajectory]
    ) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        """Returns each judge's `counts` of its own judgements, by name."""
        views = [view for one in judged for view in one.views]
        return {
            name: judge.counts([view.only(name) for view in views])
            for name, judge in self.judges.items()
        }


def _together(
    trajectories: Sequence[Trajectory], by_player: Mapping[str, Iterable[Iterable[T]]]
) -> tuple[tuple[T, ...], ...]:
    """Returns what belongs to each step of each trajectory, from that of each player's views."""
    left = {player: iter(rows) for player, rows in by_player.items()}
    return tuple(
        one.in_order({view.player: next(left[view.player]) for view in one.views})
        for one in trajectories
    )


def _signed(judged: JudgedTrajectory, judge: str) -> JudgedTrajectory:
    """Returns the trajectory with the judge's name in its judgements."""
    rows = (tuple(replace(each, by=judge) for each in step) for step in judged.judgements)
    return JudgedTrajectory(judged.trajectory, tuple(rows))


def _joined(trajectory: Trajectory, given: Sequence[JudgedTrajectory]) -> JudgedTrajectory:
    """Returns the trajectory with all judges' judgements of its steps, judge by judge."""
    if not given:
        return JudgedTrajectory(trajectory, ((),) * len(trajectory.steps))
    rows = zip(*(one.judgements for one in given), strict=True)
    return JudgedTrajectory(trajectory, tuple(tuple(chain.from_iterable(row)) for row in rows))


def _of_one(signals: TaskSignals) -> tuple[tuple, ...]:
    """Returns the advantages in a single judge's signals; the judge does not know its role name."""
    [own] = signals.judges.values()
    return own
