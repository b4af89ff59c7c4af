"""The rules of warnings about the judge: its answers, its accuracy, and policies that please it."""

from __future__ import annotations

from statistics import mean

from rlanything.evaluation.trends import fitted_change, trend
from rlanything.runs.metrics.measuring import read
from rlanything.runs.past import PATIENCE, Past, known_values, lately, trend_values

TREND = 3.5
"""Standard deviations (`trends.trend`). A trend is looked for after every iteration, so it must be
rare: among 200 iterations of noise one in a hundred runs reaches this."""
SCORE_RISE = 0.1
"""Rise of the mean score of lost episodes (-1 to 1) over those iterations; less is no reason to
stop a run."""
SUCCESS_FLAT = 0.02
"""Success that rises by less than this over them does not explain a higher score."""
SUCCESS_PER_SCORE = 0.25
"""Success that rises by less than this share of the score's rise does not explain it."""
LEAP_OF_SCORE = 0.3
"""Rise of that mean from one stretch of iterations to the next which shows in a few of them."""
LEAP_ITERATIONS = 2
"""Length of the shortest such stretch."""
ACCURACY_FALL = 0.05
"""Fall of the judge's accuracy over those iterations."""
ONE_ANSWER = 0.95
"""Share of the judge's answers: with so few others it tells hardly anything apart."""
MIXED = (0.1, 0.9)
"""Success between these: episodes end both ways, so that one answer to all cannot be right."""
LOPSIDED = 4.0
"""|f+| / |f-| or its inverse: what the judge learns of one kind of episode then has at most a
quarter of the other's weight."""
TASKS_LOPSIDED = (0.2, 0.8)
"""Success outside these alone makes the ratio twice what it would be, or half."""
LOPSIDED_ITERATIONS = 5
"""It moves with the tasks that were drawn."""
WEIGHT_RATIO = "judge/weight_ratio"
UNREADABLE = 0.3
"""Share of the judgements; each of them trains the judge as a wrong one."""
FOREIGN = 0.9
"""Share of the judgements: the model was not made for such prompts, which one iteration shows."""
JUDGE_ACCURACIES = {
    "judge/balanced_process_accuracy": "the judge's balanced Process Acc",
    "judge/ut": "UT",
    "judge/outcome_accuracy": "the judge's Outcome Acc",
}
"""In order of preference: the first that a run measures is watched."""


def judge_collapse(past: Past) -> str | None:
    shares = lately(past, "judge/commonest_share", PATIENCE)
    success = lately(past, "rollouts/success", PATIENCE)
    if shares is None or success is None or min(shares) < ONE_ANSWER:
        return None
    if not all(MIXED[0] <= share <= MIXED[1] for share in success):
        return None
    if (read(past[-1], "judge/unparsable_rate") or 0) >= UNREADABLE:
        return None  # what they have in common is that they cannot be read: another warning
    entropy = read(past[-1], "judge/answer_entropy") or 0.0
    return (
        f"{shares[-1]:.0%} of the judge's answers are one and the same (entropy {entropy:.2f} "
        f"nats) while {success[-1]:.0%} of the episodes are won"
    )


def judge_unreadable(past: Past) -> str | None:
    shares = lately(past, "judge/unparsable_rate", PATIENCE)
    if shares is None or min(shares) < UNREADABLE or shares[-1] >= FOREIGN:
        return None
    return f"{shares[-1]:.0%} of the judgements hold no score"


def foreign_judge(past: Past) -> str | None:
    share = read(past[-1], "judge/unparsable_rate")
    if share is None or share < FOREIGN:
        return None
    return f"{share:.0%} of the judgements hold no score: this model does not know this domain"


def judge_worse(past: Past) -> str | None:
    for name, said in JUDGE_ACCURACIES.items():
        if not (known := trend_values(past, name)):
            continue
        [values] = known
        fall = -fitted_change(values)
        if trend(values) <= -TREND and fall >= ACCURACY_FALL:
            return f"{said} fell by {fall:.1%} over {len(values)} iterations"
        return None
    return None


def low_mu(past: Past) -> str | None:
    values = lately(past, "judge/mu", PATIENCE)
    if values is None or max(values) > 1:
        return None
    return f"mu = p+ + p- is {values[-1]:.2f}, at most 1 for {PATIENCE} iterations (Theorem 1)"


def lopsided_weights(past: Past) -> str | None:
    # None: |f-| is 0; where nothing was judged, or could be read, that says nothing.
    rows = [
        row
        for row in past[-LOPSIDED_ITERATIONS:]
        if WEIGHT_RATIO in row
        and read(row, "judge/commonest_share") is not None
        and (read(row, "judge/unparsable_rate") or 0) < UNREADABLE
    ]
    ratios = [read(row, WEIGHT_RATIO) for row in rows]
    if len(ratios) < LOPSIDED_ITERATIONS:
        return None
    heavy = all(ratio is None or ratio > LOPSIDED for ratio in ratios)
    light = all(ratio is not None and ratio < 1 / LOPSIDED for ratio in ratios)
    if not heavy and not light:
        return None
    last = "unbounded" if ratios[-1] is None else f"{ratios[-1]:.2f}"
    won = [share for row in rows if (share := read(row, "rollouts/success")) is not None]
    if won and (mean(won) > TASKS_LOPSIDED[1] if heavy else mean(won) < TASKS_LOPSIDED[0]):
        why = f"the tasks are too {'easy' if heavy else 'hard'}"
    else:  # both kinds of episodes were there to be judged
        kind, score = ("lost", "-1") if heavy else ("won", "+1")
        why = f"the judge hardly ever scores a step of a {kind} episode {score}"
    return (
        f"|f+| / |f-| is {last}, far from 1 for {LOPSIDED_ITERATIONS} iterations (Theorem 2): {why}"
    )


def reward_hacking(past: Past) -> str | None:
    """Winning more often does not raise the scores of the episodes that are lost."""
    names = ("judge/lost_mean_score", "rollouts/success")
    if known := trend_values(past, *names):
        scores, success = known
        rise, gained = fitted_change(scores), fitted_change(success)
        if trend(scores) >= TREND and rise >= SCORE_RISE and _unexplained(rise, gained):
            return _pleased(rise, gained, f"over {len(scores)} iterations")
    scores, success = known_values(past, *names) or ((), ())
    for split in range(LEAP_ITERATIONS, len(scores) - LEAP_ITERATIONS + 1):
        rise, gained = (mean(v[split:]) - mean(v[:split]) for v in (scores, success))
        apart = min(scores[split:]) > max(scores[:split])
        if apart and rise >= LEAP_OF_SCORE and _unexplained(rise, gained):
            return _pleased(rise, gained, f"in the last {len(scores) - split} iterations")
    return None


def _unexplained(rise: float, gained: float) -> bool:
    return gained <= max(SUCCESS_FLAT, SUCCESS_PER_SCORE * rise)


def _pleased(rise: float, gained: float, when: str) -> str:
    return (
        f"the mean step score of lost episodes rose by {rise:.2f} {when} while success changed by "
        f"{gained:+.1%}: the policy may be pleasing the judge"
    )
