"""Changes in each of two worlds by training in one of them: writes benchmarks/transfer.md.

    python benchmarks/transfer.py ARM [ARM ...] [--page PAGE]

ARM: a folder of runs in several worlds, `seed-0`, `seed-1` and so on, as `rlanything ablate` leaves
them. Reads only their stores.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import fmean

from few import mean_of_few

from rlanything.algorithm.curriculum import label_of
from rlanything.evaluation.counts import pooled
from rlanything.runs.store.store import Store
from rlanything.runs.summary import points
from rlanything_lab.ablation.table import markdown

OWN_PAGE = Path(__file__).with_name("transfer.md")
LABELS = ("good steps", "bad steps")


def measured(run: Path) -> dict[tuple[str, str], list[float]]:
    """Returns success and the judge's balanced Process Acc by role and world, at every
    evaluation."""
    found: dict[tuple[str, str], list[float]] = {}
    with closing(Store(run / "run.sqlite")) as store:
        evaluated = [i for (i,) in store.query("SELECT DISTINCT iteration FROM evaluations")]
        for iteration in sorted(evaluated):
            for name, value in store.metrics(iteration).items():
                parts = name.split("/")
                if parts[0] == "evaluation" and parts[2:] == ["in_domain", "success"]:
                    found.setdefault(("policy", parts[1]), []).append(value or 0.0)
            by_world: dict[str, dict[str, Mapping[str, tuple[int, int]]]] = {}
            for item, counts in store.judge_eval_counts(iteration, "judge").items():
                by_world.setdefault(label_of(item), {})[item] = counts
            for world, items in by_world.items():
                shares = pooled(items)
                value = fmean([shares[label] for label in LABELS])
                found.setdefault(("judge", world), []).append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+", type=Path, metavar="ARM")
    parser.add_argument("--page", type=Path, default=OWN_PAGE)
    args = parser.parse_args()
    lines = [
        "# From one world to another",
        "",
        f"`python benchmarks/transfer.py {' '.join(map(str, args.arms))}`. Held-out success of the "
        "policy, and balanced Process Acc of the judge, before training and after the last "
        "iteration; means over seeds, the change with Student's 95% interval. The question and the "
        "rule are in [the plan](two-worlds.md#fixed-before-the-runs).",
        "",
    ]
    rows = [["arm", "role", "measured in", "seeds", "before", "after", "change, points"]]
    for arm in args.arms:
        runs = [measured(store.parent) for store in sorted(arm.glob("seed-*/run.sqlite"))]
        for role, world in runs[0]:
            values = [run[role, world] for run in runs]
            before, after = (fmean([value[at] for value in values]) for at in (0, -1))
            change = mean_of_few([value[-1] - value[0] for value in values])
            cells = [arm.name, role, world, str(len(runs)), f"{before:.1%}", f"{after:.1%}"]
            rows.append([*cells, points(change) if change else ""])
    args.page.write_text("\n".join([*lines, *markdown(rows), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
