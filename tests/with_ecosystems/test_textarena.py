"""TextArena's games as they are: what is new is shown, others move in between, nothing is
downloaded."""

# The environment of `make test-ecosystems` alone has it.
# pyright: reportMissingImports=false
from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nltk
import pytest

from helpers.ecosystems import trained
from helpers.fake_endpoint import KEY, MODEL, FakeEndpoint
from rlanything.config.problems import TrustError
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import DomainError, EpisodeError, StepResult
from rlanything_gyms.textarena.domain import TextArenaDomain
from rlanything_gyms.textarena.opponents import listed_moves

HANOI: dict[str, Any] = {"id": "TowerOfHanoi-v0", "kwargs": {"num_disks": 2}}
SOLUTION = ("[A B]", "[A C]", "[B C]")


def begun(domain: TextArenaDomain, number: int = 0) -> tuple[Any, str]:
    environment = domain.environment()
    return environment, environment.reset(domain.tasks("train", 3, 0)[number]).text


def steps(environment: Any, *moves: str) -> list[StepResult]:
    return [environment.step(f"so > {move}") for move in moves]


def test_a_game_for_one_is_won() -> None:
    environment, text = begun(TextArenaDomain(**HANOI))
    assert text.startswith("You are playing Tower of Hanoi with 2 disks.")
    first, _, last = steps(environment, *SOLUTION)
    assert first.observation.text.startswith("You moved disk 1 from A to B.")
    assert "You are playing" not in first.observation.text, "only what is new"
    assert (last.outcome, last.reward) == (1, 1.0)
    assert "Congratulations" in last.observation.text


def test_as_many_invalid_moves_are_forgiven_as_the_recipe_says() -> None:
    results = steps(begun(TextArenaDomain(**HANOI))[0], "[B A]", "[B A]")
    assert [(r.valid, r.outcome) for r in results] == [(False, None), (False, -1)]
    assert "attempted an invalid move" in results[0].observation.text
    patient = steps(begun(TextArenaDomain(**HANOI, error_allowance=3))[0], *["[B A]"] * 4)
    assert [result.outcome for result in patient] == [None, None, None, -1]


def test_an_opponent_moves_in_between_and_the_same_seed_gives_the_same_game() -> None:
    domain = TextArenaDomain(id="TicTacToe-v0", opponent="random", actions="listed")
    games = []
    for number in (0, 1, 0):
        environment = domain.environment()
        seen = environment.reset(domain.tasks("train", 3, 0)[number])
        texts = []
        while True:
            assert seen.choices
            result = environment.step(f"> {seen.choices[0]}")
            texts.append(result.observation.text)
            if result.outcome is not None:
                break
            seen = result.observation
        games.append(texts)
    assert games[0] == games[2] != games[1]
    assert "Player 1: [" in games[0][0]


def test_the_policy_may_sit_second() -> None:
    seen: list[str] = []

    def first_listed(text: str) -> str:
        seen.append(text)
        return listed_moves(text)[0]

    domain = TextArenaDomain(id="TicTacToe-v0", opponent=first_listed, seat=1)
    environment, text = begun(domain)
    assert text.startswith("You are Player 1")
    assert "Player 0: [0]" in text
    lost = steps(environment, "[3]", "[4]")[-1]
    assert (lost.outcome, lost.reward) == (-1, -1)
    assert seen[1].startswith("You are Player 0"), "an opponent sees all that it has seen"


def test_an_opponent_may_be_a_frozen_model(fake: FakeEndpoint) -> None:
    fake.say = lambda body: "[8]"
    endpoint = {"url": fake.url, "model": MODEL, "key_variable": "MY_KEY"}
    environment, _ = begun(TextArenaDomain(id="TicTacToe-v0", opponent=endpoint))
    [first] = steps(environment, "[4]")
    assert "Player 1: [8]" in first.observation.text
    assert fake.keys == [f"Bearer {KEY}"]
    assert "You are Player 1" in fake.bodies[0]["messages"][1]["content"]


def test_seats_alternate_between_tasks() -> None:
    domain = TextArenaDomain(
        id="TicTacToe-v0", opponent=lambda seen: listed_moves(seen)[0], seat="alternate"
    )
    tasks = domain.tasks("train", 4, 0)
    assert [(task.data["seat"], task.kind) for task in tasks] == [
        (seat, f"TicTacToe-v0, seat {seat}") for seat in (0, 1, 0, 1)
    ]
    assert len({task.id for task in tasks}) == 4
    environment = domain.environment()
    for task in tasks:
        text = environment.reset(task).text
        assert text.startswith(f"You are Player {task.data['seat']}")
        assert ("Player 0: [0]" in text) is (task.data["seat"] == 1)


COPY = {"model": MODEL, "decoding": "choices"}


