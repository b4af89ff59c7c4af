"""How well advantages tell good steps, under the settings that trained and under others: writes
benchmarks/signals.md.

    python benchmarks/signals.py ARM [ARM ...] [--iterations FIRST LAST] [--out PAGE]

ARM: a folder of runs of one arm, `seed-0`, `seed-1` and so on, as `rlanything ablate` leaves them.
Reads only their stores: what trained in each arm, and what the rollouts and judgements of the last
one would have taught under other settings, without training again. Only for domains with an oracle
that labels steps.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
from few import mean_of_few

from rlanything.algorithm.feedback import (
    AdvantageConfig,
    FeedbackSettings,
    Floats,
    RewardConfig,
    Unreadable,
)
from rlanything.algorithm.signals import StepAdvantages, TaskSignals, task_signals
from rlanything.config.recipe import load_recipe
from rlanything.runs.store.store import Store
from rlanything.runs.store.stored import StoredTrajectory

OWN_PAGE = Path(__file__).with_suffix(".md")
RECIPE = {
    "policy_lambda": 1.0,
    "policy_lambda_control": "fixed",
    "judge_lambda": 1.0,
    "policy_reward": "integrated",
    "advantage": AdvantageConfig(name="step"),
    "judge_reward": RewardConfig(options={"balance": "outcome"}),
}
"""Settings of the first row of each table; the others change only what their names say."""
POLICY = {
    "lambda 1": {},
    "outcome alone": {"policy_reward": "outcome"},
    "lambda 1/4": {"policy_lambda": 0.25},
    "lambda 1/2": {"policy_lambda": 0.5},
    "lambda 2": {"policy_lambda": 2.0},
    "lambda 4": {"policy_lambda": 4.0},
    "scores alone": {"policy_reward": "judge"},
    "compared over the trajectory": {"advantage": AdvantageConfig(name="trajectory")},
    "compared in the same state": {"advantage": AdvantageConfig(name="state")},
}
JUDGE = {
    "balanced": {},
    "not balanced (the paper)": {"judge_reward": RewardConfig(options={"balance": "none"})},
    "balanced, lambda 1/4": {"judge_lambda": 0.25},
    "balanced, lambda 4": {"judge_lambda": 4.0},
}
RIGHT = (0.6, 0.7, 0.8, 0.9, 1.0)
"""How often judges that are made up for the comparison give a step its label as score."""
UNREAD = (0.2, 0.5)
"""Shares of judgements, or of whole steps, that are made unreadable for the comparison."""
OPEN = (0.0, 1.0)
EVERY = (1, sys.maxsize)
"""All iterations of a run."""
MAY_TRAIN = """
SELECT t.id FROM trajectories t JOIN groups g USING (iteration, task)
WHERE iteration BETWEEN ? AND ? AND (NOT g.candidate OR EXISTS (
  SELECT 1 FROM slot_events e WHERE e.slot = g.slot AND e.task = t.task
  AND e.iteration = t.iteration AND e.kind = 'accepted'))
ORDER BY t.number"""
Found = dict[str, dict[str, float]]
"""Measures by settings."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The recorded trajectories of one task in one iteration."""

    members: tuple[StoredTrajectory, ...]

    def taught(
        self, settings: FeedbackSettings, scores: Sequence[Sequence[Sequence[int]]] | None = None
    ) -> TaskSignals:
        """`scores`: [member][step][judgement]; None: those that were recorded."""
        return task_signals(
            [each.outcome for each in self.members],
            scores or [[[j.score for j in s.judgements] for s in m.steps] for m in self.members],
            settings,
            [each.reward for each in self.members],
            [[(step.observation, step.image) for step in each.steps] for each in self.members],
        )


