"""Theorems 1 and 2 on the judgements of real runs: writes benchmarks/theory.md.

    python benchmarks/theory.py RUN [RUN ...] [--out PAGE]
    python benchmarks/theory.py --arms ARM [ARM ...] [--out PAGE]

The second form writes benchmarks/theory-studies.md, one row for each ARM: a folder of runs as
`rlanything ablate` leaves them, `seed-0`, `seed-1` and so on.

Reads only the runs' stores. Theorem 1 assumes that the m judgements of a step are independent given
the outcome of its episode; here that is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlanything.evaluation.diagnostics import (
    mu,
    p_minus,
    p_plus,
    precision_bound,
    reward_precision,
    weight_ratio,
)
from rlanything.evaluation.intervals import Interval, percentile_interval
from rlanything.runs.store.store import Store
from rlanything_lab.ablation.table import markdown

Integers = npt.NDArray[np.integer]
RESAMPLES = 500
ACCURACY_BINS = ((0, 0), (0.01, 0.25), (0.26, 0.49), (0.5, 0.5), (0.51, 0.74), (0.75, 0.99), (1, 1))
BIN_NAMES = tuple(
    f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}" for low, high in ACCURACY_BINS
)


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged steps: scores [steps, m], and of each its outcome, the oracle's label (0: none), and
    the number of its rollout group."""

    scores: Integers
    outcomes: Integers
    labels: Integers
    groups: Integers

    def of(self, chosen: npt.NDArray[np.bool_]) -> Judged:
        return Judged(*(a[chosen] for a in (self.scores, self.outcomes, self.labels, self.groups)))


def read(store: Store) -> dict[int, Judged]:
    """By iteration."""
    steps: defaultdict[tuple[int, int, str, int, int | None, int], list[int]] = defaultdict(list)
    for *step, score in store.query(
        "SELECT iteration, j.trajectory, task, outcome, label, j.step, score FROM judgements AS j"
        " JOIN trajectories AS t ON t.number = j.trajectory"
        " JOIN steps AS s ON s.trajectory = j.trajectory AND s.step = j.step"
        " ORDER BY iteration, j.trajectory, j.step, judgement"
    ):
        steps[tuple(step)].append(score)
    rows: defaultdict[int, list[tuple[list[int], int, int, str]]] = defaultdict(list)
    for (iteration, _, task, outcome, label, _), scores in steps.items():
        rows[iteration].append((scores, outcome, label or 0, task))
    return {
        iteration: Judged(
            np.array([scores for scores, *_ in judged_rows]),
            np.array([outcome for _, outcome, *_ in judged_rows]),
            np.array([label for *_, label, _ in judged_rows]),
            np.unique([task for *_, task in judged_rows], return_inverse=True)[1],
        )
        for iteration, judged_rows in rows.items()
    }


def correlation(judged: Judged, given_label: bool) -> float | None:
    """The mean correlation of two judgements of one step, given the outcome (and the label): what
    remains of their covariance once every cell has its own mean. 0 if Theorem 1's assumption
    holds."""
    covariance = variance = 0.0
    m = judged.scores.shape[1]
    if m < 2:
        return None
    for outcome in (-1, 1):
        for label in (-1, 0, 1) if given_label else (None,):
            chosen = judged.outcomes == outcome
            if label is not None:
                chosen &= judged.labels == label
            if chosen.sum() < 2:
                continue
            rest = judged.scores[chosen] - judged.scores[chosen].mean()
            variance += float((rest**2).sum()) * (m - 1)
            covariance += float((rest.sum(axis=1) ** 2).sum() - (rest**2).sum())
    return covariance / variance if variance else None


def effective(m: int, rho: float | None) -> float:
    """How many independent judgements have the variance of the mean of m correlated ones."""
    return m / (1 + (m - 1) * max(rho or 0.0, 0.0))


def ties(judged: Judged) -> float:
    """The share of pairs of a won and a lost step with equal mean scores."""
    totals = judged.scores.sum(axis=1)
    won, lost = (
        np.bincount(
            totals[judged.outcomes == o] + judged.scores.shape[1],
            minlength=2 * judged.scores.shape[1] + 1,
        )
        for o in (1, -1)
    )
    return float((won * lost).sum() / (won.sum() * lost.sum()))


