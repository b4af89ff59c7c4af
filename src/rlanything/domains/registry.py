"""From a name in a recipe to a domain."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlanything.domains.base import Domain, DomainError
from rlanything.plugins import PluginError, load_plugin


def load_domain(name: str, options: Mapping[str, Any]) -> Domain:
    """Returns the domain registered under `name` (an entry point of `rlanything.domains`), or the
    class that a `module:Class` string names, made with `options`.

    Raises `DomainError` where there is none, where it cannot be imported, and for options that it
    does not take."""
    try:
        make = load_plugin("domain", name)
    except PluginError as error:
        raise DomainError(str(error)) from error
    try:
        inspect.signature(make).bind(**options)
    except TypeError as fault:
        known = ", ".join(inspect.signature(make).parameters) or "none"
        raise DomainError(f"domain {name}: {fault}; its options are: {known}") from fault
    return make(**options)
