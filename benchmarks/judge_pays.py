"""Tables from the curves of studies: in which settings the judge pays, and how accurate it must be.

    python benchmarks/judge_pays.py

Reads the csv files of judge-pays-{hard,wrong,missing,pairs,fours,everything}, which `make
judge-pays` writes, and of the pages in `GROUNDS`; writes judge-pays.md. Runs nothing.
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
GROUNDS = {
    "small physical worlds": ("judge-physics",),
    "the guessing game": ("judge-guess",),
    "few wins": ("judge-pays-hard", "judge-pays-ceiling"),
    "long episodes": ("judge-pays-long",),
    "web pages": ("miniwob-arms", "judge-web"),
}
"""Pages by setting. Arms of one page are compared with its own outcomes alone."""
JUDGES = {
    "policy": "frozen judge",
    "policy_judge": "trained judge",
    "right_80": "one label in five wrong",
    "right_100": "labels never wrong",
}
ACCURACY = "evaluation/judge/balanced_process_accuracy"
Successes = Mapping[str, Mapping[str, float]]
"""The success at the end of a run, by arm and seed."""


def successes(page: str, split: str) -> Successes:
    return at_the_end(page, f"evaluation/{split}/success")


def at_the_end(page: str, metric: str) -> Successes:
    """A metric's last value after training, by arm and seed."""
    last: dict[str, dict[str, float]] = defaultdict(dict)
    with (HERE / f"{page}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (value := row[metric]) and int(row["iteration"]):
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


def by_accuracy() -> list[str]:
    """The table of what judges of known accuracy win over outcomes alone."""
    lines = [
        "",
        "How accurate must a judge be? What each wins over outcomes alone in domain; in brackets "
        "its balanced Process Acc after training, and how many seeds:",
        "",
        f"| | {' | '.join(JUDGES.values())} |",
        "|---" * (len(JUDGES) + 1) + "|",
    ]
    for setting, pages in GROUNDS.items():
        cells = dict.fromkeys(JUDGES, "-")
        for page in pages:
            found, right = successes(page, "in_domain"), at_the_end(page, ACCURACY)
            for arm in JUDGES.keys() & found.keys():
                own = differences(found[arm], found["outcome_only"])
                if cells[arm] == "-" and (mean := mean_of_few(list(own.values()))):
                    accuracy = statistics.fmean(right[arm].values())
                    cells[arm] = f"{points(mean)} ({accuracy:.0%}, {len(own)})"
        lines.append(f"| {setting} | {' | '.join(cells.values())} |")
    return lines


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
        found = {setting: successes(f"judge-pays-{setting}", split) for setting in SETTINGS}
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
        whole = successes("judge-pays-everything", split)
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
    path.write_text("\n".join([*lines, *by_accuracy(), ""]), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
