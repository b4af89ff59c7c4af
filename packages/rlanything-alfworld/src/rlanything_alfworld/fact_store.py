"""The facts of one episode, and the conjunctive queries that a game's grammar makes.

Returns the answers of `textworld.logic.State.all_assignments`, in the same order, from plain
tuples. TextWorld's own propositions are kept forever by their class, which costs time and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from textworld.logic import Rule, TypeHierarchy


class Typed(NamedTuple):
    """An object of the game, or a placeholder for one in a query."""

    name: str
    type: str


Arguments: TypeAlias = tuple[Typed, ...]
Signature: TypeAlias = tuple[str, tuple[str, ...]]
"""A predicate's name and the types of its arguments."""
Assignment: TypeAlias = dict[Typed, Typed]
"""Placeholder to object."""


class Fact(NamedTuple):
    name: str
    arguments: Arguments

    @property
    def signature(self) -> Signature:
        return self.name, tuple(argument.type for argument in self.arguments)

    def negated(self) -> Fact:
        if self.name.startswith("not_"):
            return Fact(self.name.removeprefix("not_"), self.arguments)
        return Fact("not_" + self.name, self.arguments)


Query: TypeAlias = tuple[Fact, ...]
"""Conditions that must hold together; their arguments are placeholders."""


@lru_cache(maxsize=1024)
def parse_query(expression: str) -> Query:
    """Returns a query such as `holds(a:agent, o:object) & ishot(o:object)`. Parsing takes a
    millisecond or more."""
    rule = Rule.parse_conjunctive_query(expression)
    return tuple(
        Fact(
            condition.name,
            tuple(
                Typed(placeholder.name, placeholder.type) for placeholder in condition.parameters
            ),
        )
        for condition in rule.preconditions
    )


class FactStore:
    """The facts that hold now. `queried` collects the names of the queried predicates."""

    def __init__(self, facts: Iterable[Fact], types: TypeHierarchy) -> None:
        self._types = types
        self._arguments: dict[Signature, set[Arguments]] = {}
        self.queried: set[str] = set()
        for fact in facts:
            self.add(fact)

    def add(self, fact: Fact) -> None:
        self._arguments.setdefault(fact.signature, set()).add(fact.arguments)

    def remove(self, fact: Fact) -> None:
        self._arguments.get(fact.signature, set()).discard(fact.arguments)

    def copy(self) -> FactStore:
        copied = FactStore((), self._types)
        copied._arguments = {name: set(known) for name, known in self._arguments.items()}
        return copied

    def names(self) -> set[str]:
        """Returns the names of all objects that take part in a fact."""
        return {
            argument.name
            for known in self._arguments.values()
            for arguments in known
            for argument in arguments
        }

    def holds(self, query: Query, given: Mapping[Typed, Typed]) -> bool:
        return next(self.assignments(query, given), None) is not None

    def assignments(self, query: Query, given: Mapping[Typed, Typed]) -> Iterator[Assignment]:
        """Yields every way to fill the placeholders, including `given`; no object fills two of
        them."""
        return self._extend(query, dict(given), set(given.values()))

    def _extend(self, query: Query, chosen: Assignment, used: set[Typed]) -> Iterator[Assignment]:
        if not query:
            yield chosen.copy()
            return
        condition, rest = query[0], query[1:]
        self.queried.add(condition.name)
        for signature in self._signatures(condition):
            for arguments in sorted(self._arguments.get(signature, ())):
                added: list[Typed] = []
                for placeholder, value in zip(condition.arguments, arguments, strict=True):
                    known = chosen.get(placeholder)
                    if known is None:
                        if value in used:
                            break
                        chosen[placeholder] = value
                        used.add(value)
                        added.append(placeholder)
                    elif known != value:
                        break
                else:
                    yield from self._extend(rest, chosen, used)
                for placeholder in added:
                    used.discard(chosen.pop(placeholder))

    def _signatures(self, condition: Fact) -> Iterator[Signature]:
        types = [self._types.get(argument.type) for argument in condition.arguments]
        for subtypes in self._types.multi_subtypes(types):
            yield condition.name, tuple(subtype.name for subtype in subtypes)
