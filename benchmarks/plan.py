"""Plans against the runs they are of: writes benchmarks/plan.md.

    python benchmarks/plan.py [--ranks qwen.tiktoken]

Runs recipes/quickstart.yaml and a small iteration of recipes/alfworld-smollm2.yaml (which needs
the packages of `make smollm2`) on one thread, without evaluation, and plans each first. `--ranks`
names the byte-pair ranks of Qwen's tokenizer (the package `dashscope` on PyPI carries them as
resources/qwen.tiktoken; `tiktoken` must be installed): whole AlfWorld rooms are then counted in
its tokens too.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, zip_longest
from pathlib import Path

import torch
import transformers
from rich.console import Console

from rlanything.config.recipe import Recipe, load_recipe
from rlanything.domains.alfworld.domain import AlfWorld
from rlanything.domains.alfworld.tasks import tasks
from rlanything.domains.registry import load_domain
from rlanything.engines import shipped
from rlanything.engines.base import Request, Sampling
from rlanything.engines.deadline import TimedEngine
from rlanything.engines.hf.cache import shared_length
from rlanything.planning.plan import PHASES, Plan, make_plan
from rlanything.planning.prompts import Ruler, measure, play, ruler_of
from rlanything.progress import Progress
from rlanything.records import Completion, Messages, Step, Task, Trajectory
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

HERE = Path(__file__).parent
RECIPES = HERE.parent / "recipes"
SETTINGS = ("seed=1", "threads=1", "evaluation.episodes=0", "checkpoints.keep=1")
RUNS = {
    "quickstart": ("loop.iterations=1",),
    "alfworld-smollm2": ("loop.iterations=1", "loop.tasks_per_iteration=1", "loop.max_steps=3"),
}
"""Recipes, and what makes them short."""
TOKENS = (
    ("rollouts/episodes", "episodes"),
    ("rollouts/steps", "steps"),
    ("policy/samples", "policy: samples"),
    ("policy/sample_tokens", "policy: sample tokens"),
    ("policy/computed_tokens", "policy: computed"),
    ("judge/samples", "judge: samples"),
    ("judge/sample_tokens", "judge: sample tokens"),
    ("judge/computed_tokens", "judge: computed"),
)
Found = dict[str, float]


class CpuView(Progress):
    """Measures, beside the seconds that a phase took, those that this process computed."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.computed: dict[str, list[float]] = defaultdict(list)
        """By phase, one a time that it ran."""

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        begun = time.process_time()
        with super().phase(name, total, unit) as advance:
            yield advance
        self.computed[name].append(time.process_time() - begun)