def test_a_copy_of_the_policy_is_asked_as_the_policy_is(fake: FakeEndpoint) -> None:
    replies = ["I think", "so > [0]", "and so > [1]"]
    fake.say = lambda body: replies[len(fake.bodies) - 1]
    opponent = {"url": fake.url, **COPY}
    domain = TextArenaDomain(id="TicTacToe-v0", opponent=opponent, actions="listed", seat=1)
    environment, own = begun(domain)
    assert "Player 0: [0]" in own
    steps(environment, "[8]")
    first, again, second = (body["messages"] for body in fake.bodies)
    [opening] = domain.policy_prompt(domain.tasks("train", 3, 0)[0], [], "")
    assert first[0]["content"].startswith(f"{opening.content}You are Player 0")
    assert [each["content"] for each in again[1:]] == [
        "I think",
        "There is no action in this: write > and one action.",
    ]
    assert [each["content"] for each in second[:4]] == [
        *(each["content"] for each in again),
        "so > [0]",
    ]
    assert "Player 1: [8]" in second[4]["content"]
    assert "Player 0: [0]" not in second[4]["content"], "its own move is in its transcript"
    assert "[8]" in fake.bodies[0]["structured_outputs"]["choice"]
    assert "[8]" not in fake.bodies[2]["structured_outputs"]["choice"]


def test_a_copy_that_never_writes_a_move_costs_the_episode(fake: FakeEndpoint) -> None:
    fake.say = lambda body: "I think"
    opponent = {"url": fake.url, **COPY, "decoding": "free"}
    domain = TextArenaDomain(id="TicTacToe-v0", opponent=opponent, actions="listed")
    environment, _ = begun(domain)
    with pytest.raises(EpisodeError, match=r"seat 1 gave 3 answers without a move") as ended:
        steps(environment, "[4]")
    assert not ended.value.lost
    assert "structured_outputs" not in fake.bodies[0]


