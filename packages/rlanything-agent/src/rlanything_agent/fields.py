"""Fields that the bodies of all dialects have, as typed values; a wrong value is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rlanything_agent.asked import Denial

EXTENSIONS = frozenset({"chat_template_kwargs", "structured_outputs"})
"""Fields that are honoured in every dialect, although no API but vLLM's has them."""
Tool = Mapping[str, Any]
_MOST_DEPTH = 100
"""Largest depth of a field; requests that are nested more deeply cannot be pickled or kept."""


def given_fields(
    body: Any, honoured: AbstractSet[str], ignored: AbstractSet[str]
) -> dict[str, Any]:
    """Returns the fields of a body that are not null. Raises `Denial` for one that is neither
    honoured nor ignored."""
    if not isinstance(body, Mapping):
        raise Denial("the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    for name in sorted(given.keys() - honoured - EXTENSIONS - ignored):
        raise unsupported(name)
    for name in given:
        if _is_deep(given[name]):
            raise Denial(f"{name} is nested too deeply: send a flatter one", name)
    return given


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [member for outer in level for member in _inside(outer)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def unsupported(name: str) -> Denial:
    """Returns the refusal of a field. Its name comes from the program."""
    plain = len(name) < 80 and name.replace(".", "").isidentifier()
    said = name if plain else f"{name!r:.80}"
    return Denial(f"{said} is not supported: leave it out", name, code="unsupported_parameter")


def members(given: Mapping[str, Any], name: str, read: AbstractSet[str]) -> Mapping[str, Any]:
    """Returns an object's fields that are not null; {} if the body lacks the object. Raises
    `Denial` for a field that is not read."""
    value = given.get(name, {})
    if not isinstance(value, Mapping):
        raise Denial(f"{name} must be a JSON object", name)
    inside = {key: member for key, member in value.items() if member is not None}
    for key in sorted(inside.keys() - read):
        raise unsupported(f"{name}.{key}")
    return inside


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Returns a text."""
    if not isinstance(value := given.get(name), str):
        raise Denial(f"{name} must be a text", name)
    return value


def flag_of(given: Any, name: str, default: bool = False) -> bool:
    """Returns a truth value."""
    value = given.get(name, default) if isinstance(given, Mapping) else None
    if not isinstance(value, bool):
        raise Denial(f"{name} must be true or false", name)
    return value


def count_of(given: Mapping[str, Any], name: str, most: int | None = None) -> int | None:
    """Returns a number from 1 to `most`; None if it is not given."""
    value = given.get(name)
    if value is not None and (type(value) is not int or value < 1 or value > (most or value)):
        raise Denial(f"{name} must be a whole number from 1{f' to {most}' if most else ''}", name)
    return value


def stop_of(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Returns the stop strings."""
    value = given.get(name, ())
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(w, str) and w for w in words):
        raise Denial(f"{name} must be a text or a list of texts, none of them empty", name)
    return tuple(words)


def list_of(given: Mapping[str, Any], name: str) -> list[Any]:
    """Returns a list that is not empty."""
    value = given.get(name)
    if not isinstance(value, list) or not value:
        raise Denial(f"{name} must be a list that is not empty", name)
    return value


def unforceable(place: str, kind: Any) -> Denial:
    """Returns the refusal of an output format."""
    return Denial(
        f"{place} {kind!r:.80} cannot be enforced here, and what is not sampled as the "
        "policy would cannot train it: describe the form in a message, and parse the answer",
        place,
        code="unsupported_value",
    )


def template_kwargs(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the variables of the chat template."""
    value = given.get("chat_template_kwargs", {})
    if not isinstance(value, Mapping):
        raise Denial("chat_template_kwargs must be a JSON object", "chat_template_kwargs")
    return value


def choices(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the texts to choose among; None for a free answer."""
    outputs = given.get("structured_outputs")
    if outputs is None:
        return None
    listed = outputs.get("choice") if isinstance(outputs, Mapping) else None
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(choice, str) for choice in listed)
        or set(outputs) != {"choice"}
    ):
        raise Denial(
            'structured_outputs must be {"choice": [...]}, a list of the texts to choose among',
            "structured_outputs",
        )
    return tuple(listed)


def named_tools(given: Mapping[str, Any], kind: str) -> list[Tool]:
    """Returns `tools` as objects, or raises `Denial`; `kind`: what each of them must be."""
    listed = given.get("tools", [])
    if not isinstance(listed, list) or not all(isinstance(tool, Mapping) for tool in listed):
        raise Denial(f"tools must be a list of {kind}, each with a name", "tools")
    return listed


def function_of(tool: Mapping[str, Any], schema: str) -> Tool:
    """Returns a tool in the form of OpenAI's chat completions. `schema`: its field with the schema
    of the arguments."""
    names = {"name": "name", "description": "description", "parameters": schema}
    return {name: tool[own] for name, own in names.items() if tool.get(own) is not None}


def only(tools: Sequence[Tool], name: Any, ignored: set[str]) -> list[Tool]:
    """Returns the tool that `tool_choice` names. Nothing forces the call, so `tool_choice` counts
    as ignored."""
    chosen = [tool for tool in tools if tool["name"] == name]
    if not chosen:
        raise Denial(f"tool_choice names {name!r:.80}, which is none of tools", "tool_choice")
    ignored.add("tool_choice")
    return chosen
