"""Runs the quickstart over several seeds and writes what came of it to benchmarks/quickstart.md.

python benchmarks/quickstart.py [--seeds 0 1 2] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

from rlanything import nano
from rlanything.evaluation.intervals import Interval, paired_difference, wilson
from rlanything.runs.store import Store
from rlanything.runs.summary import percent, points

HERE = Path(__file__).parent
RECIPE = HERE.parent / "recipes" / "quickstart.yaml"
SPLITS = ("in_domain", "ood")
EVENTS = ("proposed", "accepted", "rejected")


def run(seed: int, folder: Path) -> float:
    """Seconds of one run."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "rlanything.cli", "train", str(RECIPE)]
    subprocess.run([*command, f"seed={seed}", f"run_dir={folder}"], check=True)
    return time.perf_counter() - begun


def outcomes(store: Store, split: str) -> tuple[list[bool], list[bool]]:
    """Won or not before and after, paired by task."""
    (last,) = store.query("SELECT MAX(iteration) FROM evaluations")[0]
    before, after = (
        dict(
            store.query(
                "SELECT task, outcome FROM evaluations WHERE iteration = ? AND split = ?", i, split
            )
        )
        for i in (0, last)
    )
    shared = sorted(before.keys() & after.keys())
    return [before[t] == 1 for t in shared], [after[t] == 1 for t in shared]


def judge(store: Store) -> str:
    name = "evaluation/judge/balanced_process_accuracy"
    values = store.query("SELECT value FROM metrics WHERE name = ? ORDER BY iteration", name)
    return f"{values[0][0]:.1%} -> {values[-1][0]:.1%}"


def gain(pair: tuple[list[bool], list[bool]]) -> str:
    found = paired_difference(*pair)
    return points(found) if found else "-"


def rate(won: list[bool]) -> str:
    found: Interval | None = wilson(sum(won), len(won))
    return percent(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp())
    rows: list[str] = []
    pooled = {split: ([], []) for split in SPLITS}
    judges: list[str] = []
    for seed in arguments.seeds:
        place = folder / f"seed-{seed}"
        seconds = run(seed, place)
        store = Store(place / "run.sqlite")
        events = dict(store.query("SELECT kind, COUNT(*) FROM slot_events GROUP BY kind"))
        closing = json.loads(store.query("SELECT value FROM run WHERE key = 'closing'")[0][0])
        judges += [f"- seed {seed}: {line}" for line in closing if line.startswith("judge")]
        cells = [str(seed), f"{seconds / 60:.1f}"]
        for split in SPLITS:
            pair = outcomes(store, split)
            for collected, new in zip(pooled[split], pair, strict=True):
                collected.extend(new)
            cells += [f"{sum(pair[0]) / len(pair[0]):.1%} -> {sum(pair[1]) / len(pair[1]):.1%}"]
            cells += [gain(pair)]
        cells += [judge(store), "/".join(str(events.get(k, 0)) for k in EVENTS)]
        rows.append(f"| {' | '.join(cells)} |")
        store.close()
    card = json.loads((nano.MODELS / "card.json").read_text())
    lines = [
        "# The quickstart over several seeds",
        "",
        f"`python benchmarks/quickstart.py --seeds {' '.join(map(str, arguments.seeds))}`, "
        f"python {platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, {platform.machine()}, two cores. Minutes include "
        "evaluation, not set-up. Success is paired by game; brackets are 95% intervals over "
        "episodes. Nano models: "
        f"`{card['command']}`.",
        "",
        "| seed | minutes | in_domain | gain | ood | gain | judge, balanced Process Acc | "
        "candidates proposed/accepted/rejected |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *(
            f"- {split}, all seeds: {rate(pooled[split][0])} -> {rate(pooled[split][1])}, "
            f"{gain(pooled[split])}"
            for split in SPLITS
        ),
        *judges,
        "",
    ]
    (HERE / "quickstart.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