@pytest.fixture
def served_policy() -> Iterator[str]:
    """The address of the starting weights of the recipe `textarena`."""
    words = [sys.executable, "-m", "rlanything", "serve-policy", "textarena", "threads=1"]
    process = subprocess.Popen([*words, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "answers at" in line)
        yield said.split("answers at ")[1].split()[0]
    finally:
        process.kill()
        process.wait()


def test_a_policy_plays_its_starting_weights_from_both_seats(
    tmp_path: Path, served_policy: str
) -> None:
    opponent = f"{{url: {served_policy}, model: policy, decoding: choices}}"
    run = trained(
        "textarena",
        tmp_path / "run",
        f"domain.options={{id: TicTacToe-v0, opponent: {opponent}, actions: listed, "
        "seat: alternate}",
    )
    assert run.steps > 4
    assert run.failures == 0


def test_a_role_plays_the_other_seat_and_has_its_own_outcome() -> None:
    options: dict[str, Any] = {"id": "TicTacToe-v0", "opponent": {"role": "rival"}, "seat": 1}
    domain = TextArenaDomain(**options, actions="listed")
    assert domain.capabilities.players == ("rival",)
    environment, text = begun(domain)
    assert text.startswith("You are Player 0"), "the rival sits first"
    results = steps(environment, *("[0]", "[3]", "[1]", "[4]", "[2]"))
    assert [r.observation.player for r in results[:3]] == ["", "rival", ""]
    assert results[0].observation.text.startswith("You are Player 1")
    assert "[3]" in results[1].observation.text, "each is shown the other's move"
    assert "You are" not in results[1].observation.text, "only what is new"
    assert results[1].observation.choices == ("[1]", "[2]", *(f"[{i}]" for i in range(4, 9)))
    assert (results[-1].outcome, results[-1].others) == (-1, {"rival": 1})


def test_a_role_that_breaks_the_rules_loses() -> None:
    domain = TextArenaDomain(id="TicTacToe-v0", opponent={"role": "rival"}, error_allowance=0)
    environment, _ = begun(domain)
    first, last = steps(environment, "[0]", "[0]")
    assert (first.valid, last.valid) == (True, False)
    assert (last.outcome, last.others) == (1, {"rival": -1})


def test_both_players_of_a_game_train(tmp_path: Path) -> None:
    player = "{does: acts, decoding: choices, max_tokens: 24, thought_tokens: 4}"
    trained(
        "textarena",
        tmp_path / "run",
        f"roles.rival={player}",
        "domain.options={id: TicTacToe-v0, opponent: {role: rival}, actions: listed, "
        "seat: alternate}",
        "feedback.policy_window=[0, 1]",
    )
    assert (tmp_path / "run/checkpoints/iter-00001/rival/model.safetensors").is_file()


def test_the_key_of_an_opponent_has_to_be_allowed() -> None:
    endpoint = {"url": "http://stranger", "model": "any", "key_variable": "OTHER_KEY"}
    options = {"id": "TicTacToe-v0", "opponent": endpoint}
    data = {"name": "game", "domain": {"name": "textarena", "options": options}}
    with pytest.raises(TrustError, match="OTHER_KEY would be sent to stranger"):
        load_recipe(data)


def test_code_of_an_opponent_has_to_be_allowed() -> None:
    options: dict[str, Any] = {"id": "TicTacToe-v0", "opponent": "stranger:moves"}
    data = {"name": "game", "domain": {"name": "textarena", "options": options}}
    with pytest.raises(TrustError, match="stranger:moves"):
        load_recipe(data)
    with pytest.raises(DomainError, match="stranger:moves is code"):
        TextArenaDomain(**options)


def test_others_who_play_need_an_opponent() -> None:
    with pytest.raises(DomainError, match="players is 2: name an opponent"):
        TextArenaDomain(id="TicTacToe-v0", players=2)
    with pytest.raises(DomainError, match="players is 0"):
        TextArenaDomain(id="TicTacToe-v0", players=0)


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    asked: list[Any] = []
    monkeypatch.setattr(nltk, "download", lambda *names, **_: asked.append(names))
    for game in ("Wordle-v0", "Hangman-v0", "WordLadder-v0"):
        with pytest.raises(DomainError, match=r"needs NLTK data.*nltk\.downloader words"):
            TextArenaDomain(id=game)
    assert asked == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"id": "Chess"}, "no game 'Chess': use an id"),
        ({"id": "TicTacToe-v0"}, "has to be 2, received 1: fix domain.options.players"),
        ({**HANOI, "opponent": "random"}, "has to be 1, received 2"),
        ({**HANOI, "kwargs": {"depth": 1}}, "unexpected keyword argument 'depth'"),
        ({"id": "TicTacToe-v0", "opponent": "best"}, "opponent is 'best': use random"),
        ({"id": "TicTacToe-v0", "opponent": {"url": "x"}}, r"opponent\.model: missing; add it"),
        ({"id": "TicTacToe-v0", "opponent": "random", "seat": 2}, "seats are counted from 0"),
        ({**HANOI, "seat": "alternate"}, "seat is alternate, of 1: name an opponent"),
        (
            {"id": "TicTacToe-v0", "opponent": {"role": "rival"}, "players": 3},
            "players is 3: a role plays one other seat",
        ),
        ({**HANOI, "error_allowance": -1}, "error_allowance is -1"),
        ({**HANOI, "win_at": None}, "win_at compares with None"),
        ({**HANOI, "win_at": 0, "horizon": 9}, "a game that is cut off has 0 and would be won"),
        ({**HANOI, "actions": "all"}, "actions is 'all'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DomainError, match=said) as error:
        TextArenaDomain(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("game", ["Nim-v0", "ConnectFour-v0", "IteratedPrisonersDilemma-v0"])
def test_a_game_that_offers_no_moves_needs_them_named(game: str) -> None:
    listed = {"opponent": lambda _: "[0 1]", "actions": "listed"}
    choices: tuple[dict[str, Any], ...] = ({"opponent": "random"}, listed)
    for options in choices:
        with pytest.raises(DomainError, match="does not say which moves are possible"):
            TextArenaDomain(id=game, **options)
    TextArenaDomain(id=game, opponent=lambda _: "[0 1]")


def test_a_random_opponent_draws_from_named_moves_where_the_game_offers_none() -> None:
    moves = ["[Cooperate]", "[Defect]"]
    domain = TextArenaDomain(id="IteratedPrisonersDilemma-v0", opponent="random", actions=moves)
    environment, _ = begun(domain)
    assert environment.step("> [Cooperate]").observation.choices == tuple(moves)


def test_a_game_that_an_opponents_invalid_move_ends_counts_neither_way() -> None:
    domain = TextArenaDomain(id="Nim-v0", opponent=lambda _: "[9 9]")
    environment, _ = begun(domain)
    with pytest.raises(EpisodeError, match="invalid move of the opponent") as ended:
        environment.step("> [0 1]")
    assert not ended.value.lost


def test_what_the_policy_says_offers_its_opponent_nothing() -> None:
    domain = TextArenaDomain(id="TicTacToe-v0", opponent="random", actions="listed")
    environment, _ = begun(domain)
    result = environment.step("> [4] Available moves: [4]")
    assert result.observation.choices
    assert "[4]" not in result.observation.choices


def test_an_opponent_that_fails_costs_the_episode() -> None:
    def fail(text: str) -> str:
        raise ConnectionError("gone")

    environment, _ = begun(TextArenaDomain(id="TicTacToe-v0", opponent=fail))
    with pytest.raises(ConnectionError, match="gone"):
        steps(environment, "[4]")


def test_the_recipe_of_textarena_trains(tmp_path: Path) -> None:
    run = trained("textarena", tmp_path / "run")
    assert run.steps > 4
    assert run.failures == 0
    assert run.recipe_lines <= 12
