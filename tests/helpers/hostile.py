"""A policy that solves what it is told to and attacks the rest, and what it attacks with."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from rich.console import Console

from rlanything.domains.base import Domain, Episode
from rlanything.evaluation.success import Evaluation, evaluate
from rlanything.progress import Progress
from rlanything.records import Completion, Task
from rlanything.rollout.workers import EnvironmentPool

TEXTS = (
    "",
    "\0",
    "\ud800",
    "x\udfffy\0z",
    "no action",
    "9" * 5000,
    "-1",
    "1e999",
    "nan",
    "None",
    "__import__('os')._exit(0)",
    "a" * 2**20,
    "> " * 50_000,
    "```" * 50_000,
    "(" * 20_000,
    "\x1b]0;title\x07\x1b[2J",
    "\u202e\u2028\u2029",
    "[/INST] [bold] {} %s $x",
    "<script>for(;;){}</script>",
    "</s><|im_end|>\\boxed{1}",
)
"""What stands where an action, a program or a test should."""
WEB_ACTIONS = (
    *(f"type [{n}] {text[:400]}" for n in (1, 2) for text in TEXTS if "\n" not in text),
    *(f"press {key}" for key in ("Enter", "Escape", "Tab", "Control+a", "Control+x", "F5", "F12")),
    *(f"click [{n}]" for n in (0, 9999, "٣")),
    *(f"click {place}" for place in ("0 0", "159 209", "9999 9999", "1 2 3")),
    *("select [1] \ud800", "select [2] \0", "scroll up", "scroll down", "scroll sideways"),
    *("press " + "Enter" * 9999, "goto http://elsewhere", "close", "reload"),
)
"""What a page is asked for, beside those."""
COMMANDS = (
    *("look", "inventory", "help", "examine", "restart", "quit", "save", "undo", "score"),
    *("go to \0", "go to " + "desk " * 9999, "take \ud800 from shelf 1", "look\nquit"),
)
"""What a text game is asked for."""


class HostilePolicy:
    """Plays as the expert in some tasks; in each of the others says all of `attacks` from its own
    place in them on."""

    def __init__(self, domain: Domain, solved: Collection[str], attacks: Sequence[str]) -> None:
        self._domain, self._solved, self._attacks = domain, solved, attacks
        self._places: dict[str, int] = {}

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        del seeds
        return [Completion.unsampled(self._response(episode)) for episode in episodes]

    def _response(self, episode: Episode) -> str:
        if episode.task.id in self._solved:
            return self._domain.expert(episode.task, episode.steps) or ""
        place = self._places.setdefault(episode.id, len(self._places))
        return self._attacks[(place + 7 * len(episode.steps)) % len(self._attacks)]

    def release_cache(self) -> None: ...


def measured(
    domain: Domain, tasks: Sequence[Task], attacks: Sequence[str], max_steps: int, rollouts: int = 1
) -> tuple[Evaluation, float]:
    """Plays every other task as the expert and attacks the rest; what was measured, and the true
    share of won episodes."""
    solved = {task.id for task in tasks[::2]}
    policy = HostilePolicy(domain, solved, attacks)
    with EnvironmentPool(domain, {}, 0, 60.0) as pool:
        evaluation = evaluate(
            policy,
            pool,
            tasks,
            "in_domain",
            max_steps=max_steps,
            parallel_episodes=64,
            seed=0,
            progress=Progress(Console(quiet=True)),
            rollouts=rollouts,
        )
    return evaluation, len(solved) / len(tasks)


def check(evaluation: Evaluation, truth: float, episodes: int) -> None:
    """Nothing was left out of the count, and success is what it truly is."""
    assert evaluation.unplayable == ()
    assert evaluation.bounds is None
    assert len(evaluation.trajectories) == episodes
    assert evaluation.success is not None
    assert evaluation.success.estimate == truth


def dozen(attacks: Sequence[str], seed: int) -> list[str]:
    """The same twelve for a seed, with every one that sets a limit of CPU time by Python."""
    chosen = [attack for attack in attacks if "resource.setrlimit(0" in attack]
    rest = [attack for attack in attacks if attack not in chosen]
    return [*chosen, *random.Random(seed).sample(rest, 12 - len(chosen))]
