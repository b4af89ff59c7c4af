"""A run of the paper's size in the store: writes benchmarks/store.md.

    python benchmarks/store.py [--iterations 200] [--folder /tmp]

Iterations are synthetic and seeded: 16 tasks x 8 episodes x 40 steps x 3 judgements, in a pool of
3,500 tasks. Needs 5 GB in the folder while it runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.progress import track
from synthetic import (
    EPISODES,
    FRAMES,
    JUDGEMENTS,
    PLACES,
    PROSE,
    STEPS,
    TASKS,
    THINGS,
    VOCABULARY,
    Household,
    Prose,
    episodes,
)

from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.evaluation.counts import Counts
from rlanything.evaluation.diagnostics import diagnose
from rlanything.evaluation.judge_eval import BAD, GOOD, JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.loop import IterationResult
from rlanything.records import Completion, JudgedTrajectory, Step, Task, Trajectory
from rlanything.roles.adapter import Proposal
from rlanything.roles.judges.base import StepJudge
from rlanything.rollout.groups import ScheduledTask, grouped
from rlanything.runs.lineage import lineage_table, read_lineage
from rlanything.runs.results import EvaluationRecord, IterationRecord
from rlanything.runs.store.store import Store

REPORT = Path(__file__).with_name("store.md")
SLOTS = 3500
PROPOSALS = 6
"""A run of 200 iterations then rewrites 1,200 tasks, and tries each once."""
EVALUATION_EVERY = 10
SHARES = (0.2, 1.0, PROSE)
KEPT = 5
"""Iterations whose texts are kept where retention is measured."""

T = TypeVar("T")


# --- a run


def new_pool() -> Pool:
    rng = random.Random(0)
    roots = []
    for i in range(SLOTS):
        thing, place = rng.choice(THINGS), rng.choice(PLACES)
        name = f"pick_and_place_simple-{thing}-None-{place}-{i}/trial_T20190908_{i:06d}_745514"
        data = {"path": f"/data/alfworld/json_2.1.1/train/{name}/game.tw-pddl", "goal": None}
        kind = f"kind {i % 6}"
        roots.append(Task(name, f"put a {thing} in the {place} number {i}", kind, data))
    return Pool(roots, 0.2, 0.8)


class Cost(NamedTuple):
    """Seconds, and how many of them this process computed."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of it computing)"


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(each) for each in zip(*costs, strict=True)))


