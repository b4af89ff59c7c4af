"""What a run says: one line an iteration, and at the end what improved and what did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlanything.curriculum import Pool
from rlanything.evaluation.counts import Counts, gain, pooled
from rlanything.evaluation.diagnostics import Diagnostics
from rlanything.evaluation.intervals import Interval, paired_difference
from rlanything.evaluation.judge_exam import AGREEING, BAD, GOOD, balanced_gain
from rlanything.evaluation.success import Evaluation, success_interval, won_shares
from rlanything.evaluation.trends import growth
from rlanything.runs.store import Store

ACCEPTED = "tasks/accepted"
OF_STEPS = {GOOD, BAD, AGREEING}
"""What lines on a judge of steps are made of, not shown one by one."""


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


def turn_line(
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
    sittings = store.sittings()
    lines: list[str] = []
    if sittings:
        first, last = sittings[0], sittings[-1]
        lines += [
            _policy_line(split, store.outcomes(first, split), store.outcomes(last, split))
            for split in splits
        ]
        before, after = store.exam_counts(first), store.exam_counts(last)
        if (change := balanced_gain(before, after)) is not None:
            lines.append(_judge_line(store.metrics(first), store.metrics(last), change))
        lines += _measure_lines(before, after)
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


def _policy_line(
    split: str, before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]
) -> str:
    played = [([task for task, _ in each], [o for _, o in each]) for each in (before, after)]
    one, two = (won_shares(*each) for each in played)
    shared = sorted(one.keys() & two.keys())
    change = paired_difference([one[t] for t in shared], [two[t] for t in shared])
    rates = [percent(success_interval(*each)) for each in played]
    verdict = f": {points(change)}, {_verdict(change)}" if change else ""
    return f"policy, {split}: {rates[0]} -> {rates[1]}{verdict}"


def _verdict(gain: Interval) -> str:
    if gain.low > 0:
        return "improved"
    if gain.high < 0:
        return "got worse"
    return "not clearly improved (the 95% interval holds 0)"


def _measure_lines(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> list[str]:
    """Of everything a judge is counted by that does not score steps."""
    one, two = pooled(before), pooled(after)
    lines: list[str] = []
    for name in one.keys() & two.keys() - OF_STEPS:
        change = gain(before, after, (name,))
        if change is not None:
            lines.append(
                f"judge, {name}: {share(one[name])} -> {share(two[name])}: {points(change)}, "
                f"{_verdict(change)}"
            )
    return sorted(lines, reverse=True)


COLLAPSED = 0.1
"""A judge that gives one of its two answers less often than this tells nothing apart."""


def _judge_line(
    before: Mapping[str, float | None], after: Mapping[str, float | None], gain: Interval
) -> str:
    accuracy, positive = (
        f"evaluation/judge/{name}" for name in ("balanced_process_accuracy", "positive_rate")
    )
    one = after.get(positive)
    collapsed = one is not None and not COLLAPSED <= one <= 1 - COLLAPSED
    return (
        f"judge, balanced Process Acc: {share(before.get(accuracy))} -> "
        f"{share(after.get(accuracy))}: {points(gain)}, {_verdict(gain)}; says +1 on "
        f"{share(before.get(positive))} -> {share(one)}"
        f"{', collapsed to one answer' if collapsed else ''}"
    )
