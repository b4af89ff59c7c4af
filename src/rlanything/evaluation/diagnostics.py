"""Diagnostics of a judge during training: the quantities of Theorems 1 and 2, and its accuracy.

Pure functions on arrays with one row per judged step: `scores` [steps, m] in {-1, 0, +1} (0: no
score could be parsed), `outcomes` [steps] in {-1, +1}, the outcome of the step's episode, and
`labels` [steps] in {-1, +1}, the ground truth about the step itself (0: unknown). Undefined results
are None. An unparsable score is neither +1 nor -1, but counts in m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]


def p_plus(scores: Integers, outcomes: Integers) -> float | None:
    """p+ = P(S = +1 | won): the share of +1 among the scores on steps of won episodes."""
    return _share(scores[outcomes == 1] == 1)


def p_minus(scores: Integers, outcomes: Integers) -> float | None:
    """p- = P(S = -1 | lost): the share of -1 among the scores on steps of lost episodes."""
    return _share(scores[outcomes == -1] == -1)


def mu(scores: Integers, outcomes: Integers) -> float | None:
    """mu = p+ + p-. Theorem 1: more judgements help if and only if it exceeds 1."""
    plus, minus = p_plus(scores, outcomes), p_minus(scores, outcomes)
    return None if plus is None or minus is None else plus + minus


def reward_precision(scores: Integers, outcomes: Integers) -> float | None:
    """A = P(mean score of a won step > mean score of a lost step), over all such pairs.

    A tie counts 0, because the reward did not separate the two."""
    totals = scores.sum(axis=1)  # m is the same for all, so sums compare as means do, exactly
    won, lost = totals[outcomes == 1], np.sort(totals[outcomes == -1])
    if not len(won) or not len(lost):
        return None
    return int(np.searchsorted(lost, won, side="left").sum()) / (len(won) * len(lost))


def precision_bound(mu: float | None, m: int) -> float | None:
    """Theorem 1's lower bound on A, 1 - exp(-m (mu - 1)^2 / 4); None unless mu > 1."""
    if mu is None or mu <= 1:
        return None
    return 1 - math.exp(-m * (mu - 1) ** 2 / 4)


def weight_ratio(scores: Integers, outcomes: Integers, weight: float) -> float | None:
    """|f+| / |f-| of Theorem 2, which the difficulty of the tasks must keep near 1.

    f+ = 1 - lambda + 2 lambda p(S = +1) on the steps of won episodes and f- alike with S = -1 on
    those of lost ones, p being the share among the m scores; `weight` is the judge's lambda. The
    norms are Euclidean over the steps. 0 where |f+| = 0: nothing was won or, with lambda = 1, no
    won step was scored +1. None (unbounded) where |f-| = 0: nothing was lost or, with lambda = 1,
    no lost step was scored -1."""
    m = max(scores.shape[1], 1)
    plus = 1 - weight + 2 * weight * (scores[outcomes == 1] == 1).sum(axis=1) / m
    minus = 1 - weight + 2 * weight * (scores[outcomes == -1] == -1).sum(axis=1) / m
    below = float(np.linalg.norm(minus))
    return None if below == 0 else float(np.linalg.norm(plus)) / below


def majority(scores: Integers) -> Integers:
    """Returns the judge's majority score [steps]; 0 for a tie, or if no score could be parsed."""
    return np.sign(scores.sum(axis=1))


def outcome_accuracy(scores: Integers, outcomes: Integers) -> float | None:
    """The share of steps whose majority equals the outcome. A majority of 0 never does."""
    return _share(majority(scores) == outcomes)


def process_accuracy(scores: Integers, labels: Integers) -> float | None:
    """The share of labelled steps whose majority equals the label; 0 is always wrong."""
    labelled = labels != 0
    return _share(majority(scores)[labelled] == labels[labelled])


def balanced_process_accuracy(scores: Integers, labels: Integers) -> float | None:
    """The mean of the recalls on steps labelled +1 and -1: 1/2 for a judge whose answer is always
    the same, however rare the other label is. None if a label never occurs."""
    verdict = majority(scores)
    good, bad = _share(verdict[labels == 1] == 1), _share(verdict[labels == -1] == -1)
    return None if good is None or bad is None else (good + bad) / 2


def positive_rate(scores: Integers) -> float | None:
    """The share of steps whose majority is +1; at 0 or 1 the judge has stopped judging."""
    return _share(majority(scores) == 1)


def unparsable_rate(scores: Integers) -> float | None:
    """The share of judgements from which no score could be parsed."""
    return _share(scores == 0)


def mean_score(scores: Integers) -> float | None:
    """The mean of all scores, from -1 to 1: the judge's part of the policy's reward."""
    return float(scores.mean()) if scores.size else None


