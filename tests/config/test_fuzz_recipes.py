"""Malformed recipes and overrides, made from the shipped ones: each is one line that names the key.

What is done to a key follows from the schema, so that new keys are tried without being added here.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from annotated_types import Ge, Gt
from pydantic import BaseModel

from helpers.paths import ROOT
from rlanything.config.recipe import Recipe, RecipeError, load_recipe

RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
MARK = "MARK"
"""Stands in a dumped recipe where raw YAML is to be put."""
NUMBERS = {int, float}

Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A key of the schema that holds a value: where, of which types, and whether bounded below."""

    path: Path_
    kinds: frozenset[Any]
    bounded: bool

    @property
    def numeric(self) -> bool:
        return bool(self.kinds & NUMBERS) and tuple not in self.kinds


def leaves(section: type[BaseModel] = Recipe, path: Path_ = ()) -> Iterator[Leaf]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, (*path, name))
        else:
            parts = list(unfolded(kind))
            bounds = [*parts, *field.metadata]
            bounded = any(isinstance(part, Ge | Gt) for part in bounds)
            kinds = frozenset(p for p in parts if isinstance(p, type) or p is Literal)
            yield Leaf((*path, name), kinds, bounded)


def unfolded(kind: Any) -> Iterator[Any]:
    """A type and everything it is made of: unions, annotations, tuples."""
    origin = get_origin(kind)
    yield origin or kind
    if origin is Annotated:
        yield from kind.__metadata__
    if origin is not None and origin not in (Literal, dict):
        for inner in get_args(kind):
            yield from unfolded(inner)


def sections(section: type[BaseModel] = Recipe, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation, (*path, name))


LEAVES = tuple(leaves())
SECTIONS = tuple(sections())


def faults(leaf: Leaf) -> Iterator[str]:
    """YAML that the key cannot hold."""
    # Whatever it holds: these are no values at all, or of a type that no key has.
    yield from ("!foo 1", "!!bool maybe", "!!timestamp x", "!!int ''", "!!binary aGk=")
    yield from ("!!python/object:os.system {}", "!!set {a}", "2026-13-01", f"{'9' * 5000}", "0x_")
    yield from ('"a\\0b"', '"\\ud800"', '"\\x1b[31m"', "{a: 1, a: 2}", "&x [*x]", "&y {<<: *y}")
    if dict in leaf.kinds:
        yield from ("3", "word", "[1]", "null", "2026-01-01", "{a: .nan}", "{a: [.inf]}", "{1: 1}")
        return
    if type(None) not in leaf.kinds:
        yield "null"
    yield from ("{a: 1}", "[{a: 1}]", "9" * 400, "1:1:1:1:1:1:1:1:1:1:1:1:1")
    if tuple in leaf.kinds:
        yield from ("3", "word", "true", "[[1]]", "[null]", "[2026-01-01]", "{a: [1]}")
    if leaf.numeric:
        yield from ("word", "''", ".nan", ".inf", "-.inf", "nan", "'-inf'", "1e999", "yes", "off")
        yield from ("[1]", "2026-01-01", "12 monkeys", "１x", "--1", "1,5", "'1 1'")
        yield from ("-5", "-1.0e-9") if leaf.bounded else ()
        yield from ("2.5",) if float not in leaf.kinds else ()
    elif bool in leaf.kinds:
        yield from ("word", "3", "2.5", "[true]", "2026-01-01")
    elif Literal in leaf.kinds:
        yield from ("word", "3", "true", "''", "[none]")
    elif str in leaf.kinds and tuple not in leaf.kinds:
        yield from ("3", "2.5", "true", "[word]", "2026-01-01", ".nan")


def placed(data: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    """A copy in which the key has the value."""
    first, *rest = path
    inner = data.get(first)
    if rest:
        value = placed(inner if isinstance(inner, dict) else {}, tuple(rest), value)
    return {**data, first: value}


def raw(data: dict[str, Any], path: Path_, text: str) -> str:
    """The recipe with a piece of raw YAML as the key's value."""
    return yaml.safe_dump(placed(data, path, MARK), allow_unicode=True).replace(MARK, text)


def misspelt(name: str, rng: random.Random) -> str:
    at = rng.randrange(len(name))
    return rng.choice(
        (
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1 :] + "q",
            name.upper(),
            f"{name} ",
            name.replace("_", "-") + "-",
            f"{name}\u200b",
            f"{name}\n",
        )
    )