def read(run: Path, iterations: tuple[int, int] = EVERY) -> list[Rollouts]:
    """Returns the rollout groups of these iterations, first to last, but for those of rejected
    rewrites, on which nobody trains."""
    groups: defaultdict[tuple[int, str], list[StoredTrajectory]] = defaultdict(list)
    with closing(Store(run / "run.sqlite")) as store:
        for (trajectory,) in store.query(MAY_TRAIN, *iterations):
            episode = store.trajectory(trajectory)
            groups[episode.iteration, episode.task].append(episode)
    return [Rollouts(tuple(members)) for members in groups.values()]


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Pearson's; not a number where one side does not vary."""
    one, two = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return float(np.corrcoef(one, two)[0, 1]) if len(one) and one.std() and two.std() else np.nan


def centred(values: npt.ArrayLike, places: Sequence[Hashable]) -> Floats:
    """Returns values [n, ...] less the mean of their place."""
    numbers: dict[Hashable, int] = {}
    at = np.array([numbers.setdefault(place, len(numbers)) for place in places], dtype=np.intp)
    given = np.asarray(values, dtype=np.float64)
    sums = np.zeros((len(numbers), *given.shape[1:]))
    np.add.at(sums, at, given)
    return given - (sums.T / np.bincount(at)).T[at]


def within(pairs: Sequence[tuple[float, float]], places: Sequence[Hashable]) -> float:
    """The correlation of what differs from the mean of its place."""
    values = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return correlation([(float(a), float(b)) for a, b in centred(values, places)])


def of_judge(pairs: Sequence[tuple[float, int, int]], count: int) -> dict[str, float]:
    """`pairs`: of every judgement that trains its advantage, score and label; `count`: how many
    there were, of which an arm may have none."""
    advantages, scores, _ = np.array(pairs, dtype=np.float64).reshape(-1, 3).T
    return {
        "judgements that train": len(pairs) / count if count else np.nan,
        "advantage with being right": correlation([(a, s * label) for a, s, label in pairs]),
        "pull toward +1": float((advantages * scores).mean()) if len(pairs) else np.nan,
    }


def trained(groups: Sequence[Rollouts]) -> dict[str, float]:
    """Returns how well the recorded advantages of the policy tell good steps."""
    return _of_policy(groups, [[_recorded(each) for each in group.members] for group in groups])


def policy_table(groups: Sequence[Rollouts], settings: FeedbackSettings) -> Found:
    """By settings, what the policy would have trained on."""

    def under(changed: FeedbackSettings) -> dict[str, float]:
        return _of_policy(groups, [group.taught(changed).policy for group in groups])

    return {name: under(settings.model_copy(update=changes)) for name, changes in POLICY.items()}


def accuracy_table(groups: Sequence[Rollouts], settings: FeedbackSettings) -> Found:
    """Returns what the policy would have trained on with judges of other accuracies. All judgements
    of a step agree, and errors at different steps are independent."""
    outcome = settings.model_copy(update={"policy_reward": "outcome"})
    rows = {
        "outcome alone": _of_policy(groups, [group.taught(outcome).policy for group in groups]),
        "the judge that there was": _of_policy(
            groups, [group.taught(settings).policy for group in groups]
        ),
    }
    for window, said in ((settings.policy_window, ""), (OPEN, ", all tasks train")):
        changed = settings.model_copy(update={"policy_window": window})
        for right in RIGHT:
            rng = random.Random(f"{right}")
            taught = [group.taught(changed, judged(group, right, rng)).policy for group in groups]
            name = f"right on {right:.0%} of the steps{said}"
            rows[name] = _of_policy(groups, taught)
    return rows


def judged(group: Rollouts, right: float, rng: random.Random) -> list[list[list[int]]]:
    """Returns a single score for every step: its label, or in a share 1 - `right` the other."""
    return [
        [[(step.label or 0) * (1 if rng.random() < right else -1)] for step in member.steps]
        for member in group.members
    ]


