"""Where the judge pays, over all settings in which outcomes say little: one table from their pages.

    python benchmarks/judge_pays.py

Reads judge-pays-{hard,wrong,missing,pairs,fours,everything}.csv, which `make judge-pays` writes,
and writes judge-pays.md. Runs nothing.
"""

from __future__ import annotations

import csv
import math
import platform
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from few import mean_of_few
from scipy import stats

from rlanything.evaluation.intervals import Interval
from rlanything.runs.summary import points

HERE = Path(__file__).parent
SETTINGS = {
    "hard": "few wins",
    "wrong": "a fifth of outcomes wrong",
    "missing": "outcomes of one task in four",
    "pairs": "pairs of rollouts",
    "fours": "groups of four",
}
SPLITS = ("in_domain", "ood")
QUESTIONS = {
    "scores, against outcomes alone": ("policy", "outcome_only"),
    "scores on all tasks (open window), against outcomes alone": (
        "policy_open_window",
        "outcome_only",
    ),
    "the open window, against the window": ("policy_open_window", "policy"),
    "the judge trained, against it frozen": ("policy_judge", "policy"),
}
EVERYTHING = {
    "hard": "policy_judge_env",
    **{setting: f"{setting}_everything" for setting in ("wrong", "missing", "pairs", "fours")},
}
"""The arm of each setting on the page of everything together."""
WHOLE = {
    "everything, against outcomes alone": "outcome_only",
    "everything, against scores": "policy",
    "new tasks too, against tasks as they are": "policy_judge",
}
Successes = Mapping[str, Mapping[str, float]]
"""The success at the end of a run, by arm and seed."""


def successes(page: str, split: str) -> Successes:
    last: dict[str, dict[str, float]] = defaultdict(dict)
    with (HERE / f"judge-pays-{page}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (value := row[f"evaluation/{split}/success"]) and int(row["iteration"]):
                last[row["arm"]][row["seed"]] = float(value)
    return last


def differences(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """By seed, of those that both have."""
    return {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}


def over_settings(by_setting: Mapping[str, Mapping[str, float]]) -> Interval:
    """The mean of all differences with a 95% interval in which those of one seed count as one
    cluster: its models, tasks and held-out tasks are the same in every setting.

    A seed that is there in five settings weighs as much as five others, so that there are fewer
    degrees of freedom than seeds: Satterthwaite's, as if all differences of a seed were one."""
    values = [value for seeds in by_setting.values() for value in seeds.values()]
    mean = statistics.fmean(values)
    clusters: dict[str, list[float]] = defaultdict(list)
    for seeds in by_setting.values():
        for seed, value in seeds.items():
            clusters[seed].append(value - mean)
    count = len(clusters)
    squares = sum(sum(each) ** 2 for each in clusters.values())
    error = math.sqrt(squares * count / (count - 1)) / len(values)
    sizes = [len(each) ** 2 for each in clusters.values()]
    freedom = sum(sizes) ** 2 / sum(size**2 for size in sizes) - 1
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Interval(mean, mean - half, mean + half)


def row(question: str, by_setting: Mapping[str, Mapping[str, float]]) -> str:
    """The line of the table: a setting a cell, and all of them."""
    means = [mean_of_few(list(seeds.values())) for seeds in by_setting.values()]
    cells = [points(mean) if mean else "-" for mean in means]
    return f"| {question} | {' | '.join(cells)} | **{points(over_settings(by_setting))}** |"


def main() -> None:
    lines = [
        "# Where the judge pays, setting by setting",
        "",
        f"`python benchmarks/judge_pays.py`, python {platform.python_version()}, from the pages "
        "that `make judge-pays` writes: success at the end of training, paired by seed. Intervals "
        "are of 95%, Student's over seeds; over all settings the differences of one seed count as "
        "one cluster. Which questions are asked was settled before the runs; that their answers "
        "are put together was not.",
    ]
    for split in SPLITS:
        found = {setting: successes(setting, split) for setting in SETTINGS}
        heads = [f"{name} ({len(found[key]['policy'])})" for key, name in SETTINGS.items()]
        runs = sum(len(each["policy"]) for each in found.values())
        lines += [
            "",
            f"{split}, in brackets how many seeds:",
            "",
            f"| | {' | '.join(heads)} | all ({runs}) |",
            "|---" * (len(heads) + 2) + "|",
        ]
        for question, (one, other) in QUESTIONS.items():
            asked = {s: differences(each[one], each[other]) for s, each in found.items()}
            lines.append(row(question, asked))
        whole = successes("everything", split)
        for question, other in WHOLE.items():
            asked = {s: differences(whole[a], found[s][other]) for s, a in EVERYTHING.items()}
            seeds = min(map(len, asked.values()))
            lines.append(row(f"{question} ({seeds} seeds each)", asked))
        asked = {
            s: differences(
                {seed: found[s]["policy"][seed] for seed in whole[a]}, found[s]["outcome_only"]
            )
            for s, a in EVERYTHING.items()
        }
        lines.append(row("scores, against outcomes alone, on the seeds of everything", asked))
    path = HERE / "judge-pays.md"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
