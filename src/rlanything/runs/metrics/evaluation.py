"""The metrics of an evaluation on held-out tasks."""

from __future__ import annotations

from rlanything.runs.metrics.iteration import USAGE
from rlanything.runs.metrics.judge import JUDGE, judge_metrics
from rlanything.runs.metrics.registry import metrics
from rlanything.runs.results import EvaluationRecord, Numbers


@metrics(
    EvaluationRecord,
    "Evaluation",
    {
        "evaluation/SPLIT/success": ("share", "held-out episodes that were won"),
        "evaluation/SPLIT/unplayable": (
            "episodes",
            "those that could not be played to their end, not because of the policy (not begun, or "
            "masked); this and the next two only where there are any",
        ),
        "evaluation/SPLIT/success_if_lost": ("share", "success if those had all been lost"),
        "evaluation/SPLIT/success_if_won": ("share", "if they had all been won"),
    },
    "At iteration 0 and after those that `evaluation.every` names, on tasks that never train.\n"
    "Every judge judges the same held-out episodes each time; labels are the oracle's or those of\n"
    "`evaluation.labeller`.",
)
def success(record: EvaluationRecord) -> Numbers:
    numbers: dict[str, float | None] = {}
    for evaluation in record.evaluations:
        place = f"evaluation/{evaluation.split}"
        if evaluation.success is not None:
            numbers[f"{place}/success"] = evaluation.success.estimate
        if evaluation.bounds is not None:
            numbers[f"{place}/unplayable"] = len(evaluation.unplayable)
            lost, won = evaluation.bounds
            numbers |= {f"{place}/success_if_lost": lost, f"{place}/success_if_won": won}
    return numbers


@metrics(
    EvaluationRecord,
    "Evaluation",
    {
        **{
            f"evaluation/{name}": (unit, f"as `{name}`, on held-out episodes")
            for name, (unit, _) in JUDGE.items()
        },
        "evaluation/JUDGE/good_steps": (
            "share",
            "steps labelled good that the judge recognised",
        ),
        "evaluation/JUDGE/bad_steps": ("share", "steps labelled bad that it recognised"),
        "evaluation/JUDGE/steps_like_the_outcome": (
            "share",
            "steps that it called as their episode ended: Outcome Acc, counted by episode",
        ),
    },
)
def judges(record: EvaluationRecord) -> Numbers:
    return {
        f"evaluation/{name}": value
        for judge, evaluation in record.judges.items()
        for name, value in judge_metrics(judge, evaluation.diagnostics, evaluation.counts).items()
    }


@metrics(
    EvaluationRecord,
    "Evaluation",
    {
        f"evaluation/{name}": (unit, "what the evaluation asked; `labeller` is a role here")
        for name, (unit, _) in USAGE.items()
    },
)
def usage(record: EvaluationRecord) -> Numbers:
    return {f"evaluation/{name}": count for name, count in record.usage.items() if count}
