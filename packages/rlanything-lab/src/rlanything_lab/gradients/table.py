"""The gradients of runs as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything_lab.ablation.table import markdown
from rlanything_lab.gradients.agreement import LEAST
from rlanything_lab.gradients.measure import Compared, RunGradients, together

HEAD = ["iteration", "role", "gradients", "tasks", "plain cosine", "reliability", "cosine"]
NOTE = (
    "Cosine: without the bias of noise, with a 95% interval by bootstrap over tasks; too noisy if "
    f"a reliability is below {LEAST}. Length: that of the first gradient over that of the second. "
    "None: one of the two is not there."
)


def table(runs: Sequence[RunGradients]) -> list[str]:
    """Returns a table for each run and, of several, one for all."""
    lines: list[str] = []
    for run in runs:
        counts = sorted(run.rollouts.values())
        few, most = counts[0], counts[-1]
        spread = f"{few}" if few == most else f"{few} to {most}"
        lines += [f"### {run.run}: {spread} rollouts an iteration", ""]
        lines += [*_rows([*run.rows, *together(run.rows)]), ""]
    if len(runs) > 1:
        lines += [f"### All {len(runs)} runs", ""]
        lines += [*_rows(together([row for run in runs for row in run.rows])), ""]
    return [*lines, NOTE]


def _rows(rows: Sequence[Compared]) -> list[str]:
    return markdown([[*HEAD, "length"], *(row.cells() for row in rows)])
