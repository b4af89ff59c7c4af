"""YAML without its surprises; what is no plain data is refused with its line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rlanything.config.yaml import YamlError, read_yaml, typed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E+3", 1000.0),
        ("-2.5e-3", -0.0025),
        (".5", 0.5),
        ("1_000", 1000),
        ("-7", -7),
        ("0", 0),
        ("yes", True),
        ("null", None),
        ("'1e-5'", "1e-5"),
        ("017", "017"),
        ("0x1F", "0x1F"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-13-01", "2026-13-01"),
        ("12 monkeys", "12 monkeys"),
        ("1e", "1e"),
        ("", None),
        ("a: 1\nb: {<<: {c: 2}, d: 3}", {"a": 1, "b": {"c": 2, "d": 3}}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
    ],
)
def test_values_are_what_they_look_like(text, value):
    read = read_yaml(text)
    assert read == value
    assert type(read) is type(value)


def test_numbers_beyond_64_bits_are_no_integers():
    assert read_yaml("123456789012345678") == 123456789012345678
    assert type(read_yaml("9" * 400)) is float
    assert type(read_yaml("9" * 5000)) is float


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a: given twice"),
        ("a: {b: 1, b: 2}", 1, "b: given twice"),
        ("a: 1\n'a': 2", 2, "a: given twice"),
        ("a: !mine 1", 1, "the tag !mine has no meaning here"),
        ("a: !!python/object:os.system {}", 1, "the tag python/object:os.system"),
        ("a: !!set {b}", 1, "the tag set"),
        ("a: !!binary aGk=", 1, "the tag binary"),
        ("a: !!timestamp x", 1, "the tag timestamp"),
        ("a: !!bool maybe", 1, "'maybe' cannot be read"),
        ("a: !!int ''", 1, "'' cannot be read"),
        ('a: "b\\0c"', 1, "control characters"),
        ('a: "\\ud800"', 1, "control characters"),
        ("? [a]\n: 1", 1, "unhashable key"),
        ("a: {<<: 3}", 1, "expected a mapping"),
        ("a: &x [*x]", 1, "nested too deeply"),
        ("a: &x {<<: *x, b: 1}", 1, "nested too deeply"),
        ("a: 1\n---\nb: 2", 2, "single document"),
        ("a: \x07", 1, "U\\+0007 is not allowed"),
        ("a: [1", 1, "expected ',' or ']'"),
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_line(text, line, fault):
    with pytest.raises(YamlError, match=fault) as caught:
        read_yaml(text)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 600,
        "{a: " * 2000,
        "[" * 20 + "]" * 20,
        "a: &a [1,1,1]\n"
        + "".join(
            f"x{i}: &x{i} [{', '.join(['*a' if not i else f'*x{i - 1}'] * 9)}]\n" for i in range(12)
        ),
        "a: &a {b: 1}\n"
        + "".join(
            f"x{i}: &x{i} {{<<: [{', '.join(['*a' if not i else f'*x{i - 1}'] * 9)}]}}\n"
            for i in range(12)
        ),
    ],
    ids=["lists", "open", "deep", "aliases", "merges"],
)
def test_bombs_are_refused_at_once(text):
    with pytest.raises(YamlError, match=r"nested too deeply|expected"):
        read_yaml(text)


def test_a_path_in_a_command_is_quoted_where_a_shell_needs_that() -> None:
    assert typed(Path("runs/a b")) == "'runs/a b'"
    assert typed(Path("runs/plain-1.0")) == "runs/plain-1.0"
    assert shlex.split(typed("it's; $(x)")) == ["it's; $(x)"]
