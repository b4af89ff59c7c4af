"""A run of the paper's size in the store: writes benchmarks/store.md.

    python benchmarks/store.py [--iterations 200] [--folder /tmp]

Iterations are synthetic and seeded: 16 tasks x 8 episodes x 40 steps x 3 judgements, in a pool of
3,500 tasks. Needs 5 GB in the folder while it runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import random
import re
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.progress import track

from rlanything.curriculum import Candidate, Pool
from rlanything.experience import Entry, grouped
from rlanything.feedback import FeedbackSettings
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Step,
    Task,
    Trajectory,
)
from rlanything.runs.codec import pack_numbers
from rlanything.runs.lineage import lineage_table, read_lineage
from rlanything.runs.store import Store

REPORT = Path(__file__).with_name("store.md")
TASKS, EPISODES, STEPS, JUDGEMENTS, SLOTS = 16, 8, 40, 3, 3500
PROPOSALS = 6
"""A run of 200 iterations then rewrites 1,200 tasks, and tries each once."""
SITTING_EVERY = 10
VOCABULARY, END = 151_643, 151_645
PROSE = 0.4
"""Share of sentences that are prose; the others fill the frames below."""
SHARES = (0.2, 1.0, PROSE)
KEPT = 5
"""Iterations whose texts are kept where retention is measured."""

PLACES = (
    *("cabinet", "countertop", "drawer", "fridge", "microwave", "sinkbasin", "stoveburner"),
    *("shelf", "desk", "sidetable", "garbagecan", "diningtable", "coffeemachine", "toaster"),
    *("bed", "dresser", "armchair", "safe"),
)
THINGS = (
    *("mug", "apple", "knife", "fork", "spoon", "plate", "bowl", "pan", "pot", "kettle", "tomato"),
    *("potato", "lettuce", "egg", "bread", "cup", "soapbar", "cloth", "sponge", "book", "pen"),
    *("pencil", "cellphone", "creditcard", "keychain", "vase", "candle", "statue", "laptop"),
    *("newspaper", "watch", "pillow", "spatula", "saltshaker", "winebottle", "glassbottle"),
)
FRAMES = """I need to find {a} first, and it is most likely on {x} or {y}.
The last action moved the agent to {x}, which is where {a} was seen before.
So far I have looked at {x}, {y} and {z} without finding {a}.
Since {x} is closed, I should open it before I can see what is inside.
The task asks to put {target} in {goal}, so the next step is to go there.
This step brings the agent no closer to the goal, because {x} was already checked.
The agent is carrying {a}, which is not what the task asks for.
The observation says that nothing happens, so the action was not possible here.
Going to {x} is reasonable: {a} is often found there in a household.
However, the agent has not yet cleaned {target}, which the task requires.
The agent should take {target} from {x} now that it is visible.
Wait, {a} is on {x}, not on {y}, as the earlier observation showed.
Let me think about which receptacles are left: {x}, {y}, {z}.
On the whole the step is useful, as it rules out {x}.
Opening {x} reveals {a} and {b}, neither of which is needed.
I have {target} in my hands, and {goal} is the place where it has to go.
The remaining budget is small, so it is better to try {x} directly.
A more efficient plan would have been to search {y} before {x}.""".splitlines()

T = TypeVar("T")


# --- texts, tokens and log-probs such as a model writes them


class Prose:
    """English out of a chain of word pairs, learnt from the documentation that Python ships."""

    def __init__(self) -> None:
        words = re.findall(r"[A-Za-z][a-z']*[,.]?", " ".join(topics.values()))
        self._next: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for before, after in zip(pairwise(words), words[2:], strict=False):
            self._next[before].append(after)
        self._starts = sorted(pair for pair in self._next if pair[0][0].isupper())

    def sentence(self, rng: random.Random) -> str:
        one, two = rng.choice(self._starts)
        found = [one, two]
        for _ in range(rng.randint(6, 22)):
            if (one, two) not in self._next:
                break
            one, two = two, rng.choice(self._next[one, two])
            found.append(two)
        return " ".join(found).rstrip(".,") + "."


class Household:
    """A game with its own places and things, and what is said about it."""

    def __init__(self, rng: random.Random, prose: Prose, share: float) -> None:
        self._rng, self._prose, self._share = rng, prose, share
        kinds = rng.sample(PLACES, 10)
        self._places = [f"{kind} {i}" for kind in kinds for i in range(1, rng.randint(2, 6))]
        kinds = rng.sample(THINGS, 18)
        self._things = [f"{kind} {i}" for kind in kinds for i in range(1, rng.randint(2, 4))]
        self._target, self._goal = rng.choice(self._things), rng.choice(self._places)

    def action(self) -> str:
        return f"go to {self._rng.choice(self._places)}"

    def observation(self) -> str:
        """What lies here, what is carried, what may be done."""
        rng, here = self._rng, self._rng.choice(self._places)
        seen = rng.sample(self._things, rng.randint(1, 4))
        count = min(len(self._places), rng.randint(8, 24))
        actions = [f"go to {place}" for place in rng.sample(self._places, count)]
        actions += [f"take {thing} from {here}" for thing in seen]
        carried = rng.choice([*self._things[:6], "nothing"])
        return (
            f"You arrive at {here}. On the {here}, you see a {', a '.join(seen)}. "
            f"You are carrying: {carried}.\nAvailable actions: {', '.join(actions)}, look."
        )

    def reasoning(self, shortest: int, longest: int) -> str:
        """Sentences, until there are as many characters as were drawn."""
        rng, wanted, found = self._rng, self._rng.randint(shortest, longest), ""
        while len(found) < wanted:
            found += self._prose.sentence(rng) if rng.random() < self._share else self._framed()
            found += " "
        return found

    def _framed(self) -> str:
        a, b = self._rng.choices(self._things, k=2)
        x, y, z = self._rng.choices(self._places, k=3)
        frame = self._rng.choice(FRAMES)
        return frame.format(a=a, b=b, x=x, y=y, z=z, target=self._target, goal=self._goal)


_PIECE = re.compile(r" ?[A-Za-z]{1,8}|\d|\s+| ?[^\sA-Za-z\d]{1,3}")
_IDS: dict[str, int] = {}


def token_ids(text: str) -> tuple[int, ...]:
    """Words of up to eight letters, digits and signs, scattered over a vocabulary of Qwen's size;
    then the end of the turn."""
    found = []
    for piece in _PIECE.findall(text):
        if piece not in _IDS:
            digest = hashlib.blake2b(piece.encode(), digest_size=4).digest()
            _IDS[piece] = int.from_bytes(digest, "little") % VOCABULARY
        found.append(_IDS[piece])
    return (*found, END)


def logprobs(count: int, rng: np.random.Generator, dtype: str = "<f4") -> np.ndarray:
    """As a log-softmax computes them: the likeliest token's is minus the log of a sum just above 1.

    Half of the tokens are all but certain and a fifth are open, as in the reasoning of trained
    models (arXiv 2506.01939: a minority of tokens carries the entropy): the odds against the
    likeliest are log-normal, their median 0.0013, their 80th percentile 0.5."""
    odds = 10 ** np.minimum(rng.normal(-2.9, 3.1, count), 1.0)
    likeliest = rng.random(count) < 1 / (1 + odds)
    behind = np.where(likeliest, 0.0, -rng.exponential(2.0, count)).astype(dtype)
    return behind - np.log((1 + odds).astype(dtype))


def episodes(seed: int, share: float = PROSE) -> list[JudgedTrajectory]:
    """Those of an iteration, each named by its number."""
    prose = Prose()
    return [_episode(seed, number, prose, share) for number in range(TASKS * EPISODES)]


def _episode(seed: int, number: int, prose: Prose, share: float) -> JudgedTrajectory:
    rng, numbers = random.Random(f"{seed}/{number}"), np.random.default_rng([seed, number])
    game = Household(rng, prose, share)
    prompt = tuple(numbers.integers(0, VOCABULARY, 600 + 150 * STEPS).tolist())
    seen = [game.observation() for _ in range(STEPS + 1)]
    steps, judgements = [], []
    for i, (before, after) in enumerate(pairwise(seen)):
        action, length = game.action(), 600 + 150 * i
        text = f"{game.reasoning(330, 700)}\n> {action}"
        said = _completion(text, prompt[:length], numbers)
        steps.append(Step(before, said, action, rng.random() < 0.9, after))
        scores = rng.choices((1, -1), k=JUDGEMENTS)
        texts = [f"{game.reasoning(560, 900)}\\boxed{{{score}}}" for score in scores]
        asked = prompt[1:length]
        answers = [_completion(text, asked, numbers) for text in texts]
        judgements.append(tuple(map(Judgement, answers, scores)))
    trajectory = Trajectory(str(number), Task("", ""), tuple(steps), rng.choice((1, -1)))
    return JudgedTrajectory(trajectory, tuple(judgements))


def _completion(text: str, prompt: tuple[int, ...], rng: np.random.Generator) -> Completion:
    ids = token_ids(text)
    values = tuple(logprobs(len(ids), rng).tolist())
    return Completion(prompt, ids, values, ((),) * len(ids), "stop", text)


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
    """One turn of the loop as the store sees it, and what its commit cost."""
    rng = np.random.default_rng(iteration)
    for slot in pool.pending():
        pool.settle(slot.id, float(rng.integers(0, 9) / 8), iteration)
    slots = pool.sample(TASKS, rng)
    entries = [Entry(slot.id, slot.active, False) for slot in slots]
    judged = [
        replace(each, trajectory=_attempt(each.trajectory, entries[i // EPISODES].task, iteration))
        for i, each in enumerate(played)
    ]
    groups = grouped(entries, judged, FeedbackSettings())
    critics = ["The agent searched the same drawer twice and never opened the fridge."] * 2
    for slot in slots[:PROPOSALS]:
        task = replace(slot.root, id=f"{slot.id}@{iteration}", instruction="put two mugs away")
        pool.propose(slot.id, Candidate(task, "harder", 0.9, tuple(critics), iteration))
    given: dict[str, Any] = {
        "groups": groups,
        "labels": {each.trajectory.id: [1] * STEPS for each in judged},
        "samples": {
            "policy": [sample for group in groups for sample in group.policy_samples()],
            "judge": [sample for group in groups for sample in group.judge_samples()],
        },
        "proposals": [(s.id, f"{s.id}@{iteration}", critics, []) for s in slots[:PROPOSALS]],
        "failures": [],
        "pool": pool,
        "metrics": {f"room/quantity_{i}": float(rng.random()) for i in range(60)},
        "checkpoint": f"iter-{iteration:05d}",
        "finished": "2026-01-01T00:00:00+00:00",
    }
    begun = time.process_time()
    _, seconds = timed(lambda: store.record_iteration(iteration, **given))
    cost = Cost(seconds, time.process_time() - begun)
    if iteration % SITTING_EVERY == 0:
        rows = [
            (f"held out {i}", f"kind {i % 6}", int(rng.choice((1, -1))), 20) for i in range(140)
        ]
        recalls = {f"exam {i}": (9, 18, 11, 22) for i in range(64)}
        metrics = {f"evaluation/judge/quantity_{i}": 0.5 for i in range(10)}
        store.record_sitting(iteration, {"in_domain": rows, "ood": rows}, recalls, metrics)
    return cost


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
    """What lies in `transcripts`, as it is and compressed."""
    store = Store(path)
    names = ("texts", "token_ids", "logprobs", "prompts")
    sums = ", ".join(f"SUM(LENGTH({name}))" for name in names)
    packed = [each / 1e6 for each in store.query(f"SELECT {sums} FROM transcripts")[0]]
    texts, tokens, written = 0, 0, 0
    for (name,) in store.query("SELECT id FROM trajectories"):
        steps = store.trajectory(name).steps
        observations = [step.observation for step in steps] + [steps[-1].next_observation]
        all_written = [
            each
            for step in steps
            for each in (step.completion, *(judged.completion for judged in step.judgements))
        ]
        texts += sum(len(text.encode()) for text in observations)
        texts += sum(len(each.text.encode()) for each in all_written)
        tokens += sum(len(each.token_ids) for each in all_written)
        written += len(all_written)
    store.close()
    raw = [each / 1e6 for each in (texts, 4 * tokens, 4 * tokens, 16 * written)]
    labels = ("texts, UTF-8", "token ids, int32", "log-probs, float32", "prompt hashes, 16 bytes")
    lines = ["| | MB as it is | MB kept | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {label} | {one:.1f} | {two:.1f} | {one / two:.1f}x |"
        for label, one, two in zip(labels, raw, packed, strict=True)
    ]
    note = f"{tokens:,} tokens, {tokens / written:.0f} to a completion; texts {texts / 1e6:.1f} MB."
    return [*lines, "", note]


def dtype_lines() -> list[str]:
    """An iteration's log-probs in other types."""
    count = 3_700_000
    rng = np.random.default_rng(0)
    single = logprobs(count, rng)
    double = logprobs(count, rng, "<f8")
    rows = {
        "float16 (rounds what was trained on)": single.astype("<f2"),
        "float32 (kept)": single,
        "float64 that holds float32 numbers": single.astype("<f8"),
        "float64 computed in float64": double,
    }
    lines = ["| log-probs as | MB for 3.7 million | seconds |", "|---|---|---|"]
    for label, numbers in rows.items():
        parts = np.array_split(numbers, TASKS * EPISODES)
        packed, seconds = timed(lambda parts=parts: [pack_numbers(part) for part in parts])
        lines.append(f"| {label} | {sum(map(len, packed)) / 1e6:.1f} | {seconds:.2f} |")
    return lines


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
        found, first = timed(work)
        seconds = statistics.median([first, *(timed(work)[1] for _ in range(2))])
        rows = f"{len(found):,}" if isinstance(found, list) else ""
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
    found = ", ".join(f"{each:.0f} MB after {iteration}" for iteration, each in sizes.items())
    return (
        f"A run with `keep_iterations: {KEPT}` from its beginning: {found} iterations; "
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

{lines(dtype_lines())}

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
