"""The lines of a run: one an iteration, and at the end what improved and what did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import Recipe
from rlanything.config.yaml import typed
from rlanything.evaluation.counts import pooled
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.success import Evaluation
from rlanything.evaluation.trends import growth
from rlanything.plugins import is_object
from rlanything.runs.checks import run_checks
from rlanything.runs.gains import (
    BALANCED,
    OF_STEPS,
    OUTCOME,
    Gain,
    first_and_last,
    judge_gains,
    policy_gains,
)
from rlanything.runs.judge_rules import UNREADABLE
from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers
from rlanything.runs.store.store import Store

ACCEPTED, POSITIVE_RATE = "tasks/accepted", "evaluation/judge/positive_rate"
UNPARSABLE_RATE = "evaluation/judge/unparsable_rate"


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
    """`in_domain, before training: success 41.2% [36.0, 46.6] over 140 episodes (12 s)`"""
    unplayable = _unplayable(len(result.unplayable), result.bounds)
    return (
        f"{result.split}, {_when(iteration)}: success {percent(result.success)} over "
        f"{len(result.trajectories)} episodes{unplayable} ({result.seconds:.0f} s)"
    )


def _unplayable(count: int, bounds: tuple[float, float] | None) -> str:
    """`, 3 unplayable: 25.0% if they had been lost, 75.0% if won`; nothing where none were."""
    if bounds is None:
        return ""
    lost, won = map(share, bounds)
    return f", {count} unplayable: {lost} if they had been lost, {won} if won"


def judge_line(record: EvaluationRecord) -> str:
    """Says what is known of the judge."""

    def value(name: str) -> float | None:
        return read(record.metrics, f"evaluation/judge/{name}")

    counted = pooled(next(iter(record.judges.values())).counts)
    known = {
        BALANCED: value("balanced_process_accuracy"),
        "Process Acc": value("process_accuracy"),
        **{measure: counted[measure] for measure in counted if measure not in OF_STEPS},
        OUTCOME: value("outcome_accuracy"),
    }
    parts = [
        f"{name} {share(accuracy)}" for name, accuracy in known.items() if accuracy is not None
    ]
    parts.append(f"says +1 on {share(value('positive_rate'))}")
    if fault := judge_fault(record.metrics):
        parts.append(fault)
    return f"judge, {_when(record.number)}: {', '.join(parts)}"


def iteration_line(record: IterationRecord, iterations: int, seconds_left: float) -> str:
    """Tells in one line how an iteration went."""

    def value(name: str) -> float:
        return read(record.metrics, name) or 0.0

    return (
        f"iteration {record.number}/{iterations}: "
        f"success {_rollout_success(record.metrics)}, "
        f"judge {_judge_accuracy(record.metrics)}, "
        f"{_tasks(value)}, "
        f"KL policy {value('policy/kl'):.4f}, judge {value('judge/kl'):.4f}, "
        f"log-probs off by {value('policy/mismatch_mean'):.0e}, "
        f"{value('judge/mismatch_mean'):.0e}, "
        f"{seconds_left / 60:.1f} min left"
    )


LEGEND = (
    "in each iteration's line: `balanced` is Process Acc (chance: 50%); `mu` is above 1 if the "
    "judge tells won from lost episodes better than chance; `KL` is in nats a token, from the "
    "model that sampled; `log-probs off by`: learner against sampler, policy, judge (metrics.md)"
)


def _tasks(value: Callable[[str], float]) -> str:
    """Says what was proposed in an iteration, and apart from that what became of candidates that
    the one before had proposed."""
    accepted, rejected = value(ACCEPTED), value("tasks/rejected")
    proposed = f"{value('tasks/proposed'):.0f} tasks proposed"
    if not accepted + rejected:
        return proposed
    return f"{proposed} (of those before: {accepted:.0f} accepted, {rejected:.0f} rejected)"


def _rollout_success(metrics: Numbers) -> str:
    lost, won = (read(metrics, f"rollouts/success_if_{fate}") for fate in ("lost", "won"))
    success = share(read(metrics, "rollouts/success"))
    if lost is None:
        return success
    count = f"{read(metrics, 'rollouts/failures'):.0f}"
    return f"{success} ({count} unplayable: from {share(lost)} to {share(won)})"


def _judge_accuracy(metrics: Numbers) -> str:
    """Says how good the judge was, by the measures that it has."""
    if "judge/ut" in metrics:
        tests, detected = (read(metrics, f"judge/{name}") for name in ("ut", "detect"))
        return f"UT {share(tests)} Detect {share(detected)}"
    mu = read(metrics, "judge/mu")
    said = "" if mu is None else f" mu {mu:.2f}"
    return f"{share(read(metrics, 'judge/balanced_process_accuracy'))} balanced{said}"


def _when(iteration: int) -> str:
    return "before training" if iteration == 0 else f"after iteration {iteration}"


def share(value: float | None) -> str:
    """`41.2%`"""
    return "-" if value is None else f"{value:.1%}"


def closing_lines(
    directory: Path, store: Store, recipe: Recipe, pool: Pool, seconds: float
) -> list[str]:
    """Says what improved, by how much, where the run lies and what to try next: the first
    evaluation against the latest, as the store has them."""
    splits = recipe.evaluation.splits
    lines = [_policy_line(gain) for gain in policy_gains(store, splits)]
    before, after = (store.metrics(iteration) for iteration in first_and_last(store) or (0, 0))
    lines += [
        _judge_line(gain, before, after) for gain in judge_gains(store) if gain.change is not None
    ]
    events = Counter(event.kind for slot in pool.slots for event in slot.history)
    adapted = recipe.curriculum.adapt_tasks or bool(events)
    if adapted:
        lines.append(
            f"tasks: {events['proposed']} candidates proposed, {events['accepted']} accepted, "
            f"{events['rejected']} rejected; {sum(s.active != s.root for s in pool.slots)} of "
            f"{len(pool.slots)} slots now hold a rewritten task"
        )
    lines += _growth_line(store)
    banned = sum(len(slot.quarantined) for slot in pool.slots)
    if banned:
        lines.append(
            f"quarantined for killing their workers: {banned} tasks; `rlanything tasks` names them"
        )
    lines += [check.line() for check in run_checks(store.history())]
    lines.append(f"run: {directory} ({seconds / 60:.1f} min)")
    following: list[str] = []
    if adapted:
        following.append(f"`rlanything tasks {typed(directory)}` shows the rewritten tasks")
    if splits:
        again = f"rlanything eval {typed(directory)} --split {splits[-1]}{recipe.allowance}"
        if is_object(recipe.domain.name):  # which no command can bring back
            resumed = f"rlanything.Trainer.resume({str(directory)!r}, domain=...)"
            again = f"{resumed}.evaluate({splits[-1]!r})"
        following.append(f"`{again}` plays fresh episodes")
    return [*lines, f"next: {'; '.join(following)}"] if following else lines


def _growth_line(store: Store) -> list[str]:
    """Says how fast tasks are accepted; nothing where none were."""
    accepted = [read(row, ACCEPTED) or 0 for row in store.history().values() if ACCEPTED in row]
    rate = growth(accepted)
    if rate is None:
        return []
    return [
        f"accepted tasks grow by {rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}] an iteration"
    ]


def _policy_line(gain: Gain) -> str:
    line = f"policy, {gain.name}: {percent(gain.before)} -> {percent(gain.after)}{_change(gain)}"
    if not any(gain.unplayable):
        return line
    before, after = gain.unplayable
    missing = f"{before} episodes before and {after} after could not be played"
    return f"{line}; {missing}: the intervals hold what they might have been"


def _judge_line(gain: Gain, before: Numbers, after: Numbers) -> str:
    one, two = (level.estimate if level else None for level in (gain.before, gain.after))
    line = f"judge, {gain.name}: {share(one)} -> {share(two)}{_change(gain)}"
    if gain.name != BALANCED:
        return line
    rates = [read(metrics, POSITIVE_RATE) for metrics in (before, after)]
    fault = judge_fault(after)
    said = f"says +1 on {share(rates[0])} -> {share(rates[1])}"
    return f"{line}; {said}, {fault}" if fault else f"{line}; {said}"


def _change(gain: Gain) -> str:
    return f": {points(gain.change)}, {gain.verdict}" if gain.change else ""


COLLAPSED = 0.1
"""A judge that gives one of its two answers less often than this tells nothing apart."""


def judge_fault(metrics: Numbers) -> str:
    """Returns in words why an evaluated judge tells nothing apart; "" where nothing speaks for
    that."""
    unreadable, rate = (read(metrics, name) for name in (UNPARSABLE_RATE, POSITIVE_RATE))
    if unreadable is not None and unreadable >= UNREADABLE:
        return f"{share(unreadable)} unreadable"
    if rate is not None and not COLLAPSED <= rate <= 1 - COLLAPSED:
        return "collapsed to one answer"
    return ""