def unread_table(groups: Sequence[Rollouts], settings: FeedbackSettings) -> Found:
    """How well advantages tell good steps where judgements were made unreadable at random, each by
    itself or all of a step, under both rules of `feedback.unreadable`."""
    rows: Found = {}
    for share in UNREAD:
        for whole, what in ((False, "judgements"), (True, "steps")):
            rng = random.Random(f"{share} {what}")
            scores = [made_unreadable(group, share, whole, rng) for group in groups]
            known: dict[str, float] = {}
            for rule in get_args(Unreadable):
                changed = settings.model_copy(update={"unreadable": rule})
                both = zip(groups, scores, strict=True)
                taught = [group.taught(changed, masked).policy for group, masked in both]
                known[rule] = _of_policy(groups, taught)["advantage with label"]
            known["missing, more than zero"] = known["missing"] - known["zero"]
            rows[f"{share:.0%} of the {what} unreadable"] = known
    return rows


def made_unreadable(
    group: Rollouts, share: float, whole: bool, rng: random.Random
) -> list[list[list[int]]]:
    """Returns the recorded scores of a group, this share of them (or of steps) made 0."""

    def masked(scores: list[int]) -> list[int]:
        if whole:
            return [0] * len(scores) if rng.random() < share else scores
        return [0 if rng.random() < share else score for score in scores]

    return [
        [masked([judgement.score for judgement in step.judgements]) for step in member.steps]
        for member in group.members
    ]


def _recorded(trajectory: StoredTrajectory) -> Floats:
    return np.array([step.advantage or 0.0 for step in trajectory.steps])


def _of_policy(
    groups: Sequence[Rollouts], advantages: Iterable[Sequence[StepAdvantages]]
) -> dict[str, float]:
    labels: list[tuple[float, float]] = []
    outcomes: list[tuple[float, float]] = []
    places: list[tuple[int, int]] = []  # its group and its index: what else could be done there
    for number, (group, taught) in enumerate(zip(groups, advantages, strict=True)):
        for episode, own in zip(group.members, taught, strict=True):
            for index, (step, taken) in enumerate(zip(episode.steps, own, strict=True)):
                advantage = float(taken)
                if advantage and step.label:
                    labels.append((advantage, step.label))
                    outcomes.append((advantage, episode.outcome))
                    places.append((number, index))
    return {
        "steps that train": len(places) / sum(len(m.steps) for g in groups for m in g.members),
        "advantage with label": within(labels, places),
        "advantage with outcome": within(outcomes, places),
    }


def judge_table(groups: Sequence[Rollouts], settings: FeedbackSettings) -> Found:
    """By settings, what the judge would have trained on."""

    def pairs(changed: FeedbackSettings) -> Iterator[tuple[float, int, int]]:
        for group in groups:
            for episode, own in zip(
                group.members, group.taught(changed).judges["judge"], strict=True
            ):
                for step, advantages in zip(episode.steps, own, strict=True):
                    for judgement, advantage in zip(step.judgements, advantages, strict=True):
                        if advantage and judgement.score and step.label:
                            yield float(advantage), judgement.score, step.label

    count = sum(
        len(step.judgements)
        for group in groups
        for member in group.members
        for step in member.steps
    )
    return {
        name: of_judge(list(pairs(settings.model_copy(update=changes))), count)
        for name, changes in JUDGE.items()
    }


def table(runs: Sequence[Found]) -> list[str]:
    """A row for each of the settings: means over runs, and differences to the first row's."""
    names, first = list(runs[0]), next(iter(runs[0]))
    measures = list(runs[0][first])
    last = measures[1]
    lines = [
        f"| | {' | '.join(measures)} | {last}, more than {first} |",
        "|---" * (len(measures) + 2) + "|",
    ]
    for name in names:
        cells = [_cell([run[name][m] for run in runs]) for m in measures]
        more = _cell([run[name][last] - run[first][last] for run in runs], "+.3f")
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if name == first else more} |")
    return lines


def plain_table(runs: Sequence[Found]) -> list[str]:
    """A row for each of the settings: means over runs."""
    columns = list(next(iter(runs[0].values())))
    rows = [
        f"| {name} | {' | '.join(_cell([run[name][c] for run in runs]) for c in columns)} |"
        for name in runs[0]
    ]
    return [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows]


