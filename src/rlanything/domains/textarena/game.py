"""TextArena games, made without downloads and played from one seat."""

# An extra, which type checkers need not have.
# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import nltk

from rlanything.domains.base import DomainError
from rlanything.domains.ecosystem import GameTurn, silenced
from rlanything.domains.textarena.opponents import Opponent, listed_moves
from rlanything.domains.winning import BadReward
from rlanything.records import Task

MOST_MOVES = 1000
"""Moves of opponents in a row at which a game is taken for one that never comes to the policy."""


@dataclass(frozen=True, slots=True)
class TextArenaSettings:
    """The part of a domain's options that its games need."""

    players: int
    seat: int
    error_allowance: int
    actions: tuple[str, ...] | Literal["listed"] | None
    """`listed`: those that the game lists in brackets at each turn."""
    opponent: Opponent | None


def make_game(id: str, kwargs: Mapping[str, Any], players: int, seed: int) -> Any:
    """Returns a game that has begun. Raises `DomainError` for one that TextArena does not make."""
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
            f"{id} needs data of NLTK that are not here, and nothing is downloaded while a run is "
            "under way: get them beforehand, `python -m nltk.downloader words "
            "averaged_perceptron_tagger_eng`"
        ) from fault
    except AssertionError as fault:
        remedy = "mend domain.options.players, and name an opponent where there are others"
        raise DomainError(f"{id}: {' '.join(str(fault).split())[:200]}: {remedy}") from fault
    except Exception as fault:  # whatever the game's own code raises
        raise _refused(id, fault) from fault


class TextArenaGame:
    """Games seen from the policy's seat: the moves of others are made in between, and only what is
    new is shown."""

    def __init__(
        self,
        make: Callable[[Mapping[str, Any], int, int], Any],
        kwargs_of: Callable[[Task], Mapping[str, Any]],
        settings: TextArenaSettings,
    ) -> None:
        self._make, self._kwargs_of, self._settings = make, kwargs_of, settings
        self._game: Any = None
        self._inner: Any = None
        """The game without the wrappers, which repeat the whole history at every move."""
        self._seen: dict[int, str] = {}
        """All that each of the others has seen."""

    def begin(self, task: Task) -> GameTurn:
        settings = self._settings
        self._seen = {}
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
        """Holds nothing beyond memory."""
        self._game = self._inner = None

    def _step(self, action: str) -> bool:
        with _without_downloads():
            done, _ = self._game.step(action=action)
        return bool(done)

    def _turn(self, done: bool) -> GameTurn:
        """Has the others move until it is the policy's turn or the game is over."""
        settings = self._settings
        for _ in range(MOST_MOVES):
            state = self._inner.state
            if done or state.current_player_id == settings.seat:
                return self._shown(done)
            assert settings.opponent is not None
            player, messages = self._inner.get_observation()
            news = self._told(messages, own=False)
            self._seen[player] = f"{self._seen.get(player, '')}\n{news}".strip()
            done = self._step(settings.opponent(self._seen[player]))
        raise RuntimeError(f"the others moved {MOST_MOVES} times in a row")

    def _shown(self, done: bool) -> GameTurn:
        seat, state = self._settings.seat, self._inner.state
        messages, state.observations[seat] = state.observations[seat], []
        text, valid = self._told(messages, own=True), not _complained(messages)
        if not done:
            return GameTurn(text, self._choices(text), valid=valid)
        rewards, info = self._game.close()
        own = (info or {}).get(seat, {})
        if not isinstance(rewards, Mapping) or seat not in rewards:
            raise BadReward(f"it ended with rewards {rewards!r:.80}, and none for seat {seat}")
        text = "\n".join(filter(None, [text, str(own.get("reason") or "")]))
        valid = valid and not own.get("invalid_move")
        return GameTurn(text or "The game is over.", None, rewards[seat], True, valid=valid)

    def _choices(self, text: str) -> tuple[str, ...] | None:
        actions = self._settings.actions
        return (listed_moves(text) or None) if actions == "listed" else actions

    def _told(self, messages: Any, own: bool) -> str:
        """Returns messages as text. `own`: for the policy, whose own moves its transcript has."""
        from textarena import GAME_ID, ObservationType

        settings, roles = self._settings, self._inner.state.role_mapping
        mine = {settings.seat, *([GAME_ID] if settings.players == 1 else [])}
        lines = [
            text if sender == GAME_ID else f"{roles.get(sender, f'Player {sender}')}: {text}"
            for sender, text, kind in messages
            if not (own and kind == ObservationType.PLAYER_ACTION and sender in mine)
        ]
        return "\n".join(lines).strip()


def _complained(messages: Any) -> bool:
    """Returns whether the game called the last move invalid."""
    from textarena import ObservationType

    return any(
        kind == ObservationType.GAME_ADMIN and "invalid move" in text.lower()
        for _, text, kind in messages
    )


@contextlib.contextmanager
def _without_downloads() -> Iterator[None]:
    """Keeps games from downloading data, as some do when they are imported, and from printing."""
    download = nltk.download
    nltk.download = lambda *_, **__: False
    try:
        with silenced():
            yield
    finally:
        nltk.download = download


def _refused(id: str, fault: Exception) -> DomainError:
    said = " ".join(str(fault).split())[:300].rstrip(".")
    return DomainError(f"TextArena's {id} fails ({type(fault).__name__}: {said}): mend its options")
