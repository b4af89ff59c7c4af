"""The speed-up of a loop that does not wait for its slowest episodes. Rewrites the first part of
benchmarks/staleness.md; `make staleness` also measures what such a loop learns.

python benchmarks/staleness.py [--rounds 3] [--step 0.4]

Ways take turns, so that what else the machine does falls on all of them. In the game of
`examples/guess.py` one episode in ten takes twenty times as long at every step; only time differs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from few import mean_of_few

import rlanything as rl
from rlanything.domains.base import Observation, StepResult
from rlanything.records import Task

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
from guess import Guess, GuessEnvironment  # noqa: E402

PAGE = Path(__file__).with_suffix(".md")
ITERATIONS = 24
LOOP = {
    "loop.iterations": ITERATIONS,
    "loop.tasks": 48,
    "loop.tasks_per_iteration": 8,
    "loop.rollouts_per_task": 4,
    "environment.workers": 48,
    "environment.parallel_episodes": 192,
    "evaluation.episodes": 0,
}
WAYS = {
    "waits for all": {"environment.lockstep": False},
    "max_staleness 1": {"environment.lockstep": False, "loop.max_staleness": 1},
    "max_staleness 4": {"environment.lockstep": False, "loop.max_staleness": 4},
}


class SlowGuess(Guess):
    """Every step takes `seconds`; of one episode in ten, twenty times as long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def environment(self) -> SlowEnvironment:
        return SlowEnvironment(self._seconds)


class SlowEnvironment(GuessEnvironment):
    """Waits before it answers."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._quick = self._seconds = seconds

    def reset(self, task: Task) -> Observation:
        self._seconds = self._quick * (20 if random.SystemRandom().random() < 0.1 else 1)
        return super().reset(task)

    def step(self, response: str) -> StepResult:
        time.sleep(self._seconds)
        return super().step(response)


def at_best(step: float, rounds: int = 2000) -> tuple[float, float]:
    """Mean and standard deviation over rounds of the speed-up that a perfect `max_staleness` 1
    would have: iterations take no time but their waits, and episodes the steps of a perfect player
    (the middle of what is left: 1, 2, 2, 3, 3, 3, 3 or 4). A wait ends with the slowest episode of
    this iteration (`max_staleness` 0) or of the one before (1)."""
    rng = random.Random(0)

    def longest() -> float:
        return max(
            rng.choice((1, 2, 2, 3, 3, 3, 3, 4)) * step * (20 if rng.random() < 0.1 else 1)
            for _ in range(32)
        )

    ratios = []
    for _ in range(rounds):
        waits = sum(longest() for _ in range(ITERATIONS))
        end, under_way = 0.0, 0.0  # under_way: when all that began before this iteration has ended
        for _ in range(ITERATIONS):
            begun = end
            end = max(begun + 4 * step, under_way)
            under_way = begun + longest()
        ratios.append(waits / max(end, under_way))
    return statistics.fmean(ratios), statistics.stdev(ratios)


def measure(changes: dict[str, object], seconds: float, seed: int) -> tuple[float, float]:
    """Returns the wall time of the iterations, and how much of it was waited for rollouts."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = LOOP | changes | {"seed": seed, "run_dir": f"{folder}/run"}
        trainer = rl.Trainer(
            ROOT / "examples" / "guess.yaml", domain=SlowGuess(seconds), overrides=overrides
        )
        rollouts, begun = 0.0, 0.0
        for record in trainer:
            if record.number == 1:  # workers have started
                begun = time.perf_counter()
            else:
                rollouts += record.metrics["seconds/rollouts"] or 0.0
        return time.perf_counter() - begun, rollouts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", type=float, default=0.4, help="seconds of an ordinary step")
    given = parser.parse_args()
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(given.rounds):
        rounds.append({way: measure(WAYS[way], given.step, number) for way in WAYS})
        print(number, rounds[-1], flush=True)
    slowest = "waits for all"
    best, spread = at_best(given.step)
    lines = [
        "# Updates that wait for no episode",
        "",
        f"`python benchmarks/staleness.py --rounds {given.rounds} --step {given.step:g}`, "
        f"torch {torch.__version__}, 2 cores. Iterations 2 to {ITERATIONS} of "
        "`examples/guess.yaml` with 8 tasks of 4 rollouts each and 48 workers; a step takes "
        f"{given.step:g} s, of one episode in ten {20 * given.step:g} s. The last iteration waits "
        "for everything that is under way. Medians of rounds in which all ways took turns; ratios "
        "are to `waits for all` in the same round, with 95% intervals over rounds. A perfect "
        f"`max_staleness` 1, simulated: {best:.2f}x, standard deviation of a round {spread:.2f}.",
        "",
        "| | seconds | of these in rollouts | faster |",
        "|---|---|---|---|",
    ]
    for way in WAYS:
        own = sorted(each[way] for each in rounds)[len(rounds) // 2]
        ratio = mean_of_few([each[slowest][0] / each[way][0] for each in rounds])
        faster = f"{ratio.estimate:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else "1.00x"
        lines.append(f"| {way} | {own[0]:.0f} | {own[1]:.0f} | {faster} |")
    rest = PAGE.read_text(encoding="utf-8")
    PAGE.write_text("\n".join(lines) + "\n\n" + rest[rest.index("## What it learns") :])


if __name__ == "__main__":
    main()
