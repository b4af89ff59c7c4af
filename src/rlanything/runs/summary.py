"""What a run says: one line an iteration, and at the end what improved and what did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlanything.algorithm.curriculum import Pool
from rlanything.evaluation.diagnostics import Diagnostics
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.success import Evaluation
from rlanything.evaluation.trends import growth
from rlanything.runs.gains import BALANCED, OF_STEPS, Gain, judge_gains, policy_gain, verdict
from rlanything.runs.store.store import Store

ACCEPTED = "tasks/accepted"


def percent(interval: Interval | None) -> str:
    """`41.2% [36.0, 46.6]`"""
    if interval is None:
        return "not measured"
    return f"{interval.estimate:.1%} [{interval.low * 100:.1f}, {interval.high * 100:.1f}]"


def points(interval: Interval) -> str:
    """`+5.1 points [+1.0, +9.2]`"""
    low, high = interval.low * 100, interval.high * 100
    return f"{interval.estimate * 100:+.1f} points [{low:+.1f}, {high:+.1f}]"


def evaluation_line(iteration: int, result: Evaluation) -> str:
    when = "before training" if iteration == 0 else f"after iteration {iteration}"
    unplayable = f", {result.unplayable} unplayable" if result.unplayable else ""
    return (
        f"{result.split}, {when}: success {percent(result.success)} over "
        f"{len(result.trajectories)} episodes{unplayable} ({result.seconds:.0f} s)"
    )


def judge_line(iteration: int, found: Diagnostics, counted: Mapping[str, float]) -> str:
    """What is known of the judge; `counted`: the shares of its exam, by measure."""
    when = "before training" if iteration == 0 else f"after iteration {iteration}"
    known = {
        "balanced Process Acc": found.balanced_process_accuracy,
        "Process Acc": found.process_accuracy,
        **{name: value for name, value in counted.items() if name not in OF_STEPS},
        "Outcome Acc": found.outcome_accuracy,
    }
    said = [f"{name} {share(value)}" for name, value in known.items() if value is not None]
    said.append(f"says +1 on {share(found.positive_rate)}")
    return f"judge, {when}: {', '.join(said)}"


def iteration_line(
    iteration: int, iterations: int, metrics: Mapping[str, float | None], seconds_left: float
) -> str:
    """One line that tells how an iteration went."""
    return (
        f"iteration {iteration}/{iterations}: success {share(metrics['rollouts/success'])}, "
        f"judge {_judged(metrics)}, "
        f"{metrics['tasks/proposed']:.0f} proposed, {metrics['tasks/accepted']:.0f} accepted, "
        f"{metrics['tasks/rejected']:.0f} rejected, "
        f"kl {metrics['policy/kl'] or 0:.4f}/{metrics.get('judge/kl') or 0:.4f}, "
        f"sampler off by {metrics.get('policy/mismatch_mean') or 0:.0e}/"
        f"{metrics.get('judge/mismatch_mean') or 0:.0e}, "
        f"{seconds_left / 60:.1f} min left"
    )


def _judged(metrics: Mapping[str, float | None]) -> str:
    """How good the judge was, by whatever it can be measured by."""
    if "judge/ut" in metrics:
        return f"UT {share(metrics['judge/ut'])} Detect {share(metrics.get('judge/detect'))}"
    mu = metrics.get("judge/mu")
    said = "" if mu is None else f" mu {mu:.2f}"
    return f"{share(metrics['judge/balanced_process_accuracy'])} balanced{said}"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def closing_lines(
    directory: Path, store: Store, splits: Sequence[str], pool: Pool, seconds: float
) -> list[str]:
    """What improved, by how much, where the run lies and what to try next: the first sitting
    against the latest, as the store has them."""
    evaluated_iterations = store.evaluated_iterations()
    lines: list[str] = []
    if evaluated_iterations:
        first, last = evaluated_iterations[0], evaluated_iterations[-1]
        lines += [_policy_line(policy_gain(store, split, first, last)) for split in splits]
        lines += [
            _judge_line(each, store.metrics(first), store.metrics(last))
            for each in judge_gains(store.judge_eval_counts(first), store.judge_eval_counts(last))
            if each.change is not None
        ]
    events = Counter(event.kind for slot in pool.slots for event in slot.history)
    lines.append(
        f"tasks: {events['proposed']} candidates proposed, {events['accepted']} accepted, "
        f"{events['rejected']} rejected; {sum(s.active != s.root for s in pool.slots)} of "
        f"{len(pool.slots)} slots now hold a rewritten task"
    )
    lines += _growth_line(store)
    banned = sum(len(slot.quarantined) for slot in pool.slots)
    if banned:
        lines.append(f"quarantined: {banned} tasks killed their workers; `tasks` says which")
    lines.append(f"run: {directory} ({seconds / 60:.1f} min)")
    lines.append(
        f"next: `rlanything tasks {directory}` shows the rewritten tasks; "
        f"`rlanything eval {directory} --split ood` plays fresh episodes"
    )
    return lines


def _growth_line(store: Store) -> list[str]:
    """How fast tasks are accepted; nothing where none were."""
    accepted = [row[ACCEPTED] or 0 for row in store.history().values() if ACCEPTED in row]
    rate = growth(accepted) if any(accepted) else None
    if rate is None:
        return []
    return [
        f"accepted tasks grow by {rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}] an iteration"
    ]


def _policy_line(found: Gain) -> str:
    change = f": {points(found.change)}, {verdict(found.change)}" if found.change else ""
    return f"policy, {found.name}: {percent(found.before)} -> {percent(found.after)}{change}"


COLLAPSED = 0.1
"""A judge that gives one of its two answers less often than this tells nothing apart."""


def _judge_line(
    found: Gain, before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> str:
    one, two = (each.estimate if each else None for each in (found.before, found.after))
    change = f": {points(found.change)}, {verdict(found.change)}" if found.change else ""
    line = f"judge, {found.name}: {share(one)} -> {share(two)}{change}"
    if found.name != BALANCED:
        return line
    positive = "evaluation/judge/positive_rate"
    says = after.get(positive)
    collapsed = has_collapsed(says)
    return (
        f"{line}; says +1 on {share(before.get(positive))} -> {share(says)}"
        f"{', collapsed to one answer' if collapsed else ''}"
    )


def has_collapsed(positive_rate: float | None) -> bool:
    """Whether a judge tells nothing apart any more."""
    return positive_rate is not None and not COLLAPSED <= positive_rate <= 1 - COLLAPSED
