"""TextArena games, created without downloads and played from one seat."""

# The package is an extra, so type checkers may lack it.
# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import nltk

from rlanything.domains.base import DomainError, EpisodeError
from rlanything.domains.text import TextDomain
from rlanything.records import Completion, Messages, Step, Task
from rlanything_gyms.ecosystem import NO_ACTION, GameTurn, silenced
from rlanything_gyms.textarena.opponents import (
    FrozenPolicy,
    OpponentGone,
    Player,
    RoleOptions,
    listed_moves,
)
from rlanything_gyms.winning import BadReward

MOST_MOVES = 1000
"""Consecutive opponents' moves after which a game counts as one without a policy turn."""
_MOST_ANSWERS = 3
"""Consecutive answers of a copy of the policy, without a move in them, that end a game."""


@dataclass(frozen=True, slots=True)
class TextArenaSettings:
    """Options that the games need."""

    players: int
    error_allowance: int
    actions: tuple[str, ...] | Literal["listed"] | None
    """`listed`: the moves that the game offers in brackets at each turn."""
    opponent: Player | None
    """`random`: any of the moves that the game offers it, else of `actions`."""
    prompt: Callable[[Task, Sequence[Step], str], Messages]
    """The policy's prompt, which its copies get as well."""

    @property
    def role(self) -> str:
        """Role of the recipe in the other seat; "" if the opponent is no role."""
        return self.opponent.role if isinstance(self.opponent, RoleOptions) else ""

    @property
    def needs_offers(self) -> bool:
        """Whether the game has to list the possible moves."""
        named = isinstance(self.actions, tuple)
        return self.actions == "listed" or (self.opponent == "random" and not named)


def make_game(id: str, kwargs: Mapping[str, Any], players: int, seed: int) -> Any:
    """Returns a started game. Raises `DomainError` if TextArena cannot create it."""
    try:
        with _without_downloads():
            import textarena

            if id not in textarena.envs.registration.ENV_REGISTRY:
                raise DomainError(
                    f"TextArena has no game {id!r:.80}: use an id that textarena.make takes, such "
                    "as TowerOfHanoi-v0"
                )
            game = textarena.make(id, **kwargs)
            game.reset(num_players=players, seed=seed)
            return game
    except DomainError:
        raise
    except LookupError as fault:
        if "nltk" not in str(fault).lower():
            raise _refused(id, fault) from fault
        raise DomainError(
            f"{id} needs NLTK data that are missing, and nothing is downloaded during a run: "
            "download them first, `python -m nltk.downloader words "
            "averaged_perceptron_tagger_eng`"
        ) from fault
    except AssertionError as fault:
        remedy = "fix domain.options.players, and name an opponent if there are others"
        raise DomainError(f"{id}: {' '.join(str(fault).split())[:200]}: {remedy}") from fault
    except Exception as fault:  # the game's own code may raise anything
        raise _refused(id, fault) from fault


