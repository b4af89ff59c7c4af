"""The gains of a run, and its log lines: one per iteration, and closing lines.

Gains are paired differences between two evaluations on the same tasks and judged episodes, with
intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import Recipe
from rlanything.config.yaml import typed
from rlanything.evaluation.counts import Counts, gain, level, pooled
from rlanything.evaluation.intervals import Interval, paired_difference
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD
from rlanything.evaluation.success import Evaluation, success_interval, widened, won_shares
from rlanything.evaluation.trends import growth
from rlanything.plugins import is_object
from rlanything.roles.judges.scores import QUADRATIC, WON_AT
from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import EvaluationRecord, IterationRecord, Numbers
from rlanything.runs.store.store import Store
from rlanything.runs.warnings import UNREADABLE, find_warnings

BALANCED = "balanced Process Acc"
"""Measure of a judge of steps: mean of its recall on good and on bad steps."""
OUTCOME = "Outcome Acc"
"""Measure of a judge of steps: agreement with the outcome of the episode."""
OF_STEPS = {GOOD, BAD, AGREEING, *WON_AT}
"""Counts behind these two measures and the calibration curve, not shown separately."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One measure at the first and at the latest evaluation."""

    name: str
    """The policy's split, or the judge's measure."""
    before: Interval | None
    after: Interval | None
    change: Interval | None
    """Paired change; None if the evaluations share nothing."""
    unplayable: tuple[int, int] = (0, 0)
    """Unplayable episodes before and after; the intervals cover both outcomes of each."""
    trained: bool = True
    """Whether an update could have changed it."""

    @property
    def verdict(self) -> str:
        """The change in words, by whether its 95% interval includes 0."""
        if self.change is None:
            return "not compared"
        if not self.trained:
            return "not trained"
        if self.change.low > 0:
            return "improved"
        if self.change.high < 0:
            return "got worse"
        return "not clearly improved (the 95% interval holds 0)"


def first_and_last(store: Store) -> tuple[int, int] | None:
    """Returns the iterations of the first and of the latest evaluation; None before any."""
    iterations = store.evaluated_iterations()
    return (iterations[0], iterations[-1]) if iterations else None


def success(played: Sequence[tuple[str, int]]) -> Interval | None:
    """Returns the share of won episodes; `played`: tasks and outcomes [episodes]."""
    return success_interval([task for task, _ in played], [outcome for _, outcome in played])


def paired(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]) -> Interval | None:
    """Returns the change of success over the tasks that both played; each (task, outcome)
    [episodes]. Episodes that could not be played (outcome 0) count against a change in the
    interval, so no verdict rests on them."""
    one, two = ([pair for pair in each if pair[1]] for each in (before, after))
    change = _difference(one, two)
    if change is None or len(one) + len(two) == len(before) + len(after):
        return change
    ends = (_difference(_with_fate(before, -fate), _with_fate(after, fate)) for fate in (-1, 1))
    return widened(change, *ends)


def _with_fate(played: Sequence[tuple[str, int]], fate: int) -> list[tuple[str, int]]:
    return [(task, outcome or fate) for task, outcome in played]


def _difference(
    before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]
) -> Interval | None:
    one, two = (won_shares([t for t, _ in each], [o for _, o in each]) for each in (before, after))
    shared = sorted(one.keys() & two.keys())
    return paired_difference([one[task] for task in shared], [two[task] for task in shared])


def _unplayable(played: Sequence[tuple[str, int]]) -> int:
    return sum(outcome == 0 for _, outcome in played)


def policy_gains(store: Store, splits: Sequence[str]) -> list[Gain]:
    """Returns the change of success by split; empty before the first evaluation."""
    iterations = first_and_last(store)
    if iterations is None:
        return []
    played = [[store.outcomes(iteration, split) for iteration in iterations] for split in splits]
    return [
        Gain(
            split,
            success(before),
            success(after),
            paired(before, after),
            (_unplayable(before), _unplayable(after)),
        )
        for split, (before, after) in zip(splits, played, strict=True)
    ]


def judge_measures(counts: Mapping[str, Counts]) -> dict[str, tuple[str, ...]]:
    """Returns the counts of each measure in an evaluation, by the measure's name."""
    counted = pooled(counts)
    # Scores of a judge of value are about the outcome, and not about the step.
    of_steps = {GOOD, BAD} <= counted.keys() and QUADRATIC not in counted
    measures = {BALANCED: (GOOD, BAD)} if of_steps else {}
    measures |= {name: (name,) for name in sorted(counted.keys() - OF_STEPS, reverse=True)}
    return measures | ({OUTCOME: (AGREEING,)} if AGREEING in counted else {})


