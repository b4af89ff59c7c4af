"""How fast AlfWorld plays here, against the engine as it ships: writes benchmarks/alfworld.md.

    RLANYTHING_ALFWORLD_DATA=json_2.1.1 python benchmarks/alfworld_speed.py

Without the variable, the published games are left out.
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
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

# Importing alfworld creates the folder that this names, by default in the user's home.
os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())

from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredTWEnv
from rich.progress import track
from textworld import EnvInfos
from textworld.envs.pddl.pddl import PddlEnv

from rlanything.domains.base import DomainError, Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_alfworld import translation
from rlanything_alfworld.dataset import FOLDERS, games_folder
from rlanything_alfworld.domain import PUBLISHED_GAMES, PublishedAlfWorld
from rlanything_alfworld.environment import AlfWorldEnvironment
from rlanything_alfworld.game import Game
from rlanything_alfworld.game_engine import GameEngine
from rlanything_alfworld.generator import (
    SMALL_OBJECTS,
    SMALL_RECEPTACLES,
    generate,
)
from rlanything_alfworld.scene import ScenePlan
from rlanything_alfworld.tasks import load_game

ALTERNATIONS = 7
COMMANDS = 40
POOL_STEPS = 20
ROOMS = ("FloorPlan5", "FloorPlan11", "FloorPlan215", "FloorPlan301", "FloorPlan402")
REPORT = Path(__file__).with_name("alfworld.md")

T = TypeVar("T")


class Games(TextRollouts):
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


def stock_engine() -> Any:
    return AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))


def published(split: str, count: int) -> list[Task]:
    """Published games of a split, drawn by a fixed seed."""
    return PublishedAlfWorld().tasks(split, count, 0)


def compare_engines(title: str, game_of: Callable[[int], Mapping[str, Any]]) -> dict[str, float]:
    """Medians over the alternations, each with a game of its own: `game_of(turn)`."""
    stock = stock_engine()
    fast = GameEngine()
    rows: dict[str, list[float]] = {}

    def note(**figures: float) -> None:
        for name, figure in figures.items():
            rows.setdefault(name, []).append(figure)

    for turn in track(range(ALTERNATIONS), description=f"both engines, {title}"):
        rng = random.Random(turn)
        game = game_of(turn)
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


def small_rooms(workers: int, episodes: int, tasks: int = 16) -> list[Task]:
    unseen = 10_000 * (workers + 1) + 10 * episodes  # by this process, in an earlier call
    games = [numbered_game(unseen + n) for n in range(tasks)]
    return [task_of(games[n * tasks // episodes], f"t{n}") for n in range(episodes)]


def pool_figures(domain: str, workers: int, played: Sequence[Task]) -> dict[str, float]:
    """Medians over rounds; the caller's own share of the work is included."""
    rng = random.Random(0)
    steps_per_second, opening = [], []
    with EnvironmentPool(domain, {}, workers, 60) as pool:
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


def memory_an_environment(count: int = 64, stocks: int = 12) -> tuple[float, float]:
    """Resident megabytes that one more game in play costs, here and in the stock engine."""
    games = [load_game(task.data).json() for task in published("tune", count + stocks)]
    before, engines = resident_megabytes(), [GameEngine() for _ in range(count)]
    for engine, game in zip(engines, games, strict=False):
        engine.load(game)
        engine.reset()
    ours = (resident_megabytes() - before) / count
    before, theirs = resident_megabytes(), [stock_engine() for _ in range(stocks)]
    for engine, game in zip(theirs, games[count:], strict=True):
        engine.load(game)
        engine.reset()
    return ours, (resident_megabytes() - before) / stocks


def start_up() -> tuple[int, float, float]:
    """Number of published games, and seconds to find them all, here and by the stock loader."""
    folder = games_folder(os.environ[PUBLISHED_GAMES])
    ours = [timed(lambda split=split: len(published(split, 10_000))) for split in FOLDERS]
    config = {
        "dataset": {
            "data_path": str(folder / "train"),
            "eval_id_data_path": str(folder / "valid_seen"),
            "eval_ood_data_path": str(folder / "valid_unseen"),
            "num_train_games": -1,
            "num_eval_games": -1,
        },
        "env": {"task_types": [1, 2, 3, 4, 5, 6], "goal_desc_human_anns_prob": 0},
    }
    names = ("train", "eval_in_distribution", "eval_out_of_distribution")
    with contextlib.redirect_stdout(None):
        theirs = [timed(lambda name=name: AlfredTWEnv(config, train_eval=name)) for name in names]
    assert sum(n for n, _ in ours) == sum(len(env.game_files) for env, _ in theirs)
    return sum(n for n, _ in ours), sum(s for _, s in ours), sum(s for _, s in theirs)


def published_lines() -> list[str]:
    """The part of the page about the published games as a whole."""
    memory, (count, ours, theirs) = memory_an_environment(), start_up()
    return [
        "",
        "## The published games",
        "",
        "Memory: 64 engines here and 12 stock ones, each with a game of its own in play. Start-up: "
        "all splits are listed and filtered; here all games are also read and checked for a plan, "
        "which a run does only for the tasks that it plays.",
        "",
        "| | stock | here | ratio |",
        "|---|---|---|---|",
        f"| memory an environment, MB | {memory[1]:.1f} | {memory[0]:.1f} "
        f"| {memory[1] / memory[0]:.1f}x |",
        f"| start-up of {count:,} games, s | {theirs:.1f} | {ours:.1f} | {theirs / ours:.1f}x |",
    ]


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
    engines = {
        "small rooms": lambda turn: numbered_game(turn).json(),
        "full rooms": lambda turn: numbered_game(turn, full_room=True).json(),
    }
    games = published("train", 7 + 3 * 64) if PUBLISHED_GAMES in os.environ else []
    if games:
        engines["published games"] = lambda turn: load_game(games[turn].data).json()
    compared = {title: compare_engines(title, game_of) for title, game_of in engines.items()}
    same, new = memory_over_episodes(1000, False), memory_over_episodes(1000, True)
    pools = [
        ("small rooms", w, e, pool_figures("alfworld_speed:Games", w, small_rooms(w, e)))
        for w in (0, 1, 2)
        for e in (64, 128)
    ]
    own = published_lines() if games else []
    for w in (0, 1, 2) if games else ():
        played = games[7 + 64 * w :][:64]  # not yet seen by this process
        figures = pool_figures("alfworld-published", w, played)
        pools.append(("published games, all different", w, 64, figures))
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
        *(row for title, figures in compared.items() for row in engine_rows(title, figures)),
        "",
        "## The pool",
        "",
        f"Random play in lockstep, {POOL_STEPS} steps an episode, 16 small rooms; medians of "
        f"{ALTERNATIONS} rounds. 0 workers: in the calling process. Opening: `reset` of all "
        "episodes, first with games nobody has seen, then again.",
        "",
        "| games | workers | episodes | steps/s | first opening, ms | opening, ms |",
        "|---|---|---|---|---|---|",
        *(
            f"| {games} | {w} | {e} | {f['steps']:,.0f} | {f['first_open']:.0f} | {f['open']:.0f} |"
            for games, w, e, f in pools
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
        *own,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(
        0, str(Path(__file__).parent)
    )  # the workers import `alfworld_speed:Games` from here
    REPORT.write_text(report())
    print(REPORT.read_text())
