"""The quickstart with shared beginnings and without: writes benchmarks/packing.md.

    python benchmarks/packing.py [--seeds 0 1] [--iterations 2]

Both ways start from the same seed and take turns, so that a busy machine slows both. The updates
differ by rounding only; later rollouts may differ where rounding tips a draw.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

from rlanything.config.shipped import shipped_files
from rlanything.runs.store.store import Store

HERE = Path(__file__).parent
RECIPE = shipped_files()["quickstart"]
WAYS = ("shared", "padded")
SETTINGS = ("evaluation.episodes=120", "evaluation.judged_episodes=32")
METRICS = {
    "rollouts/success": "success of rollouts",
    "policy/loss": "policy loss",
    "policy/grad_norm": "policy gradient norm",
    "policy/kl": "policy KL",
    "judge/loss": "judge loss",
    "judge/grad_norm": "judge gradient norm",
    "judge/kl": "judge KL",
}
PHASES = ("rollouts", "judgements", "policy_update", "judge_update")


def run(way: str, seed: int, iterations: int, folder: Path) -> float:
    """Seconds of one run, all of it."""
    command = [sys.executable, "-m", "rlanything.cli", "train", str(RECIPE)]
    overrides = [f"seed={seed}", f"run_dir={folder}", f"loop.iterations={iterations}", *SETTINGS]
    packing = [f"{role}.packing={way}" for role in ("policy", "judge")]
    begun = time.perf_counter()
    subprocess.run([*command, *overrides, *packing], check=True)
    return time.perf_counter() - begun


def metric(store: Store, name: str) -> list[float]:
    rows = store.query("SELECT value FROM metrics WHERE name = ? ORDER BY iteration", name)
    return [value for (value,) in rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--iterations", type=int, default=2)
    arguments = parser.parse_args()
    stores: dict[tuple[str, int], Store] = {}
    totals: dict[tuple[str, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for way in WAYS:
                place = Path(folder) / f"{way}-{seed}"
                totals[way, seed] = run(way, seed, arguments.iterations, place)
                stores[way, seed] = Store(place / "run.sqlite")
        lines = report(arguments.seeds, arguments.iterations, stores, totals)
    (HERE / "packing.md").write_text("\n".join(lines), encoding="utf-8")


def report(
    seeds: list[int],
    iterations: int,
    stores: dict[tuple[str, int], Store],
    totals: dict[tuple[str, int], float],
) -> list[str]:
    lines = [
        "# The quickstart with shared beginnings and without",
        "",
        f"`python benchmarks/packing.py --seeds {' '.join(map(str, seeds))} --iterations "
        f"{iterations}`, python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {platform.machine()}, two cores. The recipe is "
        f"`quickstart` with `loop.iterations={iterations} {' '.join(SETTINGS)}`, and "
        "`packing: shared` or `padded` for policy and judge.",
        "",
        "## Seconds",
        "",
        "| seed | phase | shared | padded | padded / shared |",
        "|---|---|---|---|---|",
    ]
    for seed in seeds:
        for phase in PHASES:
            one, other = (sum(metric(stores[w, seed], f"seconds/{phase}")) for w in WAYS)
            name = phase.replace("_", " ")
            lines.append(f"| {seed} | {name} | {one:.1f} | {other:.1f} | {other / one:.1f}x |")
        one, other = (totals[way, seed] for way in WAYS)
        lines.append(
            f"| {seed} | the whole run, evaluation included | {one:.0f} | {other:.0f} | "
            f"{other / one:.1f}x |"
        )
    lines += [
        "",
        "## The same learning",
        "",
        f"| seed | metric | {' | '.join(f'iteration {t + 1}' for t in range(iterations))} |",
        "|---|---|" + "---|" * iterations,
    ]
    for seed in seeds:
        for name, shown in METRICS.items():
            pairs = zip(*(metric(stores[way, seed], name) for way in WAYS), strict=True)
            cells = " | ".join(f"{one:.5g} / {other:.5g}" for one, other in pairs)
            lines.append(f"| {seed} | {shown}, shared / padded | {cells} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