def bad_recipes() -> Iterator[tuple[str, Path_]]:
    """Texts, each with the key at fault."""
    rng = random.Random(0)
    shipped = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RECIPES]
    for leaf in LEAVES:
        data = rng.choice(shipped)
        for fault in rng.sample(given := list(faults(leaf)), min(len(given), 3)):
            yield raw(data, leaf.path, fault), leaf.path
        wrong = (*leaf.path[:-1], misspelt(leaf.path[-1], rng))
        yield yaml.safe_dump(placed(data, wrong, 1)), wrong
        again = f"1\n{'  ' * (len(leaf.path) - 1)}{leaf.path[-1]}: 1"
        yield raw(data, leaf.path, again), leaf.path
        if leaf.path[-1] not in Recipe.model_fields:  # out of its section
            yield yaml.safe_dump(placed(data, leaf.path[-1:], 1)), leaf.path[-1:]
    for path in SECTIONS[1:]:
        data = rng.choice(shipped)
        for value in ([1], 3, "word", True, None, datetime.date(2026, 1, 1), [{"model": "nano"}]):
            yield yaml.safe_dump(placed(data, path, value)), path
        for name in ("nonsense", "", "a.b", "é", path[-1], "\ufeff", "1", "null"):
            yield yaml.safe_dump(placed(data, (*path, name), 1), allow_unicode=True), (*path, name)
        for name in ("1", "null", "~", "yes", "0.5", "2026-01-01"):
            yield raw(data, path, f"{{{name}: 1}}"), (*path, name)
        yield raw(data, path, "{? [a] : 1}"), path
        yield raw(data, path, "{<<: 3}"), (*path, "<<")
    for data in shipped:
        yield yaml.safe_dump({key: data[key] for key in data if key != "name"}), ("name",)
        yield yaml.safe_dump({key: data[key] for key in data if key != "domain"}), ("domain",)
        yield yaml.safe_dump({**data, "domain": {"options": {}}}), ("domain", "name")
    for path, text in CONTRADICTIONS:
        yield raw(rng.choice(shipped), path, text), path[:1]


# Values that are good each alone. The section is named, and the message names the keys.
CONTRADICTIONS: tuple[tuple[Path_, str], ...] = (
    (("policy",), "{decoding: choices, max_tokens: 8, thought_tokens: 8}"),
    (("curriculum",), "{alpha_low: 0.8, alpha_high: 0.2}"),
    (("feedback",), "{policy_window: [0.9, 0.1]}"),
    (("feedback",), "{judge_window: [0.9]}"),
    (("feedback",), "{judge_window: [0.1, 0.2, 0.3]}"),
    (("feedback",), "{judge_window: [a, b]}"),
    (("loop",), "{tasks: 4, tasks_per_iteration: 5}"),
    (("judge",), "oracle(noise=2)"),
    (("judge",), "oracle(noise=.)"),
    (("judge",), "oracle(noise=0.1"),
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
    b"{name: mine, domain: {name: alfworld}}}",
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
    b'{"name": "mine",}\n}',
    bytes(range(256)),
)

NO_OVERRIDES = (
    *("", "=", "=3", "seed", "policy.learning_rate", "policy:learning_rate:1", "--seed 3", "\n=1"),
    *("seed\n=1", "\udcff=1", "se\x00ed=1", "\u202eseed=1", "a\x1b[31m=1"),
)


def said(path: Path, *overrides: str) -> str:
    """The complaint, which is one visible line and no one else's."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    message = str(caught.value)
    assert message.isprintable(), message
    assert len(message) < 1000, message
    assert not re.search("Traceback|pydantic|yaml[.]|yaml,|input_value", message), message
    return message


def names(message: str, path: tuple[Any, ...]) -> bool:
    """Whether it is about the dotted key, about one within it, or about the key in its section."""
    shown = [part if part and part.isprintable() else repr(part) for part in map(str, path)]
    if re.search(rf"(^|[ (]){re.escape('.'.join(shown))}(\.[^ ]+)?: ", message):
        return True
    section, name = re.escape(".".join(shown[:-1])), re.escape(shown[-1])
    return re.search(rf" {section}: .*\b{name}\b", message) is not None


def test_each_malformed_recipe_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    seen = 0
    for text, key in bad_recipes():
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        message = said(path)
        assert message.startswith(str(path))
        assert names(message, key), (key, message)
        seen += 1
    assert seen >= 500


def test_each_text_that_is_no_recipe_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    for text in NO_RECIPES:
        path.write_bytes(text)
        assert said(path).startswith(f"{path}"), text
    assert "cannot be read" in said(tmp_path)
    for name in ("none.yaml", "no\nsuch.yaml", "x" * 300, "nul\0", "recipe.yaml/inside"):
        said(tmp_path / name)


def test_each_malformed_override_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: mine\ndomain: {name: alfworld}\n", encoding="utf-8")
    rng = random.Random(0)
    seen = 0
    for leaf in LEAVES:
        key = ".".join(leaf.path)
        for fault in rng.sample(given := list(faults(leaf)), min(len(given), 3)):
            message = said(path, f"{key}={fault}")
            assert names(message, leaf.path) or f"'{key}=" in message, (key, fault, message)
            seen += 1
        wrong = (*leaf.path[:-1], f"{leaf.path[-1]}x")
        assert names(said(path, f"{'.'.join(wrong)}=1"), wrong)
        deeper = (*leaf.path, "x")
        if dict not in leaf.kinds:
            message = said(path, f"{'.'.join(deeper)}=1")
            assert key in message or repr(leaf.path[-1]) in message
    for override in (*NO_OVERRIDES, f"domain.options{'.a' * 3000}=1", f"seed={'[' * 600}"):
        assert "override" in said(path, override)
        seen += 1
    assert seen >= 200
