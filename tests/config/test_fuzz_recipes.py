"""Malformed recipes, made from the schema: each is one line that names the key.

What YAML and pydantic refuse by themselves is theirs to test; here is what this project promises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from helpers.sections import sections_in
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.roles import RoleConfig

GOOD = {"name": "mine", "domain": {"name": "text"}}
Key = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A key of the schema that holds a value, and the types it may have."""

    key: Key
    kinds: frozenset[Any]


def leaves(section: type[BaseModel] = Recipe, key: Key = ()) -> Iterator[Leaf]:
    if section is Recipe:
        for role in sections_in(Recipe.model_fields["roles"].annotation):
            if issubclass(role, RoleConfig) and role.shipped_role:
                yield from leaves(role, (role.shipped_role,))
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, (*key, name))
        else:
            yield Leaf((*key, name), frozenset(unfolded(kind)))


def unfolded(kind: Any) -> Iterator[Any]:
    """A type and everything it is made of: unions, annotations, tuples."""
    origin = get_origin(kind)
    yield origin or kind
    if origin is not None and origin is not dict:
        for inner in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from unfolded(inner)


LEAVES = tuple(leaves())
SECTIONS = sorted({leaf.key[:-1] for leaf in LEAVES if leaf.key[:-1]})


def faults(leaf: Leaf) -> Iterator[str]:
    """YAML that the key cannot hold, though YAML or another schema might."""
    yield from ("!mine 1", '"a\\0b"', "&x [*x]")
    if dict in leaf.kinds:
        yield from ("3", "word", "[1]", "null", "{1: 1}")
    elif leaf.kinds & {int, float}:
        yield from ("yes", "word", "'1'", ".nan", ".inf", "1e999", "017", "1:30", "2026-01-01")
        yield from () if tuple in leaf.kinds or float in leaf.kinds else ("2.5",)
    elif bool in leaf.kinds:
        yield from ("1", "word", "'yes'", "2.5")
    elif str in leaf.kinds:
        yield from ("3", "2.5", "yes", "{a: 1}")


def placed(key: Key, value: Any) -> dict[str, Any]:
    """A good recipe in which the key has the value."""
    data: dict[str, Any] = {**GOOD}
    section = data
    for name in key[:-1]:
        section[name] = dict(section.get(name) or {})
        section = section[name]
    section[key[-1]] = value
    return data


# Values that are good each alone. The section is named, and the message names the keys.
CONTRADICTIONS: tuple[tuple[Key, str], ...] = (
    (("policy",), "{decoding: choices, max_tokens: 8, thought_tokens: 8}"),
    (("curriculum",), "{alpha_low: 0.8, alpha_high: 0.2}"),
    (("feedback",), "{policy_window: [0.9, 0.1]}"),
    (("feedback",), "{judge_window: [0.9]}"),
    (("feedback",), "{judge_window: [0.1, 0.2, 0.3]}"),
    (("feedback",), "{judge_window: [a, b]}"),
    (("loop",), "{tasks: 4, tasks_per_iteration: 5}"),
    (("judge",), "model(nano)"),
)

NO_RECIPES: tuple[bytes, ...] = (
    b"",
    b"\n\n# nothing but a comment\n",
    b"---\n...\n",
    b"null",
    b"3",
    b"just text",
    b"- a\n- list",
    b"name: [mine",
    b"name: {mine",
    b"name: 'mine",
    b'name: "mine',
    b"name: mine\n\tseed: 1",
    b"name: mine\n seed: 1",
    b"a: b: c",
    b": :",
    b"? ?",
    b"- - -",
    b"name: @mine",
    b"name: `mine`",
    b"name: %mine",
    b"name: *mine",
    b"name: &a &b mine",
    b"name: !<tag mine",
    b"name: |9x\n mine",
    b"%YAML 9.9\n---\nname: mine",
    b"%TAG ! x\n---\nname: mine",
    b"name: mine\n---\nname: yours",
    b"name: mine\n...\n}",
    b"name: mine\x00",
    b"name: mine\x07",
    b"name: \xff",
    b"\xff\xfen\x00a\x00",
    "name: mine".encode("utf-16"),
    "name: mine".encode("utf-32"),
    b"name: \xed\xa0\x80",
    b"\xef\xbb\xbf\xef\xbb\xbfname: mine",
    b"[" * 600,
    b"{" * 600,
    b"- " * 600,
    b"{a: " * 2_000,
    b"&a [*a]",
    b"&a {<<: *a, name: mine}",
    b"<<: [1]",
    b"a: &a [1,1,1]\nb: &b [*a,*a,*a]\n"
    + b"".join(b"%c: &%c [*%c,*%c,*%c,*%c]\n" % (i + 1, i + 1, i, i, i, i) for i in range(98, 114)),
    b"{name: mine, domain: {name: text}}}",
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
    b'{"name": "mine",}\n}',
    bytes(range(256)),
)

