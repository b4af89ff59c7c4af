"""The metrics of a judge, the same in an iteration's rollouts and in an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rlanything.evaluation.counts import Counts, pooled
from rlanything.evaluation.diagnostics import Diagnostics
from rlanything.runs.results import Numbers

JUDGE = {
    "judge/p_plus": ("share", "p+ = P(S = +1 given a won episode)"),
    "judge/p_minus": ("share", "p- = P(S = -1 given a lost episode)"),
    "judge/mu": ("0 to 2", "mu = p+ + p-; more judgements help only above 1 (Theorem 1)"),
    "judge/reward_precision": (
        "share",
        "A: pairs of a won and a lost step in which the won one has the higher mean score; a tie "
        "counts as no",
    ),
    "judge/precision_bound": (
        "share",
        "Theorem 1's lower bound on A for independent judgements, 1 - exp(-m (mu - 1)^2 / 4); null "
        "unless mu > 1. `benchmarks/theory.md` compares both with real judgements, which are not "
        "independent",
    ),
    "judge/weight_ratio": (
        "ratio",
        "norm of f+ over norm of f- of Theorem 2; near 1 the judge learns from won and lost "
        "episodes alike. 0: nothing won, null: no lost step was called bad, or nothing was lost",
    ),
    "judge/outcome_accuracy": (
        "share",
        "Outcome Acc: judged steps whose majority score agrees with their episode's outcome",
    ),
    "judge/process_accuracy": (
        "share",
        "Process Acc: those whose majority score agrees with the oracle's label",
    ),
    "judge/balanced_process_accuracy": (
        "share",
        "mean of the recall on good and on bad steps; 1/2 for a judge that always says the same",
    ),
    "judge/positive_rate": ("share", "judged steps whose majority score is +1"),
    "judge/unparsable_rate": ("share", "judgements without a readable score"),
    "judge/mean_score": (
        "-1 to 1",
        "mean of all scores; that it rises while `rollouts/success` does not is reward hacking",
    ),
    "judge/commonest_share": (
        "share",
        "the commonest answer (+1, -1 or nothing readable) among all judgements",
    ),
    "judge/answer_entropy": (
        "nats",
        "entropy of the answers: 0.69 where +1 and -1 are equally common, 0 where one is always "
        "given",
    ),
    "judge/ut": (
        "share",
        "UT: generated tests that all correct programs pass (judges that write tests)",
    ),
    "judge/detect": ("share", "Detect: those that all wrong programs also fail"),
}


def judge_metrics(diagnostics: Diagnostics, counts: Mapping[str, Counts]) -> Numbers:
    """Returns `judge/...`; `counts` by item and measure, as the judge counts itself."""
    measures = {slug(measure): share for measure, share in pooled(counts).items()}
    return {f"judge/{name}": value for name, value in (asdict(diagnostics) | measures).items()}


def slug(name: str) -> str:
    """Returns a phase's or measure's name as it stands in a metric's."""
    return name.lower().replace(" ", "_")
