"""Plans against the runs they are of: prints the tables of benchmarks/plan.md.

    python benchmarks/plan.py [recipe.yaml] [section.key=value ...]

Plans a recipe (tiny if none is named) on this machine, trains it, and compares tokens,
seconds and memory of every iteration with the plan.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.progress import Progress
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_planning.plan import Plan, make_plan

TINY = shipped_files()["tiny"]
METRICS = {
    "rollouts/episodes": "episodes",
    "rollouts/steps": "steps",
    "policy/sample_tokens": "policy: sample tokens",
    "policy/computed_tokens": "policy: computed",
    "judge/sample_tokens": "judge: sample tokens",
    "judge/computed_tokens": "judge: computed",
    "seconds/rollouts": "rollouts",
    "seconds/judgements": "judgements",
    "seconds/proposals": "proposals",
    "seconds/policy_update": "policy update",
    "seconds/judge_update": "judge update",
}
"""Metrics of a run, with their names in the plan."""


def planned(plan: Plan, name: str) -> float:
    lines = (line for section in plan.sections for line in section.quantities)
    return next((line.value or 0.0 for line in lines if line.name == name), 0.0)


def resident_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    path, *overrides = sys.argv[1:] or [str(TINY)]
    overrides += ["evaluation.episodes=0"]
    empty = resident_bytes()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(Path(path), [*overrides, f"run_dir={folder}/run"])
        plan = make_plan(recipe, "cpu", 1)
        Trainer(recipe, progress=Progress(Console(stderr=True))).train()
        peak = resident_bytes() - empty
        store = Store(Path(folder) / "run" / "run.sqlite")
        query = "SELECT value FROM metrics WHERE name = ? AND iteration > 0 ORDER BY iteration"
        print("| | plan | measured, by iteration |\n|---|---|---|")
        for metric, name in METRICS.items():
            digits = 2 if metric.startswith("seconds") else 0
            values = ", ".join(f"{value:,.{digits}f}" for (value,) in store.query(query, metric))
            print(f"| {name} | {planned(plan, name):,.{digits}f} | {values} |")
        print(f"| memory, MB | {planned(plan, 'cpu 0') / 1e6:,.0f} | {peak / 1e6:,.0f} |")


if __name__ == "__main__":
    main()
