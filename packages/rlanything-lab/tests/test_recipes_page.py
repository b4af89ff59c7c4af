"""The page of recipes has every key that a recipe may have, as the sections say it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from helpers.paths import ROOT
from helpers.sections import sections_in
from rlanything.config.recipe import Recipe
from rlanything.config.worlds import WorldConfig
from rlanything_lab.recipes_page import SECTIONS, write_page


def test_the_page_is_what_the_sections_say() -> None:
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    assert page == write_page(), "python -m rlanything_lab.recipes_page > docs/recipes.md"


def sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A section, those it is made of, and those below."""
    yield from (each for each in section.__mro__ if each in SECTIONS.values())
    for field in section.model_fields.values():
        for kind in sections_in(field.annotation):
            yield from sections(kind)


def test_no_section_of_a_recipe_is_left_out() -> None:
    # Each of `domains` is an option of the domain `several`.
    assert {*sections(Recipe), *sections(WorldConfig)} == set(SECTIONS.values())


def every_key(section: type[BaseModel]) -> Iterator[tuple[str, str, str | None]]:
    for name, field in section.model_fields.items():
        below = [*sections_in(field.annotation)]
        if not below or field.description:
            yield section.__name__, name, field.description
        for kind in below:
            yield from every_key(kind)


@pytest.mark.parametrize(("section", "key", "meaning"), sorted(set(every_key(Recipe))))
def test_every_key_is_described(section: str, key: str, meaning: str | None) -> None:
    assert meaning, f"{section}.{key} has no docstring"
    assert f"| `{key}` |" in write_page()
