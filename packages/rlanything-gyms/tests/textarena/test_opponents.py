"""Moves that a game offers, told from the examples of its rules; opponents as options."""

from __future__ import annotations

import openai
import pytest

from helpers.fake_endpoint import MODEL, Respond, fake_endpoint, status, text
from rlanything.domains.base import DomainError, DomainOptions
from rlanything_gyms.textarena.opponents import (
    FrozenModel,
    FrozenModelOptions,
    OpponentGone,
    OpponentOption,
    RoleOptions,
    listed_moves,
)


class Options(DomainOptions):
    opponent: OpponentOption = None


@pytest.mark.parametrize(
    ("opponent", "line"),
    [
        ({"url": "x"}, "domain.options.opponent.model: missing; add it"),
        ({"url": "x", "modle": "m"}, "domain.options.opponent.modle: unknown key, did you mean mo"),
        ({"url": "x", "model": "m", "decoding": "z"}, "decoding: input should be 'choices' or"),
        (3, "domain.options.opponent: write it in braces, as {key: value} (got 3)"),
    ],
)
def test_an_opponent_that_is_wrong_has_its_remedy(opponent: object, line: str) -> None:
    with pytest.raises(DomainError) as refusal:
        Options.read({"opponent": opponent})
    assert line in str(refusal.value)


def test_an_opponent_is_a_name_a_function_or_a_model() -> None:
    assert Options.read({}).opponent is None
    assert Options.read({"opponent": "random"}).opponent == "random"
    assert Options.read({"opponent": str.upper}).opponent is str.upper
    role = Options.read({"opponent": {"role": "rival"}}).opponent
    assert isinstance(role, RoleOptions)
    assert role.role == "rival"
    model = Options.read({"opponent": {"url": "x", "model": "m"}}).opponent
    assert model == FrozenModelOptions(url="x", model="m")


@pytest.mark.parametrize(
    "answer",
    [
        *(status(401), status(403), status(404), text('{"choices": []}'), text("{}")),
        status(307, location="http://other.example"),
    ],
)
def test_a_model_that_gives_no_move_is_no_fault_of_the_policy(answer: Respond) -> None:
    with fake_endpoint() as fake:
        fake.faults.append(answer)
        opponent = FrozenModel(FrozenModelOptions(url=fake.url, model=MODEL))
        with pytest.raises(OpponentGone, match=r"gives no move \(.*\): see to its server"):
            opponent("Your move.")
        assert opponent("Your move.") == "Hello."


def test_a_game_that_the_model_does_not_take_may_be_the_policys_fault() -> None:
    with fake_endpoint() as fake:
        fake.faults.append(status(400, "too long"))
        with pytest.raises(openai.BadRequestError):
            FrozenModel(FrozenModelOptions(url=fake.url, model=MODEL))("Your move.")


@pytest.mark.parametrize(
    ("said", "moves"),
    [
        ("Available Moves: '[0]', '[1]', '[8]'", ("[0]", "[1]", "[8]")),
        ("Your available actions are: '[check]', '[bet]'", ("[check]", "[bet]")),
        ("Valid moves: [a2a3] or [a2a3]\nPlayer 1 to move.", ("[a2a3]",)),
        ("Valid moves: [old]\nYour options: [draw], [take], [peek X Y]", ("[draw]", "[take]")),
        ("Possible actions are [up] [down]", ("[up]", "[down]")),
    ],
)
def test_the_moves_that_a_game_offered_last_are_listed(said: str, moves: tuple[str, ...]) -> None:
    assert listed_moves(said) == moves


@pytest.mark.parametrize(
    "rules",
    [
        "Take objects by '[pile quantity]', such as '[0 3]' for 3 from pile 0.",
        "Drop a disc with '[col 4]' or '[col 1]'.",
        "Invalid moves: [a] and such end the game.",
        "Available moves: up, down\nUse [w] for up.",
        "Possible actions: [bet X], [raise N], [<number>]",
        "",
    ],
)
def test_examples_of_rules_are_no_moves(rules: str) -> None:
    assert listed_moves(rules) == ()
