"""The fast engine shows what the stock engine shows."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from helpers.playable import BATHROOM, BEDROOM, KITCHEN, games
from helpers.stock import Shown, StockEngine
from rlanything_alfworld.expert import plan
from rlanything_alfworld.game import Game
from rlanything_alfworld.game_engine import GameEngine, GameView
from rlanything_alfworld.generator import generate
from rlanything_alfworld.goal import KINDS, SIMPLE
from rlanything_alfworld.world import World


@pytest.fixture(scope="module")
def stock() -> StockEngine:
    return StockEngine()


def shown(view: GameView) -> Shown:
    return view.text, view.commands, view.won


def wandering(world: World, rng: random.Random, turns: int) -> Iterable[str]:
    """Random commands, more often those that change something; some that are not admissible."""
    for turn in range(turns):
        choices = world.admissible()
        eager = [c for c in choices if c.split()[0] not in ("go", "examine", "look", "help")]
        command = rng.choice(eager if eager and rng.random() < 0.6 else choices)
        yield " dance " if turn % 10 == 9 else command
        if turn % 10 != 9:
            world.play(command)


def transcripts_agree(game: Game, fast: GameEngine, stock: StockEngine, turns: int) -> list[Shown]:
    """Random play, then the expert's plan to the end, compared as it goes."""
    world, rng = World(game.scene_pddl), random.Random(game.instruction)
    fast.load(game.json())
    stock.load(game.json())
    transcript = [shown(fast.reset())]
    assert transcript[0] == stock.reset()
    for command in wandering(world, rng, turns):
        transcript.append(shown(fast.step(command)))
        assert transcript[-1] == stock.step(command), command
    for command in plan(world, game.goal):
        transcript.append(shown(fast.step(command)))
        assert transcript[-1] == stock.step(command), command
    assert transcript[-1][2]
    return transcript


@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_equal_the_stock_engines(kind, engine, stock):
    (game,) = games(kind, 1)
    assert len(transcripts_agree(game, engine, stock, turns=20)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_equal_the_stock_engines_in_many_games(kind, engine, stock):
    for game in games(kind, 8):
        transcripts_agree(game, engine, stock, turns=60)


@pytest.mark.slow
@pytest.mark.parametrize("room", [KITCHEN, "FloorPlan215", BEDROOM, BATHROOM])
def test_transcripts_equal_the_stock_engines_in_full_rooms(room, engine, stock):
    game = generate(room, 3, receptacles=None, objects=None)
    transcripts_agree(game, engine, stock, turns=60)


def digest() -> str:
    """Of transcripts by both engines, which must agree."""
    fast, stock = GameEngine(), StockEngine()
    seen = [transcripts_agree(game, fast, stock, turns=12) for game in games(SIMPLE, 2)]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def test_transcripts_do_not_depend_on_the_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", "import test_game_engine; print(test_game_engine.digest())"],
            env=os.environ
            | {
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            },
            check=True,
            capture_output=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_game_starts_afresh_at_every_reset(engine):
    first, second = games(SIMPLE, 2)
    engine.load(first.json())
    start = engine.reset()
    moved = engine.step(start.commands[0])
    assert moved != start
    assert engine.reset() == start
    engine.load(second.json())
    assert engine.reset() != start
    engine.load(first.json())
    assert engine.reset() == start
    assert engine.step(start.commands[0]) == moved


def test_engines_in_the_same_game_do_not_disturb_each_other():
    (game,) = games(SIMPLE, 1)
    seeds = range(4)

    def played(engine: GameEngine, rng: random.Random, view: GameView) -> GameView:
        return engine.step(rng.choice(view.commands))

    alone: list[list[GameView]] = []
    for seed in seeds:
        engine, rng = GameEngine(), random.Random(seed)
        engine.load(game.json())
        views = [engine.reset()]
        for _ in range(30):
            views.append(played(engine, rng, views[-1]))
        alone.append(views)
    engines, rngs = [GameEngine() for _ in seeds], [random.Random(seed) for seed in seeds]
    for engine in engines:
        engine.load(game.json())
    together = [[engine.reset()] for engine in engines]
    for _ in range(30):
        for engine, rng, views in zip(engines, rngs, together, strict=True):
            views.append(played(engine, rng, views[-1]))
    assert together == alone
    assert alone[0] != alone[1]


def test_only_admissible_commands_change_anything(engine):
    (game,) = games(SIMPLE, 1)
    engine.load(game.json())
    start = engine.reset()
    for command in ("", "go to", "go to the moon", start.commands[0].upper()):
        view = engine.step(command)
        assert view == GameView("Nothing happens.", start.commands, start.won)


def test_loading_leaves_the_process_as_it_was(engine, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(sys, "argv", ["mine", "--flag"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    output = sys.stdout
    engine.load(generate(KITCHEN, 77).json())
    engine.reset()
    assert sys.argv == ["mine", "--flag"]
    assert sys.stdout is output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("pddl_problem", "(define (problem"),
        ("pddl_problem", ""),
        ("pddl_domain", "(:nonsense)"),
        ("grammar", "grammar :: nonsense"),
        ("grammar", 'grammar :: """{"intro": [}""";'),
        ("grammar", 'grammar :: """{"intro": [{"rhs": "{__import__(1)}"}]}""";'),
        ("grammar", 'grammar :: """{"intro": [{"rhs": "{o.__class__}"}]}""";'),
        ("grammar", 'action look { template :: "{exit()}"; feedback :: "#look#"; }'),
    ],
)
def test_a_damaged_game_is_refused_and_the_engine_still_plays(engine, key, text):
    (game,) = games(SIMPLE, 1)
    with pytest.raises(ValueError, match=r"^the game[^\n]+$"):
        engine.load(game.json() | {key: text})
    engine.load(game.json())
    assert engine.reset().commands


def test_an_impossible_goal_is_named(engine):
    (game,) = games(SIMPLE, 1)
    goal = game.goal_pddl.replace(f"?o {game.goal.object}Type", "?o SinkBasinType")
    assert goal != game.goal_pddl
    with pytest.raises(ValueError, match="goal is impossible"):
        engine.load(game.json() | {"pddl_problem": game.scene_pddl + goal})


@pytest.mark.slow
def test_a_thousand_episodes_need_no_more_memory(engine):
    def resident_megabytes() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    rng = random.Random(0)
    played = [game for kind in KINDS for game in games(kind, 4)]
    before = 0.0
    for episode in range(1100):
        if episode == 100:
            before = resident_megabytes()
        engine.load(played[episode % len(played)].json())
        view = engine.reset()
        for _ in range(20):
            view = engine.step(rng.choice(view.commands))
    assert resident_megabytes() - before < 5
