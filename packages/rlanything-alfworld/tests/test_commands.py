"""Listed commands: what an observation shows, and which one a response names."""

from __future__ import annotations

import pytest

from rlanything.domains.base import DomainError, Observation
from rlanything.records import Task
from rlanything_alfworld.commands import (
    ANSWER_FORMS,
    Listing,
    find_command,
    with_commands,
    without_commands,
)
from rlanything_alfworld.domain import AlfWorld

COMMANDS = ("close drawer 1", "go to shelf 1", "look")


@pytest.mark.parametrize(
    ("response", "named"),
    [
        (r"I look around. \boxed{3}", "look"),
        (r"\boxed{ 2 }", "go to shelf 1"),
        (r"\boxed{go to shelf 1}", "go to shelf 1"),
        ("I need the shelf. > go to shelf 1", "go to shelf 1"),
        # The last one counts, and what stands behind it does not.
        (r"\boxed{1} or rather \boxed{3}", "look"),
        (r"\boxed{3} is what I choose.", "look"),
        (r"\boxed{3}</answer>", "look"),
        (r"3 > 2, so \boxed{2}", "go to shelf 1"),
        (r"\boxed{1} > look", "look"),
        # A box in a box is the inner one.
        (r"\boxed{the number is \boxed{2}}", "go to shelf 1"),
        # What cannot be played is what was said, never the first command.
        (r"\boxed{0}", "0"),
        (r"\boxed{4}", "4"),
        (r"\boxed{-1}", "-1"),
        (r"\boxed{02}", "02"),
        (r"\boxed{2.}", "2."),
        (r"\boxed{２}", "２"),
        (r"\boxed{1} then \boxed{fly}", "fly"),
        (r"\boxed{" + "9" * 5000 + "}", "9" * 5000),
        # Nothing is said by what is no box.
        (r"\boxed{}", None),
        (r"\boxed{1} or \boxed{2", None),
        (r"\boxed{\text{look}}", None),
        (r"\boxed 2", None),
        ("2", None),
        ("look", None),
        ("", None),
    ],
)
def test_a_numbered_command_is_named_by_its_number_or_its_words(
    response: str, named: str | None
) -> None:
    assert find_command(response, COMMANDS, "numbered") == named


def test_numbers_mean_nothing_where_the_list_has_none() -> None:
    assert find_command(r"\boxed{2}", COMMANDS, "list") == "2"
    assert find_command(r"\boxed{look}", COMMANDS, "list") == "look"


def test_boxes_mean_nothing_where_no_commands_are_listed() -> None:
    assert find_command(r"\boxed{2}", COMMANDS, "none") is None
    assert find_command(r"> look \boxed{2}", COMMANDS, "none") == r"look \boxed{2}"


@pytest.mark.parametrize("listing", ANSWER_FORMS)
def test_what_the_game_said_and_its_commands_come_apart_again(listing: Listing) -> None:
    shown = with_commands("You see a shelf 1.", COMMANDS, listing)
    text, lines = without_commands(shown)
    assert text == "You see a shelf 1."
    assert (
        lines.splitlines()
        == {
            "none": [],
            "list": list(COMMANDS),
            "numbered": ["1. close drawer 1", "2. go to shelf 1", "3. look"],
        }[listing]
    )


@pytest.fixture(scope="module")
def task() -> Task:
    return AlfWorld().tasks("train", 1, 0)[0]


def listed(observation: Observation) -> list[str]:
    return [line.partition(". ")[2] for line in without_commands(observation.text)[1].splitlines()]


def test_every_observation_ends_with_the_commands_that_are_possible_then(task: Task) -> None:
    environment = AlfWorld(style="paper").environment()
    shown = environment.reset(task)
    for response in (r"\boxed{2}", r"\boxed{99}", "what now?", "> look", r"\boxed{1}"):
        assert listed(shown) == list(shown.choices or ())
        shown = environment.step(response).observation
    assert listed(shown) == list(shown.choices or ())


def test_a_number_plays_its_command_and_is_stored_as_that(task: Task) -> None:
    environment = AlfWorld(style="paper").environment()
    shown = environment.reset(task)
    result = environment.step(r"The second may hold it. \boxed{2}")
    assert result.valid
    assert result.action == listed(shown)[1]
    assert result.observation.text.startswith("You arrive at")


def test_a_number_that_is_not_there_is_an_invalid_action_and_changes_nothing(task: Task) -> None:
    environment = AlfWorld(style="paper").environment()
    shown = environment.reset(task)
    for response, action in ((r"\boxed{0}", "0"), (r"\boxed{100}", "100"), ("hm", None)):
        result = environment.step(response)
        assert (result.action, result.valid, result.outcome) == (action, False, None)
        assert result.observation.choices == shown.choices
    assert "none of the possible commands" in environment.step(r"\boxed{0}").observation.text
    assert r"`\boxed{number}`" in environment.step("hm").observation.text


def test_looking_around_is_possible_where_it_is_asked_for(task: Task) -> None:
    for idle in (False, True):
        environment = AlfWorld(style="paper", idle_actions=idle).environment()
        verbs = {choice.split()[0] for choice in environment.reset(task).choices or ()}
        assert {"look", "inventory"} <= verbs if idle else verbs.isdisjoint({"look", "inventory"})
        assert environment.step(r"\boxed{inventory}").valid == idle


def test_restricted_answers_are_played_as_they_are_without_a_list(task: Task) -> None:
    plain, listing = AlfWorld().environment(), AlfWorld(style="paper").environment()
    plain.reset(task)
    wanted = listed(listing.reset(task))[2]
    response = f"1 box \\boxed{{1}} > {wanted}"
    one, other = plain.step(response), listing.step(response)
    assert one.action == other.action == wanted
    assert one.observation.choices == other.observation.choices
    assert without_commands(other.observation.text)[0] == one.observation.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"style": "fancy"}, r"style: input should be 'nano' or 'paper' \(got 'fancy'\)"),
        ({"style": ["paper"]}, r"style: input should be 'nano' or 'paper' \(got \['paper'\]\)"),
        (
            {"commands": "some"},
            r"commands: input should be 'none', 'list' or 'numbered' \(got 'some'\)",
        ),
        (
            {"commands": ["list"], "style": "paper"},
            r"commands: input should be 'none', .*got \['list'\]",
        ),
        ({"commands": "numbered"}, "the nano prompts show none: set style to paper"),
        (
            {"idle_actions": "often"},
            r"idle_actions: input should be a valid boolean \(got 'often'\)",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused_in_one_line(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(DomainError, match=said) as refusal:
        AlfWorld(**options)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(refusal.value)
