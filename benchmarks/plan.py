"""A plan against the run it is of: writes benchmarks/plan.md.

    python benchmarks/plan.py [--iterations 2] [--ranks qwen.tiktoken]

The run is recipes/quickstart.yaml on one thread, without evaluation. How fast the machine is, is
measured before and after it. `--ranks` names the byte-pair ranks of Qwen's tokenizer (the package
`dashscope` carries them; `tiktoken` must be installed): whole AlfWorld rooms are then counted in
its tokens too.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import random
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
import transformers
from rich.console import Console
from transformers import AutoTokenizer

from rlanything import nano
from rlanything.config import Recipe, load_recipe
from rlanything.engines.base import Request, Sampling
from rlanything.engines.cache import shared_length
from rlanything.engines.deadline import TimedEngine
from rlanything.environments.alfworld.domain import AlfWorld
from rlanything.environments.alfworld.tasks import tasks
from rlanything.plan import calibration
from rlanything.plan.assumptions import Assumptions
from rlanything.plan.episodes import episode_lengths
from rlanything.plan.plan import PHASES, Plan, make_plan
from rlanything.records import Completion, JudgedTrajectory, Messages, Step, Task, Trajectory
from rlanything.runs.store import Store
from rlanything.training import Run
from rlanything.view import View

HERE = Path(__file__).parent
RECIPE = HERE.parent / "recipes" / "quickstart.yaml"
SETTINGS = ("seed=1", "threads=1", "evaluation.episodes=0", "checkpoints.keep=1")
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


class CpuView(View):
    """Measures, beside the seconds that a phase took, those that this process computed."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.computed: dict[str, list[float]] = defaultdict(list)
        """By phase, one a time that it ran."""

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        begun = time.process_time()
        with super().phase(name, total, unit) as progress:
            yield progress
        self.computed[name].append(time.process_time() - begun)


def timed_engines() -> dict[str, float]:
    """Seconds computed inside `generate`, by role, from now on."""
    seconds: dict[str, float] = defaultdict(float)
    generate = TimedEngine.generate

    def timed(self: TimedEngine, requests: Sequence[Request], sampling: Sampling):
        begun = time.process_time()
        try:
            return generate(self, requests, sampling)
        finally:
            seconds[self._name] += time.process_time() - begun

    TimedEngine.generate = timed
    return seconds


def lengths(store: Store, every: int) -> Found:
    """What the plan assumes, as every so manieth episode of a run had it."""
    domain = AlfWorld()
    tokenizers = {
        r: AutoTokenizer.from_pretrained(nano.MODELS / r) for r in ("policy", "judge", "adapter")
    }

    def count(role: str, messages: Messages) -> int:
        chat = [{"role": each.role, "content": each.content} for each in messages]
        rendered = tokenizers[role].apply_chat_template(chat, add_generation_prompt=True)
        return len(rendered["input_ids"])

    found: dict[str, list[float]] = defaultdict(list)
    for (name,) in store.query("SELECT id FROM trajectories ORDER BY id")[::every]:
        episode = store.trajectory(name)
        task = _task(store, episode.task)
        steps = [
            Step(
                s.observation,
                Completion.unsampled(s.completion.text),
                s.action,
                s.valid,
                s.next_observation,
            )
            for s in episode.steps
        ]
        answers = [len(s.completion.token_ids) for s in episode.steps]
        prompts = [
            count("policy", domain.policy_prompt(task, steps[:i], steps[i].observation))
            for i in range(len(steps))
        ]
        found["opening_tokens"].append(prompts[0])
        pairs = zip(prompts, prompts[1:], answers, strict=False)
        found["turn_tokens"] += [after - before - answer for before, after, answer in pairs]
        found["response_tokens"] += answers
        judged = [
            count("judge", domain.judge_prompt(task, steps[: i + 1])) for i in range(len(steps))
        ]
        grown = [after - before for before, after in pairwise(judged)]
        found["judge_turn_tokens"] += [g - a for g, a in zip(grown, answers[1:], strict=True)]
        if grown:
            found["judge_opening_tokens"].append(judged[0] - statistics.mean(grown) - QUESTION)
        for step in episode.steps:
            texts = sorted(
                j.completion.token_ids for j in step.judgements if j.advantage is not None
            )
            found["judgement_tokens"] += [len(j.completion.token_ids) for j in step.judgements]
            for before, after in pairwise(texts):
                found["judgement_shared"].append(shared_length(before, after) / len(after))
        failed = JudgedTrajectory(Trajectory(name, task, tuple(steps), -1), ((),) * len(steps))
        found["critic_prompt_tokens"].append(count("adapter", domain.critic_prompt(failed, [])))
    means = {key: statistics.mean(values) for key, values in found.items()}
    means["longest_response_tokens"] = max(found["response_tokens"])
    means["longest_judgement_tokens"] = max(found["judgement_tokens"])
    return means | _shares(store)


