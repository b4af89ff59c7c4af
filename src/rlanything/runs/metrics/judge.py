"""The metrics of a judge, the same in an iteration's rollouts and in an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from rlanything.evaluation.counts import Counts, pooled, summed
from rlanything.evaluation.diagnostics import Diagnostics, calibrate
from rlanything.roles.judges.scores import WON_AT
from rlanything.runs.results import Numbers

JUDGE = {
    "JUDGE/p_plus": ("share", "p+ = P(S = +1 given a won episode)"),
    "JUDGE/p_minus": ("share", "p- = P(S = -1 given a lost episode)"),
    "JUDGE/mu": ("0 to 2", "mu = p+ + p-; more judgements help only above 1 (Theorem 1)"),
    "JUDGE/reward_precision": (
        "share",
        "A: pairs of a won and a lost step in which the won one has the higher mean score; a tie "
        "counts as no",
    ),
    "JUDGE/precision_bound": (
        "share",
        "Theorem 1's lower bound on A for independent judgements, 1 - exp(-m (mu - 1)^2 / 4); null "
        "unless mu > 1. `benchmarks/theory.md` compares both with real judgements, which are not "
        "independent",
    ),
    "JUDGE/weight_ratio": (
        "ratio",
        "norm of f+ over norm of f- of Theorem 2; near 1 the judge learns from won and lost "
        "episodes alike. 0: nothing won, or no won step scored +1; null: nothing lost, or no lost "
        "step scored -1 (with lambda = 1, as by default, f is then 0)",
    ),
    "JUDGE/outcome_accuracy": (
        "share",
        "Outcome Acc: judged steps whose majority score agrees with their episode's outcome",
    ),
    "JUDGE/process_accuracy": (
        "share",
        "Process Acc: those whose majority score agrees with the oracle's label",
    ),
    "JUDGE/balanced_process_accuracy": (
        "share",
        "mean of the recall on good and on bad steps; 1/2 for a judge that always says the same",
    ),
    "JUDGE/positive_rate": ("share", "judged steps whose majority score is +1"),
    "JUDGE/unparsable_rate": ("share", "judgements without a readable score"),
    "JUDGE/mean_score": (
        "-1 to 1",
        "mean of all scores; it rises with success too, whose episodes have better steps",
    ),
    "JUDGE/lost_mean_score": (
        "-1 to 1",
        "mean of the scores on steps of lost episodes; that it rises while `rollouts/success` "
        "hardly does is reward hacking",
    ),
    "JUDGE/commonest_share": (
        "share",
        "the commonest answer (+1, -1 or nothing readable) among all judgements",
    ),
    "JUDGE/answer_entropy": (
        "nats",
        "entropy of the answers: 0.69 where +1 and -1 are equally common, 0 where one is always "
        "given",
    ),
    "JUDGE/ut": (
        "share",
        "UT: generated tests that all correct programs pass (judges that write tests)",
    ),
    "JUDGE/detect": ("share", "Detect: those that all wrong programs also fail"),
    "JUDGE/brier": (
        "0 to 1",
        "Brier score of a judge of value, over readable answers: mean squared difference of the "
        "stated chance and the outcome (1 or 0); reliability - resolution + uncertainty",
    ),
    "JUDGE/reliability": ("0 to 1", "distance of stated chances from the shares won; best 0"),
    "JUDGE/resolution": (
        "0 to 1",
        "variance of the shares won between grades; the more the better",
    ),
    "JUDGE/uncertainty": ("0 to 1/4", "variance of the outcomes, which no judge can change"),
    "JUDGE/quadratic_score": ("share", "1 - the Brier score, with unreadable answers as the worst"),
    **{
        f"JUDGE/won_at_grade_{grade}": (
            "share",
            f"calibration curve: won episodes among its answers of grade {grade}",
        )
        for grade in range(11)
    },
}


def judge_metrics(judge: str, diagnostics: Diagnostics, counts: Mapping[str, Counts]) -> Numbers:
    """Returns the metrics of a judge; `counts`: its own counts, by item and measure."""
    measures = {slug(measure): share for measure, share in pooled(counts).items()}
    curve = np.array([summed(counts).get(measure, (0, 0)) for measure in WON_AT])
    if calibration := calibrate(*curve.T):
        measures |= asdict(calibration)
    return {f"{judge}/{name}": value for name, value in (asdict(diagnostics) | measures).items()}


def slug(name: str) -> str:
    """Returns a phase's or measure's name in the form used in metric names."""
    return name.lower().replace(" ", "_")
