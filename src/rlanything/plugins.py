"""Plug-ins by name: an entry point of a group, or `module:name` for your own code.

Domains, judges, engines, adapters, losses, metrics and commands of other packages are found here.
Loading a `module:name` runs its module. Once a process has read a recipe that may come from a
stranger, it imports only the names that its user allowed, in any option."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, metadata, requires
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

CODE_VARIABLE = "RLANYTHING_ALLOW_CODE"
"""Environment variable that allows all code if it is 1."""
_NAMES_VARIABLE = "RLANYTHING_IMPORTS"
"""Environment variable with the names that a process may import, set by its parent."""


class PluginError(ValueError):
    """A plug-in cannot be found or imported; the message is one line with the remedy."""


class Imports:
    """The code that a process may import by `module:name`: any, until it reads a recipe that may
    come from a stranger."""

    def __init__(self, inherited: str | None) -> None:
        """`inherited`: the names that the parent process could import, as JSON; None: any."""
        self._limited = inherited is not None
        self._names: set[str] = set(json.loads(inherited)) if inherited else set()

    def limit(self) -> None:
        """Allows from now on only the names given to `allow`, before or later."""
        self._limited = True

    def allow(self, names: Iterable[str]) -> None:
        """Allows names that the user typed, or those of a recipe whose code is allowed."""
        self._names.update(names)

    def allows(self, name: str) -> bool:
        """Returns whether this `module:name` may be imported."""
        return not self._limited or name in self._names or os.environ.get(CODE_VARIABLE) == "1"

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that give another process the same permissions."""
        return {_NAMES_VARIABLE: json.dumps(sorted(self._names))} if self._limited else {}


IMPORTS = Imports(os.environ.get(_NAMES_VARIABLE))


def check_import(kind: str, name: str) -> None:
    """Raises `PluginError` for a `module:name` that may not be imported here."""
    if IMPORTS.allows(name):
        return
    raise PluginError(
        f"{kind} {name} is code, which would be run: if you trust it, say so each time with "
        "--allow-code (in Python allow_code=True)"
    )


def load_plugin(kind: str, name: str) -> Any:
    """Returns the object for `name`: the entry point of that name in the group of its kind
    (`rlanything.domains`, `.judges`, `.engines`, `.losses`, ...), or the attribute `name` of
    `module`.

    A module in the current folder is found, after all installed ones. Raises `PluginError` if it
    does not exist, may not or cannot be imported, or belongs to Python itself."""
    if is_object(name):
        raise PluginError(
            f"{kind} {name} was handed over by a program: hand it over again, with "
            f"rlanything.Trainer.resume(RUN, {kind}=...), which trains on and has evaluate(SPLIT)"
        )
    return _from_module(kind, name) if ":" in name else _registered(kind, name)


def make_plugin(
    kind: str,
    name: str,
    options: Mapping[str, Any],
    protocol: type,
    provided: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    remedy: str = "add them",
) -> Any:
    """Returns the object that a plug-in's class or factory makes of `options`, which satisfies
    `protocol`.

    Parameters named in `provided` are filled from there, if it accepts them and `options` do not
    set them. `remedy`: what to do about a class that lacks methods. Raises `PluginError` if the
    plug-in does not exist, does not accept the options, or, before any call, cannot make such an
    object."""
    make = load_plugin(kind, name)
    _check_maker(kind, name, make, protocol, remedy)
    parameters = inspect.signature(make).parameters
    given = {
        parameter: provided[parameter]()
        for parameter in parameters
        if parameter in provided and parameter not in options
    }
    try:
        inspect.signature(make).bind(**given, **options)
    except TypeError as fault:
        known = ", ".join(p for p in parameters if p not in provided) or "none"
        unknown = _unknown_option(parameters, options)
        raise PluginError(f"{kind} {name}: {fault}{unknown}; its options are: {known}") from fault
    made = make(**given, **options)
    if lacking := missing_members(made, protocol):
        raise PluginError(f"{kind} {name} gives no {kind}: it lacks {lacking}")
    return made


def missing_members(part: object, protocol: type) -> str:
    """Returns in words the members of a protocol that an object lacks; "" if it has all."""
    return _lacking(part, _members(protocol))


def _unknown_option(parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> str:
    """Returns an option that is not a parameter, and a similar parameter; "" without one. Python
    names a missing parameter first, which may be the one that was meant."""
    for option in options:
        if option in parameters:
            continue
        near = get_close_matches(option, parameters, 1)
        return f"; {option} is no option of it{f', did you mean {near[0]}?' if near else ''}"
    return ""


def _check_maker(kind: str, name: str, make: object, protocol: type, remedy: str) -> None:
    """Raises `PluginError` unless it is a class with the protocol's methods, or a function that
    declares to return one: other callables may do anything."""
    made = make
    if inspect.isfunction(make):
        try:
            made = get_type_hints(make).get("return")
        except Exception:  # evaluating annotations may raise anything
            made = None
    place = f"{protocol.__module__}.{protocol.__name__}"
    if not isinstance(made, type):
        raise PluginError(
            f"{kind} {name} is no {kind}: name a class with the methods of {place}, or a function "
            "with such a class for its return type"
        )
    methods = [member for member in _members(protocol) if callable(getattr(protocol, member, None))]
    if lacking := _lacking(made, methods):
        raise PluginError(f"{kind} {name} is no {kind}: it lacks {lacking} of {place}; {remedy}")


def _members(protocol: type) -> list[str]:
    """Returns the names of all members of a protocol."""
    names = {
        name
        for base in protocol.__mro__
        for name in (*vars(base), *inspect.get_annotations(base))
        if not name.startswith("_")
    }
    return sorted(names, key=str.lower)


def _lacking(part: object, members: Iterable[str]) -> str:
    abstract = getattr(part, "__abstractmethods__", ())
    return ", ".join(name for name in members if not hasattr(part, name) or name in abstract)


def object_name(part: object) -> str:
    """Returns a recipe's name for a part that was passed as an object."""
    part = getattr(part, "__wrapped__", part)  # a function inside a judge
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"object({named.__module__}.{getattr(named, '__qualname__', '?')})"


def is_object(name: str) -> bool:
    """Returns whether a recipe's name stands for a part that was passed as an object."""
    return name.startswith("object(")


def shipped_packages() -> list[Path]:
    """Returns the folders of the installed packages that ship recipes (`recipes/NAME.yaml`) or
    models (`models/NAME/ROLE/`): entry points of the group `rlanything.shipped`, whose values are
    names of top-level packages. Imports nothing."""
    entries = sorted(entry_points(group="rlanything.shipped"), key=lambda entry: entry.name)
    specs = [find_spec(entry.module.partition(".")[0]) for entry in entries]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]


