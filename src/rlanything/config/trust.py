"""Trust in a recipe: its user decides what it may have imported or sent.

A recipe, like a run directory, may come from a stranger. Names of parts that installed packages
register are harmless; `module:name` is code, and `key_variable` a secret: both need a word of the
user's own, an override, an option or an environment variable. No recipe can give it to itself.

Keys that are known to name code are refused while the recipe is read. An installed package may
resolve a name from any of its options, so `rlanything.plugins` asks again where it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rlanything.plugins import CODE_VARIABLE, IMPORTS, is_object

KEYS_VARIABLE = "RLANYTHING_KEYS"
CODE, SECRET = "code", "secret"
"""The types of the two refusals among pydantic's errors."""
CODE_OPTIONS = ("provider", "solve", "id", "render", "opponent")
"""The options of shipped domains that name code."""
NAME_KEYS = ("name", "loss", "advantage", "judge_reward", *CODE_OPTIONS)
"""The keys under which a user may write a `module:name`."""
OWN_KEYS = {"OPENAI_API_KEY": "api.openai.com"}
"""Keys that go where they belong without being asked for."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The permissions that a recipe has of its user, beside those of the environment."""

    code: bool = False
    """Whether all code that the recipe names may be imported."""
    said: frozenset[tuple[str, str]] = frozenset()
    """The texts that the user wrote, each with its key: names of code, variables, addresses."""
    names: frozenset[str] = frozenset()
    """Each `module:name` that the user wrote, in any option."""
    limits: bool = True
    """Whether the recipe may come from a stranger: not where it ships, or was read before."""

    @property
    def all_code(self) -> bool:
        return self.code or os.environ.get(CODE_VARIABLE) == "1"

    def allows_code(self, name: str) -> bool:
        """Whether the part of this name may be imported."""
        return not is_code(name) or self.all_code or self._says(name, *NAME_KEYS)

    def allows_command(self, words: str) -> bool:
        """Whether a command of these words may be run."""
        return self.all_code or self._says(words, "command")

    def allows_key(self, variable: str, url: str) -> bool:
        """Whether the value of an environment variable may be sent to an address."""
        address = urlsplit(url)
        entries = os.environ.get(KEYS_VARIABLE, "").split(",")
        granted = [entry.strip().partition("@") for entry in entries]
        if any(name == variable and host in ("", address.hostname) for name, _, host in granted):
            return True
        if self._says(variable, "key_variable"):
            return True
        at_home = address.scheme == "https" and address.hostname == OWN_KEYS.get(variable)
        return at_home or (variable in OWN_KEYS and self._says(url, "url"))

    def _says(self, text: str, *keys: str) -> bool:
        return any((key, text) in self.said for key in keys)


def limit_to(trust: Trust, data: object) -> None:
    """Has this process import no other code than what it may already, and what `trust` allows of a
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
    """Whether a part's name says where its code lies, and is not one that a package registers."""
    return ":" in name and not is_object(name)


def trust_of(info: ValidationInfo) -> Trust:
    """Returns the trust under which settings are read: none, where nobody gave any."""
    return info.context if isinstance(info.context, Trust) else Trust()


def check_code(name: str, info: ValidationInfo) -> str:
    """Returns the name of a part, for pydantic. Raises for code that is not allowed."""
    if not trust_of(info).allows_code(name):
        raise PydanticCustomError(CODE, "{name} would be imported", {"name": name})
    return name


def check_command(command: object, info: ValidationInfo) -> None:
    """Raises, for pydantic, for a command that may not be run; None is none."""
    words = words_of(command)
    if command is not None and not trust_of(info).allows_command(words):
        raise PydanticCustomError(CODE, "{name} would be run", {"name": words})


def check_key(place: str, endpoint: Mapping[str, object], info: ValidationInfo) -> None:
    """Raises, for pydantic, for an endpoint to which a key would be sent that may not be."""
    variable, url = endpoint.get("key_variable"), str(endpoint.get("url", ""))
    if variable is not None and not trust_of(info).allows_key(str(variable), url):
        where = {"key": place, "name": str(variable), "host": urlsplit(url).hostname}
        raise PydanticCustomError(SECRET, "{name} would be sent to {host}", where)


PluginName: TypeAlias = Annotated[str, AfterValidator(check_code)]
"""The name of a part: a registered one, or `module:name` where that is allowed."""


def texts(data: object, key: str = "") -> frozenset[tuple[str, str]]:
    """Returns all texts among the values of plain data, each with the key that it stands under."""
    if isinstance(data, str):
        return frozenset([(key, data)])
    if isinstance(data, list):
        return frozenset([(key, words_of(data))])
    if isinstance(data, Mapping):
        pairs = [(str(name), value) for name, value in data.items()]
        return frozenset[tuple[str, str]]().union(*(texts(value, name) for name, value in pairs))
    return frozenset()


def words_of(data: object) -> str:
    """Returns a list as the words of a command."""
    return " ".join(map(str, data)) if isinstance(data, list) else str(data)
