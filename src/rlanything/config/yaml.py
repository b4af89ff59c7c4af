"""YAML as plain data, without what YAML lets pass: every fault is named with its line and key.

Refused beyond bad syntax: a key given twice or that is no text, a value that only looks like a
number or a date, integers of more than 64 bits, control characters, and endless aliases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import yaml
from yaml.reader import ReaderError

Key: TypeAlias = tuple[Any, ...]
"""Where a value lies: the names, and the places in lists, that lead to it."""

_TAG = "tag:yaml.org,2002:"
_DEEPEST = 16
_LARGEST = 100_000
"""Levels and values: beyond them lies a mistake, such as an alias of itself."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class YamlError(ValueError):
    """A text cannot be read; one line with the key, or the syntax, and what is wrong."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line
        """Counted from 1; None where the fault has no place."""


def read_yaml(text: str, key: Key = ()) -> Any:
    """The one document of a text; `key` is where its value will belong. Raises `YamlError`."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return None if node is None else _Reader(loader).value(node, key)
    except RecursionError:
        raise YamlError(f"{dotted(key) or 'it'}: nested too deeply") from None
    except ReaderError as error:
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed; remove it"
        raise YamlError(problem, text.count("\n", 0, error.position) + 1) from None
    except yaml.YAMLError as error:
        said = [getattr(error, part, None) for part in ("context", "problem")]
        mark = getattr(error, "problem_mark", None)
        problem = ", ".join(each for each in said if each) or "not valid YAML"
        raise YamlError(problem, mark.line + 1 if mark else None) from None


def dotted(key: Sequence[Any]) -> str:
    """`policy.learning_rate`, in one line whatever the names are made of; empty for no key."""
    return ".".join(map(visible, key))


def visible(name: object) -> str:
    """A name as it is, or quoted where it could not be seen."""
    text = str(name)
    return text if text and text.isprintable() else repr(text)


class _Reader:
    """Turns YAML's nodes into data."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._left = _LARGEST

    def value(self, node: yaml.Node, key: Key) -> Any:
        self._left -= 1
        if self._left < 0 or len(key) > _DEEPEST:
            raise _wrong(node, key[:_DEEPEST], "nested too deeply, or too large")
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(each, (*key, i)) for i, each in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        raise _wrong(node, key, f"the tag {_kind(node)} has no meaning here; leave it out")

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                raise _wrong(name_node, key, "a key is a single name")
            if name_node.tag == _TAG + "merge":
                merged |= self._merged(value_node, (*key, "<<"))
                continue
            name = self._scalar(name_node, key)
            if not isinstance(name, str):
                raise _wrong(name_node, (*key, name_node.value), "a key is a string; quote it")
            if name in own:
                raise _wrong(name_node, (*key, name), "given twice; keep one")
            own[name] = self.value(value_node, (*key, name))
        return merged | own

    def _merged(self, node: yaml.Node, key: Key) -> dict[str, Any]:
        """What `<<` brings in: one mapping or several, of which the first wins."""
        value = self.value(node, key)
        merged: dict[str, Any] = {}
        for source in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(source, dict):
                raise _wrong(node, key, "only mappings can be merged")
            merged |= source
        return merged

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        try:
            value = self._loader.construct_object(node)
        # What PyYAML raises for `!foo x`, `2026-13-01`, `!!bool maybe`, `!!timestamp x` and a
        # sexagesimal number of many parts.
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError):
            raise _unreadable(node, key) from None
        if isinstance(value, bytes) or (isinstance(value, int) and value.bit_length() > 63):
            raise _unreadable(node, key)
        if isinstance(value, str) and _CONTROL.search(value):
            raise _wrong(node, key, f"control characters in {value!r:.40}; remove them")
        return value


def _kind(node: yaml.Node) -> str:
    """`int`, `set`, `!mine`: what the node's tag calls it."""
    return visible(node.tag.removeprefix(_TAG))


def _unreadable(node: yaml.ScalarNode, key: Key) -> YamlError:
    fault = f"no readable {_kind(node)} ({node.value!r:.40}); quote it if it is a text"
    return _wrong(node, key, fault)


def _wrong(node: yaml.Node, key: Key, problem: str) -> YamlError:
    line = node.start_mark.line + 1 if node.start_mark else None
    return YamlError(f"{dotted(key)}: {problem}" if key else problem, line)