def live(store: Store, iteration: int, pool: Pool, played: Sequence[JudgedTrajectory]) -> Cost:
    """One iteration as the store sees it, and what its commit cost."""
    rng = np.random.default_rng(iteration)
    for slot in pool.pending():
        pool.settle(slot.id, float(rng.integers(0, 9) / 8), iteration)
    slots = pool.sample(TASKS, rng)
    entries = [ScheduledTask(slot.id, slot.active, False) for slot in slots]
    judged = [
        replace(one, trajectory=_attempt(one.trajectory, entries[i // EPISODES].task, iteration))
        for i, one in enumerate(played)
    ]
    groups = grouped(entries, judged, lambda group: StepJudge().signals(group, FeedbackSettings()))
    critics = ("The agent searched the same drawer twice and never opened the fridge.",) * 2
    for slot in slots[:PROPOSALS]:
        task = replace(slot.root, id=f"{slot.id}@{iteration}", instruction="put two mugs away")
        pool.propose(slot.id, Candidate(task, "harder", 0.9, critics, iteration))
    result = IterationResult(
        iteration,
        groups=groups,
        proposals=[
            Proposal(slot.id, Task(f"{slot.id}@{iteration}", "put two mugs away"), critics, ())
            for slot in slots[:PROPOSALS]
        ],
        samples={
            role: [sample for group in groups for sample in group.samples(role)]
            for role in ("policy", "judge")
        },
    )
    record = IterationRecord(
        result=result,
        pool=pool,
        labels={one.trajectory.id: [1] * STEPS for one in judged},
        metrics={f"room/quantity_{i}": float(rng.random()) for i in range(60)},
        checkpoint=f"iter-{iteration:05d}",
        finished="2026-01-01T00:00:00+00:00",
    )
    begun = time.process_time()
    _, seconds = timed(lambda: store.record_iteration(record))
    cost = Cost(seconds, time.process_time() - begun)
    if iteration % EVALUATION_EVERY == 0:
        _evaluate(store, iteration, rng)
    return cost


def _evaluate(store: Store, iteration: int, rng: np.random.Generator) -> None:
    step = Step("", Completion.unsampled(""), "go", True, "")
    held_out = tuple(
        Trajectory(
            f"{i}",
            Task(f"held out {i}", "", f"kind {i % 6}"),
            (step,) * 20,
            int(rng.choice((1, -1))),
        )
        for i in range(140)
    )
    counts: dict[str, Counts] = {f"judged {i}": {GOOD: (9, 18), BAD: (11, 22)} for i in range(64)}
    store.record_evaluation(
        EvaluationRecord(
            number=iteration,
            evaluations=[Evaluation(split, held_out, (), 0.0) for split in ("in_domain", "ood")],
            judges={"judge": JudgeEvaluation(diagnose([], [], [], 1.0), counts)},
            metrics={f"evaluation/judge/quantity_{i}": 0.5 for i in range(10)},
        )
    )


def _attempt(trajectory: Trajectory, task: Task, iteration: int) -> Trajectory:
    number = int(trajectory.id) % EPISODES
    return replace(trajectory, id=f"{iteration}/{task.id}/{number}", task=task)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    begun = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begun


def size(path: Path) -> float:
    """Megabytes of a store, its write-ahead log included."""
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")) / 1e6


# --- what is measured


def one_iteration(path: Path, share: float) -> tuple[Cost, float]:
    """Into three new stores: the median cost of a commit, and the megabytes of a store."""
    played, costs = episodes(0, share), []
    for _ in range(3):
        path.unlink(missing_ok=True)
        store = Store.create(path)
        costs.append(live(store, 1, new_pool(), played))
        store.close()
    return median(costs), size(path)


def table_lines(path: Path) -> list[str]:
    """Rows and megabytes of every table with its indexes."""
    db = sqlite3.connect(path)
    try:
        pages = dict(db.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name"))
    except sqlite3.OperationalError:
        return ["This Python's SQLite cannot tell (it has no `dbstat`)."]
    owners = dict(db.execute("SELECT name, tbl_name FROM sqlite_master WHERE type <> 'view'"))
    totals: defaultdict[str, float] = defaultdict(float)
    for name, amount in pages.items():
        totals[owners.get(name, "schema")] += amount / 1e6
    lines = ["| table | rows | MB |", "|---|---|---|"]
    for name, amount in sorted(totals.items(), key=lambda each: -each[1]):
        rows = db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] if name in pages else 0
        if amount >= 0.05:
            lines.append(f"| {name} | {rows:,} | {amount:.2f} |")
    db.close()
    return lines


def column_lines(path: Path) -> list[str]:
    """Returns the sizes of the columns of `transcripts`, raw and compressed."""
    store = Store(path)
    names = ("texts", "token_ids", "logprobs", "prompts")
    sums = ", ".join(f"SUM(LENGTH({name}))" for name in names)
    packed = [size / 1e6 for size in store.query(f"SELECT {sums} FROM transcripts")[0]]
    texts, tokens, written = 0, 0, 0
    for (name,) in store.query("SELECT id FROM trajectories"):
        steps = store.trajectory(name).steps
        observations = [step.observation for step in steps] + [steps[-1].next_observation]
        all_written = [
            completion
            for step in steps
            for completion in (step.completion, *(judged.completion for judged in step.judgements))
        ]
        texts += sum(len(text.encode()) for text in observations)
        texts += sum(len(completion.text.encode()) for completion in all_written)
        tokens += sum(len(completion.token_ids) for completion in all_written)
        written += len(all_written)
    store.close()
    raw = [size / 1e6 for size in (texts, 4 * tokens, 4 * tokens, 16 * written)]
    labels = ("texts, UTF-8", "token ids, int32", "log-probs, float32", "prompt hashes, 16 bytes")
    lines = ["| | MB as it is | MB kept | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {label} | {one:.1f} | {two:.1f} | {one / two:.1f}x |"
        for label, one, two in zip(labels, raw, packed, strict=True)
    ]
    note = f"{tokens:,} tokens, {tokens / written:.0f} to a completion; texts {texts / 1e6:.1f} MB."
    return [*lines, "", note]


QUERIES = {
    "report: every metric of every iteration": "SELECT iteration, name, value FROM metrics",
    "report: held-out success by split and kind": "SELECT iteration, split, kind, AVG(outcome = 1)"
    " FROM evaluations GROUP BY 1, 2, 3",
    "report: candidates proposed, accepted, rejected by iteration": "SELECT iteration, kind,"
    " COUNT(*) FROM slot_events GROUP BY 1, 2",
    "report: success of rollouts by iteration and kind": "SELECT iteration, kind, AVG(outcome = 1)"
    " FROM trajectories JOIN tasks ON tasks.id = task GROUP BY 1, 2",
    "report: samples of the newest iteration": "SELECT role, source, advantage FROM samples"
    " WHERE iteration = (SELECT MAX(iteration) FROM iterations)",
    "all judgements: share of +1 by iteration and outcome": "SELECT iteration, outcome,"
    " AVG(score = 1) FROM judgements JOIN trajectories ON number = trajectory GROUP BY 1, 2",
}


def query_lines(path: Path) -> list[str]:
    """Medians of three; a file that was just opened."""
    store, opening = timed(lambda: Store(path))
    name = store.query("SELECT id FROM trajectories ORDER BY number DESC LIMIT 1")[0][0]
    works: dict[str, Callable[[], Any]] = {
        "`tasks`: its queries": lambda: read_lineage(store),
        "`tasks`: its table, not yet printed": lambda: lineage_table(read_lineage(store)),
        **{name: lambda sql=sql: store.query(sql) for name, sql in QUERIES.items()},
        "one episode with its texts, tokens and log-probs": lambda: store.trajectory(name),
        "`last_iteration`": store.last_iteration,
    }
    lines = ["| query | seconds | rows |", "|---|---|---|", f"| opening | {opening:.3f} | |"]
    for label, work in works.items():
        answer, first = timed(work)
        seconds = statistics.median([first, *(timed(work)[1] for _ in range(2))])
        rows = f"{len(answer):,}" if isinstance(answer, list) else ""
        lines.append(f"| {label} | {seconds:.3f} | {rows} |")
    problems, seconds = timed(store.check)
    assert problems == [], problems
    lines.append(f"| `check` of the whole file | {seconds:.1f} | |")
    store.close()
    return lines


def long_run(path: Path, iterations: int, played: Sequence[Sequence[JudgedTrajectory]]) -> Any:
    """The store of a run that kept everything: the costs of its commits, megabytes while it is
    open, and the pool as it was before the last iteration."""
    store, pool, before = Store.create(path), new_pool(), ""
    costs = []
    for iteration in track(range(1, iterations + 1), description="a run that keeps everything"):
        before = pool.to_json() if iteration == iterations else ""
        costs.append(live(store, iteration, pool, played[iteration % len(played)]))
    megabytes = size(path)
    store.close()
    return costs, megabytes, Pool.from_json(before)


def forgetting_lines(path: Path, iterations: int, pool: Pool) -> list[str]:
    """On the store of the long run: going back one iteration, then retention."""
    before, store = size(path), Store(path)
    _, back = timed(lambda: store.forget_after(iterations - 1))
    _, pooled = timed(lambda: store.write_pool(pool))
    _, forgotten = timed(lambda: store.forget_texts(iterations - KEPT))
    free, page = (store.query(f"PRAGMA {each}")[0][0] for each in ("freelist_count", "page_size"))
    store.close()
    return [
        "| | |",
        "|---|---|",
        f"| `forget_after`, one iteration | {back:.2f} s |",
        f"| `write_pool`, {SLOTS:,} slots | {pooled:.2f} s |",
        f"| `forget_texts` of all but the last {KEPT} iterations | {forgotten:.2f} s |",
        f"| the file before and after | {before:,.0f} MB, {size(path):,.0f} MB |",
        f"| of which free for what comes next | {free * page / 1e6:,.0f} MB |",
    ]


def steady_line(path: Path, played: Sequence[Any], iterations: int = 20) -> str:
    """A run that forgets as it goes."""
    store, pool = Store.create(path), new_pool()
    sizes, seconds = {}, []
    for iteration in track(range(1, iterations + 1), description="a run that forgets"):
        live(store, iteration, pool, played[iteration % len(played)])
        seconds.append(timed(lambda t=iteration: store.forget_texts(t - KEPT + 1))[1])
        if iteration % KEPT == 0:
            sizes[iteration] = store.query("PRAGMA page_count")[0][0] * 4096 / 1e6
    store.close()
    shown = ", ".join(f"{size:.0f} MB after {iteration}" for iteration, size in sizes.items())
    return (
        f"A run with `keep_iterations: {KEPT}` from its beginning: {shown} iterations; "
        f"`forget_texts` after each took {statistics.median(seconds):.2f} s at the median."
    )


def lines(found: Sequence[str]) -> str:
    return "\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    load, iterations = os.getloadavg()[0], arguments.iterations
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        one, run, steady = (Path(place) / f"{name}.sqlite" for name in ("one", "run", "steady"))
        shares = {share: one_iteration(one, share) for share in SHARES}
        tables, columns = table_lines(one), column_lines(one)
        played = [episodes(seed) for seed in (0, 1)]
        costs, open_size, pool = long_run(run, iterations, played)
        closed, queries = size(run), query_lines(run)
        forgetting = forgetting_lines(run, iterations, pool)
        run.unlink()
        forgetful = steady_line(steady, played)
    cost, megabytes = shares[PROSE]
    game = Household(random.Random(1), Prose(), PROSE)
    observation, judgement = game.observation().replace("\n", " "), game.reasoning(560, 900)
    page = f"""# A run of the paper's size in the store

`python benchmarks/store.py --iterations {iterations}` wrote this page. Python \
{platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores \
({platform.machine()}). Load average at the start {load:.1f}: with more than the cores, the \
times are long. MB are 10^6 bytes.

An iteration is {TASKS} tasks x {EPISODES} episodes x {STEPS} steps x {JUDGEMENTS} judgements, \
in a pool of {SLOTS:,} tasks. Its texts are synthetic: observations that list what lies there \
and what may be done; responses and judgements of sentences, which fill {len(FRAMES)} frames \
with the places and things of the game or, {PROSE:.0%} of them, are prose: a chain of word \
pairs learnt from the documentation that Python ships. Tokens are words of up to eight letters, \
digits and signs, numbered at random up to {VOCABULARY:,}. Log-probs are float32 numbers as a \
log-softmax gives them, half of them within 0.002 of 0. Prompts of 600 to \
{450 + 150 * STEPS:,} tokens are hashed, not kept. An observation and a judgement:

> {observation}

> {judgement}

## One iteration

{megabytes:.1f} MB on disk, committed in {cost}: encoding included, median of three new stores.

{lines(tables)}

{lines(columns)}

How much the texts repeat decides little, since log-probs do not repeat:

| share of prose | MB on disk | commit |
|---|---|---|
{lines([f"| {each:.0%} | {shares[each][1]:.1f} | {shares[each][0]} |" for each in sorted(shares)])}

Log-probs are kept as float32, which is what the engines compute and the learner compares: \
nothing is lost.

## {iterations} iterations that keep everything

{closed:,.0f} MB ({open_size:,.0f} MB with the write-ahead log while it is open), \
{closed / iterations:.1f} MB an iteration. Commits at the median: of the first ten \
{median(costs[:10])}, of the last ten {median(costs[-10:])}, of all {median(costs)}.

{lines(queries)}

## Going back, and forgetting

{lines(forgetting)}

{forgetful}
"""
    REPORT.write_text(page, encoding="utf-8")
    print(REPORT)


if __name__ == "__main__":
    main()