def judge_gains(store: Store, judge: str) -> list[Gain]:
    """Returns the change of every measure that both evaluations of a judge have."""
    iterations = first_and_last(store)
    if iterations is None:
        return []
    before, after = (store.judge_eval_counts(iteration, judge) for iteration in iterations)
    later = judge_measures(after)
    updates = "SELECT 1 FROM metrics WHERE name = ? AND value > 0 LIMIT 1"
    trained = bool(store.query(updates, f"{judge}/updates"))
    return [
        Gain(
            name,
            level(before, counted),
            level(after, counted),
            gain(before, after, counted),
            trained=trained,
        )
        for name, counted in judge_measures(before).items()
        if name in later
    ]


def level_of(counts: Mapping[str, Counts], measure: str) -> Interval | None:
    """Returns a judge's measure at one evaluation; None if it was not counted."""
    counted = judge_measures(counts).get(measure)
    return level(counts, counted) if counted else None


ACCEPTED = "tasks/accepted"


def percent(interval: Interval | None) -> str:
    """Returns `41.2% [36.0, 46.6]`."""
    if interval is None:
        return "not measured"
    return f"{interval.estimate:.1%} [{interval.low * 100:.1f}, {interval.high * 100:.1f}]"


def points(interval: Interval) -> str:
    """Returns `+5.1 points [+1.0, +9.2]`."""
    low, high = interval.low * 100, interval.high * 100
    return f"{interval.estimate * 100:+.1f} points [{low:+.1f}, {high:+.1f}]"


def evaluation_line(iteration: int, result: Evaluation) -> str:
    """Returns `in_domain, before training: success 41.2% [36.0, 46.6] over 140 episodes (12 s)`."""
    missing = _missing(len(result.unplayable), result.bounds)
    return (
        f"{result.split}, {_when(iteration)}: success {percent(result.success)} over "
        f"{len(result.trajectories)} episodes{missing} ({result.seconds:.0f} s)"
    )


def _missing(count: int, bounds: tuple[float, float] | None) -> str:
    """Returns `, 3 unplayable: 25.0% if they had been lost, 75.0% if won`; empty if there are
    none."""
    if bounds is None:
        return ""
    lost, won = map(share, bounds)
    return f", {count} unplayable: {lost} if they had been lost, {won} if won"


def judge_lines(record: EvaluationRecord) -> list[str]:
    """Returns a line for each judge that scored anything."""
    return [
        _judge_evaluated(record, judge)
        for judge, evaluation in record.judges.items()
        if evaluation.diagnostics.positive_rate is not None
    ]


def _judge_evaluated(record: EvaluationRecord, judge: str) -> str:
    def value(name: str) -> float | None:
        return read(record.metrics, f"evaluation/{judge}/{name}")

    counted = pooled(record.judges[judge].counts)
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
    if fault := judge_fault(record.metrics, judge):
        parts.append(fault)
    return f"{judge}, {_when(record.number)}: {', '.join(parts)}"


def iteration_line(record: IterationRecord, iterations: int, seconds_left: float) -> str:
    """Returns the log line of an iteration."""

    def value(name: str) -> float:
        return read(record.metrics, name) or 0.0

    learned = record.result.statistics
    divergences = ", ".join(f"{role} {value(f'{role}/kl'):.4f}" for role in learned)
    mismatches = ", ".join(f"{value(f'{role}/mismatch_mean'):.0e}" for role in learned)
    parts = [
        f"iteration {record.number}/{iterations}: success {_rollout_success(record.metrics)}",
        *(f"{judge} {_judge_accuracy(record.metrics, judge)}" for judge in record.judges),
        _tasks(value),
        f"KL {divergences}",
        f"log-probs off by {mismatches}",
        f"{seconds_left / 60:.1f} min left",
    ]
    return ", ".join(parts)


LEGEND = (
    "in each iteration's line: `balanced` is Process Acc (chance: 50%); `mu` is above 1 if the "
    "judge tells won from lost episodes better than chance; `KL` is in nats a token, from the "
    "model that sampled; `log-probs off by`: learner against sampler, role by role (metrics.md)"
)


def _tasks(value: Callable[[str], float]) -> str:
    """Returns the number of proposals of an iteration, and the fate of the previous iteration's
    candidates."""
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