NO_OVERRIDES = (
    *("", "=", "=3", "seed", "policy.learning_rate", "policy:learning_rate:1", "--seed 3", "\n=1"),
    *("seed\n=1", "\udcff=1", "se\x00ed=1", "\u202eseed=1", "a\x1b[31m=1", "seed=!mine 1"),
    *(f"domain.options{'.a' * 3000}=[", f"seed={'[' * 600}", "name.first=x"),
)


def said(source: Any, *overrides: str) -> str:
    """The complaint, which is one visible line and no one else's."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(source, overrides)
    message = str(caught.value)
    assert message.isprintable(), message
    assert len(message) < 1000, message
    assert not re.search("Traceback|pydantic|yaml[.]org|input_value", message), message
    return message


def names(message: str, key: Key) -> bool:
    """Whether it is about the dotted key, or one within it."""
    return re.search(rf"(^|[ (]){re.escape('.'.join(key))}(\.[^ ]+)?: ", message) is not None


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: ".".join(leaf.key))
def test_a_value_that_a_key_cannot_hold_is_one_line_that_names_it(leaf: Leaf) -> None:
    dotted = ".".join(leaf.key)
    for fault in faults(leaf):
        message = said(GOOD, f"{dotted}={fault}")
        assert names(message, leaf.key) or f"'{dotted}=" in message, (fault, message)
    wrong = (*leaf.key[:-1], f"{leaf.key[-1]}q")
    message = said(placed(wrong, 1))
    assert names(message, wrong)
    assert re.search(rf"known here: .*\b{leaf.key[-1]}\b", message)


@pytest.mark.parametrize("section", SECTIONS, ids=".".join)
def test_a_section_that_is_none_is_one_line_that_names_it(section: Key) -> None:
    for value in ([1], 3, True, None, [{"model": "nano"}]):
        assert names(said(placed(section, value)), section)
    if section != ("domain", "options"):
        for name in (1, None, "a.b", "\ufeff", ""):
            assert ".".join(section) in said(placed(section, {name: 1}))


@pytest.mark.parametrize(("section", "text"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_named(section: Key, text: str) -> None:
    assert names(said(GOOD, f"{section[0]}={text}"), section)


def test_each_text_that_is_no_recipe_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    for text in NO_RECIPES:
        path.write_bytes(text)
        assert said(path).startswith(f"{path}"), text
    assert "cannot be read" in said(tmp_path)
    for name in ("none.yaml", "no\nsuch.yaml", "x" * 300, "nul\0", "recipe.yaml/inside"):
        said(tmp_path / name)


@pytest.mark.parametrize("override", NO_OVERRIDES)
def test_each_malformed_override_is_one_line(override: str) -> None:
    assert "override" in said(GOOD, override)


def test_what_may_hold_a_key_is_never_repeated() -> None:
    secret = "sk-0123456789"
    for engine in (
        f"{{name: openai, url: 'http://me:{secret}@host/v1'}}",
        f"{{name: openai, url: ['{secret}']}}",
        f"{{name: openai, url: 'http://host', key_variable: {secret}}}",
        f"{{name: openai, url: 'http://host', key: {secret}}}",
        f"{{name: opnai, url: 'http://me:{secret}@host/v1'}}",
    ):
        assert secret not in said(GOOD, f"judge.engine={engine}")


def test_data_may_hold_what_yaml_reads_and_is_left_as_it_was() -> None:
    data = yaml.safe_load("{name: mine, domain: {name: text}, evaluation: {splits: [ood]}}")
    recipe = load_recipe(data, {"loop.iterations": 2, "run_dir": Path("x")})
    assert (recipe.loop.iterations, recipe.run_dir) == (2, Path("x"))
    assert data == {**GOOD, "evaluation": {"splits": ["ood"]}}