def slack(judged: Judged, seed: int = 0) -> Interval | None:
    """Reward precision minus its bound, bootstrapped over rollout groups, whose steps are alike.
    None where the bound says nothing."""
    estimate = _slack(judged)
    if estimate is None:
        return None
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(judged.groups == g) for g in range(judged.groups.max() + 1)]
    drawn: list[float] = []
    for _ in range(RESAMPLES):
        again = np.concatenate([members[g] for g in rng.integers(len(members), size=len(members))])
        value = _slack(
            Judged(
                *(a[again] for a in (judged.scores, judged.outcomes, judged.labels, judged.groups))
            )
        )
        if value is not None:
            drawn.append(value)
    return percentile_interval(estimate, np.array(drawn))


def _slack(judged: Judged) -> float | None:
    precision = reward_precision(judged.scores, judged.outcomes)
    bound = precision_bound(mu(judged.scores, judged.outcomes), judged.scores.shape[1])
    return None if precision is None or bound is None else precision - bound


def verdict(found: Interval | None) -> str:
    if found is None:
        return "says nothing (mu <= 1)"
    if found.estimate >= 0:
        return "holds" if found.low >= 0 else "holds, within noise"
    return "violated" if found.high < 0 else "violated, within noise"


def cells(judged: Judged) -> dict[str, str]:
    """Returns what Theorem 1 is about, by the name of its column."""
    m = judged.scores.shape[1]
    the_mu, found = mu(judged.scores, judged.outcomes), slack(judged)
    rho, rest = correlation(judged, False), correlation(judged, True)
    bounds = f"{found.estimate:+.3f} [{found.low:+.3f}, {found.high:+.3f}]" if found else "-"
    return {
        "steps": str(len(judged.outcomes)),
        "m": str(m),
        "p+": number(p_plus(judged.scores, judged.outcomes)),
        "p-": number(p_minus(judged.scores, judged.outcomes)),
        "mu": number(the_mu),
        "A": number(reward_precision(judged.scores, judged.outcomes)),
        "bound": number(precision_bound(the_mu, m)),
        "A - bound [95%]": bounds,
        "the bound": verdict(found),
        "A if independent": number(if_independent(judged)),
        "ties": f"{ties(judged):.2f}",
        "correlation": number(rho, 2),
        "given the label too": number(rest, 2) if (judged.labels != 0).any() else "-",
        "effective m": f"{effective(m, rho):.1f}",
    }


def first_theorem(by_iteration: dict[int, Judged]) -> list[str]:
    """A row an iteration, and one of all of them."""
    shown = [
        *("steps", "mu", "A", "bound", "A - bound [95%]", "the bound", "A if independent"),
        *("ties", "correlation", "given the label too", "effective m"),
    ]
    rows = [["iteration", *shown]]
    every = list(by_iteration.items())
    for iteration, judged in [*every, ("all", merged(list(by_iteration.values())))]:
        if not {-1, 1} <= set(judged.outcomes.tolist()):
            rows.append([str(iteration), str(len(judged.outcomes)), "one outcome only"])
            continue
        found = cells(judged)
        rows.append([str(iteration), *(found[name] for name in shown)])
    return markdown(rows)


def if_independent(judged: Judged) -> float:
    """A, had every step of won (lost) episodes drawn its m scores on its own from all the scores of
    won (lost) episodes: what the theorem's assumption makes of the same p+ and p-."""
    won, lost = (
        np.bincount(judged.scores[judged.outcomes == outcome].ravel() + 1, minlength=3)
        for outcome in (1, -1)
    )
    sums = []
    for counts in (won, lost):
        total = np.ones(1)
        for _ in range(judged.scores.shape[1]):
            total = np.convolve(total, counts / counts.sum())
        sums.append(total)
    below = np.concatenate([[0.0], np.cumsum(sums[1])[:-1]])
    return float(sums[0] @ below)


