"""The textarena domain: any TextArena game, alone or against an opponent, from one seat or from
each in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import Field

from rlanything.domains.base import Capabilities, CodeName, DomainError
from rlanything.records import Task
from rlanything_gyms.ecosystem import (
    EcosystemDomain,
    EcosystemEnvironment,
    EcosystemOptions,
    EpisodeRules,
    action_names,
    actions_line,
)
from rlanything_gyms.textarena.game import (
    TextArenaGame,
    TextArenaSettings,
    make_game,
    offers_moves,
)
from rlanything_gyms.textarena.opponents import OpponentOption, RoleOptions, opponent_of
from rlanything_gyms.winning import WinRule


class TextArenaDomain(EcosystemDomain):
    """Episodes of a TextArena game.

    A game that ends by an opponent's invalid move counts neither way. Raises `DomainError` for
    options that do not fit the game, and for games that need to download NLTK data."""

    class Options(EcosystemOptions):
        id: CodeName
        """As for `textarena.make`."""
        kwargs: Mapping[str, Any] = Field(default_factory=dict)
        """Further arguments of `textarena.make`."""
        opponent: OpponentOption = None
        """Player of the other seats: `random` (any move that the game offers, else one of
        `actions`), `module:function` of the text that a player sees, a frozen model `{url, model,
        decoding, key_variable}`, or a second role that acts `{role}`; None: a game for one."""
        players: int | None = None
        """Number of players; None: 1, or 2 with an opponent."""
        seat: int | Literal["alternate"] = 0
        """The policy's seat; `alternate`: each seat in as many tasks as the others."""
        win_at: Any = 1.0
        """Reward from which a game is won."""
        actions: Sequence[Any] | str | None = None
        """Moves to choose among, or `listed`: the moves that the game lists as possible (`Available
        moves: [a], [b]`); None: any text."""
        error_allowance: int = 1
        """Number of consecutive invalid moves that are forgiven."""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        win_at, horizon, opponent = chosen.win_at, chosen.horizon, chosen.opponent
        seat, players, error_allowance = chosen.seat, chosen.players, chosen.error_allowance
        super().__init__(chosen.id, chosen.instruction, chosen.ood)
        self._rules = EpisodeRules.read(WinRule.at(win_at), None, horizon)
        if horizon is not None and win_at <= 0:
            raise DomainError(
                f"win_at is {win_at} and horizon {horizon}: a game that is cut off has 0 and would "
                "be won; raise win_at, or leave horizon out"
            )
        players = (1 if opponent is None else 2) if players is None else players
        self._seats = range(players) if seat == "alternate" else (seat,)
        for name, value, least in (
            ("players", players, 1),
            ("seat", min(self._seats, default=0), 0),
            ("error_allowance", error_allowance, 0),
        ):
            if value < least:
                raise DomainError(f"{name} is {value!r:.80}: write a number from {least} on")
        if players > 1 and opponent is None:
            raise DomainError(f"players is {players}: name an opponent, who plays the others")
        if seat == "alternate" and players == 1:
            raise DomainError("seat is alternate, of 1: name an opponent, or leave seat out")
        if max(self._seats) >= players:
            raise DomainError(f"seat is {seat}, of {players}: seats are counted from 0")
        if isinstance(opponent, RoleOptions) and players != 2:
            raise DomainError(f"players is {players}: a role plays one other seat, so write 2")
        self._kwargs = chosen.kwargs
        self._settings = TextArenaSettings(
            players=players,
            error_allowance=error_allowance,
            actions=_actions(chosen.actions),
            opponent=opponent_of(opponent),
            prompt=self.policy_prompt,
        )
        for settings in self.all_settings(chosen.kwargs):
            game = make_game(self._name, settings, players, 0)
            if self._settings.needs_offers and not offers_moves(game):
                raise DomainError(
                    f"{self._name} does not say which moves are possible: write those that there "
                    "are in domain.options.actions, or leave actions out and name an opponent of "
                    "your own (module:function, or {url, model})"
                )
        if isinstance(self._settings.actions, tuple):
            self._instruction += f"\n{actions_line(self._settings.actions)}"

    @property
    def capabilities(self) -> Capabilities:
        role = self._settings.role
        return replace(super().capabilities, players=(role,) if role else ())

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        """Returns tasks as for all domains of this kind. All episodes of a task have one seat."""
        drawn = super().tasks(split, count, seed)
        return [self._seated(task, number % len(self._seats)) for number, task in enumerate(drawn)]

    def environment(self) -> EcosystemEnvironment:
        def kwargs_of(task: Task) -> Mapping[str, Any]:
            return self.settings(task.data, self._kwargs)

        make = partial(make_game, self._name)
        return EcosystemEnvironment(TextArenaGame(make, kwargs_of, self._settings), self._rules)

    def _seated(self, task: Task, turn: int) -> Task:
        """Returns a task in one of the policy's seats; with several, its kind says which."""
        seat = self._seats[turn]
        task = replace(task, data={**task.data, "seat": seat})
        if len(self._seats) == 1:
            return task
        return replace(task, id=f"{task.id}-seat-{seat}", kind=f"{task.kind}, seat {seat}")


def _actions(actions: Any) -> tuple[str, ...] | Literal["listed"] | None:
    return actions if actions in (None, "listed") else action_names(actions)