def _judge_accuracy(metrics: Numbers, judge: str) -> str:
    """Returns a judge's accuracy, by the measures that it has."""
    if f"{judge}/ut" in metrics:
        tests, detected = (read(metrics, f"{judge}/{name}") for name in ("ut", "detect"))
        return f"UT {share(tests)} Detect {share(detected)}"
    mu = read(metrics, f"{judge}/mu")
    said = "" if mu is None else f" mu {mu:.2f}"
    return f"{share(read(metrics, f'{judge}/balanced_process_accuracy'))} balanced{said}"


def _when(iteration: int) -> str:
    return "before training" if iteration == 0 else f"after iteration {iteration}"


def share(value: float | None) -> str:
    """Returns `41.2%`."""
    return "-" if value is None else f"{value:.1%}"


def closing_lines(
    directory: Path, store: Store, recipe: Recipe, pool: Pool, seconds: float
) -> list[str]:
    """Returns the closing lines: improvement from the first to the latest evaluation, the run's
    directory, and suggestions."""
    splits = recipe.splits
    lines = [_policy_line(recipe.acting, gain) for gain in policy_gains(store, splits)]
    before, after = (store.metrics(iteration) for iteration in first_and_last(store) or (0, 0))
    lines += [
        _judge_line(judge, gain, before, after)
        for judge in recipe.judges
        for gain in judge_gains(store, judge)
        if gain.change is not None
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
    lines += [warned.line() for warned in find_warnings(store.history(), store.roles())]
    lines.append(f"run: {directory} ({seconds / 60:.1f} min)")
    following = [f"`rlanything report {typed(directory)} --open` opens the report"]
    if adapted:
        following.append(f"`rlanything tasks {typed(directory)}` shows the rewritten tasks")
    if splits:
        again = f"rlanything eval {typed(directory)} --split {splits[-1]}{recipe.allowance}"
        if is_object(recipe.domain.name):  # which no command can rebuild
            resumed = f"rlanything.Trainer.resume({str(directory)!r}, domain=...)"
            again = f"{resumed}.evaluate({splits[-1]!r})"
        following.append(f"`{again}` plays fresh episodes")
    return [*lines, f"next: {'; '.join(following)}"]


def _growth_line(store: Store) -> list[str]:
    """Returns the rate at which tasks are accepted; empty if none were."""
    accepted = [read(row, ACCEPTED) or 0 for row in store.history().values() if ACCEPTED in row]
    rate = growth(accepted)
    if rate is None:
        return []
    return [
        f"accepted tasks grow by {rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}] an iteration"
    ]


def _policy_line(role: str, gain: Gain) -> str:
    line = f"{role}, {gain.name}: {percent(gain.before)} -> {percent(gain.after)}{_change(gain)}"
    if not any(gain.unplayable):
        return line
    before, after = gain.unplayable
    missing = f"{before} episodes before and {after} after could not be played"
    return f"{line}; {missing}: the intervals include both outcomes"


def _judge_line(judge: str, gain: Gain, before: Numbers, after: Numbers) -> str:
    one, two = (level.estimate if level else None for level in (gain.before, gain.after))
    line = f"{judge}, {gain.name}: {share(one)} -> {share(two)}{_change(gain)}"
    if gain.name != BALANCED:
        return line
    rates = [positive_rate(metrics, judge) for metrics in (before, after)]
    fault = judge_fault(after, judge)
    said = f"says +1 on {share(rates[0])} -> {share(rates[1])}"
    return f"{line}; {said}, {fault}" if fault else f"{line}; {said}"


def _change(gain: Gain) -> str:
    return f": {points(gain.change)}, {gain.verdict}" if gain.change else ""


COLLAPSED = 0.1
"""A judge that gives one of its two answers less often than this does not discriminate."""


def positive_rate(metrics: Numbers, judge: str) -> float | None:
    """Returns the share of held-out steps that a judge scores as good; None if it was not
    evaluated."""
    return read(metrics, f"evaluation/{judge}/positive_rate")


def judge_fault(metrics: Numbers, judge: str) -> str:
    """Returns in words why an evaluated judge does not discriminate; "" if there is no sign of
    that."""
    unreadable = read(metrics, f"evaluation/{judge}/unparsable_rate")
    rate = positive_rate(metrics, judge)
    if unreadable is not None and unreadable >= UNREADABLE:
        return f"{share(unreadable)} unreadable"
    if read(metrics, f"evaluation/{judge}/quadratic_score") is not None:
        return ""  # of a judge of value: its scores only say on which side of 5 a grade is
    if rate is not None and not COLLAPSED <= rate <= 1 - COLLAPSED:
        return "collapsed to one answer"
    return ""
