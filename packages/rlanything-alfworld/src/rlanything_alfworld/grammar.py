"""The text of a game: TextWorld's context-sensitive grammar, parsed once and then run.

The stock engine parses each command template again for every admissible command of every step, and
deep-copies the context of every symbol. Here a right-hand side is parsed once per process (by
TextWorld's own parser) into a function of its scope, and contexts share their unchanged parts.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from tatsu.exceptions import ParseException
from textworld.envs.pddl import textgen
from textworld.envs.pddl.logic import GameLogic
from textworld.generator.game import EntityInfo

from rlanything_alfworld.fact_store import Assignment, FactStore, parse_query


@dataclass(slots=True)
class Scope:
    """Everything that a derivation may read."""

    grammar: Grammar
    facts: FactStore
    entities: Mapping[str, EntityInfo]
    assignment: Assignment
    variables: dict[str, EntityInfo]

    def matches(self, condition: str) -> list[Scope]:
        """Returns one narrower scope for each way in which the condition holds."""
        return [
            Scope(
                self.grammar,
                self.facts,
                self.entities,
                filled,
                self.variables
                | {placeholder.name: self.entities[v.name] for placeholder, v in filled.items()},
            )
            for filled in self.facts.assignments(parse_query(condition), self.assignment)
        ]


Piece: TypeAlias = Callable[[Scope], str]
"""A parsed part of a right-hand side."""


@dataclass(frozen=True, slots=True)
class Production:
    condition: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ActionText:
    """The template of an action's command, and the symbol of its feedback."""

    template: str
    feedback: str


@dataclass(frozen=True, slots=True)
class Grammar:
    productions: Mapping[str, Sequence[Production]]
    actions: Mapping[str, ActionText]

    def derive(self, text: str, scope: Scope) -> str:
        """Returns the text with its symbols replaced until none is left."""
        return "".join([piece(scope) for piece in _pieces(text)])

    def expand(self, symbol: str, scope: Scope) -> str:
        """Returns the expansion of a symbol. Raises `KeyError` if no production applies."""
        for production in self.productions.get(symbol, ()):
            condition = production.condition
            if not condition or scope.facts.holds(parse_query(condition), scope.assignment):
                return "".join([piece(scope) for piece in production.pieces])
        raise KeyError(f"the game's grammar has no text for #{symbol}# here")


_GRAMMAR_BLOCK = re.compile(r'(grammar\s*::\s*)"""(.*?)"""', re.DOTALL)


def parse_grammar(document: str) -> Grammar:
    """Returns a game's grammar (`.twl2`). Games differ only in the task sentence: the rest is
    parsed once.

    Raises `ValueError` if it cannot be parsed."""
    try:
        return _parse(document)
    except (ParseException, SyntaxError, KeyError, TypeError, ValueError) as fault:
        reason = str(fault).partition("\n")[0]
        raise ValueError(f"the game's grammar cannot be read: {reason}") from fault


def _parse(document: str) -> Grammar:
    blocks: list[str] = _GRAMMAR_BLOCK.sub("\0\\2\0", document).split("\0")[1::2]
    skeleton = _GRAMMAR_BLOCK.sub('\\1"""{}"""', document)
    productions: dict[str, Any] = {}
    for block in blocks:
        lines = textwrap.dedent(block).split("\n")
        productions |= json.loads("\n".join(x for x in lines if not x.lstrip().startswith("#")))
    return Grammar(
        {
            symbol: tuple(
                Production(choice.get("condition", ""), _pieces(choice["rhs"]))
                for choice in choices
            )
            for symbol, choices in productions.items()
        },
        _parse_actions(skeleton),
    )


@lru_cache(maxsize=16)
def _parse_actions(skeleton: str) -> Mapping[str, ActionText]:
    logic = GameLogic(domain="", grammar=skeleton)
    for action in logic.actions.values():  # the fault of a file is named before a game begins
        _pieces(action.template)
        _pieces(action.feedback_rule)
    return {
        name: ActionText(action.template, action.feedback_rule)
        for name, action in logic.actions.items()
    }


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[Piece, ...]:
    # TextWorld has no public function to parse a single right-hand side.
    symbols: Any = textgen._parse_and_convert(text, rule_name="symbols")
    return tuple(_compile(symbol) for symbol in symbols)


def _compile(symbol: Any) -> Piece:
    match symbol:
        case textgen.TerminalSymbol():
            literal = str(symbol.symbol)
            return lambda scope: literal
        case textgen.NonterminalSymbol():
            name = str(symbol.symbol)
            return lambda scope: scope.grammar.expand(name, scope)
        case textgen.EvalSymbol():
            value = _value_of(ast.parse(symbol.expression, mode="eval").body)
            return lambda scope: str(value(scope.variables))
        case textgen.ConditionalSymbol():
            pieces = _compile_conditional(symbol)
            return lambda scope: "".join(pieces(scope))
        case textgen.ListSymbol():
            items = _compile_conditional(symbol.symbol)
            return lambda scope: _enumerate(items(scope), scope)
        case _:
            raise TypeError(f"unknown grammar symbol {symbol!r}")


def _value_of(node: ast.expr) -> Callable[[Mapping[str, EntityInfo]], Any]:
    """Returns an expression in braces as a function of the variables: of entities and their fields,
    such as `x.name`, of texts, `+` and `or`. TextWorld runs any Python there. Raises `ValueError`
    for the rest."""
    match node:
        case ast.Constant(str(text)):
            return lambda variables: text
        case ast.Name(name):
            return lambda variables: variables[name]
        case ast.Attribute(ast.Name(name), field) if field in EntityInfo.__slots__:
            return lambda variables: getattr(variables[name], field)
        case ast.BinOp(left, ast.Add(), right):
            begin, end = _value_of(left), _value_of(right)
            return lambda variables: begin(variables) + end(variables)
        case ast.BoolOp(ast.Or(), nodes):
            values = [_value_of(each) for each in nodes]
            return lambda variables: reduce(lambda one, of: one or of(variables), values, "")
        case _:
            raise ValueError(f"{{{ast.unparse(node)}}} is no text, field, sum or choice by `or`")


def _compile_conditional(symbol: Any) -> Callable[[Scope], list[str]]:
    piece, condition = _compile(symbol.expression), symbol.given
    if not condition:
        return lambda scope: [piece(scope)]
    return lambda scope: [piece(narrower) for narrower in scope.matches(condition)]


def _enumerate(items: list[str], scope: Scope) -> str:
    if not items:
        return scope.grammar.expand("list_empty", scope)
    if len(items) == 1:
        return items[0]
    comma = scope.grammar.expand("list_separator", scope)
    conjunction = scope.grammar.expand("list_last_separator", scope)
    return comma.join(items[:-1]) + conjunction + items[-1]