class Heard:
    """What engines are asked and answer from now on, by role."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        """Computed inside `generate`."""
        self.answers: dict[str, list[int]] = defaultdict(list)
        """Tokens of each."""
        self.longest: dict[str, list[int]] = defaultdict(list)
        """Tokens of the longest of those that were sampled together."""
        self.prompts: dict[tuple[str, bool], list[int]] = defaultdict(list)
        """Tokens of each, by role and whether several answers were wanted."""
        generate = TimedEngine.generate

        def listening(engine: TimedEngine, requests: Sequence[Request], sampling: Sampling):
            begun = time.process_time()
            groups = generate(engine, requests, sampling)
            role = engine._name
            self.seconds[role] += time.process_time() - begun
            lengths = [[len(answer.token_ids) for answer in group] for group in groups]
            self.answers[role] += [each for group in lengths for each in group]
            self.longest[role] += [max(each) for each in zip_longest(*lengths, fillvalue=0)]
            for request in requests:
                several = len(request.seeds) > 1
                self.prompts[role, several].append(len(request.prompt_ids))
            return groups

        TimedEngine.generate = listening


def lengths(recipe: Recipe, store: Store, heard: Heard) -> Found:
    """What the plan assumes, as a run had it; of prompts every third episode is looked at."""
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    episodes: list[Trajectory] = []
    shared: list[float] = []
    for (name,) in store.query("SELECT id FROM trajectories ORDER BY id")[::3]:
        stored = store.trajectory(name)
        query = "SELECT instruction, kind, data FROM tasks WHERE id = ?"
        instruction, kind, data = store.query(query, stored.task)[0]
        steps: list[Step] = []
        for each in stored.steps:
            answer = Completion.unsampled(each.completion.text)
            steps.append(
                Step(each.observation, answer, each.action, each.valid, each.next_observation)
            )
            trained = [j.completion for j in each.judgements if j.advantage is not None]
            for before, after in pairwise(sorted(written.token_ids for written in trained)):
                shared.append(shared_length(before, after) / len(after))
        task = Task(stored.task, instruction, kind, json.loads(data))
        episodes.append(Trajectory(name, task, tuple(steps), stored.outcome))
    found = measure(
        domain,
        episodes,
        {
            name: ruler_of(shipped.resolve(getattr(recipe, name).model, name))
            for name in ("policy", "judge", "adapter")
        },
    )
    names = {"policy": "response_tokens", "judge": "judgement_tokens", "adapter": "adapter_tokens"}
    found |= {name: statistics.mean(heard.answers[role] or [0]) for role, name in names.items()}
    found["longest_response_tokens"] = statistics.mean(heard.longest["policy"])
    found["longest_judgement_tokens"] = statistics.mean(heard.longest["judge"])
    found["judgement_shared"] = statistics.mean(shared or [0])
    for several, name in ((False, "critic_prompt_tokens"), (True, "proposal_prompt_tokens")):
        found[name] = statistics.mean(heard.prompts["adapter", several] or [0])
    return found | _shares(recipe, store)


def _shares(recipe: Recipe, store: Store) -> Found:
    low, high = recipe.curriculum.alpha_low, recipe.curriculum.alpha_high
    policy, judge = (
        "accuracy BETWEEN {} AND {}".format(*window)
        for window in (recipe.feedback.policy_window, recipe.feedback.judge_window)
    )
    queries = {
        "success": "SELECT avg(outcome = 1) FROM trajectories",
        "won_length": f"SELECT avg(steps) / {recipe.loop.max_steps} FROM trajectories WHERE "
        "outcome = 1",
        "policy_tasks": f"SELECT avg({policy}) FROM groups",
        "judge_tasks": f"SELECT avg({judge}) FROM groups",
        "policy_steps": "SELECT avg(advantage IS NOT NULL) FROM steps JOIN trajectories ON "
        f"number = trajectory JOIN groups USING (iteration, task) WHERE {policy}",
        "judge_judgements": "SELECT avg(advantage IS NOT NULL) FROM judgements JOIN trajectories "
        f"ON number = trajectory JOIN groups USING (iteration, task) WHERE {judge}",
        "asked_tasks": f"SELECT avg(accuracy <= {low} OR accuracy >= {high}) FROM groups",
        "candidates": "SELECT avg(candidate) FROM groups",
    }
    return {name: store.query(query)[0][0] or 0.0 for name, query in queries.items()}


def error(estimate: float, measured: float) -> str:
    return f"{100 * (estimate / measured - 1):+.0f}%" if measured else ""


def value(plan: Plan, name: str) -> float:
    return next((f.value or 0.0 for s in plan.sections for f in s.figures if f.name == name), 0.0)


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def section(name: str) -> list[str]:
    """Plans, runs, plans again with the run's own lengths; in a process of its own."""
    overrides = [*SETTINGS, *RUNS[name]]
    empty = resident()
    with tempfile.TemporaryDirectory() as folder:
        path = RECIPES / f"{name}.yaml"
        recipe = load_recipe(path, [*overrides, f"run_dir={folder}/run"])
        plan = make_plan(recipe, "cpu", 1)
        heard, progress = Heard(), CpuView(Console())
        Trainer(recipe, progress=progress).train()
        peak = resident()
        store = Store(Path(folder) / "run" / "run.sqlite")
        steps = store.query("SELECT sum(steps) FROM trajectories")[0][0]
        spent = sum(progress.computed["rollouts"]) - heard.seconds["policy"]
        measured = lengths(recipe, store, heard) | {"environment_seconds": max(spent, 0) / steps}
        told = make_plan(recipe, "cpu", 1, [f"{key}={each}" for key, each in measured.items()])
        return [
            f"## recipes/{name}.yaml",
            "",
            f"With `{' '.join(overrides)}`.",
            "",
            *_tokens(store, plan, told),
            "",
            *_seconds(store, progress, plan, told),
            "",
            f"Memory: the process's largest resident set was {peak / 1e6:,.0f} MB, of which it had "
            f"{empty / 1e6:,.0f} before it began (the interpreter and torch). The rest is "
            f"{(peak - empty) / 1e6:,.0f} MB; `plan` has {value(plan, 'cpu 0') / 1e6:,.0f} MB "
            f"({error(value(plan, 'cpu 0'), peak - empty)}), `told` "
            f"{value(told, 'cpu 0') / 1e6:,.0f} MB "
            f"({error(value(told, 'cpu 0'), peak - empty)}).",
            "",
            "| assumption | plan | this run |",
            "|---|---|---|",
            *(f"| {k} | {value(plan, k):.3g} | {v:.3g} |" for k, v in sorted(measured.items())),
            "",
        ]


