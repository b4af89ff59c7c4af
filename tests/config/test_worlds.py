"""The list `domains` of a recipe: several worlds, each with its weight, bounds and window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.paths import ROOT
from rlanything.config.problems import TrustError
from rlanything.config.recipe import RecipeError, load_recipe

GUESS = {"name": "guess:Guess"}
TWO = {"name": "two", "domains": [{"name": "text"}, {"name": "text", "label": "more"}]}


def complaint(data: Mapping[str, object], *overrides: str) -> str:
    with pytest.raises(RecipeError) as error:
        load_recipe(data, overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_list_is_one_domain_that_holds_the_worlds() -> None:
    recipe = load_recipe(TWO)
    assert recipe.domain.name == "several"
    assert recipe.domain.names == ["text", "text"]
    assert [*recipe.domain.worlds] == ["text", "more"]
    assert load_recipe(recipe.model_dump(mode="json")) == recipe
    assert load_recipe(TWO | {"domain": None}) == recipe


def test_a_world_is_called_by_its_class_or_its_label() -> None:
    recipe = load_recipe({"name": "two", "domains": [GUESS, {"name": "text"}]}, allow_code=True)
    assert [*recipe.domain.worlds] == ["guess", "text"]


def test_held_out_splits_are_those_of_each_world() -> None:
    recipe = load_recipe(TWO, ["evaluation.splits=[in_domain, more/ood]"])
    assert recipe.splits == ("text/in_domain", "more/in_domain", "more/ood")
    one = load_recipe({"name": "one", "domain": {"name": "text"}})
    assert one.splits == one.evaluation.splits


def test_an_override_reaches_one_world() -> None:
    recipe = load_recipe(TWO, ["domains.1.weight=3.0", "domains.0.policy_window=[0.1, 0.9]"])
    assert [world.weight for world in recipe.domain.worlds.values()] == [1.0, 3.0]
    assert recipe.domain.worlds["text"].policy_window == (0.1, 0.9)
    again = load_recipe(recipe, ["domains.0.weight=2.0"])
    assert again.domain.worlds["text"].weight == 2.0
    assert "'domains' is a list: name one of its sections" in complaint(TWO, "domains.2=1")
    assert "'2' is a value, not a section" in complaint(TWO, "domains.2.weight=1.0")


@pytest.mark.parametrize(
    ("domains", "said"),
    [
        ([{"name": "text"}], "domains: name at least two worlds, or write the one as domain"),
        ([{"name": "text"}, {"name": "text"}], "domains: two worlds are called text: give one"),
        ([{"name": "text"}, {"nam": "text"}], "domains.1.nam: unknown key, did you mean name?"),
        ([{"name": "text"}, {"name": "text", "weight": -1}], "domains.1.weight: input should be"),
        ([{"name": "a", "weight": 0}, {"name": "b", "weight": 0}], "every weight is 0"),
        ([{"name": "text"}, {"name": "text", "label": "A B"}], "domains.1: label 'A B': give one"),
        ([{"name": "text"}, {"name": "text", "label": "b", "policy_window": [1, 0]}], "low <= hi"),
        ({"name": "text"}, "domains: write a list"),
        (["text", "guess"], "domains.0: write it in braces, as {name: text}"),
    ],
)
def test_a_list_that_is_wrong_is_one_line_with_its_place(domains: object, said: str) -> None:
    assert said in complaint({"name": "two", "domains": domains})


def test_both_forms_at_once_are_refused() -> None:
    said = complaint(TWO | {"domain": {"name": "text"}})
    assert said == "recipe: domain is one world, domains are several: keep one of them"


def test_code_in_the_list_needs_permission_as_in_one_domain(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("name: two\ndomains: [{name: 'mine:World'}, {name: text}]\n", encoding="utf-8")
    with pytest.raises(TrustError, match=r"domains\.0\.name: mine:World is code"):
        load_recipe(path)
    assert load_recipe(path, allow_code=True).foreign_code == {"mine:World"}
    secret = {"name": "text", "label": "b", "options": {"key_variable": "TOKEN", "url": "http://a"}}
    with pytest.raises(TrustError, match="TOKEN would be sent to a"):
        load_recipe({"name": "two", "domains": [{"name": "text"}, secret]})


def test_an_example_in_the_list_ships_and_is_found(tmp_path: Path) -> None:
    shipped = {"name": "two", "domains": [GUESS, {"name": "text"}]}
    folder = str((ROOT / "examples").resolve())
    data = {**load_recipe(shipped, allow_code=True).model_dump(mode="json")}
    data["domain"]["module_folder"] = folder
    assert load_recipe(data).foreign_code == set()
