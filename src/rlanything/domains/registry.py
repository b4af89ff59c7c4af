"""From a name in a recipe to a domain."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from rlanything.domains.base import Domain, DomainError

GROUP = "rlanything.domains"


def load_domain(name: str, options: Mapping[str, Any]) -> Domain:
    """The domain registered under `name` (an entry point of `rlanything.domains`), or the class
    that a `module:Class` string names, made with `options`.

    Raises `DomainError` where there is none, where it cannot be imported, and for options that it
    does not take."""
    make = _from_path(name) if ":" in name else _registered(name)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as fault:
        known = ", ".join(inspect.signature(make).parameters) or "none"
        raise DomainError(f"domain {name}: {fault}; its options are: {known}") from fault
    return make(**options)


def _registered(name: str) -> Callable[..., Domain]:
    found = entry_points(group=GROUP)
    if name not in found.names:
        known = ", ".join(sorted(found.names)) or "none (is rlanything installed?)"
        raise DomainError(f"unknown domain {name!r}: use one of {known}, or `module:Class`")
    entry = found[name]
    try:
        return entry.load()
    except ModuleNotFoundError as fault:
        if entry.dist and entry.extras:
            package = f"{entry.dist.name}[{','.join(entry.extras)}]"
            remedy = f"install its extra with `pip install '{package}'`"
        else:
            remedy = f"install what provides {fault.name}"
        raise DomainError(f"domain {name} needs the module {fault.name}: {remedy}") from fault
    except (ImportError, AttributeError) as fault:
        raise DomainError(
            f"domain {name} cannot be imported ({fault}): reinstall or fix {entry.module}"
        ) from fault


def _from_path(path: str) -> Callable[..., Domain]:
    module_name, _, class_name = path.partition(":")
    if os.getcwd() not in sys.path:
        # A domain beside one's recipe is found, as it is by `python -m`.
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module_name), class_name)
    except ModuleNotFoundError as fault:
        raise DomainError(
            f"domain {path}: there is no module {fault.name}: install it, or put it on PYTHONPATH"
        ) from fault
    except (ImportError, AttributeError, ValueError) as fault:
        raise DomainError(
            f"domain {path} cannot be imported ({fault}): write it as `module:Class`"
        ) from fault
    return found