QUESTION = 8
"""The judge's question and the chat's end, in the judge's tokens."""


def _task(store: Store, name: str) -> Task:
    query = "SELECT instruction, kind, data FROM tasks WHERE id = ?"
    instruction, kind, data = store.query(query, name)[0]
    return Task(name, instruction, kind, json.loads(data))


def _shares(store: Store) -> Found:
    window = "accuracy BETWEEN {} AND {}"
    queries = {
        "success": "SELECT avg(outcome = 1) FROM trajectories",
        "won_length": "SELECT avg(steps) / (SELECT max(steps) FROM trajectories) FROM trajectories "
        "WHERE outcome = 1",
        "policy_tasks": f"SELECT avg({window.format(0.125, 0.875)}) FROM groups",
        "judge_tasks": f"SELECT avg({window.format(0.2, 0.8)}) FROM groups",
        "policy_steps": "SELECT avg(advantage IS NOT NULL) FROM steps JOIN trajectories ON "
        "number = trajectory JOIN groups USING (iteration, task) WHERE "
        f"{window.format(0.125, 0.875)}",
        "judge_judgements": "SELECT avg(advantage IS NOT NULL) FROM judgements JOIN trajectories "
        "ON number = trajectory JOIN groups USING (iteration, task) WHERE "
        f"{window.format(0.2, 0.8)}",
        "asked_tasks": "SELECT avg(accuracy <= 0.2 OR accuracy >= 0.8) FROM groups",
        "candidates": "SELECT avg(candidate) FROM groups",
    }
    return {name: store.query(query)[0][0] for name, query in queries.items()}


def qwen_lengths(ranks: Path) -> list[str]:
    """Whole rooms, played at random for 40 steps, in Qwen's tokens; without the chat's markup."""
    import tiktoken

    pairs = (line.split() for line in ranks.read_bytes().splitlines())
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    table = {base64.b64decode(token): int(rank) for token, rank in pairs}
    encoding = tiktoken.Encoding("qwen", pat_str=pattern, mergeable_ranks=table, special_tokens={})

    def count(messages: Messages) -> list[int]:
        return [len(encoding.encode(each.content)) for each in messages if each.role == "user"]

    domain, rng = AlfWorld(), random.Random(0)
    found: dict[str, list[float]] = defaultdict(list)
    for task in tasks("train", 16, 0, None, None):
        environment = domain.environment()
        seen, steps = environment.reset(task), []
        for _ in range(40):
            answer = f"> {rng.choice(seen.choices)}"
            result = environment.step(answer)
            after = result.observation
            steps.append(
                Step(
                    seen.text, Completion.unsampled(answer), result.action, result.valid, after.text
                )
            )
            seen = after
            if result.outcome is not None:
                break
        opening, *turns = count(domain.policy_prompt(task, steps, seen.text))
        found["the policy's opening"].append(opening)
        found["what a step adds to it"] += turns
        (short,), (long,) = (count(domain.judge_prompt(task, steps[:n])) for n in (1, len(steps)))
        grown = (long - short) / (len(steps) - 1)
        command = statistics.mean(len(encoding.encode(s.response)) for s in steps)
        found["the judge's opening and question"].append(short - grown)
        found["what a step adds to it, its command aside"].append(grown - command)
        failed = JudgedTrajectory(Trajectory("", task, tuple(steps), -1), ((),) * len(steps))
        found["a critic's prompt"] += count(domain.critic_prompt(failed, []))
        found["a proposal's prompt"] += count(domain.adapter_prompt(task, "easier", ["none"]))
    return [
        f"| {name} | {statistics.mean(values):.0f} | {min(values):.0f} to {max(values):.0f} |"
        for name, values in found.items()
    ]


