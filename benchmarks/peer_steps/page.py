"""The result of benchmarks/peers.py, and its page of Markdown."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version

import torch
import transformers
from few import mean_of_few

from peer_steps import SPINNING
from peer_steps.trl_agent import Settings
from rlanything.config.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Counts:
    """The work of one side in one iteration."""

    episodes: int
    won: int
    steps: int
    written: int
    """Tokens that the policy wrote."""
    rows: int
    """Sequences that trained: episodes, or steps."""
    trained: int
    """Tokens under the loss: those that the policy wrote in what trained."""
    computed: int
    """Tokens of the update's forward passes, padding included."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an alternation."""

    rollout_seconds: float
    update_seconds: float
    counts: Counts

    @property
    def seconds(self) -> float:
        return self.rollout_seconds + self.update_seconds


@dataclass(frozen=True, slots=True)
class Alternation:
    """An iteration of TRL and one of this library, on the same tasks."""

    trl: Side
    again: Side
    """The same with rollouts that keep nothing from turn to turn; its counts are those of `trl`."""
    own: Side
    """Trained on the steps whose advantage is not 0."""
    full: Side
    """The same rollouts, trained on every step of every episode."""


@dataclass(frozen=True, slots=True)
class Result:
    """All alternations, and what they were made with."""

    alternations: tuple[Alternation, ...]
    recipe: Recipe
    settings: Settings
    tried: dict[str, float]
    """Seconds by the settings that were tried for TRL; empty: nothing was."""
    load: float
    """The machine's load average before anything ran."""

    def ratio(
        self, part: Callable[[Side], float], sides: Callable[[Alternation], tuple[Side, Side]]
    ) -> tuple[float, float, float]:
        """Returns TRL's seconds over this library's, of all alternations, and the ends of its 95%
        interval, by the jackknife: what it would be without each of them in turn."""

        def log_ratio(chosen: Sequence[Alternation]) -> float:
            theirs = sum(part(sides(each)[0]) for each in chosen)
            return math.log(theirs / sum(part(sides(each)[1]) for each in chosen))

        every, count = self.alternations, len(self.alternations)
        middle = log_ratio(every)
        without = [log_ratio((*every[:i], *every[i + 1 :])) for i in range(count)]
        interval = mean_of_few([count * middle - (count - 1) * each for each in without])
        half = interval.high - interval.estimate if interval else 0.0
        return math.exp(middle), math.exp(middle - half), math.exp(middle + half)

    def total(self, side: Callable[[Alternation], Side]) -> Counts:
        """Returns the work of a side in all alternations."""
        every = [side(each).counts for each in self.alternations]
        return Counts(*(sum(getattr(c, f.name) for c in every) for f in fields(Counts)))

    def to_json(self) -> dict[str, list[float]]:
        """Returns each ratio with the ends of its interval."""
        return {
            f"{name}/{short}": list(self.ratio(part, sides))
            for short, _, sides in COMPARED
            for name, part in PARTS.items()
        }


PARTS: dict[str, Callable[[Side], float]] = {
    "rollouts": lambda side: side.rollout_seconds,
    "update": lambda side: side.update_seconds,
    "iteration": lambda side: side.seconds,
}

COMPARED: tuple[tuple[str, str, Callable[[Alternation], tuple[Side, Side]]], ...] = (
    ("own", "as each library does it", lambda a: (a.trl, a.own)),
    ("full", "equal work: every episode trained", lambda a: (a.trl, a.full)),
    ("again", "equal work, TRL's whole conversations again", lambda a: (a.again, a.full)),
)
"""A short name, a title, and TRL's side with this library's."""

_COUNTS = {
    "episodes": "episodes",
    "won": "of them won",
    "steps": "steps",
    "written": "tokens generated",
    "rows": "sequences trained",
    "trained": "tokens trained",
    "computed": "tokens computed in updates",
}