def lost_mean_score(scores: Integers, outcomes: Integers) -> float | None:
    """The mean score on steps of lost episodes. A policy that wins more does not raise it, but one
    that exploits the judge does."""
    return mean_score(scores[outcomes == -1])


def commonest_share(scores: Integers) -> float | None:
    """The share of the judge's commonest answer: +1, -1 or nothing parsable."""
    shares = _answer_shares(scores)
    return float(shares.max()) if len(shares) else None


def answer_entropy(scores: Integers) -> float | None:
    """The entropy of the judge's answers in nats: ln 2 = 0.69 if +1 and -1 are equally common, 0 if
    the answer is always the same."""
    shares = _answer_shares(scores)
    # abs avoids -0.0 for a single answer.
    return abs(float(shares @ np.log(shares))) if len(shares) else None


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """All diagnostics of one set of judged steps."""

    p_plus: float | None
    p_minus: float | None
    mu: float | None
    reward_precision: float | None
    precision_bound: float | None
    weight_ratio: float | None
    outcome_accuracy: float | None
    process_accuracy: float | None
    balanced_process_accuracy: float | None
    positive_rate: float | None
    unparsable_rate: float | None
    mean_score: float | None
    lost_mean_score: float | None
    commonest_share: float | None
    answer_entropy: float | None


def diagnose(
    scores: npt.ArrayLike, outcomes: npt.ArrayLike, labels: npt.ArrayLike, weight: float
) -> Diagnostics:
    """Returns the diagnostics of one set of judged steps: scores [steps, m], outcomes [steps],
    labels [steps].

    `weight` is the judge's lambda. Raises ValueError for shapes or values other than those named at
    the top of this file."""
    s = np.asarray(scores, dtype=np.int64)
    s = s if len(s) else s.reshape(0, 0)
    o, y = np.asarray(outcomes, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    if s.ndim != 2 or (len(s) and not s.size) or o.shape != (len(s),) or y.shape != (len(s),):
        raise ValueError(
            f"scores {s.shape}, outcomes {o.shape}, labels {y.shape}: "
            "give [steps, m] with m > 0, [steps] and [steps]"
        )
    for name, array, allowed in (("scores", s, (-1, 0, 1)), ("outcomes", o, (-1, 1))):
        if not np.isin(array, allowed).all():
            raise ValueError(f"{name} must be among {allowed}")
    if not np.isin(y, (-1, 0, 1)).all():
        raise ValueError("labels must be among (-1, 0, 1)")
    the_mu = mu(s, o)
    return Diagnostics(
        p_plus=p_plus(s, o),
        p_minus=p_minus(s, o),
        mu=the_mu,
        reward_precision=reward_precision(s, o),
        precision_bound=precision_bound(the_mu, s.shape[1]),
        weight_ratio=weight_ratio(s, o, weight),
        outcome_accuracy=outcome_accuracy(s, o),
        process_accuracy=process_accuracy(s, y),
        balanced_process_accuracy=balanced_process_accuracy(s, y),
        positive_rate=positive_rate(s),
        unparsable_rate=unparsable_rate(s),
        mean_score=mean_score(s),
        lost_mean_score=lost_mean_score(s, o),
        commonest_share=commonest_share(s),
        answer_entropy=answer_entropy(s),
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Brier score of a judge of value, and its parts (Murphy 1973): brier = reliability -
    resolution + uncertainty."""

    brier: float
    reliability: float
    resolution: float
    uncertainty: float


def calibrate(won: npt.ArrayLike, answers: npt.ArrayLike) -> Calibration | None:
    """Returns the calibration of readable answers with grades 0 to 10: `answers` [11] of each
    grade, `won` [11] those of them in won episodes. None without answers."""
    w, n = np.asarray(won), np.asarray(answers)
    if not n.sum():
        return None
    chance, shares = np.arange(len(n)) / (len(n) - 1), n / n.sum()
    rate, base = w / np.maximum(n, 1), w.sum() / n.sum()
    return Calibration(
        brier=float(shares @ (rate * (1 - chance) ** 2 + (1 - rate) * chance**2)),
        reliability=float(shares @ (chance - rate) ** 2),
        resolution=float(shares @ (rate - base) ** 2),
        uncertainty=float(base * (1 - base)),
    )


def _answer_shares(scores: Integers) -> npt.NDArray[np.float64]:
    """Returns the shares of the answers that occurred."""
    return np.unique(scores, return_counts=True)[1] / scores.size


def _share(hits: npt.NDArray[np.bool_]) -> float | None:
    return float(hits.mean()) if hits.size else None