def merged(parts: Sequence[Judged]) -> Judged:
    """The steps of several iterations; no two of them share a group."""
    offset, groups = 0, list[Integers]()
    for part in parts:
        groups.append(part.groups + offset)
        offset += int(part.groups.max()) + 1
    return Judged(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.outcomes for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(groups),
    )


def more_judgements(judged: Judged) -> list[str]:
    """Returns the gains of A from more judgements, against those that the bound promises."""
    lines = ["| judgements used | A | A if independent | ties | bound |", "|---|---|---|---|---|"]
    m = judged.scores.shape[1]
    for used in sorted({1, 2, 3, 4, 8, m // 2, m} & set(range(1, m + 1))):
        part = Judged(judged.scores[:, :used], judged.outcomes, judged.labels, judged.groups)
        bound = precision_bound(mu(part.scores, part.outcomes), used)
        lines.append(
            f"| {used} | {number(reward_precision(part.scores, part.outcomes))} | "
            f"{if_independent(part):.3f} | {ties(part):.2f} | {number(bound)} |"
        )
    return lines


@dataclass(frozen=True, slots=True)
class Ratios:
    """|f+| / |f-| of the tasks of a bin: their number, quartiles, and the share near 1."""

    tasks: int
    low: float
    middle: float
    high: float
    near: float


def ratios(judged: Sequence[Judged], weight: float) -> dict[str, Ratios]:
    """Returns the ratios of single tasks by the name of the bin of their accuracy."""
    by_bin: dict[str, list[float]] = {name: [] for name in BIN_NAMES}
    for each in judged:
        for group in range(each.groups.max() + 1):
            part = each.of(each.groups == group)
            # By steps, not by episodes: lost ones are longer. The share of won steps is what the
            # norms see.
            accuracy = float((part.outcomes == 1).mean())
            place = next((i for i, b in enumerate(ACCURACY_BINS) if accuracy <= b[1] + 1e-9), -1)
            ratio = weight_ratio(part.scores, part.outcomes, weight)
            by_bin[BIN_NAMES[place]].append(np.inf if ratio is None else ratio)
    found: dict[str, Ratios] = {}
    for name, given in by_bin.items():
        if given:
            values = np.array(given)
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], method="nearest")
            near = ((values >= 0.5) & (values <= 2)).mean()
            found[name] = Ratios(len(values), float(low), float(middle), float(high), float(near))
    return found


def second_theorem(by_iteration: dict[int, Judged], weight: float) -> list[str]:
    """|f+| / |f-| of single tasks by their accuracy."""
    rows = [["steps of won episodes among the task's", "tasks", "median ratio", "middle half"]]
    rows[0].append("near 1 (1/2 to 2)")
    for name, each in ratios([*by_iteration.values()], weight).items():
        middle = f"{each.low:.2f} to {each.high:.2f}"
        rows.append([name, str(each.tasks), f"{each.middle:.2f}", middle, f"{each.near:.0%}"])
    return markdown(rows)


def number(value: float | None, places: int = 3) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def opened(run: Path) -> tuple[dict[str, Any], dict[int, Judged]]:
    """Returns a run's recipe, and its judged steps by iteration."""
    with closing(Store(run / "run.sqlite")) as store:
        recipe = json.loads(store.query("SELECT value FROM run WHERE key = 'recipe'")[0][0])
        return recipe, read(store)


def section(run: Path) -> list[str]:
    recipe, by_iteration = opened(run)
    if not by_iteration:
        raise SystemExit(f"{run}: no iteration is finished")
    whole = merged(list(by_iteration.values()))
    return [
        f"## {recipe['name']}, seed {recipe['seed']} ({run.name})",
        "",
        f"{recipe['domain']['name']}, m = {whole.scores.shape[1]}, {len(by_iteration)} iterations.",
        "",
        "### Theorem 1",
        "",
        *first_theorem(by_iteration),
        "",
        "What more judgements bring, over all iterations:",
        "",
        *more_judgements(whole),
        "",
        "### Theorem 2",
        "",
        *second_theorem(by_iteration, recipe["feedback"]["judge_lambda"]),
        "",
    ]


