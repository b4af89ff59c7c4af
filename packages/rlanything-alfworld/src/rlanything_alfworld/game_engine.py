"""AlfWorld's game engine, made fast: its transcripts equal the stock engine's, byte for byte.

As in the stock engine, the state of the world lives in Fast Downward's C library. The code around
it is new: a stock step takes 25-60 ms, mostly for parsing and copying. A command's text is derived
once per ground action if it does not depend on anything that can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from textworld.generator.game import EntityInfo

from rlanything_alfworld.fact_store import Assignment, Fact, FactStore, Typed
from rlanything_alfworld.grammar import Grammar, Scope, parse_grammar
from rlanything_alfworld.pddl import player_names
from rlanything_alfworld.planner import Operator, Planner
from rlanything_alfworld.translation import Translation, translate

NOTHING_HAPPENS = "Nothing happens."


@dataclass(frozen=True, slots=True)
class GameView:
    """The text, the commands and the outcome that the engine shows after a step."""

    text: str
    commands: tuple[str, ...]
    """The admissible commands, sorted."""
    won: bool


@dataclass(slots=True)
class _Action:
    """A ground action of the planner."""

    template: str
    feedback: str
    assignment: Assignment
    variables: dict[str, EntityInfo]
    command: str | None = None
    """Set once derived, and only if no action can change it."""


class GameEngine:
    """Plays one game at a time; `load` replaces it. Engines that play the same game at the same
    time share the parsed game. Not thread-safe."""

    def __init__(self) -> None:
        self._game: _Game | None = None
        self._facts: FactStore
        self._state: int
        self._legal: dict[str, Operator]
        self._view: GameView

    def load(self, game: Mapping[str, Any]) -> None:
        """Loads the content of a `game.tw-pddl`. Raises `ValueError` if it is damaged."""
        missing = [k for k in ("pddl_domain", "pddl_problem", "grammar") if k not in game]
        if missing:
            raise ValueError(f"the game lacks {', '.join(missing)}")
        self._game = _game(game["pddl_domain"], game["pddl_problem"], game["grammar"])

    def reset(self) -> GameView:
        """Starts the loaded game from the beginning."""
        game = self._loaded()
        self._state = game.planner.start
        self._facts = game.start.copy()
        return self._show(game, game.grammar.derive("#intro#", game.scope(self._facts, {}, {})))

    def step(self, command: str) -> GameView:
        """Plays a command and returns the view after it. Only the exact text of an admissible
        command has an effect."""
        operator = self._legal.get(command.strip())
        if operator is None:
            return GameView(NOTHING_HAPPENS, self._view.commands, self._view.won)
        game = self._loaded()
        self._state, atoms = game.planner.apply(self._state, operator)
        for atom in atoms:
            fact = game.fact(atom)
            self._facts.remove(fact.negated())
            self._facts.add(fact)
        action = game.action(operator)
        scope = game.scope(self._facts, action.assignment, action.variables)
        return self._show(game, game.grammar.derive(action.feedback, scope))

    def close(self) -> None:
        """Releases the game, so that others can use its memory."""
        self._game = None

    def _loaded(self) -> _Game:
        assert self._game is not None, "load a game first"
        return self._game

    def _show(self, game: _Game, text: str) -> GameView:
        self._legal = {}
        for operator in game.planner.operators(self._state):
            action = game.action(operator)
            command = action.command or game.derive_command(action, self._facts)
            # If two actions have the same words, the engine takes the first.
            self._legal.setdefault(command, operator)
        self._view = GameView(text, tuple(sorted(self._legal)), game.planner.won(self._state))
        return self._view


class _Game:
    """The parts of a game that do not change during play."""

    def __init__(self, translation: Translation, grammar: Grammar) -> None:
        self.grammar = grammar
        self.planner = Planner(translation.sas)
        self._translation = translation
        self._actions: dict[int, _Action] = {}
        facts = [self.fact(atom) for atom in self.planner.atoms(self.planner.start)]
        self.start = FactStore(translation.initial, translation.types)
        for fact in facts:
            if not fact.name.startswith("not_"):
                self.start.add(fact)
        self._entities: dict[str, EntityInfo] = {}
        for identity, name in player_names(self.start.names()).items():
            entity: Any = EntityInfo(identity, translation.object_types[identity])
            entity.name = name
            entity.definite = "the"
            entity.indefinite = "a"
            self._entities[identity] = entity

    def action(self, operator: Operator) -> _Action:
        action = self._actions.get(operator.number)
        if action is None:
            action = self._actions[operator.number] = self._ground(operator.name)
        return action

    def derive_command(self, action: _Action, facts: FactStore) -> str:
        facts.queried.clear()
        scope = self.scope(facts, action.assignment, action.variables)
        command = self.grammar.derive(action.template, scope)
        if facts.queried.isdisjoint(self._translation.changing):
            action.command = command
        return command

    def scope(
        self, facts: FactStore, assignment: Assignment, variables: dict[str, EntityInfo]
    ) -> Scope:
        return Scope(self.grammar, facts, self._entities, assignment, variables)

    def fact(self, atom: str) -> Fact:
        """Returns the fact of an atom: `Atom holds(agent1, apple_bar_...)` or `NegatedAtom ...`."""
        kind, _, rest = atom.partition(" ")
        name, _, listed = rest.rstrip(")").partition("(")
        types = self._translation.object_types
        arguments = tuple(Typed(a, types[a]) for a in listed.split(", ") if a)
        return Fact("not_" + name if kind == "NegatedAtom" else name, arguments)

    def _ground(self, name: str) -> _Action:
        name, *arguments = name.split()
        assignment = {
            parameter: Typed(argument, parameter.type)
            for parameter, argument in zip(
                self._translation.parameters[name], arguments, strict=False
            )
        }
        variables = {ph.name: self._entities[value.name] for ph, value in assignment.items()}
        words = self.grammar.actions[name]
        return _Action(words.template, words.feedback, assignment, variables)


_played: WeakValueDictionary[bytes, _Game] = WeakValueDictionary()


def _game(domain: str, problem: str, grammar: str) -> _Game:
    texts = "\0".join((domain, problem, grammar))
    key = blake2b(texts.encode()).digest()
    game = _played.get(key)
    if game is None:
        game = _played[key] = _Game(translate(domain, problem), parse_grammar(grammar))
    return game
