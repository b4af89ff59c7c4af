"""Does a recipe learn? Runs it over several seeds, and as controls in which nothing can be learned.

python benchmarks/learning.py RECIPE [--seeds 0 1 2 3 4] [--controls] [--parallel 1] [--keep FOLDER]
    [--page NAME] [--select best-of-N]

Writes benchmarks/NAME.md, and the curves of every run to benchmarks/NAME.csv. `--select`: what the
trained judge then wins by choosing among attempts of the trained policy. Runs that lie in FOLDER
from before are taken as they are, those that were stopped are resumed; one that fails stops no
other, and the page is written once all have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
import transformers
from few import mean_of_few

from rlanything.config.recipe import Recipe, first_difference, load_recipe
from rlanything.engines import shipped
from rlanything.evaluation.counts import Counts, gain, pooled
from rlanything.evaluation.intervals import Interval
from rlanything.roles.judges.unit_test import DETECT, UT
from rlanything.runs.eval_target import selection_rule
from rlanything.runs.store.store import Store
from rlanything.runs.summary import (
    Gain,
    first_and_last,
    percent,
    points,
    policy_gains,
    success,
)
from rlanything_lab.ablation.curves import metric, write_curves
from rlanything_lab.ablation.grid import MAY_DIFFER
from rlanything_lab.ablation.page import sections_of

HERE = Path(__file__).parent
EVENTS = ("proposed", "accepted", "rejected")
CONTROLS = {
    "shuffled advantages": ["loop.shuffle_advantages=true"],
    "learning rate 0": ["policy.learning_rate=0", "judge.learning_rate=0"],
}
PROCESS, POSITIVE = "balanced_process_accuracy", "positive_rate"
UNREADABLE = "unparsable_rate"
MEASURES = (PROCESS, "ut", "detect")
GROUND = {
    "alfworld": "small generated rooms",
    "alfworld-few-shot": "small generated rooms",
    "alfworld-published": "AlfWorld (published games)",
    "coding": "generated coding problems",
    "miniwob": "MiniWoB++ pages",
    "osworld": "generated desktop tasks",
}
"""Name of a domain's tasks in a page's title, as docs/evidence.md has it."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    name: str
    store: Store

    @property
    def minutes(self) -> float:
        """Measured minutes without the last evaluation; those before a resume are included."""
        query = "SELECT SUM(value) FROM metrics WHERE name LIKE 'seconds/%'"
        return self.store.query(query)[0][0] / 60

    def judge(self, name: str) -> tuple[float, float] | None:
        """Before and after, on recorded held-out episodes; None where either was not measured."""
        values = metric(self.store, f"evaluation/judge/{name}")
        ends = first_and_last(self.store)
        if ends is None or not values.keys() >= set(ends):
            return None
        return values[ends[0]], values[ends[1]]

    def judge_counts(self, measure: str, split: str, iteration: int) -> dict[str, Counts]:
        """Returns the hits of a judge that writes tests, on the tasks of a split."""
        tasks = {task for task, _ in self.store.outcomes(0, split)}
        return {
            item: {measure: counts[measure]}
            for item, counts in self.store.judge_eval_counts(iteration, "judge").items()
            if item in tasks and measure in counts
        }

    @property
    def writes_tests(self) -> bool:
        return any(UT in counts for counts in self.store.judge_eval_counts(0, "judge").values())

    def closing(self, start: str) -> str:
        lines = json.loads(self.store.query("SELECT value FROM run WHERE key = 'closing'")[0][0])
        return next((line for line in lines if line.startswith(start)), "")

    def events(self) -> str:
        counts = dict(self.store.query("SELECT kind, COUNT(*) FROM slot_events GROUP BY kind"))
        return "/".join(str(counts.get(kind, 0)) for kind in EVENTS)


def run(recipe: Path, folder: Path, overrides: list[str]) -> bool:
    """Trains or resumes, unless that was done before. Returns whether it ended well."""
    if not (folder / "run.sqlite").exists():
        what = ["train", str(recipe), f"run_dir={folder}", *overrides]
    elif not ended(folder):
        what = ["resume", str(folder)]
    else:
        return True
    with log_of(folder).open("a") as log:
        command = [sys.executable, "-m", "rlanything.cli", *what]
        return subprocess.run(command, check=False, stdout=log, stderr=log).returncode == 0


def other_recipe(recipe: Path, folder: Path, overrides: list[str]) -> str | None:
    """Returns a setting that the run there has otherwise and on which results depend; None where
    there is none, or no run."""
    if not (folder / "recipe.yaml").exists():
        return None
    wanted, there = load_recipe(recipe, overrides), load_recipe(folder / "recipe.yaml")
    ways = {**MAY_DIFFER, "threads": True, "cluster": True}
    one, two = (each.model_dump(exclude=ways) for each in (there, wanted))
    return first_difference(one, two)


