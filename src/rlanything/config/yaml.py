"""A YAML reader based on PyYAML, without its surprises.

Numbers follow YAML 1.2: `1e-5` is a number, `017` and `1:30` are not; dates stay texts. Duplicate
keys, tags, control characters, and endless nesting or aliases are errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

_TAG = "tag:yaml.org,2002:"
_PLAIN = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
_OLD_FORMS = {_TAG + kind for kind in ("int", "float", "timestamp")}
# As many digits as 64 bits hold; longer ones are read as floats.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,17})$")
_FLOAT = re.compile(
    r"[-+]?(?:[1-9][0-9_]{18,}|(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_DEEPEST = 16
"""Limit of nesting levels; more are a mistake, such as an alias of itself."""
_LARGEST = 100_000
"""Limit of values, aliases expanded."""
_TOO_LARGE = "nested too deeply, or too large"


class YamlError(ValueError):
    """A text cannot be read; one line with the key or the syntax error."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if len(problem) <= 300 else f"{problem[:300]}...")
        self.line = line
        """Line number from 1; None if the problem has no place."""


class _Loader(yaml.SafeLoader):
    yaml_constructors = {  # noqa: RUF012 - declared like this by PyYAML
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _PLAIN
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in pairs if tag not in _OLD_FORMS]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _values = _depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        self._values += 1
        self._depth += 1
        if self._values > _LARGEST or self._depth > _DEEPEST:
            mark = self.peek_event().start_mark
            raise ConstructorError(None, None, _TOO_LARGE, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in names:
                    raise _fault(f"{visible(name.value)}: given twice; keep one", name)
                names.add(name.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError):  # `!!int x`, `!!bool maybe`
            raise _fault(f"{node.value!r:.40} cannot be read; quote a text", node) from None
        if isinstance(value, str) and _CONTROL.search(value):
            raise _fault(f"control characters in {value!r:.40}; remove them", node)
        return value


def _refuse_tag(_: _Loader, node: yaml.Node) -> None:
    tag = visible(node.tag.removeprefix(_TAG))
    raise _fault(f"the tag {tag} has no meaning here; leave it out", node)


_Loader.yaml_constructors[None] = _refuse_tag  # for all other tags
_Loader.add_implicit_resolver(_TAG + "int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """Returns the single document of a text as plain data. Raises `YamlError`."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _limit(node)
        return loader.construct_document(node)
    except RecursionError:
        raise YamlError("nested too deeply") from None
    except ReaderError as error:
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed; remove it"
        raise YamlError(problem, text.count("\n", 0, error.position) + 1) from None
    except yaml.MarkedYAMLError as error:
        parts = [part for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        raise YamlError(", ".join(parts), mark.line + 1 if mark else None) from None


def _limit(root: yaml.Node) -> None:
    """Raises an error for a document that aliases make too large, before building it."""
    values, waiting = 0, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        values += 1
        if values > _LARGEST or depth > _DEEPEST:
            raise _fault(_TOO_LARGE, node)
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        for child in children:  # a value, or a key with its value
            pair = child if isinstance(child, tuple) else (child,)
            waiting.extend((inner, depth + 1) for inner in pair)


def _fault(problem: str, node: yaml.Node) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


def dotted(key: Sequence[Any]) -> str:
    """Returns a key such as `policy.learning_rate`, always one line; empty for no key."""
    return ".".join(map(visible, key))


def typed(path: object) -> str:
    """Returns a path for a shell command, quoted if necessary."""
    return quote(visible(path)) if str(path).isprintable() else visible(path)


def visible(name: object) -> str:
    """Returns a name, quoted if it is empty or not printable."""
    text = str(name)
    return text if text and text.isprintable() else repr(text)
