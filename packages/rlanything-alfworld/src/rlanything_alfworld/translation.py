"""A game's PDDL in the form that the planner's C library reads, translated once per process.

The stock engine translates twice per load and twice per reset (0.1-0.6 s): once for play, and once
for a planner that play never calls. Here a game is translated once.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import fast_downward
from fast_downward.translate import pddl
from textworld.logic import Type, TypeHierarchy

from rlanything_alfworld.fact_store import Fact, Typed

CACHED_GAMES = 256
"""Number of translations to keep, of about 0.4 MB each."""


# The translator's output for a game whose goal it finds unreachable.
_UNREACHABLE = "Atom dummy(val1)"


@dataclass(frozen=True, slots=True)
class Translation:
    sas: bytes
    types: TypeHierarchy
    object_types: Mapping[str, str]
    parameters: Mapping[str, tuple[Typed, ...]]
    """Parameters of each action, in the planner's order."""
    initial: tuple[Fact, ...]
    """The problem's own facts; the planner's state adds the rest."""
    changing: frozenset[str]
    """The predicates that an action can change, and their negations."""


_cache: OrderedDict[bytes, Translation] = OrderedDict()


def translate(domain: str, problem: str) -> Translation:
    """Returns a game's translation. Raises `ValueError` if the PDDL cannot be read or the goal is
    impossible."""
    key = blake2b(f"{len(domain)} {domain}{problem}".encode()).digest()
    if key not in _cache:
        _cache[key] = _translate(domain, problem)
        if len(_cache) > CACHED_GAMES:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return _cache[key]


def _translate(domain: str, problem: str) -> Translation:
    with _contained():
        try:
            # Wrongly annotated: it returns the parsed task as well as the text.
            translated: Any = fast_downward.pddl2sas(domain, problem)
        except (Exception, SystemExit) as fault:  # the parser may raise anything, and may exit
            raise ValueError(f"the game's PDDL cannot be read: {fault!r}") from fault
    task, sas = translated
    if _UNREACHABLE in sas:
        raise ValueError("the game's goal is impossible: no action could ever bring it about")
    types = TypeHierarchy()
    for known in task.types:
        if known.name not in {added.name for added in types}:  # PDDL's own `object` comes first
            types.add(Type(known.name, known.supertype_names))
    object_types = {o.name: o.type_name for o in task.objects}
    changed = {e.literal.predicate for action in task.actions for e in action.effects}
    changed |= {axiom.name for axiom in task.axioms}
    return Translation(
        sas=sas.encode(),
        types=types,
        object_types=object_types,
        parameters={
            action.name: tuple(Typed(p.name.strip("?"), p.type_name) for p in action.parameters)
            for action in task.actions
        },
        initial=tuple(_initial_facts(task.init, object_types)),
        changing=frozenset(changed | {"not_" + name for name in changed}),
    )


def _initial_facts(statements: list[Any], object_types: Mapping[str, str]) -> Iterator[Fact]:
    for statement in statements:
        if isinstance(statement, pddl.Atom) and statement.predicate != "=":
            name, arguments = statement.predicate, statement.args
        elif isinstance(statement, pddl.Assign) and statement.fluent.symbol != "total-cost":
            name, arguments = str(statement.expression.value), statement.fluent.args
            if name.isdigit():  # a distance
                continue
        else:
            continue
        yield Fact(name, tuple(Typed(argument, object_types[argument]) for argument in arguments))


@contextmanager
def _contained() -> Iterator[None]:
    """Restores `sys.argv` and `sys.stdout`: the translator overwrites the former and replaces the
    latter."""
    arguments, output = sys.argv, sys.stdout
    try:
        yield
    finally:
        sys.argv, sys.stdout = arguments, output