def shipped_models() -> dict[str, Path]:
    """Returns the folder of each shipped set of models by its name."""
    return {
        folder.name: folder
        for package in shipped_packages()
        for folder in sorted(package.glob("models/*"))
        if (folder / "policy").is_dir()
    }


def plugin_names(kind: str) -> list[str]:
    """Returns the registered names of a kind, in alphabetical order."""
    return sorted(entry_points(group=_group(kind)).names)


def _group(kind: str) -> str:
    return f"rlanything.{'losses' if kind == 'loss' else kind + 's'}"


def _registered(kind: str, name: str) -> Any:
    entries = entry_points(group=_group(kind))
    if name not in entries.names:
        extra = name.replace("_", "-")
        if extra in (metadata("rlanything").get_all("Provides-Extra") or ()):
            raise PluginError(f"{kind} {name} is in a package of its own: {install(extra)}")
        known = ", ".join(sorted(entries.names)) or "none (is rlanything installed?)"
        raise PluginError(f"unknown {kind} {name!r}: use one of {known}, or `module:name`")
    entry = entries[name]
    try:
        return entry.load()
    except ModuleNotFoundError as fault:
        raise PluginError(
            f"{kind} {name} needs the module {fault.name}: {_remedy(entry, fault)}"
        ) from fault
    except Exception as fault:  # importing another package may raise anything
        raise PluginError(
            f"{kind} {name} cannot be imported ({_reason(fault)}): reinstall or fix {entry.module}"
        ) from fault


def install(extra: str) -> str:
    """Returns the commands that install an extra which is a package of this repository."""
    lines = [line.replace('"', "'").partition(";") for line in requires("rlanything") or ()]
    package = next(name.strip() for name, _, when in lines if f"'{extra}'" in when)
    place = shlex.quote(f"packages/{package}")
    return f"pip install 'rlanything[{extra}]' (in a checkout: pip install {place})"


def extras_of(kind: str, name: str) -> list[str]:
    """Returns the extras that a registered plug-in needs; none for a `module:name`."""
    entries = entry_points(group=_group(kind))
    return _extras(entries[name]) if name in entries.names else []


def _extras(entry: EntryPoint) -> list[str]:
    # `EntryPoint.extras` splits `reasoning-gym` in two.
    _, _, listed = entry.value.partition("[")
    return [extra.strip() for extra in listed.rstrip("] ").split(",") if extra.strip()]


def _remedy(entry: EntryPoint, fault: ModuleNotFoundError) -> str:
    if entry.dist and (extras := _extras(entry)):
        package = f"{entry.dist.name}[{','.join(extras)}]"
        return f"install its extra with `pip install '{package}'`"
    return f"install what provides {fault.name}"


def _from_module(kind: str, path: str) -> Any:
    check_import(kind, path)
    module_name, _, name = path.partition(":")
    _refuse_python(kind, path, module_name)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        plugin: Any = import_module(module_name)
        for part in name.split("."):
            plugin = getattr(plugin, part)
    except ModuleNotFoundError as fault:
        raise PluginError(
            f"{kind} {path}: there is no module {fault.name}: install it, or put its file into "
            "this folder or one on PYTHONPATH; a domain's may also be next to its recipe, with "
            "--allow-code"
        ) from fault
    except Exception as fault:  # importing the module may raise anything
        raise PluginError(
            f"{kind} {path} cannot be imported ({_reason(fault)}): fix the module, or name "
            "something that it has: write it as `module:name`"
        ) from fault
    _refuse_python(kind, path, getattr(plugin, "__module__", None) or "")
    return plugin


def child_environment() -> dict[str, str]:
    """Returns environment variables with which another process finds the same modules and may
    import the same names."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return {"PYTHONPATH": path, **IMPORTS.variables()}


def _refuse_python(kind: str, path: str, module: str) -> None:
    """Raises `PluginError` for Python's own modules: `subprocess:run` is not part of a run."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise PluginError(
            f"{kind} {path} is no {kind} but of Python's own module {module}: name your own"
        )


def _reason(fault: Exception) -> str:
    """Returns the error in one line, with its place if a line of the module raised it."""
    said = " ".join(str(fault).split())
    if isinstance(fault, ImportError | AttributeError):
        return said
    last = traceback.extract_tb(fault.__traceback__)[-1]
    place = f", in {last.filename}, line {last.lineno}" if os.path.exists(last.filename) else ""
    return f"{type(fault).__name__}: {said}{place}"