def _cell(values: Sequence[float], form: str = ".3f") -> str:
    if np.isnan(values).any():
        return "-"
    interval = mean_of_few(values)
    if interval is None:
        return f"{values[0]:{form}}"
    return f"{interval.estimate:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


PAGE = """# What the advantages know

`{command}` writes this page from the stores of runs.

An advantage is worth what it tells of a step. Here it is compared with the label that the domain's
oracle gives the step, which nobody trains on: +1 where it brings the task nearer to its end. Only
what was done otherwise in another rollout of the task at the same step counts: advantage, label and
outcome are taken less their means over those rollouts. Correlations are over all steps that train,
in {iterations}; means over seeds with Student's 95% intervals, differences paired by seed. Seeds:
{seeds}.

## What trained the policy, arm by arm

{arms}

## Other settings, on the judgements of `{last}`

What the policy would have learned from the same rollouts and judgements:

{policy}

And with judges that are made up from the labels, so often right and wrong at random:

{accuracy}

And the correlation of advantage with label had judgements been unreadable at random, with
`feedback.unreadable` at `missing` (the default) and `zero` (the paper):

{unread}

What the judge would have learned. *Being right* is giving the label as score; the *pull* is the
mean of advantage times score: above 0 it is taught to say +1 more often, below 0 to say -1.

{judge}
"""


def page(
    arms: Sequence[Path], iterations: tuple[int, int] = EVERY, options: Sequence[str] = ()
) -> str:
    """Returns the page about the seeds whose runs all arms have finished."""
    if len({arm.name for arm in arms}) < len(arms):
        raise SystemExit("two of these folders have the same name, by which a row goes")
    seeds = sorted(set.intersection(*({run.name for run in finished(arm)} for arm in arms)))
    if not seeds:
        raise SystemExit("these folders have no finished run of one seed in common")
    recorded: list[Found] = []
    policy: list[Found] = []
    accuracy: list[Found] = []
    unread: list[Found] = []
    judge: list[Found] = []
    for seed in seeds:
        groups = {arm.name: read(arm / seed, iterations) for arm in arms}
        if not all(groups.values()):
            raise SystemExit("--iterations: some of these runs have no rollouts in them")
        recorded.append({arm: trained(own) for arm, own in groups.items()})
        feedback = load_recipe(arms[-1] / seed / "recipe.yaml").feedback
        settings = feedback.model_copy(update=RECIPE)
        policy.append(policy_table(groups[arms[-1].name], settings))
        accuracy.append(accuracy_table(groups[arms[-1].name], settings))
        unread.append(unread_table(groups[arms[-1].name], settings))
        judge.append(judge_table(groups[arms[-1].name], settings))
    return PAGE.format(
        command=shlex.join(["python", "benchmarks/signals.py", *map(str, arms), *options]),
        seeds=", ".join(seeds),
        iterations=(
            "all iterations" if iterations == EVERY else "iterations {} to {}".format(*iterations)
        ),
        arms="\n".join(table(recorded)),
        last=arms[-1].name,
        policy="\n".join(table(policy)),
        accuracy="\n".join(table(accuracy)),
        unread="\n".join(plain_table(unread)),
        judge="\n".join(table(judge)),
    )


def finished(arm: Path) -> list[Path]:
    """The runs of an arm that are at their end."""
    runs: list[Path] = []
    for run in sorted(path.parent for path in arm.glob("seed-*/run.sqlite")):
        with closing(Store(run / "run.sqlite")) as store:
            if store.finished():
                runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+", type=Path)
    parser.add_argument("--iterations", nargs=2, type=int, metavar=("FIRST", "LAST"), default=EVERY)
    parser.add_argument("--out", type=Path, default=OWN_PAGE)
    asked = parser.parse_args()
    iterations: tuple[int, int] = tuple(asked.iterations)
    options = [] if iterations == EVERY else ["--iterations", *map(str, iterations)]
    options += ["--out", str(asked.out)] if asked.out != OWN_PAGE else []
    asked.out.write_text(page(asked.arms, iterations, options), encoding="utf-8")


if __name__ == "__main__":
    main()