def page(result: Result, command: str) -> str:
    """Returns the whole page; `command` is named as what wrote it."""
    loop, policy = result.recipe.loop, result.recipe.policy
    chosen = result.settings
    kept = "keys and values kept from turn to turn" if chosen.keeps else "whole conversations again"
    return "\n".join(
        [
            "# Peers: whole iterations, against TRL's agent trainer",
            "",
            f"`{command}` wrote this page. Python {platform.python_version()}, torch "
            f"{torch.__version__}, transformers {transformers.__version__}, trl {version('trl')}, "
            f"{len(os.sched_getaffinity(0))} cores ({platform.machine()}), no GPU. Load average at "
            f"the start {result.load:.1f}.",
            "",
            "TRL's seconds over this library's, in one run in which both take turns "
            f"({len(result.alternations)} alternations):",
            "",
            "| | rollouts | update | iteration |",
            "|---|---|---|---|",
            *(
                f"| {title} | {' | '.join(_ratio(result, p, sides) for p in PARTS.values())} |"
                for _, title, sides in COMPARED
            ),
            "",
            "Ratios of all alternations' seconds, with a 95% interval over alternations "
            "(jackknife). Above 1 this library is faster. In the first two rows TRL's "
            "`rollout_func` is the fastest of those tried (below); in the third it computes the "
            "whole conversation again at every turn, which is simpler to write.",
            "",
            "## What each side did",
            "",
            "| in all alternations | TRL | this library | this library, every episode |",
            "|---|---|---|---|",
            *_counted(result),
            "",
            "Both sides: the same nano policy (float32, learning rate 0, so that it stays as it "
            f"is), the same {loop.tasks_per_iteration} games an alternation with "
            f"{loop.rollouts_per_task} episodes each, all played at once, at most "
            f"{loop.max_steps} steps an episode and {policy.max_tokens} tokens a step, temperature "
            f"{policy.temperature:g}, free decoding, prompts and environment workers of this "
            "library, one optimizer step an iteration, the clipped loss without KL. Random numbers "
            "differ, so episodes do. TRL has no restricted choices, with which the quickstart "
            "plays: without them its policy wins less, so fewer of its groups train here.",
            "",
            "TRL: all of `GRPOTrainer` with a `rollout_func`; a row is an episode, masked to what "
            "the policy wrote, its advantage from the outcomes of its group; all rows train. "
            "Rollouts: the time inside `rollout_func`; update: the rest of the iteration, its "
            f"trainer's loop included. Its threads {_waiting()}.",
            "",
            f"This library, on {_seats(result.recipe)}: a sample is a step, its advantage from the "
            "outcomes of its group too; steps whose advantage is 0 and tasks outside the policy's "
            "window do not train, and what samples share is computed once. With a judge, who is "
            "not here, more steps would train; every episode trained is the most there can be, and "
            "the work of TRL. For that, advantages of 0 become 1e-8.",
            "",
            "Tokens trained: those that the policy wrote, which is what both losses read. Tokens "
            "computed: of the update's forward pass, with prompts, what the environment said, and "
            "padding.",
            "",
            "Not compared: judge, adapter, evaluation, checkpoints, the store, learning itself, "
            "GPUs, vLLM, and environments, for TRL plays with this library's.",
            "",
            "## How TRL was tuned",
            "",
            "`generate` for all episodes at once, ended ones left out; no log-probs of the "
            "sampler, which TRL reads from vLLM only; no activation checkpointing, no logs, no "
            "checkpoints; one optimizer step an iteration, with which it need not compute old "
            "log-probs. "
            f"Chosen: {kept}, threads of rollouts: {chosen.rollout_threads}, episodes at once in "
            f"an update: {chosen.rows}, threads of updates: {chosen.update_threads}.",
            "",
            *_trials(result.tried),
        ]
    )


def _ratio(
    result: Result,
    part: Callable[[Side], float],
    sides: Callable[[Alternation], tuple[Side, Side]],
) -> str:
    mean, low, high = result.ratio(part, sides)
    return f"{mean:.1f}x [{low:.1f}, {high:.1f}]"


def _waiting() -> str:
    if SPINNING:
        return "spin while they wait for one another, as its users' do"
    return "wait for one another as OMP_WAIT_POLICY says; its users' spin where nothing is said"


def _seats(recipe: Recipe) -> str:
    seats = recipe.cluster.seats
    if seats > 1:
        return f"{seats} seats of this machine"
    return f"1 seat, the process and the {torch.get_num_threads()} threads of this script"


def _counted(result: Result) -> list[str]:
    sides = [result.total(lambda a: a.trl), result.total(lambda a: a.own)]
    sides.append(result.total(lambda a: a.full))
    return [
        f"| {title} | {' | '.join(f'{getattr(side, name):,}' for side in sides)} |"
        for name, title in _COUNTS.items()
    ]


def _trials(tried: dict[str, float]) -> Sequence[str]:
    if not tried:
        return ["Nothing was tried: `--quick`.", ""]
    best = {kind: min(s for name, s in tried.items() if name.startswith(kind)) for kind in _KINDS}
    return [
        "| tried once, on the first games | time over the fastest |",
        "|---|---|",
        *(
            f"| {name} | {seconds / best[name.partition(',')[0]]:.2f} |"
            for name, seconds in tried.items()
        ),
        "",
    ]


_KINDS = ("rollouts", "update")