def log_of(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.log"


def ended(folder: Path) -> bool:
    with closing(Store(folder / "run.sqlite")) as store:
        return bool(store.query("SELECT value FROM run WHERE key = 'closing'"))


def change(before: float | None, after: float | None, gain: Interval | None) -> list[str]:
    """Two cells: the levels, and the gain."""
    if before is None or after is None:
        return ["-", "-"]
    return [f"{before:.1%} -> {after:.1%}", points(gain) if gain else "-"]


def won_more(each: Gain) -> list[str]:
    before, after = (end and end.estimate for end in (each.before, each.after))
    return change(before, after, each.change)


def row(finished: Finished, splits: tuple[str, ...]) -> str:
    cells = [finished.name, f"{finished.minutes:.1f}"]
    for each in policy_gains(finished.store, splits):
        cells += won_more(each)
    for name in (PROCESS, POSITIVE, UNREADABLE):
        cells += change(*(finished.judge(name) or (None, None)), None)[:1]
    cells.append(finished.events())
    return f"| {' | '.join(cells)} |"


def table(runs: list[Finished], splits: tuple[str, ...]) -> list[str]:
    heads = ["run", "minutes"]
    heads += [head for split in splits for head in (split, "gain")]
    heads += ["judge, balanced Process Acc", "judge says +1", "unreadable"]
    heads.append("proposed/accepted/rejected")
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(row(finished, splits) for finished in runs),
    ]


def tests_table(runs: list[Finished], splits: tuple[str, ...]) -> list[str]:
    """The paper's Code, UT and Detect."""
    lines = [
        "| run | split | Code | gain | UT | gain | Detect | gain |",
        "|---" * 8 + "|",
    ]
    for run in runs:
        last = run.store.evaluated_iterations()[-1]
        for each in policy_gains(run.store, splits):
            cells = [run.name, each.name, *won_more(each)]
            for measure in (UT, DETECT):
                one, two = (run.judge_counts(measure, each.name, i) for i in (0, last))
                before, after = (pooled(end).get(measure) for end in (one, two))
                cells += change(before, after, gain(one, two, (measure,)))
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| run | minutes | proposed/accepted/rejected |", "|---|---|---|"]
    return lines + [f"| {run.name} | {run.minutes:.1f} | {run.events()} |" for run in runs]


def selected(run: Finished, folder: Path, split: str, way: str) -> str:
    """A row: the trained policy alone, and with the trained judge to choose."""
    target = [sys.executable, "-m", "rlanything.cli", "eval", str(folder), "--split", split]
    printed = subprocess.run(
        [*target, "--select", way, "--json"], check=True, capture_output=True, text=True
    )
    selection = json.loads(printed.stdout)["selection"]
    one, best, change = (Interval(**selection[key]) for key in ("single", "chosen", "gain"))
    cells = [run.name, split, percent(one), percent(best), points(change)]
    possible = selection["possible"]
    return f"| {' | '.join(cells)} | {possible:.1%} |"


def over_seeds(runs: list[Finished], splits: tuple[str, ...]) -> list[str]:
    """The mean gains, with Student's interval: seeds are what varies independently."""
    gains: dict[str, list[float]] = {split: [] for split in splits}
    for run in runs:
        for each in policy_gains(run.store, splits):
            gains[each.name] += [each.change.estimate] if each.change else []
    if runs[0].writes_tests:
        for measure, split in product((UT, DETECT), splits):
            changes = [
                gain(
                    run.judge_counts(measure, split, 0),
                    run.judge_counts(measure, split, run.store.evaluated_iterations()[-1]),
                    (measure,),
                )
                for run in runs
            ]
            gains[f"{measure}, {split}"] = [change.estimate for change in changes if change]
    else:
        judged = [ends for run in runs if (ends := run.judge(PROCESS))]
        gains["judge, balanced Process Acc"] = [after - before for before, after in judged]
    return [
        f"- {name}: {points(interval)}"
        for name, values in gains.items()
        if (interval := mean_of_few(values))
    ]