def _tokens(store: Store, plan: Plan, told: Plan) -> list[str]:
    lines = ["| | measured | plan | error | told | error |", "|---|---|---|---|---|---|"]
    for metric, figure in TOKENS:
        query = "SELECT avg(value) FROM metrics WHERE name = ? AND iteration > 0"
        real = store.query(query, metric)[0][0] or 0.0
        cells = " | ".join(
            f"{value(each, figure):,.0f} | {error(value(each, figure), real)}"
            for each in (plan, told)
        )
        lines.append(f"| {figure} | {real:,.0f} | {cells} |")
    return lines


def _seconds(store: Store, progress: CpuView, plan: Plan, told: Plan) -> list[str]:
    lines = [
        "| phase | seconds on the clock, by iteration | computed, by iteration | plan | error "
        "| told | error |",
        "|---|---|---|---|---|---|---|",
    ]
    query = "SELECT value FROM metrics WHERE name = ? AND iteration > 0 ORDER BY iteration"
    totals = [0.0] * 3
    for phase in PHASES:
        wall = [v for (v,) in store.query(query, f"seconds/{phase.replace(' ', '_')}")]
        each = progress.computed[phase] or [0.0]
        estimates = [made.seconds[phase] for made in (plan, told)]
        real = statistics.mean(each)
        totals = [t + v for t, v in zip(totals, (real, *estimates), strict=True)]
        cells = " | ".join(f"{e:.1f} | {error(e, real)}" for e in estimates)
        shown = " | ".join(", ".join(f"{v:.1f}" for v in values) for values in (wall, each))
        lines.append(f"| {phase} | {shown} | {cells} |")
    cells = " | ".join(f"{e:.1f} | {error(e, totals[0])}" for e in totals[1:])
    return [*lines, f"| all | | mean {totals[0]:.1f} | {cells} |"]


def qwen_section(ranks: Path) -> list[str]:
    """Whole rooms, played at random for 40 steps, in Qwen's tokens."""
    import tiktoken

    pairs = (line.split() for line in ranks.read_bytes().splitlines())
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    table = {base64.b64decode(token): int(rank) for token, rank in pairs}
    marks = {"<|im_start|>": len(table), "<|im_end|>": len(table) + 1}
    encoding = tiktoken.Encoding(
        "qwen", pat_str=pattern, mergeable_ranks=table, special_tokens=marks
    )

    def render(messages: Messages) -> str:
        turns = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in messages)
        system = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        return f"{system}assistant.<|im_end|>\n{turns}<|im_start|>assistant\n"

    def encode(messages: Messages) -> list[int]:
        return encoding.encode(render(messages), allowed_special="all")

    ruler = Ruler(encode, lambda text: len(encoding.encode(text)))
    domain = AlfWorld()
    played = [play(domain, task, 40) for task in tasks("train", 16, 0, None, None)]
    found = measure(domain, played, dict.fromkeys(("policy", "judge", "adapter"), ruler))
    prompts = [domain.judge_prompt(each.task, each.steps) for each in played]
    characters = sum(len(render(each)) for each in prompts)
    ratio = characters / sum(len(encode(each)) for each in prompts)
    return [
        "## AlfWorld in Qwen's tokens",
        "",
        "Sixteen training tasks in whole rooms of the installed package, each played for up to "
        "40 random steps, with the chat's markup; `--ranks` gave the tokenizer. The downloaded "
        f"games may differ. A token is {ratio:.2f} characters of the judge's prompts.",
        "",
        "| assumption | tokens |",
        "|---|---|",
        *(f"| {name} | {tokens:.0f} |" for name, tokens in found.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=Path)
    ranks = parser.parse_args().ranks
    loads = [os.getloadavg()[0]]
    spawn = multiprocessing.get_context("spawn")
    sections: list[str] = []
    for name in RUNS:
        # Each in a process of its own: the largest resident set is then its own.
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            found = pool.submit(section, name).result()
        # What takes minutes is not lost if the next recipe's models are not here.
        print("\n".join(found))
        sections += found
        loads.append(os.getloadavg()[0])
    lines = [
        "# Plans and the runs they are of",
        "",
        f"`python benchmarks/plan.py{' --ranks qwen.tiktoken' if ranks else ''}` wrote this page. "
        f"Python {platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, one thread on {os.cpu_count()} cores "
        f"({platform.machine()}) that were shared with other work; load averages before, between "
        f"and after: {', '.join(f'{load:.1f}' for load in loads)}.",
        "",
        "`plan` is `rlanything plan` with its default assumptions, made before the run; `told` is "
        "the same arithmetic after it, with the run's own lengths and shares, so that what is left "
        "is the error of the arithmetic and of the machine's speed, which both measure anew. "
        "Measured tokens are means over the iterations. Because the machine did other work, the "
        "clock says little: `computed` are the seconds that the process had a processor, and "
        "errors are against their mean (environments run in other processes).",
        "",
        *sections,
        *(qwen_section(ranks) if ranks else []),
    ]
    (HERE / "plan.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
