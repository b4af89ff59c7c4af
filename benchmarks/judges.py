"""Judges before and after training, on rollouts that they were not examined on in their run.

    python benchmarks/judges.py elsewhere     # from the runs of `make judge-alone`: judges.md
    python benchmarks/judges.py at-length     # from those of `make at-length`: judges-at-length.md

Judges stored rollouts again, and changes no run.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from few import mean_of_few

from rlanything.progress import Progress
from rlanything.runs.checkpoint import checkpoint_name
from rlanything.runs.paths import CHECKPOINTS
from rlanything.runs.summary import points
from rlanything.terminal import Terminal
from rlanything_judge.stored import (
    BALANCED,
    ORACLE,
    PROCESS,
    JudgeEvalArgs,
    run_judge_eval,
)

HERE = Path(__file__).parent
BEFORE = "quickstart"
WHOLE = "policy_judge_env"
MEASURES = (BALANCED, PROCESS, "Outcome Acc")
Shares = Mapping[tuple[str, str], float]
"""Shares that a judge got right, by measure and source of labels."""


@cache
def shares(
    judge: Path | str, run: Path, iteration: int | None, labellers: tuple[Path | str, ...]
) -> Shares:
    """Has the judge judge a run's rollouts of an iteration, or the episodes kept for its judge."""
    sources = [str(each) for each in labellers]
    request = JudgeEvalArgs(str(judge), run, iteration=iteration, labellers=sources)
    result = run_judge_eval(request, Progress(Terminal(stderr=True)))
    names = dict(zip(sources, ("oracle", "model"), strict=False))
    return {
        (row.measure, names.get(row.source, row.source)): row.share.estimate for row in result.rows
    }


def row(name: str, before: Sequence[float], after: Sequence[float]) -> str:
    gain = mean_of_few([b - a for a, b in zip(before, after, strict=True)])
    levels = " | ".join(f"{100 * statistics.fmean(each):.1f}%" for each in (before, after))
    return f"| {name} | {levels} | {points(gain) if gain else '-'} |"


HEAD = ["| | before | after | |", "|---|---|---|---|"]


def rows(pairs: Sequence[tuple[Shares, Shares]]) -> list[str]:
    """A line for each measure and source; a pair for each seed."""
    found: list[str] = []
    for measure, source in pairs[0][0]:
        if measure in MEASURES:
            before, after = ([each[i][measure, source] for each in pairs] for i in (0, 1))
            name = measure if source == "outcome" else f"{measure}, labels of the {source}"
            found.append(row(name, before, after))
    return found


def seeds_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("seed-*/"), key=lambda run: int(run.name.removeprefix("seed-")))


def elsewhere(evidence: Path) -> list[str]:
    """Another policy's rollouts, by two sources of labels."""
    judges, others = (seeds_of(evidence / arm) for arm in (WHOLE, "outcome_only"))
    names = [[run.name for run in runs] for runs in (judges, others)]
    if names[0] != names[1] or len(judges) < 2:
        raise SystemExit(f"{evidence}: both arms need the same seeds, two or more: each labels one")
    pairs: list[tuple[Shares, Shares]] = []
    for i, (trained, other) in enumerate(zip(judges, others, strict=True)):
        labels = judges[(i + 1) % len(judges)] / CHECKPOINTS / checkpoint_name(7) / "judge"
        before, after = (shares(each, other, 7, (ORACLE, labels)) for each in (BEFORE, trained))
        pairs.append((before, after))
    return [
        "# Judges, before and after training, on another policy's steps",
        "",
        command("elsewhere", "make judge-alone"),
        "",
        f"The judge of `{WHOLE}` on 96 rollouts of the last iteration of `outcome_only`, "
        f"{len(pairs)} seeds: the paper's Table 4. Labels of the oracle, and of a model: the judge "
        f"that `{WHOLE}` of the next seed has trained, eight votes a step, the majority's: the "
        "paper's Table 3.",
        "",
        *HEAD,
        *rows(pairs),
    ]


def at_length(length: Path) -> list[str]:
    """The current policy's rollouts and those before training, early and late."""
    lines = [
        "# Judges at length, on the current policy's steps and on those of the one before training",
        "",
        command("at-length", "make at-length"),
        "",
        "The judge as it was after so many iterations, against the one before training, labels of "
        "the oracle. The current policy's steps: 96 rollouts of the iteration after, from which "
        "the judge has not learned yet. Those before training: the 96 episodes that a run keeps "
        "for its judge.",
    ]
    asked = ((14, 15), (27, 28), (14, None), (28, None))
    for arm, (iterations, fresh) in product(("policy_judge", WHOLE), asked):
        pairs: list[tuple[Shares, Shares]] = []
        for run in seeds_of(length / arm):
            after = run / CHECKPOINTS / checkpoint_name(iterations)
            before, trained = (shares(each, run, fresh, (ORACLE,)) for each in (BEFORE, after))
            pairs.append((before, trained))
        whose = "the policy before training" if fresh is None else "the current policy"
        lines += [
            "",
            f"`{arm}`, after {iterations} iterations, on {whose}, {len(pairs)} seeds:",
            "",
            *HEAD,
            *rows(pairs),
        ]
    return lines


def command(part: str, runs: str) -> str:
    return (
        f"`python benchmarks/judges.py {part}`, python {platform.python_version()}; the runs are "
        f"those of `{runs}`. Intervals are of 95%, Student's over seeds."
    )


PARTS = {
    "elsewhere": (elsewhere, Path("runs/evidence"), "judges.md"),
    "at-length": (at_length, Path("runs/length"), "judges-at-length.md"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--runs", type=Path, help="the folder of the runs, if it is another")
    chosen = parser.parse_args()
    lines, folder, name = PARTS[chosen.part]
    path = HERE / name
    path.write_text("\n".join([*lines(chosen.runs or folder), ""]), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