HEAD = """# The theorems on real judgements

`{command}` writes this page from the stores of runs.

**Theorem 1** bounds the reward precision A, the chance that a step of a won episode has a higher
mean score than one of a lost episode: with mu = p+ + p- above 1 and m judgements,
A >= 1 - exp(-m (mu - 1)^2 / 4). Its proof takes the scores of a step as m independent draws whose
chances depend on the outcome alone. They are not:

- *A if independent*: what these very p+ and p- would give if they were. A below it is what
  dependence costs, and it costs more with every judgement; with few judgements and mu near 1 A can
  lie above, for steps that differ in quality tie less often.
- *correlation*: of two judgements of one step, given the outcome. Steps of one episode differ in
  quality, and a judge that sees the step answers to the step, so its m answers agree more than the
  outcome explains. Where an oracle labels steps, the next column holds the label fixed as well:
  what is left there is what the judge says alike of steps of one outcome and one label, and what
  went away is that good steps occur in lost episodes and bad ones in won.
- *effective m*: m / (1 + (m - 1) correlation), the number of independent judgements whose mean
  varies as much.
- *ties*: pairs with equal means, which count against A.

With correlated judgements A tends, as m grows, to the chance that a won step is in truth better
liked than a lost one, and not to 1: "what more judgements bring" shows how far that goes. The
bound itself is loose. Hoeffding's inequality under the same assumption gives
1 - exp(-m (mu - 1)^2), and near mu = 1 either promises next to nothing, so that a bound which holds
says little about the assumption; *A if independent* says more.

**Theorem 2**: the norms of f+ and f- weigh what the judge learns from won and from lost steps;
their ratio goes to 0 for hopeless and to infinity for trivial tasks. Here it is that of single
tasks in single iterations, by the share of their steps that belong to won episodes.
"""


STUDIES = """# The theorems at work, study by study

`{command}` writes this page from the stores of runs, all seeds and iterations of an arm together.
[The theorems on real judgements](theory.md) explains the columns and has single runs.

## Theorem 1: is a won step scored above a lost one?

{first}

## Theorem 2: the weight of won over lost steps, by the share of a task's steps that were won

Medians over single tasks of single iterations; in brackets the share between 1/2 and 2.

{second}
"""


def studies(arms: Sequence[Path], command: str) -> str:
    """Returns the page with a row for each arm."""
    shown = [
        *("steps", "m", "p+", "p-", "mu", "A", "bound", "A - bound [95%]"),
        *("A if independent", "correlation", "given the label too", "effective m"),
    ]
    first = [["runs", "seeds", *shown]]
    second = [
        ["runs", "none won", "up to 1/4", "up to 1/2", "half", "up to 3/4", "more", "all won"]
    ]
    for arm in arms:
        runs = [opened(store.parent) for store in sorted(arm.glob("seed-*/run.sqlite"))]
        by_run = [merged([*by_iteration.values()]) for _, by_iteration in runs]
        name, found = f"{arm.parent.name}/{arm.name}", cells(merged(by_run))
        first.append([name, str(len(runs)), *(found[column] for column in shown)])
        of_tasks = ratios(by_run, runs[-1][0]["feedback"]["judge_lambda"])
        medians = [
            f"{each.middle:.2f} ({each.near:.0%})" if (each := of_tasks.get(accuracy)) else ""
            for accuracy in BIN_NAMES
        ]
        second.append([name, *medians])
    return STUDIES.format(
        command=command, first="\n".join(markdown(first)), second="\n".join(markdown(second))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--arms", action="store_true", help="each RUN is a folder of seeds")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    flags = ["--arms"] if asked.arms else []
    command = " ".join(["python benchmarks/theory.py", *flags, *map(str, asked.runs)])
    if asked.arms:
        page = studies(asked.runs, command)
    else:
        lines = [line for run in asked.runs for line in section(run)]
        page = "\n".join([HEAD.format(command=command), *lines]).rstrip() + "\n"
    out = asked.out or Path(__file__).with_name("theory-studies.md" if asked.arms else "theory.md")
    out.write_text(page, encoding="utf-8")
    print(f"written to {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