def curves(runs: list[Finished], splits: tuple[str, ...]) -> list[str]:
    """Held-out success along the way, where it was measured along the way."""
    measures = MEASURES[1:] if runs[0].writes_tests else MEASURES[:1]
    heads = ["run", "iteration", *splits, *(f"judge, {measure}" for measure in measures)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in runs:
        judged = [metric(run.store, f"evaluation/judge/{measure}") for measure in measures]
        for iteration in run.store.evaluated_iterations():
            won = [success(run.store.outcomes(iteration, split)) for split in splits]
            rates = [percent(each) if each else "-" for each in won]
            judge = [f"{each[iteration]:.1%}" if iteration in each else "-" for each in judged]
            cells = [run.name, str(iteration), *rates, *judge]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def command() -> str:
    """As it was given, but for where runs were kept."""
    given = list(sys.argv)
    if "--keep" in given:
        at = given.index("--keep")
        del given[at : at + 2]
    return f"python {shlex.join(given)}"


def title(recipe: Recipe) -> str:
    """Returns the page's first line; the tasks are named unless a file of the user's has them."""
    ground = None if recipe.domain.options.get("data") else GROUND.get(recipe.domain.name)
    return f"# What {recipe.name} learns" + (f": {ground}" if ground else "")


def page(
    recipe: Recipe,
    arguments: argparse.Namespace,
    seeds: list[Finished],
    controls: list[Finished],
    choices: list[str],
) -> list[str]:
    splits = recipe.splits
    models = shipped.NAMES.get(recipe.policy.model, Path(recipe.policy.model).parent)
    card = models / "card.json"
    built = f" Nano models: `{json.loads(card.read_text())['command']}`." if card.exists() else ""
    at_once = f", {arguments.parallel} runs at once" if arguments.parallel > 1 else ""
    first = (seeds or controls)[0]
    tests = first.writes_tests
    write = tests_table if tests else table
    played = f"{recipe.evaluation.episodes} tasks"
    if recipe.evaluation.rollouts_per_task > 1:
        played += f", {recipe.evaluation.rollouts_per_task} attempts each"
    lines = [
        title(recipe),
        "",
        f"`{command()}`, python {platform.python_version()}, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, {platform.machine()}, "
        f"{os.cpu_count()} cores{at_once}. Minutes leave out set-up and the last "
        f"evaluation, and include whatever else the machine did meanwhile. Held-out success over "
        f"{played} of each split, gains paired by task with 95% intervals over tasks.{built}",
    ]
    if seeds:
        lines += ["", *write(seeds, splits)]
    if len(seeds) > 1:
        lines += ["", f"Mean gain over the {len(seeds)} seeds, 95% interval over seeds:", ""]
        lines += over_seeds(seeds, splits)
    if choices:
        lines += [
            "",
            f"The trained pair at test time, {arguments.select}, on fresh tasks:",
            "",
            "| run | split | an attempt | the judge's choice | gain | some attempt won |",
            "|---" * 6 + "|",
            *choices,
        ]
    if seeds and not tests:
        lines += ["", "Each run's own judge line:", ""]
        lines += [f"- {each.name}: {each.closing('judge')}" for each in seeds]
    if controls:
        lines += ["", "Controls, in which nothing can be learned:", "", *write(controls, splits)]
    if seeds and len(first.store.evaluated_iterations()) > 2:
        lines += ["", "Along the way:", "", *curves(seeds, splits)]
    name = arguments.page or recipe.name
    return [*lines, "", f"Every iteration's figures: [{name}.csv]({name}.csv).", ""]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--controls", action="store_true", help="with the first seed, or 0")
    parser.add_argument("--parallel", type=int, default=1, help="runs at once, sharing the cores")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    parser.add_argument("--page", help="what to call the page; left out, the recipe's name")
    parser.add_argument("--select", metavar="best-of-N", help="also choose at test time")
    arguments = parser.parse_args()
    arguments.seeds = list(dict.fromkeys(arguments.seeds))
    if arguments.select:
        selection_rule(arguments.select)  # refused now and not after hours
    if not (arguments.seeds or arguments.controls):
        parser.error("nothing to run: name --seeds, or say --controls")
    recipe = load_recipe(arguments.recipe)
    folder = arguments.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"seed {seed}": [f"seed={seed}"] for seed in arguments.seeds}
    if arguments.controls:
        first = f"seed={(arguments.seeds or [0])[0]}"
        wanted |= {name: [first, *overrides] for name, overrides in CONTROLS.items()}
    share: list[str] = []
    if arguments.parallel > 1:
        threads = max(1, (os.cpu_count() or 1) // arguments.parallel)
        share = [f"threads={threads}", "cluster.seats=1"]
    places = {name: folder / name.replace(" ", "-") for name in wanted}
    for name, place in places.items():
        if other := other_recipe(arguments.recipe, place, wanted[name]):
            sys.exit(f"{place} is a run of another recipe ({other} differs): give another --keep")
    with ThreadPoolExecutor(arguments.parallel) as executor:
        ended_well = executor.map(
            lambda name: run(arguments.recipe, places[name], wanted[name] + share), wanted
        )
    failed = [
        str(log_of(places[name])) for name, well in zip(wanted, ended_well, strict=True) if not well
    ]
    if failed:
        sys.exit(f"failed: see {', '.join(failed)}; `--keep {folder}` again resumes what is there")
    runs = [Finished(name, Store(places[name] / "run.sqlite")) for name in wanted]
    count = len(arguments.seeds)
    choices = [
        selected(finished, places[finished.name], split, arguments.select)
        for finished in runs[:count]
        for split in recipe.splits
        if arguments.select
    ]
    lines = page(recipe, arguments, runs[:count], runs[count:], choices)
    name = arguments.page or recipe.name
    path = HERE / f"{name}.md"
    path.write_text("\n".join(lines) + sections_of(path), encoding="utf-8")
    stores = {(each.name,): each.store for each in runs}
    write_curves(HERE / f"{name}.csv", stores, ["run"], recipe.splits)


if __name__ == "__main__":
    main()