class TextArenaGame:
    """Games seen from the policy's seat: the others move in between, and only new text is shown.
    If the opponent is a role, both seats are shown, each its own text."""

    def __init__(
        self,
        make: Callable[[Mapping[str, Any], int, int], Any],
        kwargs_of: Callable[[Task], Mapping[str, Any]],
        settings: TextArenaSettings,
    ) -> None:
        self._make = make
        self._kwargs_of = kwargs_of
        self._settings = settings
        self._game: Any = None
        self._inner: Any = None
        """The game without its wrappers, which repeat the whole history at every move."""
        self._task = Task("", "")
        self._seat = 0
        """The policy's seat in this episode."""
        self._moved = 0
        """The player that moved last."""
        self._seen: dict[int, str] = {}
        """All text that each of the others has seen."""
        self._unread: dict[int, str] = {}
        """Text that a copy of the policy has not answered yet, by player."""
        self._steps: dict[int, list[Step]] = {}
        """Moves of a copy of the policy, by player. The observation after the last is not in it."""
        self._said: dict[int, str] = {}
        """Text from the game itself, by player; text from players offers no moves."""

    def begin(self, task: Task) -> GameTurn:
        settings = self._settings
        self._task, self._seat = task, int(task.data["seat"])
        self._seen, self._said = {}, {}
        self._unread, self._steps = {}, {}
        self._game = self._make(self._kwargs_of(task), settings.players, int(task.data["seed"]))
        self._inner = self._game
        while hasattr(self._inner, "env"):
            self._inner = self._inner.env
        if hasattr(self._inner.state, "error_allowance"):
            self._inner.state.error_allowance = settings.error_allowance
        return self._turn(done=False)

    def play(self, action: str) -> GameTurn:
        return self._turn(self._step(action))

    def close(self) -> None:
        """Does nothing: there are no resources to release."""
        self._game = self._inner = None

    def _step(self, action: str) -> bool:
        self._moved = self._inner.state.current_player_id
        with _without_downloads():
            done, _ = self._game.step(action=action)
        return bool(done)

    def _turn(self, done: bool) -> GameTurn:
        """Lets the others move until it is the policy's turn or the game is over."""
        for _ in range(MOST_MOVES):
            moving = self._inner.state.current_player_id
            if done:
                return self._ended()
            if moving == self._seat or self._settings.role:
                return self._shown(moving)
            player, messages = self._inner.get_observation()
            _add(self._seen, player, self._told(messages, None))
            _add(self._unread, player, self._told(messages, player))
            _add(self._said, player, _of_the_game(messages))
            done = self._step(self._opponents_move(player))
        raise RuntimeError(f"the others moved {MOST_MOVES} times in a row")

    def _opponents_move(self, player: int) -> str:
        settings = self._settings
        try:
            if isinstance(settings.opponent, FrozenPolicy):
                return self._copys_move(settings.opponent, player)
            if callable(settings.opponent):
                return settings.opponent(self._seen[player])
        except OpponentGone as fault:  # no move of the policy's can reach its server
            raise EpisodeError(self._task.id, str(fault)) from fault
        named = settings.actions if isinstance(settings.actions, tuple) else ()
        moves = listed_moves(self._said[player]) or named
        if not moves:
            raise EpisodeError(self._task.id, f"the game offers player {player} no moves to draw")
        return random.choice(moves)

    def _copys_move(self, copy: FrozenPolicy, player: int) -> str:
        """Returns the move of a copy of the policy, which is asked as the policy would be in its
        seat."""
        steps = self._steps.setdefault(player, [])
        for _ in range(_MOST_ANSWERS):
            seen = self._unread.pop(player, NO_ACTION)
            if steps:
                steps[-1] = replace(steps[-1], next_observation=seen)
            chat = self._settings.prompt(self._task, steps, seen)
            response = copy.respond(chat, self._choices(player))
            action = TextDomain.action_in(response)
            steps.append(Step(seen, Completion.unsampled(response), action, True, ""))
            if action is not None:
                return action
        reason = f"the copy of the policy in seat {player} gave {_MOST_ANSWERS} answers without a"
        raise EpisodeError(
            self._task.id, f"{reason} move: serve one that writes {TextDomain.action_marker} MOVE"
        )

    def _shown(self, seat: int) -> GameTurn:
        text, valid = self._news(seat)
        player = "" if seat == self._seat else self._settings.role
        return GameTurn(text, self._choices(seat), valid=valid, player=player)

    def _ended(self) -> GameTurn:
        seat, role = self._seat, self._settings.role
        text, valid = self._news(seat)
        rewards, info = self._game.close()
        for player, ended in (info or {}).items():
            if player != seat and not role and ended.get("invalid_move"):
                raise EpisodeError(self._task.id, _forfeit(player, ended.get("reason")))
        if not isinstance(rewards, Mapping) or seat not in rewards:
            raise BadReward(f"it ended with rewards {rewards!r:.80}, and none for seat {seat}")
        reason = (info or {}).get(seat, {}).get("reason")
        text = "\n".join(filter(None, [text, str(reason or "")])) or "The game is over."
        valid = valid and not (info or {}).get(self._moved, {}).get("invalid_move")
        others = {role: rewards.get(1 - seat, 0.0)} if role else {}
        return GameTurn(text, None, rewards[seat], True, valid=valid, others=others)

    def _news(self, seat: int) -> tuple[str, bool]:
        """Returns what a seat has not been shown yet, and whether the last move was possible."""
        state = self._inner.state
        messages = state.observations[seat]
        state.observations[seat] = []
        _add(self._said, seat, _of_the_game(messages))
        return self._told(messages, seat), not _complained(messages)

    def _choices(self, player: int) -> tuple[str, ...] | None:
        actions = self._settings.actions
        return actions if actions != "listed" else listed_moves(self._said[player]) or None

    def _told(self, messages: Any, reader: int | None) -> str:
        """Returns messages as text. `reader`: the player in whose transcript its own moves are
        already; None: none has a transcript."""
        from textarena import GAME_ID, ObservationType

        roles = self._inner.state.role_mapping
        own = {reader, *([GAME_ID] if self._settings.players == 1 else [])}
        lines = [
            text if sender == GAME_ID else f"{roles.get(sender, f'Player {sender}')}: {text}"
            for sender, text, kind in messages
            if not (reader is not None and kind == ObservationType.PLAYER_ACTION and sender in own)
        ]
        return "\n".join(lines).strip()


def offers_moves(game: Any) -> bool:
    """Returns whether a game that has just begun lists the possible moves."""
    while hasattr(game, "env"):
        game = game.env
    return bool(listed_moves(_of_the_game(game.get_observation()[1])))


def _add(known: dict[int, str], player: int, news: str) -> None:
    known[player] = f"{known.get(player, '')}\n{news}".strip()


def _of_the_game(messages: Any) -> str:
    """Returns the game's own messages, without those of players."""
    from textarena import GAME_ID

    return "\n".join(text for sender, text, _ in messages if sender == GAME_ID)


def _forfeit(player: int, reason: Any) -> str:
    """Returns why an episode counts neither way: a win by forfeit would teach nothing."""
    said = " ".join(str(reason or "no reason is given").split())[:120]
    return (
        f"an invalid move of the opponent (player {player}: {said}) ended the game; such games "
        "count neither way: name an opponent that knows the rules"
    )


def _complained(messages: Any) -> bool:
    """Returns whether the game rejected the last move as invalid."""
    from textarena import ObservationType

    return any(
        kind == ObservationType.GAME_ADMIN and "invalid move" in text.lower()
        for _, text, kind in messages
    )


@contextlib.contextmanager
def _without_downloads() -> Iterator[None]:
    """Prevents games from downloading data, which some do on import, and from printing."""
    download = nltk.download
    nltk.download = lambda *_, **__: False
    try:
        with silenced():
            yield
    finally:
        nltk.download = download


def _refused(id: str, fault: Exception) -> DomainError:
    said = " ".join(str(fault).split())[:300].rstrip(".")
    return DomainError(f"TextArena's {id} fails ({type(fault).__name__}: {said}): fix its options")