def error(estimate: float, measured: float) -> str:
    return f"{100 * (estimate / measured - 1):+.0f}%" if measured else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--ranks", type=Path)
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [*SETTINGS, f"loop.iterations={arguments.iterations}"]
        recipe = load_recipe(RECIPE, [*overrides, f"run_dir={folder}/run"])
        before = make_plan(recipe, "cpu", 1)
        engines = timed_engines()
        view = CpuView(Console())
        Run(recipe, view).train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        calibration._layers.cache_clear()
        after = make_plan(recipe, "cpu", 1)
        store = Store(Path(folder) / "run" / "run.sqlite")
        steps = store.query("SELECT sum(steps) FROM trajectories")[0][0]
        spent = sum(view.computed["rollouts"]) - engines["policy"]
        measured = lengths(store, 3) | {"environment_seconds": spent / steps}
        given = [f"{name}={value}" for name, value in measured.items()]
        calibration._layers.cache_clear()
        told = make_plan(recipe, "cpu", 1, given)
        lines = page(arguments.iterations, recipe, before, after, told, measured, store, view, peak)
    lines[2] += f" Load averages before and after: {load_before:.1f}, {os.getloadavg()[0]:.1f}."
    if arguments.ranks:
        lines += [
            "",
            "## AlfWorld in Qwen's tokens",
            "",
            "Sixteen training tasks in whole rooms of the installed package, each played for up to "
            "40 random steps; `--ranks` gave the tokenizer. The chat's markup, about 9 tokens a "
            "turn and 30 at the opening, comes on top. The downloaded games may differ.",
            "",
            "| | mean tokens | from, to |",
            "|---|---|---|",
            *qwen_lengths(arguments.ranks),
        ]
    (HERE / "plan.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _metric(store: Store, name: str) -> float:
    """The mean over the iterations."""
    return store.query("SELECT avg(value) FROM metrics WHERE name = ? AND iteration > 0", name)[0][
        0
    ]


def page(
    iterations: int,
    recipe: Recipe,
    before: Plan,
    after: Plan,
    told: Plan,
    measured: Found,
    store: Store,
    view: CpuView,
    peak: float,
) -> list[str]:
    def value(plan: Plan, name: str) -> float:
        return next(f.value or 0.0 for s in plan.sections for f in s.figures if f.name == name)

    steps = episode_lengths(recipe, Assumptions())
    lines = [
        "# A plan and the run it is of",
        "",
        f"`python benchmarks/plan.py --iterations {iterations}` wrote this page. Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, one thread on {os.cpu_count()} cores ({platform.machine()}) "
        "that were shared with other work.",
        "",
        f"`recipes/quickstart.yaml` with `{' '.join(SETTINGS)} loop.iterations={iterations}`; "
        "measured values are means over the iterations. `plan` is `rlanything plan` as it is, with "
        "its default assumptions; `told` is the same arithmetic with this run's own lengths and "
        "shares, so that what is left is the error of the arithmetic.",
        "",
        "The default lengths are those of a run of seed 0, the default shares those of five seeds.",
        "",
        "## Tokens",
        "",
        "| | measured | plan | error | told | error |",
        "|---|---|---|---|---|---|",
    ]
    for metric, figure in TOKENS:
        real = _metric(store, metric)
        one, other = value(before, figure), value(told, figure)
        lines.append(
            f"| {figure} | {real:,.0f} | {one:,.0f} | {error(one, real)} | {other:,.0f} | "
            f"{error(other, real)} |"
        )
    lines += [
        "",
        "## Seconds",
        "",
        "The machine did other work meanwhile, so the clock says little: `computed` are the "
        "seconds that the process had a processor, and errors are against their mean. (Its "
        "environments run in other processes.) How fast the machine is, was measured in "
        "the same way before the run (`before`) and after it (`after`, `told`); how far "
        "these lie apart is how far a neighbour "
        "moves even these numbers.",
        "",
        "| phase | on the clock, by iteration | computed | before | error | after "
        "| error | told | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    query = "SELECT value FROM metrics WHERE name = ? AND iteration > 0 ORDER BY iteration"
    totals = [0.0] * 4
    for phase in PHASES:
        wall = [v for (v,) in store.query(query, f"seconds/{phase.replace(' ', '_')}")]
        each = view.computed[phase]
        real = statistics.mean(each)
        estimates = [plan.seconds[phase] for plan in (before, after, told)]
        totals = [t + v for t, v in zip(totals, (real, *estimates), strict=True)]
        cells = " | ".join(f"{e:.1f} | {error(e, real)}" for e in estimates)
        shown = " | ".join(", ".join(f"{v:.1f}" for v in values) for values in (wall, each))
        lines.append(f"| {phase} | {shown} | {cells} |")
    cells = " | ".join(f"{e:.1f} | {error(e, totals[0])}" for e in totals[1:])
    lines += [
        f"| all | | mean {totals[0]:.1f} | {cells} |",
        "",
        "## Memory",
        "",
        f"The process's largest resident set was {peak / 1e6:,.0f} MB, the interpreter and torch "
        f"included; the plan's three roles come to {value(before, 'cpu 0') / 1e6:,.0f} MB. "
        "Weights, gradients and optimizer state equal the real tensors byte for byte, and "
        "what is kept "
        "for the backward pass is within a quarter of what autograd holds (`tests/test_plan.py`).",
        "",
        "## What this run's lengths were",
        "",
        "| assumption | default | this run |",
        "|---|---|---|",
        *(f"| {k} | {value(before, k):.3g} | {v:.3g} |" for k, v in sorted(measured.items())),
        "",
        f"The plan's episodes of a group: {', '.join(map(str, steps))} steps.",
    ]
    return lines


if __name__ == "__main__":
    main()
