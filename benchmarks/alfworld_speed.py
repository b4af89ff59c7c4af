"""How fast AlfWorld plays here, against the engine as it ships: writes benchmarks/alfworld.md.

    python benchmarks/alfworld_speed.py

Both engines play the same commands in turns and what they show is compared as they go, so that a
busy machine slows both and a difference ends the run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

# Importing alfworld creates the folder that this names, by default in the user's home.
os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())

from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from rich.progress import track
from textworld import EnvInfos
from textworld.envs.pddl.pddl import PddlEnv

from rlanything.domains.base import DomainError, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_alfworld import translation
from rlanything_alfworld.environment import AlfWorldEnvironment
from rlanything_alfworld.game import Game
from rlanything_alfworld.game_engine import GameEngine
from rlanything_alfworld.generator import (
    SMALL_OBJECTS,
    SMALL_RECEPTACLES,
    generate,
)
from rlanything_alfworld.scene import ScenePlan

ALTERNATIONS = 7
COMMANDS = 40
POOL_STEPS = 20
ROOMS = ("FloorPlan5", "FloorPlan11", "FloorPlan215", "FloorPlan301", "FloorPlan402")
REPORT = Path(__file__).with_name("alfworld.md")

T = TypeVar("T")


class Games(TextDomain):
    """As much of a domain as the pool needs."""

    def environment(self) -> AlfWorldEnvironment:
        return AlfWorldEnvironment()


def numbered_game(number: int, full_room: bool = False) -> Game:
    """Another game for another number: about one scene in a thousand allows no goal."""
    receptacles, objects = (None, None) if full_room else (SMALL_RECEPTACLES, SMALL_OBJECTS)
    room = ROOMS[number % len(ROOMS)]
    for seed in itertools.count(number, 1_000_000):
        with contextlib.suppress(DomainError):
            return generate(room, seed, receptacles=receptacles, objects=objects)
    raise AssertionError("unreachable")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def compare_engines(full_rooms: bool) -> dict[str, float]:
    """Medians over the alternations, each with a game of its own."""
    stock: Any = AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))
    fast = GameEngine()
    rows: dict[str, list[float]] = {}

    def note(**figures: float) -> None:
        for name, figure in figures.items():
            rows.setdefault(name, []).append(figure)

    title = "full rooms" if full_rooms else "small rooms"
    for turn in track(range(ALTERNATIONS), description=f"both engines, {title}"):
        rng = random.Random(turn)
        game = numbered_game(turn, full_rooms).json()
        state, stock_open = timed(lambda game=game: (stock.load(game), stock.reset())[1])
        view, fast_open = timed(lambda game=game: (fast.load(game), fast.reset())[1])
        commands, stock_seconds, fast_seconds = 0, 0.0, 0.0
        shown = (state.feedback, tuple(state.admissible_commands), state.won)
        assert shown == (view.text, view.commands, view.won)
        while commands < COMMANDS:
            command = rng.choice(view.commands)
            (state, _, _), seconds = timed(lambda command=command: stock.step(command))
            stock_seconds += seconds
            view, seconds = timed(lambda command=command: fast.step(command))
            fast_seconds += seconds
            shown = (state.feedback, tuple(state.admissible_commands), state.won)
            assert shown == (view.text, view.commands, view.won), command
            commands += 1
        _, stock_again = timed(stock.reset)
        _, fast_again = timed(fast.reset)
        note(
            stock_steps=commands / stock_seconds,
            fast_steps=commands / fast_seconds,
            step_ratio=stock_seconds / fast_seconds,
            stock_open=stock_open * 1e3,
            fast_open=fast_open * 1e3,
            open_ratio=stock_open / fast_open,
            stock_again=stock_again * 1e3,
            fast_again=fast_again * 1e3,
            again_ratio=stock_again / fast_again,
        )
    fast.close()
    return {name: median(values) for name, values in rows.items()}


def task_of(game: Game, task_id: str) -> Task:
    scene = ScenePlan(game.room, game.variant, SMALL_RECEPTACLES, SMALL_OBJECTS)
    data = {"scene": scene.to_json(), "goal": game.goal.to_json()}
    return Task(task_id, game.instruction, game.goal.kind, data)


def pool_figures(workers: int, episodes: int, tasks: int = 16) -> dict[str, float]:
    """Medians over rounds; the caller's own share of the work is included."""
    unseen = 10_000 * (workers + 1) + 10 * episodes  # by this process, in an earlier call
    games = [numbered_game(unseen + n) for n in range(tasks)]
    played = [task_of(games[n * tasks // episodes], f"t{n}") for n in range(episodes)]
    rng = random.Random(0)
    steps_per_second, opening = [], []
    with EnvironmentPool("alfworld_speed:Games", {}, workers, 60) as pool:
        pool.reset(played[:1])  # the workers' start is no part of this
        for _ in range(ALTERNATIONS):
            shown, seconds = timed(lambda: pool.reset(played))
            opening.append(seconds * 1e3)
            choices = {
                i: o.choices or () for i, o in enumerate(shown) if isinstance(o, Observation)
            }
            steps, start = 0, time.perf_counter()
            for _ in range(POOL_STEPS):
                said = {i: f"> {rng.choice(options)}" for i, options in choices.items()}
                steps += len(said)
                for index, result in pool.step(said).items():
                    assert isinstance(result, StepResult)
                    choices[index] = result.observation.choices or ()
                    if result.outcome is not None:
                        del choices[index]
            steps_per_second.append(steps / (time.perf_counter() - start))
    return {
        "steps": median(steps_per_second),
        "first_open": opening[0],
        "open": median(opening[1:]),
    }


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory_over_episodes(count: int, new_games: bool) -> tuple[float, float]:
    """Resident megabytes after enough episodes to fill the caches, and after `count` more."""
    warm_up = translation.CACHED_GAMES + 50
    engine, rng = GameEngine(), random.Random(1)
    before = 0.0
    title = f"{count} episodes, {'each of a new game' if new_games else '24 games'}"
    for episode in track(range(count + warm_up), description=title):
        if episode == warm_up:
            before = resident_megabytes()
        seed = episode if new_games else episode % 24
        engine.load(numbered_game(100 + seed).json())
        view = engine.reset()
        for _ in range(20):
            view = engine.step(rng.choice(view.commands))
    after = resident_megabytes()
    engine.close()
    return before, after


def engine_rows(title: str, figures: dict[str, float]) -> list[str]:
    f = figures
    return [
        f"| {title}: steps/s | {f['stock_steps']:.0f} | {f['fast_steps']:,.0f} "
        f"| {f['step_ratio']:.0f}x |",
        f"| {title}: load and first reset, ms | {f['stock_open']:.0f} | {f['fast_open']:.0f} "
        f"| {f['open_ratio']:.0f}x |",
        f"| {title}: another reset, ms | {f['stock_again']:.0f} "
        f"| {f['fast_again']:.1f} | {f['again_ratio']:.0f}x |",
    ]


def report() -> str:
    load = os.getloadavg()[0]
    small, full = compare_engines(full_rooms=False), compare_engines(full_rooms=True)
    pools = [(w, e, pool_figures(w, e)) for w in (0, 1, 2) for e in (64, 128)]
    same, new = memory_over_episodes(1000, False), memory_over_episodes(1000, True)
    packages = ("textworld", "alfworld", "fast-downward-textworld")
    lines = [
        "# AlfWorld: speed and memory",
        "",
        "`python benchmarks/alfworld_speed.py` wrote this page. "
        f"Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), "
        + ", ".join(f"{name} {version(name)}" for name in packages)
        + f". Load average at the start {load:.1f}: with more than the cores, the speeds are low.",
        "",
        "## The engine, against the one that ships",
        "",
        f"Medians of {ALTERNATIONS} alternations of the first {COMMANDS} random commands in a game "
        "of its own, that both engines play command by command. What they showed (text, admissible "
        "commands, won) was compared at every step and was equal.",
        "",
        "| | stock | here | ratio |",
        "|---|---|---|---|",
        *engine_rows("small rooms", small),
        *engine_rows("full rooms", full),
        "",
        "## The pool",
        "",
        f"Random play in lockstep, {POOL_STEPS} steps an episode, 16 games; medians of "
        f"{ALTERNATIONS} rounds. 0 workers: in the calling process. Opening: `reset` of all "
        "episodes, first with games nobody has seen, then again.",
        "",
        "| workers | episodes | steps/s | first opening, ms | opening, ms |",
        "|---|---|---|---|---|",
        *(
            f"| {w} | {e} | {f['steps']:,.0f} | {f['first_open']:.0f} | {f['open']:.0f} |"
            for w, e, f in pools
        ),
        "",
        "## Memory",
        "",
        "One engine, 1,000 episodes of 20 random commands, after those that fill the caches; "
        "resident set.",
        "",
        "| | before, MB | after, MB |",
        "|---|---|---|",
        f"| 24 games again and again | {same[0]:.1f} | {same[1]:.1f} |",
        f"| a new game every episode | {new[0]:.1f} | {new[1]:.1f} |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(
        0, str(Path(__file__).parent)
    )  # the workers import `alfworld_speed:Games` from here
    REPORT.write_text(report())
    print(REPORT.read_text())
