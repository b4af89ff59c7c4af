"""AlfWorld's engine, stepped fast: the transcripts of the stock engine, byte for byte.

The state of the world lives where the stock engine keeps it, in Fast Downward's C library. What is
ours is the way around it: the 25-60 ms of a stock step go into parsing and copying, not playing.
A command's text is derived once per ground action, where it depends on nothing that can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fast_downward
from textworld.generator.game import EntityInfo

from rlanything.environments.alfworld.facts import Assignment, Fact, FactStore, Typed
from rlanything.environments.alfworld.grammar import Grammar, Scope, parse_grammar
from rlanything.environments.alfworld.pddl import player_names
from rlanything.environments.alfworld.translation import Translation, translate

NOTHING_HAPPENS = "Nothing happens."


@dataclass(frozen=True, slots=True)
class View:
    """What the engine shows."""

    text: str
    commands: tuple[str, ...]
    """The admissible ones, sorted."""
    won: bool


@dataclass(slots=True)
class _Action:
    """A ground action of the planner."""

    template: str
    feedback: str
    assignment: Assignment
    variables: dict[str, EntityInfo]
    command: str | None = None
    """Known once derived, and only where no action can change it."""


class Engine:
    """Plays one game at a time; `load` another at will. Creating one costs memory: keep it.

    Every engine owns a copy of the C library, which has one global state. Not thread-safe.
    """

    def __init__(self) -> None:
        self._library = fast_downward.load_lib()
        self._game: Translation
        self._grammar: Grammar
        self._facts: FactStore
        self._entities: dict[str, EntityInfo]
        self._actions: dict[int, _Action]
        self._legal: dict[str, tuple[int, int]]
        self._view: View

    def load(self, game: Mapping[str, Any]) -> None:
        """Takes the content of a `game.tw-pddl`. Raises `ValueError` if it is damaged."""
        missing = [k for k in ("pddl_domain", "pddl_problem", "grammar") if k not in game]
        if missing:
            raise ValueError(f"the game lacks {', '.join(missing)}")
        self._grammar = parse_grammar(game["grammar"])
        self._game = translate(game["pddl_domain"], game["pddl_problem"])
        self._actions = {}
        self._entities = {}

    def reset(self) -> View:
        """Starts the loaded game from the beginning."""
        self._start()
        self._entities = self._entities or _entities(self._game, self._facts)
        text = self._grammar.derive("#intro#", self._scope({}, {}))
        return self._show(text)

    def step(self, command: str) -> View:
        """Only the exact text of an admissible command changes anything."""
        legal = self._legal.get(command.strip())
        if legal is None:
            return View(NOTHING_HAPPENS, self._view.commands, self._view.won)
        number, effects = legal
        self._apply(number, effects)
        action = self._actions[number]
        scope = self._scope(action.assignment, action.variables)
        return self._show(self._grammar.derive(action.feedback, scope))

    def close(self) -> None:
        """Frees the library's copy; the engine is of no use afterwards."""
        fast_downward.close_lib(self._library)

    def _start(self) -> None:
        self._library.load_sas(self._game.sas)
        self._facts = FactStore(self._game.initial, self._game.types)
        atoms = (fast_downward.Atom * self._library.get_state_size())()
        self._library.get_state(atoms)
        for atom in atoms:
            fact = self._fact(atom)
            if not fact.name.startswith("not_"):
                self._facts.add(fact)

    def _apply(self, number: int, effects: int) -> None:
        atoms = (fast_downward.Atom * effects)()
        self._library.apply_operator(number, atoms)
        for atom in atoms:
            fact = self._fact(atom)
            self._facts.remove(fact.negated())
            self._facts.add(fact)

    def _show(self, text: str) -> View:
        self._legal = {}
        operators = (fast_downward.Operator * self._library.get_applicable_operators_count())()
        self._library.get_applicable_operators(operators)
        for operator in operators:
            number = operator.id
            action = self._actions.get(number)
            if action is None:
                action = self._actions[number] = self._ground(operator.name)
            command = action.command or self._derive_command(action)
            # Of two actions with the same words the engine takes the first.
            self._legal.setdefault(command, (number, operator.nb_effect_atoms))
        self._view = View(text, tuple(sorted(self._legal)), self._library.check_goal())
        return self._view

    def _ground(self, name: str) -> _Action:
        name, *arguments = name.split()
        assignment = {
            parameter: Typed(argument, parameter.type)
            for parameter, argument in zip(self._game.parameters[name], arguments, strict=False)
        }
        variables = {ph.name: self._entities[value.name] for ph, value in assignment.items()}
        words = self._grammar.actions[name]
        return _Action(words.template, words.feedback, assignment, variables)

    def _derive_command(self, action: _Action) -> str:
        self._facts.queried.clear()
        scope = self._scope(action.assignment, action.variables)
        command = self._grammar.derive(action.template, scope)
        if self._facts.queried.isdisjoint(self._game.changing):
            action.command = command
        return command

    def _scope(self, assignment: Assignment, variables: dict[str, EntityInfo]) -> Scope:
        return Scope(self._grammar, self._facts, self._entities, assignment, variables)

    def _fact(self, atom: fast_downward.Atom) -> Fact:
        """From `Atom holds(agent1, apple_bar_...)` or `NegatedAtom ...`."""
        kind, _, rest = atom.name.partition(" ")
        name, _, listed = rest.rstrip(")").partition("(")
        types = self._game.object_types
        arguments = tuple(Typed(a, types[a]) for a in listed.split(", ") if a)
        return Fact("not_" + name if kind == "NegatedAtom" else name, arguments)


def _entities(game: Translation, facts: FactStore) -> dict[str, EntityInfo]:
    entities: dict[str, EntityInfo] = {}
    for identity, name in player_names(facts.names()).items():
        entity: Any = EntityInfo(identity, game.object_types[identity])
        entity.name, entity.definite, entity.indefinite = name, "the", "a"
        entities[identity] = entity
    return entities
