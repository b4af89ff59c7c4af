"""The page `docs/metrics.md`, generated from the registry and the checks.

`python -m rlanything_lab.metrics_page > docs/metrics.md` writes it."""

from __future__ import annotations

from itertools import groupby

from rlanything.runs.metrics.measuring import Meter
from rlanything.runs.metrics.registry import REGISTERED, Metric
from rlanything.runs.warnings import RULES
from rlanything.terminal import write, write_line

HEAD = """# Metrics

This page lists every metric of a run, and shows how to add your own. Each iteration writes one
value per name to the run's store (table `metrics` of `run.sqlite`; iteration 0 is before training),
to TensorBoard and, if the recipe says so, to Weights & Biases. A metric without data (success of no
episodes, labels without an oracle) is null in the store and left out elsewhere.

ROLE stands for a role of the recipe (`policy`, `judge` or `adapter` unless it names others), JUDGE
for one that scores, SPLIT for a held-out split such as `in_domain`, WORLD for one of several worlds
(their splits begin with it: `guess/in_domain`). A share lies between 0 and 1. "Judged steps" are
those of the iteration's rollouts; each judge makes m judgements of each.

This page is written by `python -m rlanything_lab.metrics_page`. Your own metric is a function of
an iteration or an evaluation that declares what it measures:

```python
from rlanything.runs.metrics.registry import metrics
from rlanything.runs.results import IterationRecord


@metrics(IterationRecord, "Mine", {"mine/longest": ("steps", "the longest episode")})
def longest(record):
    return {"mine/longest": max(len(judged.trajectory.steps) for judged in record.judged)}
```

Import its module before the run, or name it as an entry point of the group `rlanything.metrics`:
it is then in the store, in the trackers and in the report. One that raises is reported once and
left out; the run continues.
"""
WARNINGS = """## Warnings

A run prints a warning the first time one of these holds for a role (`runs/warnings.py` has the
thresholds and their reasons), with what was measured and what to try.

| warning | holds when |
|---|---|
"""


def write_page() -> str:
    """Returns the page, metrics of imported plug-ins included."""
    parts = [HEAD]
    for title in dict.fromkeys(metrics.section for metrics in REGISTERED.values()):
        sets = [metrics for metrics in REGISTERED.values() if metrics.section == title]
        notes = [metrics.note for metrics in sets if metrics.note]
        rows = _rows([metric for metrics in sets for metric in metrics.metrics])
        table = "\n".join(["| name | unit | meaning |", "|---|---|---|", *rows])
        parts.append("\n\n".join([f"## {title}", *notes, table]) + "\n")
    holds = [f"| {name} | {rule.holds_when} |" for name, rule in RULES.items()]
    return "\n".join([*parts, WARNINGS]) + "\n".join(holds) + "\n"


def _rows(listed: list[Metric]) -> list[str]:
    """Returns a row per metric; adjacent metrics with the same meaning share one."""
    return [
        f"| {', '.join(f'`{metric.name}`' for metric in alike)} | {unit} | {meaning} |"
        for (unit, meaning), alike in groupby(listed, lambda metric: (metric.unit, metric.meaning))
    ]


if __name__ == "__main__":
    Meter(lambda line: write_line(line, stderr=True))  # imports what other packages bring
    write(write_page())
