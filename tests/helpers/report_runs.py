"""Run directories made without a model, for tests of the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.results import evaluation_record, iteration_record
from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.evaluation.counts import Counts
from rlanything.evaluation.judge_eval import BAD, GOOD
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.adapter import Proposal
from rlanything.roles.judges.base import FunctionJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import ScheduledTask, grouped
from rlanything.runs.store.store import Store

Say = Callable[[str], str]
"""From what would be said to what is said instead."""


def make_run(
    directory: Path,
    iterations: int,
    *,
    tasks: int = 3,
    episodes: int = 4,
    steps: int = 3,
    judgements: int = 3,
    say: Say = str,
    evaluated_iterations: bool = True,
    image: str | None = None,
    domain: str = "made up",
    judges: Sequence[str] = ("judge",),
) -> Path:
    """A run as a trained one leaves it: rollouts, judgements (so many of each judge), rewrites,
    metrics, evaluations."""
    directory.mkdir()
    store = Store.create(directory / "run.sqlite")
    recipe = {
        "name": say(directory.name),
        "domain": {"name": domain},
        "feedback": {"policy_lambda": 1.0, "policy_reward": "integrated"},
        "loop": {"iterations": iterations},
        "roles": {
            "policy": {"does": "acts"},
            **{judge: {"does": "scores", "weight": 1.0 + i} for i, judge in enumerate(judges)},
            "adapter": {"does": "rewrites"},
        },
    }
    store.describe({"recipe": json.dumps(recipe), "begun": "2026-01-01T00:00:00+00:00"})
    roots = [Task(f"root-{i}", say(f"find the key number {i}"), "key") for i in range(4 * tasks)]
    pool = Pool(roots, 0.2, 0.8)
    if evaluated_iterations:
        _evaluate(store, 0, 0.3, judges)
    for iteration in range(1, iterations + 1):
        sizes = (tasks, episodes, steps, judgements)
        _iterate(store, pool, iteration, sizes, say, image, judges)
        if evaluated_iterations and (iteration == iterations or iteration % 10 == 0):
            _evaluate(store, iteration, 0.3 + 0.5 * iteration / iterations, judges)
    if iterations:
        store.describe({"finished": "2026-01-01T01:00:00+00:00"})
    store.close()
    return directory


def _evaluate(store: Store, iteration: int, share: float, judges: Sequence[str]) -> None:
    rows = [(f"held-{i}", "key", 1 if i < 40 * share else -1, 5) for i in range(40)]
    counts = dict[str, dict[str, Counts]]()
    for place, judge in enumerate(judges):
        right = round(10 * share) - place
        counts[judge] = {f"judged-{i}": {GOOD: (right, 10), BAD: (right, 10)} for i in range(20)}
    metrics: dict[str, float | None] = {f"evaluation/{j}/positive_rate": 0.5 for j in judges}
    rows_of = {"in_domain": rows, "ood": rows}
    store.record_evaluation(evaluation_record(iteration, rows_of, counts, metrics))


def _iterate(
    store: Store,
    pool: Pool,
    iteration: int,
    sizes: tuple[int, int, int, int],
    say: Say,
    image: str | None,
    judges: Sequence[str],
) -> None:
    tasks, episodes, steps, judgements = sizes
    rng = np.random.default_rng(iteration)
    pending = pool.pending()
    entries = [ScheduledTask(s.id, s.pending.task, True) for s in pending if s.pending]
    entries += [ScheduledTask(s.id, s.active, False) for s in pool.sample(tasks, rng)]
    judged = [
        _episode(entry.task, iteration, number, (steps, judgements), rng, say, image, judges)
        for entry in entries
        for number in range(episodes)
    ]
    panel = JudgePanel({judge: FunctionJudge(lambda trajectory, i: 1) for judge in judges})
    groups = grouped(entries, judged, lambda group: panel.signals(group, FeedbackSettings()))
    for slot in pending:
        pool.settle(slot.id, 0.5, iteration)
    proposals = []
    for slot in [s for s in pool.slots if s.pending is None][:1]:
        task = replace(slot.root, id=f"{slot.id}@{iteration}", instruction=say("find two keys"))
        critics = (say("The agent never opened the drawer."),)
        pool.propose(slot.id, Candidate(task, "harder", 0.9, critics, iteration))
        proposals.append(Proposal(slot.id, task, critics, ()))
    trained = [group for group in groups if not group.scheduled.candidate]
    metrics: dict[str, float | None] = {
        f"room/quantity_{i}": float(rng.random()) for i in range(40)
    }
    for judge in judges:
        metrics |= {f"{judge}/mu": 1.1, f"{judge}/p_plus": 0.6, f"{judge}/p_minus": 0.5}
        metrics |= {f"{judge}/updates": 4.0, f"{judge}/ut": None}
    metrics |= {"policy/kl": 0.01}
    metrics |= {"tasks/accepted": float(len(pending)), "seconds/rollouts": 3.0}
    record = iteration_record(
        iteration,
        groups=groups,
        labels={each.trajectory.id: [1] * steps for each in judged},
        samples={
            role: [sample for group in trained for sample in group.samples(role)]
            for role in ("policy", *judges)
        },
        proposals=proposals,
        failures=[],
        pool=pool,
        metrics=metrics,
        checkpoint=f"iter-{iteration:05d}",
        finished="2026-01-01T00:30:00+00:00",
    )
    store.record_iteration(record)


def _episode(
    task: Task,
    iteration: int,
    number: int,
    sizes: tuple[int, int],
    rng: np.random.Generator,
    say: Say,
    image: str | None,
    judges: Sequence[str],
) -> JudgedTrajectory:
    steps, judgements = sizes
    seen = [say(f"You see drawer {i} of attempt {number}.") for i in range(steps + 1)]
    played = tuple(
        Step(
            seen[i],
            _completion(say(f"the key may be in drawer {i} > open drawer {i}")),
            say(f"open drawer {i}"),
            i != 1,
            seen[i + 1],
            image,
        )
        for i in range(steps)
    )
    scores = rng.choice([1, -1], size=(len(judges), steps, judgements)).tolist()
    said = tuple(
        tuple(
            Judgement(_completion(say(f"drawer {i}: a new place, says {j}.")), score, judge)
            for judge, of_judge in zip(judges, scores, strict=True)
            for j, score in enumerate(of_judge[i])
        )
        for i in range(steps)
    )
    trajectory = Trajectory(
        f"{iteration}/{task.id}/{number}", task, played, 1 if number % 2 else -1
    )
    return JudgedTrajectory(trajectory, said)


def _completion(text: str) -> Completion:
    return Completion((1, 2), (3, 4), (-0.5, -0.25), ((), ()), "stop", text)
