"""Trust in a recipe: the user decides what it may import and send.

A recipe, like a run directory, may come from a stranger. Names of parts that installed packages
register are harmless; `module:name` is code, and `key_variable` a secret: both need the user's
permission by an override, an option or an environment variable. No recipe can grant it to itself.

Settings and a domain's `Options` say by their types which keys name code, commands and secrets:
these are refused while the recipe is read. An installed package may resolve a name from any other
option, so `rlanything.plugins` checks again at the import."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rlanything.plugins import CODE_VARIABLE, IMPORTS, is_object

KEYS_VARIABLE = "RLANYTHING_KEYS"
CODE, SECRET = "code", "secret"
"""Types of the two refusals among pydantic's errors."""
OWN_KEYS = {
    "OPENAI_API_KEY": "api.openai.com",
    "TINKER_API_KEY": "tinker.thinkingmachines.dev",
}
"""Keys that may go to their own host without permission."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Permissions that the user gave a recipe, in addition to those of the environment."""

    code: bool = False
    """Whether all code that the recipe names may be imported."""
    said: frozenset[tuple[str, str]] = frozenset()
    """Texts that the user wrote, each with its keys: names of code, variables, addresses."""
    names: frozenset[str] = frozenset()
    """Every `module:name` that the user wrote, in any option, and every one that ships."""
    ships: frozenset[str] = frozenset()
    """Names of the code that ships with the recipe."""
    secrets: bool = False
    """Whether the value of any variable may be sent: set for a program's own options, not a
    recipe's."""
    limits: bool = True
    """Whether the recipe may come from a stranger; false for shipped recipes and ones read
    before."""
    asked: list[str] = field(default_factory=list, compare=False)
    """All code and commands that this trust was asked about."""

    @property
    def all_code(self) -> bool:
        return self.code or os.environ.get(CODE_VARIABLE) == "1"

    def allows_code(self, name: str, key: str) -> bool:
        """Returns whether the code of this name may be imported for the setting `key`."""
        if not is_code(name):
            return True
        self.asked.append(name)
        return self.all_code or name in self.ships or (key, name) in self.said

    def allows_command(self, words: str, key: str) -> bool:
        """Returns whether the setting `key` may run the command of these words."""
        self.asked.append(words)
        return self.all_code or (key, words) in self.said

    def allows_key(self, variable: str, url: str, key: str = "key_variable") -> bool:
        """Returns whether the value of an environment variable, named by the setting `key`, may be
        sent to an address."""
        if self.secrets:
            return True
        address = urlsplit(url)
        entries = os.environ.get(KEYS_VARIABLE, "").split(",")
        granted = [entry.strip().partition("@") for entry in entries]
        if any(name == variable and host in ("", address.hostname) for name, _, host in granted):
            return True
        if (key, variable) in self.said:
            return True
        at_home = address.scheme == "https" and address.hostname == OWN_KEYS.get(variable)
        return at_home or (variable in OWN_KEYS and ("url", url) in self.said)


def limit_to(trust: Trust, data: object) -> None:
    """Lets this process import only what it may already import and what `trust` allows of a
    recipe's data."""
    if trust.all_code:
        IMPORTS.allow(names_in(data))
        return
    IMPORTS.allow(trust.names)
    if trust.limits:
        IMPORTS.limit()


def names_in(data: object) -> Iterator[str]:
    """Yields each text in plain data, at any depth, that could be a `module:name`."""
    if isinstance(data, str):
        if ":" in data:
            yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from names_in(key)
            yield from names_in(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from names_in(value)


def mappings_in(
    data: object, *place: str
) -> Iterator[tuple[tuple[str, ...], Mapping[str, object]]]:
    """Yields each mapping in plain data, at any depth, with the keys that lead to it."""
    if isinstance(data, Mapping):
        yield place, data
        for key, value in data.items():
            yield from mappings_in(value, *place, str(key))
    elif isinstance(data, list | tuple):
        for i, value in enumerate(data):
            yield from mappings_in(value, *place, str(i))


def is_code(name: str) -> bool:
    """Returns whether a part's name is `module:name` and no registered name."""
    return ":" in name and not is_object(name)


def trust_of(info: ValidationInfo) -> Trust:
    """Returns the trust under which settings are read; no permissions if none was given."""
    return info.context if isinstance(info.context, Trust) else Trust()


def check_code(name: str, info: ValidationInfo) -> str:
    """Returns the name of a part, for pydantic. Raises for code that is not allowed."""
    if not trust_of(info).allows_code(name, info.field_name or ""):
        raise PydanticCustomError(CODE, "{name} would be imported", {"name": name})
    return name


def check_command(command: object, info: ValidationInfo) -> object:
    """Returns a command, for pydantic. Raises for one that may not be run."""
    words = words_of(command)
    if command and not trust_of(info).allows_command(words, info.field_name or ""):
        raise PydanticCustomError(CODE, "{name} would be run", {"name": words})
    return command


def check_variable(variable: str, info: ValidationInfo) -> str:
    """Returns the name of an environment variable, for pydantic. Raises for one that may not be
    sent to the `url` above it in its section, if there is one."""
    url = str(info.data.get("url", ""))
    if not trust_of(info).allows_key(variable, url, info.field_name or ""):
        where = {"name": variable, "host": urlsplit(url).hostname}
        raise PydanticCustomError(SECRET, "{name} would be sent to {host}", where)
    return variable


def check_key(place: str, endpoint: Mapping[str, object], info: ValidationInfo) -> None:
    """Raises, for pydantic, if an endpoint in a domain's option would be sent a key that is not
    allowed."""
    variable, url = endpoint.get("key_variable"), str(endpoint.get("url", ""))
    if variable is not None and not trust_of(info).allows_key(str(variable), url):
        where = {"key": place, "name": str(variable), "host": urlsplit(url).hostname}
        raise PydanticCustomError(SECRET, "{name} would be sent to {host}", where)


CodeName: TypeAlias = Annotated[str, AfterValidator(check_code)]
"""The name of a part: a registered one, or `module:name` if that is allowed."""
CommandWords: TypeAlias = Annotated[Sequence[str], BeforeValidator(check_command)]
"""The words of a command to run, if that is allowed."""
SecretVariable: TypeAlias = Annotated[str, AfterValidator(check_variable)]
"""The environment variable of a key that is sent to the section's `url`, if that is allowed."""


def texts(data: object, *keys: str) -> Iterator[tuple[str, str]]:
    """Yields all texts of plain data, each with all keys above it; a list also as the words of a
    command."""
    if isinstance(data, str):
        yield from ((key, data) for key in keys)
    elif isinstance(data, list):
        yield from ((key, words_of(data)) for key in keys)
        for value in data:
            yield from texts(value, *keys)
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from texts(name, *keys)
            yield from texts(value, *keys, str(name))


def words_of(data: object) -> str:
    """Returns a list as the words of a command."""
    return " ".join(map(str, data)) if isinstance(data, list | tuple) else str(data)
